"""Terms: broadcasting, weak numbers, shapes, reductions, products, places and order as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import f32, s32, s64
from nestwright.ir.errors import VerifyError
from nestwright.ir.frontends.lax import (
    arithmetic,
    fft,
    functions,
    indexing,
    linear,
    order,
    reductions,
    shaping,
)
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.hlo.nodes import Shape

RNG = np.random.default_rng(0)


def floats(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype(np.float32)


A, B, ROW = floats(3, 1, 5), floats(4, 1), floats(5)
NUMBERS = np.array([[3, -1, 0], [7, 7, -5]], np.int32)
DIVIDED = (np.int32([7, -7, 7, -7, 6]), np.int32([3, 3, -3, -3, -2]))
FRACTIONS = (np.float32([7.5, -7.5, 1, -0.0, 1e9]), np.float32([2, 2, -3, 3, 0.1]))
NANS = np.array([[1, np.nan, 3, np.nan], [-0.0, 0.0, -np.inf, 2]], np.float32)

CASES = {
    "broadcast": (lambda a, b: a * b + 1, lambda a, b: a * b + 1, (A, B)),
    "compare": (lambda a: (a > 0) & (a <= 1), lambda a: (a > 0) & (a <= 1), (A,)),
    "reversed": (lambda a: 2 - a, lambda a: 2 - a, (NUMBERS,)),
    "select": (lambda a: (a < 0).select(0, a), lambda a: np.where(a < 0, 0, a), (ROW,)),
    "scalar": (lambda a: a + shaping.full(a.site, 2, f32), lambda a: a + 2, (np.float32(3)[()],)),
    "to": (lambda a: a.to(f32) / 2, lambda a: a.astype(np.float32) / 2, (NUMBERS,)),
    "expand": (lambda a: shaping.expand_dims(a, [0, -1]), lambda a: a[None, ..., None], (A,)),
    "squeeze": (lambda a: shaping.squeeze(a), lambda a: a[:, 0], (A,)),
    "reshape": (lambda a: shaping.reshape(a, (5, -1)), lambda a: a.reshape(5, 3), (A,)),
    "move": (lambda a: shaping.move_axis(a, -1, 0), lambda a: np.moveaxis(a, -1, 0), (A,)),
    "stack": (lambda a: shaping.stack([a, a], 1), lambda a: np.stack([a, a], 1), (A,)),
    "tile": (lambda a: shaping.tile(a, (2, 3, 1)), lambda a: np.tile(a, (2, 3, 1)), (A,)),
    "pad": (
        lambda a: shaping.pad(a, 7, (1, -1), (0, 2)),
        lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=7)[:, 1:],
        (NUMBERS,),
    ),
    "slice": (lambda a: shaping.slice_in_dim(a, 1, 5, -1, 2), lambda a: a[..., 1:5:2], (A,)),
    "iota": (
        lambda a: shaping.iota(a.site, s32, (2, 3), 1) + a,
        lambda a: np.arange(3, dtype=np.int32) + a,
        (NUMBERS,),
    ),
    "sum": (
        lambda a: reductions.sum_(a, [0, -1], True),
        lambda a: a.sum((0, 2), keepdims=True),
        (A,),
    ),
    "max": (lambda a: reductions.max_(a, [1]), lambda a: a.max(1), (NUMBERS,)),
    "any": (lambda a: reductions.any_(a < 0, [1]), lambda a: (a < 0).any(1), (NUMBERS,)),
    "argmax": (lambda a: reductions.argmax(a, 1), lambda a: a.argmax(1).astype("i4"), (NANS,)),
    "argmin": (lambda a: reductions.argmin(a, 1), lambda a: a.argmin(1).astype("i4"), (NANS,)),
    "last": (
        lambda a: reductions.argmax(a, 1, last=True),
        lambda a: np.int32([2, 1]),
        (np.int32([[1, 0, 1], [2, 2, 0]]),),
    ),
    "cumsum": (
        lambda a: reductions.cumulative(a, "add", 1),
        lambda a: a.cumsum(1, dtype="i4"),
        (NUMBERS,),
    ),
    "before": (
        lambda a: reductions.cumulative(a, "add", 1, exclusive=True),
        lambda a: a.cumsum(1, dtype="i4") - a,
        (NUMBERS,),
    ),
    "after": (
        lambda a: reductions.cumulative(a, "add", 1, backwards=True, exclusive=True),
        lambda a: a[:, ::-1].cumsum(1, dtype="i4")[:, ::-1] - a,
        (NUMBERS,),
    ),
    "floor": (arithmetic.floor_divide, np.floor_divide, DIVIDED),
    "floor of floats": (arithmetic.floor_divide, np.floor_divide, FRACTIONS),
    "remainder": (arithmetic.remainder, np.remainder, DIVIDED),
    "right": (arithmetic.right_shift, np.right_shift, (NUMBERS, np.int32([[1], [2]]))),
    "right unsigned": (arithmetic.right_shift, np.right_shift, (np.uint8([255, 4]), np.uint8([3]))),
    "conj": (arithmetic.conj, np.conj, (A + 2j * A,)),
    "tril": (lambda a: shaping.tril(a, -1), lambda a: np.tril(a, -1), (floats(2, 3, 5),)),
    "triu": (lambda a, k: shaping.triu(a, k), lambda a, k: np.triu(a, 1), (B, np.int64(1))),
    "fft": (
        lambda a: fft.pairs_of_complex(fft.fft(a, "RFFT", 3, 0)),
        lambda a: np.fft.rfft(a, axis=0).astype(np.complex64).view("f4").reshape(2, 1, 5, 2),
        (A,),
    ),
    "matmul": (linear.matmul, np.matmul, (floats(3, 4, 5), floats(2, 1, 5, 6))),
    "vector": (linear.matmul, np.matmul, (floats(5), floats(2, 5, 6))),
    "vectors": (linear.matmul, np.matmul, (floats(5), floats(5))),
    "einsum": (
        lambda a, b: linear.einsum("bij,bkj->ikb", [a, b]),
        lambda a, b: np.einsum("bij,bkj->ikb", a, b),
        (floats(2, 3, 4), floats(2, 5, 4)),
    ),
    "trace": (
        lambda a: linear.einsum("iji->j", [a]),
        lambda a: np.einsum("iji->j", a),
        (floats(3, 4, 3),),
    ),
    "line": (
        lambda a: linear.einsum("iii", [a]),
        lambda a: np.einsum("iii->", a),
        (floats(3, 3, 3),),
    ),
    "ellipsis": (
        lambda a, b: linear.einsum("...ij, j... -> i...", [a, b]),
        lambda a, b: np.einsum("...ij,j...->i...", a, b),
        (floats(2, 1, 3, 4), floats(4, 5)),
    ),
    "implied": (
        lambda a, b: linear.einsum("...cb,Ba", [a, b]),
        lambda a, b: np.einsum("...cb,Ba->...Babc", a, b),
        (floats(2, 3, 4), floats(1, 2)),
    ),
    "size 1": (
        lambda a, b: linear.einsum("ij,ij->i", [a, b]),
        lambda a, b: (a * b).sum(1),
        (floats(1, 4), floats(3, 4)),
    ),
    "take": (
        lambda a, i: indexing.take(a, i, 1),
        lambda a, i: a[:, i],
        (floats(3, 4), np.int32([[0, 3], [1, 1]])),
    ),
    "along": (
        lambda a, i: indexing.take_along_axis(a, i, 1),
        lambda a, i: np.take_along_axis(a[:2], i, 1),
        (floats(3, 4), np.int64([[0, 3], [1, 1]])),
    ),
    "along, for all": (
        lambda a, i: indexing.take_along_axis(a, shaping.broadcast_to(i, (4, 3)), 0),
        lambda a, i: a[i[:, 0], :3],
        (floats(3, 5), np.int64([[2], [0], [0], [1]])),
    ),
    "put, for all": (
        lambda a, i, u: indexing.put_along_axis(
            a, shaping.broadcast_to(i, (4, 5)), u, 0, lambda old, new: old + new
        ),
        lambda a, i, u: a + np.stack([u[i[:, 0] == k].sum(0) for k in range(3)]),
        (floats(3, 5), np.int64([[2], [0], [0], [1]]), floats(4, 5)),
    ),
    "put, for some": (
        lambda a, i, u: indexing.put_along_axis(a, shaping.broadcast_to(i, (2, 3)), u, 0),
        lambda a, i, u: np.concatenate([np.concatenate([u[::-1], a[:2, 3:]], 1), a[2:]]),
        (floats(3, 5), np.int64([[1], [0]]), floats(2, 3)),
    ),
    "nd": (
        lambda a, i: indexing.gather_nd(a, i, 1),
        lambda a, i: np.stack([a[0, 1], a[1, 0]]),
        (floats(2, 3, 4), np.int64([[1], [0]])),
    ),
    "wrap": (lambda i: indexing.wrap(i, 10), lambda i: np.where(i < 0, i + 10, i), (NUMBERS,)),
    "sort": (lambda a: order.sort([a])[0], lambda a: np.sort(a), (NANS,)),
    "argsort": (
        lambda a: order.argsort(a, descending=True),
        lambda a: np.int32([[1, 3, 2, 0], [3, 0, 1, 2]]),
        (NANS,),
    ),
    "top k": (
        lambda a: order.top_k(a, 2, axis=0),
        lambda a: (np.sort(a, 0)[::-1][:2], np.argsort(-a, 0, "stable")[:2].astype("i4")),
        (floats(5, 3),),
    ),
    "softmax": (
        lambda a: functions.softmax(a, [2]),
        lambda a: np.exp(a) / np.exp(a).sum(2, keepdims=True),
        (A,),
    ),
    "logsumexp": (
        lambda a: functions.logsumexp(a, [0]),
        lambda a: np.full(3, -np.inf, np.float32),
        (np.full((2, 3), -np.inf, np.float32),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_numpy_gives(name: str, run: Any) -> None:
    function, expected, args = CASES[name]
    found, wanted = run(function, *args), expected(*args)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for a, b in pairs:
        assert a.dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_writes_combine_and_leave_out_what_is_outside(run: Any) -> None:
    x, at, new = np.zeros(4, np.float32), np.int32([[1], [1], [9]]), np.float32([2, 3, 4])
    added = run(lambda x, i, u: indexing.scatter_nd(x, i, u, lambda a, b: a + b), x, at, new)
    assert added.tolist() == [0, 5, 0, 0]
    rows = np.float32([[1, 2], [3, 4]])
    put = run(
        lambda x, i, u: indexing.put_along_axis(x, i, u, 1),
        rows,
        np.int64([[1], [0]]),
        np.float32([[7], [8]]),
    )
    assert put.tolist() == [[1, 7], [8, 4]]
    column = run(
        lambda x, i, u: indexing.put(x, i, u, 1), rows, np.int32([0]), np.float32([[5], [6]])
    )
    assert column.tolist() == [[5, 2], [6, 4]]


def test_convolutions_are_correlations(run: Any) -> None:
    x, k = floats(1, 2, 5), floats(3, 2, 2)
    found = run(lambda x, k: linear.conv(x, k, [2], [(1, 0)]), x, k)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0)))
    wanted = [[np.sum(padded[0, :, p : p + 2] * k[o]) for p in (0, 2, 4)] for o in range(3)]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b,
        lambda a, b: linear.matmul(a, b),
        lambda a, b: shaping.reshape(a, (4,)),
        lambda a, b: shaping.squeeze(b, [0]),
        lambda a, b: shaping.transpose(a, (0, 2)),
        lambda a, b: linear.einsum("ij,jk->ik", [a]),
        lambda a, b: linear.einsum("i,jk", [a, b]),
        lambda a, b: linear.einsum("ij,kl->im", [a, b]),
    ],
)
def test_what_does_not_fit_is_refused(function: Any, run: Any) -> None:
    with pytest.raises(VerifyError):
        run(function, floats(2, 3), floats(2, 4))


def test_places_that_all_rows_share_move_whole_rows() -> None:
    graph = Graph("test")
    x = Term(graph, graph.parameter(Shape(f32, (3, 5)), "x"))
    places = shaping.broadcast_to(shaping.iota(graph, s64, (4, 1), 0), (4, 5))
    new = indexing.put_along_axis(x, places, shaping.full(graph, 1, f32, (4, 5)), 0)
    assert new.value.opcode == "scatter" and new.value.attrs["update_window_dims"] == (1,)
    found = indexing.take_along_axis(x, places, 0)
    assert found.value.attrs["slice_sizes"] == (1, 5)
