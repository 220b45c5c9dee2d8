"""Factors and triangular systems of a few rows: arithmetic that agrees with LAPACK's routines."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.expand.batched_factors import ROWS, UPDATES
from nestwright.ir.hlo.passes.expand.small_factors import SOLVED, expand_small_factors
from nestwright.ir.hlo.text import parse
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call
from nestwright.ir.library.solvers import factor

BATCHES = [(), (3,), (2, 3)]


def shape(dims: tuple[int, ...], t: str = "f32") -> str:
    return f"{t}[{','.join(map(str, dims))}]"


def called(target: str, out: str, config: str, *operands: str) -> HloModule:
    given = "\n".join(f"  x{n} = {o} parameter({n})" for n, o in enumerate(operands))
    names = ", ".join(f"x{n}" for n in range(len(operands)))
    return parse(
        f"HloModule m\nENTRY e {{\n{given}\n  ROOT r = {out} custom-call({names}), "
        f'custom_call_target="{target}", backend_config={{{config}}}\n}}'
    )


def solving(a: str, b: str, **flags: Any) -> HloModule:
    told = ", ".join(f"{k}={str(bool(v)).lower() if v in (0, 1) else v}" for k, v in flags.items())
    return parse(
        f"HloModule m\nENTRY e {{\n  a = {a} parameter(0)\n  b = {b} parameter(1)\n"
        f"  ROOT x = {b} triangular-solve(a, b), {told}\n}}"
    )


def calls(module: HloModule) -> set[str]:
    """The library operations of a module."""
    found = {i.opcode for c in module.computations for i in c.instructions}
    return found & {"custom-call", "triangular-solve", "cholesky"}


def agrees(module: HloModule, *args: Array, rtol: float = 2e-5) -> list[Array]:
    """What is compiled, which calls no routine, is what the interpreter's routines give."""
    expanded = expand_small_factors(module)
    assert calls(module) and not calls(expanded)
    want = evaluate(module, list(args))
    built = nw.build(module)(*args)
    for found in (evaluate(expanded, list(args)), built):
        pairs = zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
        for got, wanted in pairs:
            if wanted.dtype.kind == "i":
                np.testing.assert_array_equal(got, wanted)
            else:
                np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
    return list(built) if isinstance(built, tuple) else [built]


