"""The custom calls for LAPACK: what their results mean, with SciPy and without it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.errors import LibraryError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis import custom_calls
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.library import fourier, lapack, solvers
from nestwright.ir.library.call import ArrayType, LibraryCall
from nestwright.ir.library.session import Session

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
CASES = Path(__file__).parent / "jax_calls"
INFO = ArrayType((), np.dtype(np.int32))


@pytest.fixture(params=["scipy", "numpy"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With SciPy, and as if it were not installed."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    else:
        for module in (fourier, lapack, solvers):
            monkeypatch.setattr(module, "scipy", lambda name: None)
    return str(request.param)


def matrix(letter: str, *dims: int) -> Array:
    rng = np.random.default_rng(1)
    pair = rng.standard_normal((2, *dims))
    whole = pair[0] + 1j * pair[1] if letter in "cz" else pair[0]
    return whole.astype(TYPES[letter])


def run(name: str, operands: list[Array], results: list[ArrayType], *flags: int) -> list[Array]:
    return run_as(f"lapack_{name}_ffi", operands, results, "", *flags)


def run_as(
    target: str, operands: list[Array], results: list[ArrayType], config: str = "", *flags: int
) -> list[Array]:
    types = tuple(ArrayType(a.shape, a.dtype) for a in operands)
    attributes = {str(n): f for n, f in enumerate(flags)}
    call = LibraryCall("custom-call", target, types, tuple(results), config, attributes)
    return Session().run(call, operands)


def like(a: Array, *dims: int) -> ArrayType:
    return ArrayType(dims or a.shape, a.dtype)


def close(found: Array, wanted: Array, letter: str) -> None:
    tolerance = 2e-5 if letter in "sc" else 1e-12
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def turned(a: Array) -> Array:
    return np.swapaxes(a.conj(), -1, -2)


@pytest.mark.parametrize("letter", TYPES)
def test_cholesky_keeps_the_other_triangle_and_says_where_it_failed(
    installed: str, letter: str
) -> None:
    a = matrix(letter, 5, 5)
    good = a @ turned(a) + 5 * np.eye(5, dtype=a.dtype)
    bad = good.copy()
    bad[2, 2] = -1
    for flag, half, other in (("L", np.tril, np.triu), ("U", np.triu, np.tril)):
        out, info = run(f"{letter}potrf", [good], [like(a), INFO], ord(flag))
        factor = half(out)
        product = factor @ turned(factor) if flag == "L" else turned(factor) @ factor
        close(product, good, letter)
        np.testing.assert_array_equal(
            other(out, 1 if flag == "L" else -1), other(good, 1 if flag == "L" else -1)
        )
        assert info == 0
        assert run(f"{letter}potrf", [bad], [like(a), INFO], ord(flag))[1] == 3


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("dims", [(5, 5), (6, 4), (3, 5)])
def test_lu_gives_pivots_from_one(installed: str, letter: str, dims: tuple[int, int]) -> None:
    a = matrix(letter, *dims)
    k = min(dims)
    pivots = ArrayType((k,), np.dtype(np.int32))
    lu, piv, info = run(f"{letter}getrf", [a], [like(a), pivots, INFO])
    lower = np.tril(lu[:, :k], -1) + np.eye(dims[0], k)
    product = lower @ np.triu(lu[:k])
    for row in reversed(range(k)):
        product[[row, piv[row] - 1]] = product[[piv[row] - 1, row]]
    close(product, a, letter)
    assert info == 0
    assert run(f"{letter}getrf", [np.zeros_like(a)], [like(a), pivots, INFO])[2] == 1


@pytest.mark.parametrize("letter", TYPES)
def test_reflectors_make_q(installed: str, letter: str) -> None:
    a = matrix(letter, 6, 4)
    qr, tau = run(f"{letter}geqrf", [a], [like(a), like(a, 4)])
    name = "ungqr" if letter in "cz" else "orgqr"
    (q,) = run(f"{letter}{name}", [qr, tau], [like(a)])
    close(q @ np.triu(qr[:4]), a, letter)
    close(turned(q) @ q, np.eye(4, dtype=a.dtype), letter)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("conjugate", [True, False])
@pytest.mark.parametrize("count", [0, 2, 4])
def test_products_with_reflectors(
    installed: str, letter: str, left: bool, conjugate: bool, count: int
) -> None:
    """As many reflectors as there are factors, not as many as columns."""
    a = matrix(letter, 2, 6, 4)
    pair = [run(f"{letter}geqrf", [m], [like(m), like(m, 4)]) for m in a]
    h, tau = np.stack([p[0] for p in pair]), np.stack([p[1][:count] for p in pair])
    tau = tau + tau.dtype.type(0.25)  # Q need not be unitary
    c = matrix(letter, *((2, 6, 3) if left else (2, 3, 6)))
    name = f"{letter}{'un' if letter in 'cz' else 'or'}mqr"
    (found,) = run(name, [h, tau, c], [like(c)], left, conjugate)
    for n in range(2):
        q = np.eye(6, dtype=a.dtype)
        for k in range(count):
            v = np.concatenate([np.zeros(k), [1], h[n, k + 1 :, k]])
            q = q @ (np.eye(6) - tau[n, k] * np.outer(v, v.conj()))
        q = turned(q) if conjugate else q
        close(found[n], q @ c[n] if left else c[n] @ q, letter)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", "LU")
def test_eigenvalues_of_one_triangle(installed: str, letter: str, uplo: str) -> None:
    a = matrix(letter, 2, 5, 5)
    half = np.tril(a, -1) if uplo == "L" else np.triu(a, 1)
    whole = half + turned(half) + np.eye(5) * np.diagonal(a, axis1=-2, axis2=-1).real[..., None]
    name = "heevd" if letter in "cz" else "syevd"
    real = np.dtype(whole.real.dtype.char.lower()) if letter in "dz" else np.dtype(np.float32)
    kinds = [like(a), ArrayType((2, 5), real), ArrayType((2,), np.dtype(np.int32))]
    v, w, info = run(f"{letter}{name}", [a], kinds, ord("V"), ord(uplo))
    close(whole @ v, v * w[:, None, :], letter)
    assert not info.any()


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("mode", "ASN")
@pytest.mark.parametrize("routine", ["gesdd", "gesvd"])
def test_singular_values(installed: str, letter: str, mode: str, routine: str) -> None:
    a = matrix(letter, 6, 4)
    real = np.dtype(np.float32 if letter in "sc" else np.float64)
    u_dims, v_dims = ((6, 6), (4, 4)) if mode != "S" else ((6, 4), (4, 4))
    kinds = [like(a), ArrayType((4,), real), like(a, *u_dims), like(a, *v_dims), INFO]
    _, s, u, vt, info = run(f"{letter}{routine}", [a], kinds, ord(mode))
    close(s, np.linalg.svd(a, compute_uv=False), letter)
    assert info == 0
    if mode == "N":
        assert not u.any() and not vt.any()
    else:
        close(u[:, :4] * s @ vt, a, letter)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("n", [5, 70])
def test_triangular_systems(installed: str, letter: str, n: int) -> None:
    """All options; the other triangle, and a unit diagonal, are never read."""
    a = matrix(letter, n, n) / n + 2 * np.eye(n, dtype=TYPES[letter])
    for flags in ("NLNL", "NLCU", "URTL", "NRNU", "URCU", "ULTL"):
        diag, side, trans, uplo = flags
        b = matrix(letter, *((n, 3) if side == "L" else (3, n)))
        unread = np.triu(np.ones((n, n), bool), 1)
        unread = (unread if uplo == "L" else unread.T) | (np.eye(n, dtype=bool) & (diag == "U"))
        given = np.where(unread, np.asarray(np.nan, a.dtype), a)
        (x,) = run(f"{letter}trsm", [given, b], [like(b)], *map(ord, flags))
        used = np.where(unread, 0, a) + np.eye(n, dtype=a.dtype) * (diag == "U")
        used = {"N": used, "T": used.T, "C": turned(used)}[trans]
        close(used @ x if side == "L" else x @ used, b, letter)


@pytest.mark.parametrize("count", [3, 100])
def test_small_systems_are_solved_together(
    installed: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Few by BLAS, many by steps that each serve all of them."""
    seen = []

    def watched(a: Array, *args: Any, **kwargs: Any) -> Array:
        seen.append(a.shape)
        return solvers.solve(a, *args, **kwargs)

    monkeypatch.setattr(lapack, "solve", watched)
    a, b = matrix("z", count, 3, 3) + 4 * np.eye(3), matrix("z", count, 2, 3)
    (x,) = run("ztrsm", [a, b], [like(b)], *map(ord, "NRCL"))
    close(x @ turned(np.tril(a)), b, "z")
    assert seen == [a.shape]


