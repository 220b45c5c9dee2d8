"""Factors and triangular systems of up to 32 rows: loops that agree with LAPACK's routines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.expand.batched_factors import ROWS
from nestwright.ir.hlo.passes.expand.small_factors import expand_small_factors
from nestwright.ir.hlo.text import parse

TYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
SIZES = [5, 7, 16, 31, 32]
BATCHES: list[tuple[int, ...]] = [(), (1,), (15,), (2, 8), (17,)]


def shape(dims: tuple[int, ...], t: str = "f32") -> str:
    return f"{t}[{','.join(map(str, dims))}]"


def routine(name: str, dims: tuple[int, ...], t: str, flags: str = "") -> HloModule:
    """A call of ``getrf`` or ``potrf``."""
    *batch, m, n = dims
    given, info = shape(dims, t), shape(tuple(batch), "s32")
    pivots = f"{shape((*batch, min(m, n)), 's32')}, " if name == "getrf" else ""
    target = f"lapack_{'s' if t == 'f32' else 'd'}{name}_ffi"
    return parse(
        f"HloModule m\nENTRY e {{\n  a = {given} parameter(0)\n"
        f"  ROOT r = ({given}, {pivots}{info}) "
        f'custom-call(a), custom_call_target="{target}", backend_config={{{flags}}}\n}}'
    )


def cholesky(dims: tuple[int, ...], lower: bool) -> HloModule:
    a = shape(dims)
    return parse(
        f"HloModule m\nENTRY e {{\n  a = {a} parameter(0)\n"
        f"  ROOT r = {a} cholesky(a), lower={str(lower).lower()}\n}}"
    )


def system(a: Array, b: Array, left: bool, lower: bool, unit: bool, turned: str) -> HloModule:
    t = "f32" if a.dtype == np.float32 else "f64"
    flags = {"left_side": left, "lower": lower, "unit_diagonal": unit}
    told = ", ".join(f"{k}={str(v).lower()}" for k, v in flags.items())
    return parse(
        f"HloModule m\nENTRY e {{\n  a = {shape(a.shape, t)} parameter(0)\n"
        f"  b = {shape(b.shape, t)} parameter(1)\n"
        f"  ROOT x = {shape(b.shape, t)} triangular-solve(a, b), {told}, transpose_a={turned}\n}}"
    )


def expanded(module: HloModule) -> HloModule:
    """The loops, which call no routine."""
    made = expand_small_factors(module)
    opcodes = {i.opcode for c in made.computations for i in c.instructions}
    assert "while" in opcodes and not opcodes & {"custom-call", "cholesky", "triangular-solve"}
    return made


def drawn(dims: tuple[int, ...], t: str = "f32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(TYPES[t])


def positive(dims: tuple[int, ...], t: str = "f32") -> Array:
    a = drawn(dims, "f64")
    return (a @ a.swapaxes(-1, -2) + dims[-1] * np.eye(dims[-1])).astype(TYPES[t])


def close(found: Any, wanted: Any, t: str) -> None:
    tolerance = 1e-3 if t == "f32" else 1e-11
    for got, want in zip(found, wanted, strict=True):
        if got.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_factors_are_the_routines(t: str, n: int, batch: tuple[int, ...]) -> None:
    dims = (*batch, n, n)
    for name, a, flags in (
        ("getrf", drawn(dims, t), ""),
        ("potrf", positive(dims, t), f"uplo = {ord('L')} : ui8"),
        ("potrf", positive(dims, t), f"uplo = {ord('U')} : ui8"),
    ):
        module = routine(name, dims, t, flags)
        close(evaluate(expanded(module), [a]), evaluate(module, [a]), t)


@pytest.mark.parametrize("sides", [(5, 2), (2, 5), (9, 7), (7, 9), (32, 6), (6, 32)], ids=str)
def test_factors_of_matrices_that_are_not_square(sides: tuple[int, int]) -> None:
    module, a = routine("getrf", (3, *sides), "f32"), drawn((3, *sides))
    close(nw.build(module)(a), evaluate(module, [a]), "f32")


@pytest.mark.parametrize("count", [1, 17])
def test_what_is_compiled_is_right(count: int) -> None:
    for t in TYPES:
        dims = (count, 9, 9)
        module, a = routine("getrf", dims, t), drawn(dims, t)
        close(nw.build(module)(a), evaluate(module, [a]), t)
        module, a = routine("potrf", dims, t, f"uplo = {ord('U')} : ui8"), positive(dims, t)
        close(nw.build(module)(a), evaluate(module, [a]), t)


def test_the_loop_updates_in_place() -> None:
    """A copy of all matrices for each turn would take a third of the time."""
    for module in (routine("getrf", (16, 9, 9), "f32"), cholesky((16, 9, 9), True)):
        inside = nw.build(module).as_text("plan").partition("while")[2].partition("\ncall")[0]
        assert inside
        copies = [line for line in inside.splitlines() if "copy" in line]
        sizes = [p.partition(":") for line in copies for p in line.split("[")[1:2]]
        bytes_ = [int(end.split("]")[0]) - int(start) for start, _, end in sizes]
        assert all(n < 16 * 9 * 9 * 4 for n in bytes_)


def test_the_first_of_equal_pivots_counts_by_the_rows_as_they_are_swapped() -> None:
    a = np.zeros((2, 6, 6), np.float32)
    a[0] = np.sign(drawn((6, 6))) + np.tri(6)
    a[1] = np.eye(6)[[2, 0, 1, 5, 3, 4]] * -3 + 3
    module = routine("getrf", a.shape, "f32")
    close(evaluate(expanded(module), [a]), evaluate(module, [a]), "f32")


def test_singular_matrices_tell_the_first_zero() -> None:
    a = drawn((5, 6, 6))
    a[1], a[2, :, 3], a[3, 4] = 0, a[2, :, 1], 0
    a[4] = np.arange(36).reshape(6, 6) // 12 * 2  # rows alike
    module = routine("getrf", a.shape, "f32")
    found, wanted = evaluate(expanded(module), [a]), evaluate(module, [a])
    assert isinstance(found, tuple) and isinstance(wanted, tuple)
    assert found[2][0] == 0 and list(found[2][[1, 4]]) == [1, wanted[2][4]]
    np.testing.assert_array_equal(found[0][1], a[1])
    close((found[0][[0, 1]], found[1][[0, 1]]), (wanted[0][[0, 1]], wanted[1][[0, 1]]), "f32")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_without_numbers_does_not_spoil_others(value: float) -> None:
    a, good = drawn((3, 7, 7)), [0, 2]
    a[1, 3, 2] = value
    module = routine("getrf", a.shape, "f32")
    found, wanted = evaluate(expanded(module), [a]), evaluate(module, [a])
    close([x[good] for x in found], [x[good] for x in wanted], "f32")
    assert ((found[1][1] >= np.arange(1, 8)) & (found[1][1] <= 7)).all()
    b = positive((3, 7, 7))
    b[1, 3, 2] = value
    module = routine("potrf", b.shape, "f32", f"uplo = {ord('L')} : ui8")
    found, wanted = evaluate(expanded(module), [b]), evaluate(module, [b])
    close([x[good] for x in found], [x[good] for x in wanted], "f32")
    assert found[1][1] > 0


def test_info_is_the_first_row_without_a_factor() -> None:
    a = positive((6, 8, 8))
    for k, row in enumerate((0, 3, 7), 1):
        a[k, row, row] = -100
    a[4, 5, 5] = np.nan
    a[5, 6, 2] = a[5, 2, 6] = np.nan
    module = routine("potrf", a.shape, "f32", f"uplo = {ord('L')} : ui8")
    made, info = evaluate(expanded(module), [a])
    assert list(info) == [0, 1, 4, 8, 6, 7]
    np.testing.assert_array_equal(np.triu(made, 1), np.triu(a, 1))


@pytest.mark.parametrize("lower", [True, False])
def test_the_operation_gives_nan_for_what_is_not_positive_definite(lower: bool) -> None:
    a = positive((5, 6, 6))
    a[1, 4, 4], a[2, 0, 0], a[3, 5, 5] = -5, np.nan, np.inf
    half = (np.tril if lower else np.triu)(np.ones((6, 6), bool))
    module, given = cholesky(a.shape, lower), np.where(half, a, np.float32(np.nan))
    found = nw.build(module)(given)
    assert np.isfinite(found[[0, 4]]).all() and np.isnan(found[1:4]).all()
    assert not found[0][~half].any()
    close([found[[0, 4]]], [evaluate(module, [given])[[0, 4]]], "f32")


@pytest.mark.parametrize("turned", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(turned: str, left: bool, lower: bool, unit: bool) -> None:
    """The other triangle, and a unit diagonal, are never read."""
    for batch, n, m, t in (((), 9, 3, "f32"), ((2, 3), 16, 1, "f64"), ((17,), 32, 2, "f32")):
        a = (drawn((*batch, n, n), t) / n + 2 * np.eye(n)).astype(TYPES[t])
        unread = np.triu(np.ones((n, n), bool), 1)
        unread = (unread if lower else unread.T) | (np.eye(n, dtype=bool) & unit)
        a = np.where(unread, TYPES[t].type(np.nan), a)
        b = drawn((*batch, n, m) if left else (*batch, m, n), t, 1)
        module = system(a, b, left, lower, unit, turned)
        close([evaluate(expanded(module), [a, b])], [evaluate(module, [a, b])], t)


@pytest.mark.parametrize("left", [True, False])
def test_compiled_triangular_systems(left: bool) -> None:
    a = drawn((17, 10, 10)) / 10 + 2 * np.eye(10, dtype=np.float32)
    b = drawn((17, 10, 4) if left else (17, 4, 10), seed=1)
    module = system(a, b, left, True, not left, "TRANSPOSE")
    close([nw.build(module)(a, b)], [evaluate(module, [a, b])], "f32")


def test_a_zero_on_the_diagonal_gives_no_numbers() -> None:
    a = np.tri(9, dtype=np.float32)
    a[4, 4] = 0
    b = np.ones((9, 1), np.float32)
    module = system(a, b, True, True, False, "NO_TRANSPOSE")
    x = evaluate(expanded(module), [a, b])
    np.testing.assert_array_equal(np.isfinite(x[:, 0]), np.arange(9) < 4)


@pytest.mark.parametrize("dims", [(0, 9, 9), (2, ROWS + 1, ROWS + 1)], ids=str)
def test_others_are_left_to_the_routines(dims: tuple[int, ...]) -> None:
    module = routine("getrf", dims, "f32")
    assert expand_small_factors(module) is module