def drawn(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def positive(*dims: int) -> Array:
    a = drawn(*dims).astype(np.float64)
    return (a @ a.swapaxes(-1, -2) + np.eye(dims[-1])).astype(np.float32)


def getrf(dims: tuple[int, ...], t: str = "f32") -> HloModule:
    *batch, m, n = dims
    pivots, info = shape((*batch, min(m, n)), "s32"), shape(tuple(batch), "s32")
    letter = {"f32": "s", "f64": "d", "c64": "c"}[t]
    return called(
        f"lapack_{letter}getrf_ffi", f"({shape(dims, t)}, {pivots}, {info})", "", shape(dims, t)
    )


@pytest.mark.parametrize(
    ("batch", "sides"),
    [
        *(((3,), sides) for sides in ((1, 1), (2, 2), (4, 4), (4, 2), (2, 4))),
        *((batch, (3, 3)) for batch in BATCHES),
    ],
    ids=str,
)
def test_lu_factors(batch: tuple[int, ...], sides: tuple[int, int]) -> None:
    agrees(getrf((*batch, *sides)), drawn(*batch, *sides))


def test_the_first_of_equal_pivots_counts_and_the_first_zero_is_told() -> None:
    a = np.float32(
        [
            [[1, 2, 3], [-1, 0, 1], [1, 1, 2]],
            [[0, 1, 2], [0, 3, 4], [0, 5, 6]],
            [[1, 2, 3], [2, 4, 6], [4, 8, 12]],
            [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
            [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        ]
    )
    lu, pivots, info = agrees(getrf(a.shape), a)
    assert list(info) == [0, 1, 2, 1, 0] and pivots[0, 0] == 1
    np.testing.assert_array_equal(lu[3], a[3])


def test_lu_factors_of_f64() -> None:
    a = drawn(5, 4, 4).astype(np.float64)
    agrees(getrf(a.shape, "f64"), a, rtol=1e-13)


@pytest.mark.parametrize(("batch", "letter"), [((), "L"), ((3,), "U"), ((2, 3), "L")], ids=str)
def test_cholesky_factors_of_lapack(batch: tuple[int, ...], letter: str) -> None:
    a = positive(*batch, 4, 4)
    out = f"({shape(a.shape)}, {shape(batch, 's32')})"
    module = called("lapack_spotrf_ffi", out, f"uplo = {ord(letter)} : ui8", shape(a.shape))
    agrees(module, a)


def test_info_is_the_first_row_without_a_factor() -> None:
    a = positive(4, 3, 3)
    a[1, 1, 1], a[2, 0, 0], a[3, 2, 2] = -9, np.nan, -9
    out = f"({shape(a.shape)}, {shape((4,), 's32')})"
    module = called("lapack_spotrf_ffi", out, f"uplo = {ord('L')} : ui8", shape(a.shape))
    found, info = nw.build(module)(a)
    assert list(info) == [0, 2, 1, 3]
    np.testing.assert_allclose(found[0], evaluate(module, [a])[0][0], rtol=1e-5)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
def test_cholesky_reads_one_triangle_and_zeroes_the_other(
    batch: tuple[int, ...], lower: bool
) -> None:
    a = positive(*batch, 4, 4)
    half = (np.tril if lower else np.triu)(a) + (np.triu if lower else np.tril)(
        np.full_like(a, np.nan), 1 if lower else -1
    )
    text = f"HloModule m\nENTRY e {{\n  a = {shape(a.shape)} parameter(0)\n"
    text += f"  ROOT r = {shape(a.shape)} cholesky(a), lower={str(lower).lower()}\n}}"
    (found,) = agrees(parse(text), half)
    left, right = (found, found.swapaxes(-1, -2)) if lower else (found.swapaxes(-1, -2), found)
    np.testing.assert_allclose(left @ right, a, rtol=1e-4, atol=1e-4)


def test_what_is_not_positive_definite_is_nan_everywhere() -> None:
    """As the routine's function gives it, which larger matrices go to."""
    a = positive(4, 3, 3)
    a[1, 2, 2], a[2, 0, 0], a[3, 1, 1] = -5, np.nan, np.inf
    text = "HloModule m\nENTRY e {\n  a = f32[4,3,3] parameter(0)\n"
    found = nw.build(parse(text + "  ROOT r = f32[4,3,3] cholesky(a), lower=true\n}"))(a)
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all()
    np.testing.assert_allclose(found, factor(a, True), rtol=1e-5)


WAYS = list(itertools.product(("NO_TRANSPOSE", "TRANSPOSE"), *[(True, False)] * 3))
WAYS += [("ADJOINT", True, True, False), ("ADJOINT", False, False, True)]


@pytest.mark.parametrize(("turned", "left", "lower", "unit"), WAYS)
def test_triangular_systems(turned: str, left: bool, lower: bool, unit: bool) -> None:
    ends = (((), 3, 5), ((5,), 1, 2)) if lower else (((2, 3), 4, 1),)
    for batch, n, m in (((4,), SOLVED, 3), *ends):
        a = drawn(*batch, n, n) + 3 * np.eye(n, dtype=np.float32)
        b = drawn(*batch, *((n, m) if left else (m, n)), seed=1)
        flags = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": turned}
        agrees(solving(shape(a.shape), shape(b.shape), **flags), a, b, rtol=2e-4)


@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("diag", "NU")
def test_triangular_systems_of_lapack(side: str, trans: str, uplo: str, diag: str) -> None:
    a, b = drawn(3, 4, 4) + 3 * np.eye(4, dtype=np.float32), drawn(3, 4, 4, seed=1)
    letters = {"diag": diag, "side": side, "trans_x": trans, "uplo": uplo}
    config = ", ".join(f"{k} = {ord(v)} : ui8" for k, v in letters.items())
    agrees(called("lapack_strsm_ffi", shape(b.shape), config, shape(a.shape), shape(b.shape)), a, b)


def test_a_zero_on_the_diagonal_gives_infinities() -> None:
    a = np.float32([[1, 0], [1, 0]])
    flags = {"left_side": True, "lower": True, "unit_diagonal": False}
    module = solving("f32[2,2]", "f32[2,1]", **flags, transpose_a="NO_TRANSPOSE")
    (x,) = agrees(module, a, np.float32([[1], [3]]))
    assert np.isposinf(x[1, 0])


@pytest.mark.parametrize(
    "module",
    [
        getrf((3, ROWS + 1, 2)),
        getrf((UPDATES // ROWS**3 + 1, ROWS, ROWS)),
        getrf((3, 2, 2), "c64"),
        getrf((0, 2, 2)),
        solving("f32[33,33]", "f32[33,1]", left_side=1, lower=1, transpose_a="NO_TRANSPOSE"),
        solving("bf16[2,2]", "bf16[2,1]", left_side=1, lower=1, transpose_a="NO_TRANSPOSE"),
        called("lapack_strsm_ffi", "f32[2,2]", "diag = 3 : ui8", "f32[2,2]", "f32[2,2]"),
        called("lapack_spotrf_ffi", "(f32[2,2], s32[])", "uplo = 0 : ui8", "f32[2,2]"),
    ],
)
def test_others_are_left_to_the_routines(module: HloModule) -> None:
    assert expand_small_factors(module) is module


def test_a_users_function_goes_before() -> None:
    register_custom_call("lapack_sgetrf_ffi", lambda call, a: ())
    try:
        module = getrf((2, 2))
        assert expand_small_factors(module) is module
    finally:
        unregister_custom_call("lapack_sgetrf_ffi")


def qr(batch: tuple[int, ...], m: int, n: int, t: str) -> HloModule:
    """Reflectors, and the columns of Q that they make."""
    letter, k = {"f32": "s", "f64": "d"}[t], min(m, n)
    a, tau, q = (shape((*batch, *dims), t) for dims in ((m, n), (k,), (m, k)))
    cut = ", ".join(f"[0:{d}]" for d in (*batch, m, k))
    return parse(
        f"HloModule qr\nENTRY e {{\n  a = {a} parameter(0)\n"
        f'  c = ({a}, {tau}) custom-call(a), custom_call_target="lapack_{letter}geqrf_ffi"\n'
        f"  h = {a} get-tuple-element(c), index=0\n  t = {tau} get-tuple-element(c), index=1\n"
        f"  v = {q} slice(h), slice={{{cut}}}\n"
        f'  q = {q} custom-call(v, t), custom_call_target="lapack_{letter}orgqr_ffi"\n'
        f"  ROOT r = ({a}, {tau}, {q}) tuple(h, t, q)\n}}"
    )


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (5, 5), (9, 4), (4, 9), (32, 32), (31, 1)])
def test_reflectors(t: str, batch: tuple[int, ...], m: int, n: int) -> None:
    a = np.random.default_rng(m).standard_normal((*batch, m, n)).astype(t.replace("f", "float"))
    agrees(qr(batch, m, n, t), a, rtol=2e-4 if t == "f32" else 1e-10)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_reflectors_of_columns_whose_squares_are_no_floats(size: float) -> None:
    a = (np.random.default_rng(2).standard_normal((6, 5)) * size).astype(np.float32)
    module = qr((), 6, 5, "f32")
    h, tau, q = nw.build(module)(a)
    wide, factors, whole = evaluate(qr((), 6, 5, "f64"), [a.astype(np.float64)])
    np.testing.assert_allclose(np.triu(h), np.triu(wide), rtol=1e-4, atol=size * 1e-5)
    np.testing.assert_allclose(tau, factors, rtol=1e-4)
    np.testing.assert_allclose(q, whole, rtol=1e-4, atol=1e-5)


def test_columns_that_are_clear_already_are_not_reflected() -> None:
    a = np.triu(np.arange(1, 26, dtype=np.float32).reshape(5, 5))
    a[:, 2] = 0
    h, tau, q = nw.build(qr((), 5, 5, "f32"))(a)
    np.testing.assert_array_equal(h, a)
    np.testing.assert_array_equal(tau, np.zeros(5, np.float32))
    np.testing.assert_array_equal(q, np.eye(5, dtype=np.float32))


def test_large_factors_of_qr_are_left_to_lapack() -> None:
    assert calls(expand_small_factors(qr((), ROWS + 1, 4, "f32"))) == {"custom-call"}