def test_names_that_xla_has_of_its_own(installed: str) -> None:
    """On every backend, with LAPACK's conventions."""
    a = matrix("d", 6, 4)
    qr, tau = run_as("Qr", [a], [like(a), like(a, 4)])
    (q,) = run_as("ProductOfElementaryHouseholderReflectors", [qr, tau], [like(a)])
    close(q @ np.triu(qr[:4]), a, "d")
    half = np.tril(matrix("d", 2, 4, 4))
    for config, given in (("1,1,100,1e-6", half), ("0,1,100,1e-6", turned(half))):
        v, w = run_as("Eigh", [given], [like(half), like(half, 2, 4)], config)
        whole = half + turned(np.tril(half, -1))
        close(whole @ v, v * w[:, None, :], "d")


def test_routines_of_scipy_alone() -> None:
    pytest.importorskip("scipy")
    for letter in TYPES:
        a = matrix(letter, 5, 5)
        complex_ = ArrayType((5, 5), np.result_type(a.dtype, np.complex64))
        values = [like(a, 5)] * (1 if letter in "cz" else 2)
        *w, _, vr, info = run(
            f"{letter}geev", [a], [*values, complex_, complex_, INFO], ord("N"), ord("V")
        )
        whole = w[0] if letter in "cz" else w[0] + 1j * w[1]
        close(a @ vr, vr * whole, letter)
        assert info == 0
        t, z, *_ = run(
            f"{letter}gees", [a], [like(a), like(a), *values, INFO, INFO], ord("V"), ord("N")
        )
        close(z @ t @ turned(z), a, letter)
        b = matrix(letter, 5, 2)
        diagonals = [matrix(letter, 5) + 4 * (n == 1) for n in range(3)]
        *_, x, info = run(f"{letter}gtsv", [*diagonals, b], [*map(like, diagonals), like(b), INFO])
        low, middle, high = diagonals
        band = np.diag(middle) + np.diag(low[1:], -1) + np.diag(high[:-1], 1)
        close(band @ x, b, letter)


