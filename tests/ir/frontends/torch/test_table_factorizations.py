"""Rows of ATen's factorizations, without torch: called with terms, interpreted, held to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import c64, c128, f16, f32, f64, from_numpy, s32
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.torch.operators import factorizations
from nestwright.ir.library import lapack_numpy

Called = Callable[..., Any]

REAL = {c64: f32, c128: f64}
KINDS = [np.float32, np.float64, np.complex64, np.complex128]


def drawn(kind: Any, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(dims) + 1j * rng.standard_normal(dims)
    return (found if np.issubdtype(kind, np.complexfloating) else found.real).astype(kind)


def square(kind: Any, *batch: int, n: int = 4) -> Array:
    return (drawn(kind, *batch, n, n) + 3 * np.eye(n)).astype(kind)


def definite(kind: Any, *batch: int) -> Array:
    a = square(kind, *batch)
    return np.asarray(a @ a.conj().swapaxes(-1, -2), kind)


def close(found: Any, expected: Any) -> None:
    """Equal but for rounding in the type of what was found."""
    most = np.abs(expected).max(initial=1)
    error = 1e3 * np.finfo(np.asarray(found).dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=error * most)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_systems_inverses_and_determinants(called: Called, kind: Any, batch: Any) -> None:
    a, b, dtype = (
        square(kind, *batch),
        drawn(kind, *batch, 4, 2, seed=1),
        from_numpy(np.dtype(kind)),
    )
    lu = [(dtype, (*batch, 4, 4)), (s32, (*batch, 4))]
    info = (s32, batch)
    solved = [(dtype, (*batch, 4, 2)), *lu, info]
    close(called("aten._linalg_solve_ex.default", solved, a, b)[0], np.linalg.solve(a, b))
    vector = called(
        "aten._linalg_solve_ex.default", [(dtype, (*batch, 4)), *lu, info], a, b[..., 0]
    )
    close(vector[0], np.linalg.solve(a, b)[..., 0])
    turned = b.swapaxes(-1, -2)
    right = [(dtype, (*batch, 2, 4)), *lu, info]
    found = called("aten._linalg_solve_ex.default", right, a, turned, left=False)[0]
    close(found @ a, turned)
    inverse, state = called("aten.linalg_inv_ex.default", [lu[0], info], a)
    close(inverse, np.linalg.inv(a))
    assert not np.any(state)
    close(called("aten._linalg_det.default", [(dtype, batch), *lu], a)[0], np.linalg.det(a))
    logs = [(dtype, batch), (REAL.get(dtype, dtype), batch), *lu]
    sign, size = called("aten._linalg_slogdet.default", logs, a)[:2]
    for one, other in zip((sign, size), np.linalg.slogdet(a), strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_and_its_systems(called: Called, kind: Any, upper: bool) -> None:
    a, b, dtype = definite(kind, 2), drawn(kind, 2, 4, 3, seed=1), from_numpy(np.dtype(kind))
    shapes = [(dtype, (2, 4, 4)), (s32, (2,))]
    factor, _ = called("aten.linalg_cholesky_ex.default", shapes, a, upper=upper)
    lower = np.linalg.cholesky(a)
    close(factor, lower.conj().swapaxes(-1, -2) if upper else lower)
    solved = called("aten.cholesky_solve.default", [(dtype, (2, 4, 3))], b, factor, upper)
    close(solved, np.linalg.solve(a, b))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [(4, 4), (5, 3), (3, 5), (2, 5, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_orthogonal_factors(called: Called, kind: Any, dims: Any, mode: str) -> None:
    a, dtype = drawn(kind, *dims), from_numpy(np.dtype(kind))
    *batch, rows, columns = dims
    short = rows if mode == "complete" else min(rows, columns)
    q_dims = (0,) if mode == "r" else (*batch, rows, short)
    r_dims = (*batch, min(rows, columns) if mode == "r" else short, columns)
    q, r = called("aten.linalg_qr.default", [(dtype, q_dims), (dtype, r_dims)], a, mode)
    close(np.abs(r), np.abs(np.triu(np.linalg.qr(a, mode="complete")[1])[..., : r_dims[-2], :]))
    if mode != "r":
        close(q @ r, a)
        close(q.conj().swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(short), (*batch, short, short)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("full", [False, True])
def test_spectral_factors(called: Called, kind: Any, full: bool) -> None:
    a, h, dtype = drawn(kind, 2, 5, 3), definite(kind, 2), from_numpy(np.dtype(kind))
    real = REAL.get(dtype, dtype)
    eigen = [(real, (2, 4)), (dtype, (2, 4, 4))]
    values, vectors = called("aten._linalg_eigh.default", eigen, h, "L", True)
    close(values, np.linalg.eigvalsh(h))
    close((vectors * values[:, None]) @ vectors.conj().swapaxes(-1, -2), h)
    parts = [(dtype, (2, 5, 5 if full else 3)), (real, (2, 3)), (dtype, (2, 3, 3))]
    u, s, vh = called("aten._linalg_svd.default", parts, a, full, True)
    close(s, np.linalg.svd(a, compute_uv=False))
    close((u[..., :3] * s[:, None]) @ vh, a)
    alone = called(
        "aten._linalg_svd.default", [(dtype, (0,)), parts[1], (dtype, (0,))], a, full, False
    )
    close(alone[1], s)


def test_empty_matrices_have_whole_bases(called: Called) -> None:
    a = np.zeros((2, 3, 0), np.float32)
    parts = [(f32, (2, 3, 3)), (f32, (2, 0)), (f32, (2, 0, 0))]
    u, _, vh = called("aten._linalg_svd.default", parts, a, True, True)
    close(u, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert vh.shape == (2, 0, 0)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(called: Called, upper: bool, unit: bool) -> None:
    a, b = square(np.float64), drawn(np.float64, 3, 4, 2, seed=1)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(triangle, 1)
    name = "aten.linalg_solve_triangular.default"
    found = called(name, [(f64, (3, 4, 2))], a, b, upper=upper, unitriangular=unit)
    close(triangle @ found, b)
    turned = b.swapaxes(-1, -2)
    right = called(name, [(f64, (3, 2, 4))], a, turned, upper=upper, left=False, unitriangular=unit)
    close(right @ triangle, turned)


def test_what_has_no_factor_is_nan(called: Called) -> None:
    a = np.stack([np.zeros((3, 3)), np.eye(3)])
    lu, info = [(f64, (2, 3, 3)), (s32, (2, 3))], (s32, (2,))
    for name, shapes in {
        "aten.linalg_inv_ex.default": [lu[0], info],
        "aten.linalg_cholesky_ex.default": [lu[0], info],
    }.items():
        found, state = called(name, shapes, a)
        assert np.isnan(found[0]).any() and np.array_equal(found[1], np.eye(3))
        assert state.tolist() == [1, 0]
    solved = called("aten._linalg_solve_ex.default", [lu[0], *lu, info], a, a)[0]
    assert np.isnan(solved[0]).all() and np.array_equal(solved[1], np.eye(3))


def test_systems_without_scipy() -> None:
    a, b = square(np.float64), drawn(np.float64, 4, 2, seed=1)
    both, sides = np.stack([a, np.zeros_like(a), 2 * a]), np.stack([b, b, b])
    _, _, x, info = lapack_numpy.gesv(both, sides)
    close(x[0], np.linalg.solve(a, b))
    close(x[2], np.linalg.solve(2 * a, b))
    assert info.tolist() == [0, 1, 0]


def test_types_without_routines_are_refused(called: Called) -> None:
    shapes = [(f16, (3, 3)), (s32, ())]
    with pytest.raises(UnsupportedError, match="LAPACK has no f16"):
        called("aten.linalg_inv_ex.default", shapes, np.eye(3, dtype=np.float16))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_factors_with_pivots(called: Called, kind: Any, batch: Any) -> None:
    a, dtype = drawn(kind, *batch, 5, 5), from_numpy(np.dtype(kind))
    whole, pivots, info = (dtype, a.shape), (s32, (*batch, 5)), (s32, batch)
    factors, swaps, _ = called("aten.linalg_lu_factor_ex.default", [whole, pivots, info], a)
    assert (swaps != np.arange(1, 6)).any()
    for found in (
        called("aten.linalg_lu.default", [whole] * 3, a),
        called("aten.lu_unpack.default", [whole] * 3, factors, swaps),
    ):
        p, lower, upper = found
        close(p @ lower @ upper, a)
        close(np.tril(lower, -1) + np.eye(5), lower)
    turned = np.conj(a).swapaxes(-1, -2)
    for left, adjoint in ((True, False), (True, True), (False, False), (False, True)):
        b = drawn(kind, *batch, *((5, 3) if left else (3, 5)), seed=2)
        flags = {"left": left, "adjoint": adjoint}
        name = "aten.linalg_lu_solve.default"
        x = called(name, [(dtype, b.shape)], factors, swaps, b, **flags)
        m = turned if adjoint else a
        close(m @ x if left else x @ m, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upper", [False, True])
def test_inverses_of_definite_matrices(called: Called, kind: Any, upper: bool) -> None:
    a, dtype = definite(kind, 3), from_numpy(np.dtype(kind))
    factor = called("aten.cholesky.default", [(dtype, a.shape)], a, upper)
    close(factor.conj().swapaxes(-1, -2) @ factor if upper else factor @ factor.conj().mT, a)
    found = called("aten.cholesky_inverse.default", [(dtype, a.shape)], factor, upper)
    close(found @ a, np.broadcast_to(np.eye(4), a.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_exponentials_of_matrices(called: Called, kind: Any) -> None:
    """Of small and large norms; those of turned matrices are known."""
    values = np.array([[0.01, -0.02, 0.0], [1.0, -2.0, 0.5], [9.0, -30.0, 4.0]])
    base = np.linalg.qr(drawn(np.float64, 3, 3))[0]
    a = ((base * values[:, None, :]) @ base.T).astype(kind)
    wanted = (base * np.exp(values)[:, None, :]) @ base.T
    dtype = from_numpy(np.dtype(kind))
    found = called("aten.linalg_matrix_exp.default", [(dtype, a.shape)], a)
    for one, other in zip(found, wanted, strict=True):
        most = np.abs(other).max()
        close((one / most).astype(kind), other / most)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [(4, 4), (2, 5, 3), (3, 5)])
def test_pseudo_inverses(called: Called, kind: Any, dims: Any) -> None:
    a, dtype = drawn(kind, *dims), from_numpy(np.dtype(kind))
    a[..., -1, :] = a[..., 0, :]  # of less than full rank, where there are fewer rows
    name, shape = "aten.linalg_pinv.atol_rtol_tensor", [(dtype, (*dims[:-2], dims[-1], dims[-2]))]
    close(called(name, shape, a), np.linalg.pinv(a, rcond=1e-4))
    large = np.array(0.9 * np.linalg.norm(a, 2, (-2, -1)).max(), np.zeros(0, kind).real.dtype)
    found = called(name, shape, a, atol=large)
    assert (np.linalg.matrix_rank(found) <= 1).all()
    h = definite(kind)
    eigen = called(name, [(dtype, h.shape)], h, hermitian=True)
    close(eigen @ h, np.eye(4))


def test_triangles_by_the_older_name(called: Called) -> None:
    a, b = np.triu(square(np.float64)), drawn(np.float64, 4, 2)
    results = [(f64, b.shape), (f64, a.shape)]
    for transpose in (False, True):
        found, kept = called("aten.triangular_solve.default", results, b, a, True, transpose)
        close((a.T if transpose else a) @ found, b)
        np.testing.assert_array_equal(kept, a)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("row_major", [True, False])
@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_gradients_are_given_the_factors_that_torch_gives(
    called: Called,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    row_major: bool,
    older: bool,
    left: bool,
) -> None:
    """Those of the transposed matrix, where it is real and in row-major order.

    Solutions of newer versions have those of the matrix itself.
    """
    monkeypatch.setattr(factorizations, "solutions_turn", lambda: older)
    a, b, dtype = square(kind), drawn(kind, 4, 4, seed=1), from_numpy(np.dtype(kind))
    a = a if row_major else np.asfortranarray(a)
    of = a.T if row_major and dtype == f32 else a
    lu, one = [(dtype, (4, 4)), (s32, (4,))], (dtype, ())
    solved = [(dtype, (4, 4)), *lu, (s32, ())]
    solve = called("aten._linalg_solve_ex.default", solved, a, b, left=left)
    given = (
        (of if older else a, solve[1:3]),
        (of, called("aten._linalg_det.default", [one, *lu], a)[1:]),
        (of, called("aten._linalg_slogdet.default", [one, (f32, ()), *lu], a)[2:]),
    )
    for matrix, (factors, pivots) in given:
        found = called("aten.linalg_lu_solve.default", [(dtype, (4, 4))], factors, pivots, b)
        close(found, np.linalg.solve(matrix, b))


def test_a_system_of_nothing_is_solved(called: Called) -> None:
    none, pivots = np.zeros((0, 0), np.float32), np.zeros(0, np.int32)
    found = called("aten.linalg_lu_solve.default", [(f32, (0, 0))], none, pivots, none)
    assert found.shape == (0, 0)