def test_what_needs_scipy_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """HloModule m
    ENTRY main { x = f32[3,3] parameter(0)
      ROOT y = (f32[3,3], f32[2], s32[]) custom-call(x), custom_call_target="lapack_sgehrd_ffi" }
    """
    call = parse(text).entry.root
    monkeypatch.setattr(lapack, "scipy", lambda name: None)
    why, what_to_do = custom_calls.problem(call)
    assert "needs SciPy" in why and "pip install" in what_to_do


@pytest.mark.parametrize(
    "name, flags, results, why",
    [
        ("sgesdd", (79,), 5, "mode O"),
        ("sgesdd", (7,), 5, "not a letter"),
        ("sgetrf", (), 2, "must return 2 arrays"),
        ("sorgqr", (), 1, "takes 2 operands"),
        ("sgesvd", (79,), 5, "mode O"),
    ],
)
def test_calls_that_make_no_sense_are_refused(
    name: str, flags: tuple[int, ...], results: int, why: str
) -> None:
    a = matrix("s", 3, 3)
    with pytest.raises(LibraryError, match=why):
        run(name, [a], [like(a)] * results, *flags)


def test_products_that_make_no_sense_are_refused() -> None:
    a, tau, c = matrix("s", 3, 2), matrix("s", 2), matrix("s", 3, 3)
    with pytest.raises(LibraryError, match="neither true nor false"):
        run("sormqr", [a, tau, c], [like(c)], 7, True)
    for given in ([a, tau, matrix("s", 2, 2)], [a, matrix("s", 3), c]):
        with pytest.raises(LibraryError, match="reflectors of 3 rows"):
            run("sormqr", given, [like(given[2])], True, True)
    d, b = matrix("s", 3), matrix("s", 4, 1)
    with pytest.raises(LibraryError, match="diagonals of 3, 4 rows"):
        run_as("tridiagonal_solve_perturbed_ffi", [d, d, d, b], [like(b)])


def test_empty_matrices_and_batches() -> None:
    for dims in ((0, 3, 3), (2, 0, 0)):
        a = np.zeros(dims, np.float32)
        batch = ArrayType(dims[:1], np.dtype(np.int32))
        out, info = run("spotrf", [a], [like(a), batch], ord("L"))
        assert out.shape == dims and not info.any()
    q, c = matrix("s", 3, 3), matrix("s", 3, 2)
    (out,) = run("sormqr", [q, q[0, :0], c], [like(c)], True, False)
    np.testing.assert_array_equal(out, c)  # no reflector, not: nothing to do
    (out,) = run("sorgqr", [q, q[0, :0]], [like(q)])
    np.testing.assert_array_equal(out, np.eye(3))
    d, b = np.zeros((2, 0), np.float32), np.zeros((2, 0, 3), np.float32)
    (out,) = run_as("tridiagonal_solve_perturbed_ffi", [d, d, d, b], [like(b)])
    assert out.shape == b.shape


def compute(opcode: str, operands: list[Array], **attributes: Any) -> Array:
    types = tuple(ArrayType(a.shape, a.dtype) for a in operands)
    call = LibraryCall(opcode, opcode, types, types[-1:], attributes=attributes)
    return Session().run(call, operands)[0]


def test_the_operation_cholesky(installed: str) -> None:
    """Zero in the other triangle, NaN in all of a matrix that is not positive definite."""
    a = matrix("d", 3, 4, 4)
    good = a @ turned(a) + np.eye(4)
    good[1] -= 100 * np.eye(4)
    for lower in (True, False):
        out = compute("cholesky", [good], lower=lower)
        assert np.isnan(out[1]).all()
        factor = out[[0, 2]] if lower else turned(out[[0, 2]])
        close(factor @ turned(factor), good[[0, 2]], "d")
        assert not np.triu(factor, 1).any()
    narrow = compute("cholesky", [good[:1].astype(np.float16)], lower=True)
    assert narrow.dtype == np.float16
    np.testing.assert_allclose(narrow[0], np.linalg.cholesky(good[0]), rtol=1e-2, atol=1e-2)


def test_the_operation_triangular_solve(installed: str) -> None:
    a, b = matrix("z", 2, 40, 40) / 40 + np.eye(40), matrix("z", 2, 3, 40)
    x = compute("triangular-solve", [a, b], lower=True, transpose_a="ADJOINT")
    close(x @ turned(np.tril(a)), b, "z")
    singular = np.array([[0, 0], [1, 2]], np.float32)
    x = compute(
        "triangular-solve", [singular, np.ones((2, 1), np.float32)], left_side=True, lower=True
    )
    assert not np.isfinite(x).any()


@pytest.mark.parametrize("letter", TYPES)
def test_large_matrices_are_factored_where_they_lie(letter: str, installed: str) -> None:
    a = matrix(letter, 2, 40, 40)
    good = a @ turned(a) + 40 * np.eye(40, dtype=a.dtype)
    good[1, 7, 7] = -1
    before = good.copy()
    for lower in (True, False):
        out = compute("cholesky", [good], lower=lower)
        factor = out[0] if lower else turned(out[0])
        wide = 40 * (2e-6 if letter in "sc" else 1e-14)
        np.testing.assert_allclose(factor @ turned(factor), good[0], rtol=0, atol=40 * wide)
        assert not np.triu(factor, 1).any()
        assert np.isnan(out[1]).all()
    np.testing.assert_array_equal(good, before)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("turning", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangles_of_either_side(letter: str, columns: int, turning: str, installed: str) -> None:
    both = matrix(letter, 36, 36) / 36 + 2 * np.eye(36, dtype=TYPES[letter])
    for left, lower, unit in itertools.product((True, False), repeat=3):
        b = matrix(letter, 36, columns) if left else matrix(letter, columns, 36)
        half = (np.tril if lower else np.triu)(both)
        half = half - np.diag(np.diag(half) - 1) if unit else half
        op = {"NO_TRANSPOSE": half, "TRANSPOSE": half.T, "ADJOINT": half.T.conj()}[turning]
        flags = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": turning}
        x = compute("triangular-solve", [both, b], **flags)
        np.testing.assert_allclose(op @ x if left else x @ op, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("rows", [2, 2000])
@pytest.mark.parametrize("narrow", [True, False])
def test_the_operation_fft(kind: str, rows: int, narrow: bool, installed: str) -> None:
    sizes = (3, 4, 6)
    real, complex_ = ("s", "c") if narrow else ("d", "z")
    half, whole = (*sizes[:-1], 4), matrix(complex_, rows, *sizes)
    given, wanted = {
        "RFFT": (matrix(real, rows, *sizes), ArrayType((rows, *half), np.dtype(TYPES[complex_]))),
        "IRFFT": (matrix(complex_, rows, *half), ArrayType((rows, *sizes), np.dtype(TYPES[real]))),
    }.get(kind, (whole, ArrayType(whole.shape, whole.dtype)))
    attributes = {"fft_type": kind, "fft_length": sizes}
    operand = ArrayType(given.shape, given.dtype)
    call = LibraryCall("fft", "fft", (operand,), (wanted,), attributes=attributes)
    (out,) = Session().run(call, [given])
    by_name: dict[str, Callable[..., Array]] = {
        "FFT": np.fft.fftn,
        "IFFT": np.fft.ifftn,
        "RFFT": np.fft.rfftn,
        "IRFFT": np.fft.irfftn,
    }
    wide = given.astype(np.complex128 if given.dtype.kind == "c" else np.float64)
    np.testing.assert_allclose(
        out, by_name[kind](wide, sizes, (1, 2, 3)), rtol=1e-5, atol=1e-5 if narrow else 1e-12
    )


def read(rows: list[dict[str, Any]]) -> list[Array]:
    """Arrays out of JSON; a complex number is a pair."""
    out = []
    for row in rows:
        values = np.array(row["values"], np.float64)
        if row["dtype"].startswith("complex"):
            values = values[:, 0] + 1j * values[:, 1]
        out.append(values.astype(row["dtype"]).reshape(row["shape"]))
    return out


@pytest.mark.parametrize("name", sorted(p.stem for p in CASES.glob("*.hlo")))
def test_modules_of_jax_give_what_jax_gives(installed: str, name: str) -> None:
    """Text and results of jax 0.10.2 on a processor, singular systems among them."""
    module = parse((CASES / f"{name}.hlo").read_text())
    case = json.loads((CASES / f"{name}.json").read_text())
    arguments, wanted = read(case["arguments"]), read(case["results"])
    native = nw.build(module, cache=False)(*arguments)
    for found in (evaluate(module, arguments), native):
        arrays = found if isinstance(found, tuple) else (found,)
        for a, b in zip(arrays, wanted, strict=True):
            assert a.dtype == b.dtype
            if name.startswith("gesvd"):
                a, b = np.abs(a), np.abs(b)  # the sign of a singular vector is free
            tolerance = 1e-4 if a.dtype in (np.float32, np.complex64) else 1e-11
            scale = np.abs(b).max()
            np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance)
