"""Rows for sizes that depend on values, without torch: what makes them, and what takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import f32, s64
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.frontends.torch import table
from nestwright.ir.frontends.torch.operators.call import NO_BOUND, AtenCall, Sized
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import Shape

Called = Callable[..., Any]
MASKS = [np.zeros(7, bool), np.ones(7, bool), np.array([0, 1, 1, 0, 0, 1, 0], bool)]


def whole(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, dims).astype(np.float32)


@pytest.mark.parametrize("mask", MASKS)
def test_masks_choose_as_many_elements_as_they_have_truths(called: Called, mask: Array) -> None:
    x = whole(7, 3)
    found = called("aten.index.Tensor", [(f32, (7, 3))], x, [mask])
    np.testing.assert_array_equal(found, x[mask])
    places = called("aten.nonzero.default", [(s64, (21, 2))], x * mask[:, None])
    np.testing.assert_array_equal(places, np.argwhere(x * mask[:, None]))
    chosen = called("aten.masked_select.default", [(f32, (21,))], x, mask[:, None])
    np.testing.assert_array_equal(chosen, x[mask].reshape(-1))
    wanted = x.copy()
    wanted[mask] = np.arange(mask.sum(), dtype=np.float32)[:, None]
    rows = np.arange(7, dtype=np.float32)[:, None]
    put = called("aten.index_put.default", [(f32, (7, 3))], x, [mask], rows)
    np.testing.assert_array_equal(put, wanted)


def test_a_mask_between_other_indices(called: Called) -> None:
    x, mask = whole(2, 3, 4), np.array([[1, 0, 1], [0, 0, 1]], bool)
    np.testing.assert_array_equal(called("aten.index.Tensor", [(f32, (6, 4))], x, [mask]), x[mask])
    columns = np.array([0, 1, 1, 0], bool)
    found = called("aten.index.Tensor", [(f32, (2, 3, 4))], x, [None, None, columns])
    np.testing.assert_array_equal(found, x[:, :, columns])


@pytest.mark.parametrize("values", [[3, 1, 3, 3, 0, 1], [2] * 6, range(6)])
def test_distinct_elements(called: Called, values: Any) -> None:
    x = np.array(values, np.int64)
    shapes = [(s64, (6,))] * 3
    wanted = np.unique(x, return_inverse=True, return_counts=True)
    for ours, theirs in zip(called("aten._unique2.default", shapes, x), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    starts = np.flatnonzero(np.diff(x, prepend=x[0] - 1))
    parts, places, counts = called("aten.unique_consecutive.default", shapes, x)
    np.testing.assert_array_equal(parts, x[starts])
    np.testing.assert_array_equal(parts[places], x)
    np.testing.assert_array_equal(counts, np.diff(starts, append=6))


def test_every_nan_is_distinct_and_zeros_are_one(called: Called) -> None:
    x = np.array([np.nan, 1, -0.0, 0.0, np.nan], np.float32)
    shapes = [(f32, (5,)), (s64, (5,)), (s64, (5,))]
    parts, places, counts = called("aten._unique2.default", shapes, x)
    np.testing.assert_array_equal(parts, [0, 1, np.nan, np.nan])
    np.testing.assert_array_equal(counts, [2, 1, 1, 1])
    np.testing.assert_array_equal(parts[places], x)


@pytest.mark.parametrize("repeats", [[0, 0, 0], [2, 0, 3], [5, 4, 3]])
def test_places_are_repeated_and_counted(called: Called, repeats: list[int]) -> None:
    given = np.array(repeats, np.int64)
    found = called("aten.repeat_interleave.Tensor", [(s64, (12,))], given)
    np.testing.assert_array_equal(found, np.repeat(np.arange(3), given))
    counts = called("aten.bincount.default", [(s64, (9,))], given, None, 2)
    np.testing.assert_array_equal(counts, np.bincount(given, minlength=2))
    for name in ("aten.repeat_interleave.Tensor", "aten.bincount.default"):
        with pytest.raises(UnsupportedError, match="has no bound"):
            called(name, [(s64, (NO_BOUND,))], given)


def test_boxes_that_better_ones_overlap_go(called: Called) -> None:
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [3, 3, 4, 4], [0, 0, 2, 1]], np.float32)
    name, shape = "torchvision.nms.default", [(s64, (4,))]
    for scores, wanted in (([1, 2, 3, 4], [3, 2, 1]), ([4, 3, -np.inf, 1], [0, 3, 2])):
        found = called(name, shape, boxes, np.array(scores, np.float32), 0.6)
        np.testing.assert_array_equal(found, wanted)
    tied = called(name, shape, boxes, np.full(4, np.nan, np.float32), 0.4)
    np.testing.assert_array_equal(tied, [0, 2])


def _variance(x: Array) -> Array:
    return np.asarray(x.var(0, ddof=1))


OF_PART: list[tuple[str, tuple[Any, ...], Callable[[Array], Any]]] = [
    ("aten.mean.dim", ([0],), lambda x: x.mean(0)),
    ("aten.mean.default", (), np.mean),
    ("aten.var.correction", ([0],), _variance),
    ("aten.sum.dim_IntList", ([1],), lambda x: x.sum(1)),
    ("aten.prod.dim_int", (0,), lambda x: x.prod(0)),
    ("aten.amin.default", ([0],), lambda x: x.min(0)),
    ("aten.argmax.default", (1,), lambda x: x.argmax(1)),
    ("aten.argmin.default", (0,), lambda x: x.argmin(0)),
    ("aten.cumsum.default", (0,), lambda x: x.cumsum(0)),
    ("aten.median.default", (), lambda x: np.sort(x.reshape(-1))[(x.size - 1) // 2]),
    ("aten.sort.default", (0,), lambda x: np.sort(x, 0)),
    ("aten._softmax.default", (0, False), lambda x: np.exp(x) / np.exp(x).sum(0)),
    ("aten.flip.default", ([0],), lambda x: x[::-1]),
    ("aten.select.int", (0, -1), lambda x: x[-1]),
    ("aten.slice.Tensor", (0, -2, 1 << 62), lambda x: x[-2:]),
    ("aten.slice.Tensor", (0, 1, 1 << 62, 2), lambda x: x[1::2]),
    ("aten.index.Tensor", ([np.array([-1, 0])],), lambda x: x[[-1, 0]]),
    ("aten.linalg_vector_norm.default", (), lambda x: np.sqrt((x * x).sum())),
    ("aten.topk.default", (1, 0), lambda x: x.max(0, keepdims=True)),
    ("aten.tril.default", (), np.tril),
]
"""An operator, its arguments after the array, and its first result."""


def _written(bound: int) -> Any:
    """Return a module of all rows above, whose array has this bound."""
    graph = Graph("parts")
    x = Term(graph, graph.parameter(Shape(f32, (bound, 3), None, (True, False)), "x"))
    found = []
    for name, args, _ in OF_PART:
        call = AtenCall(graph, name, (Shape(f32, (bound, 3)), Shape(s64, (bound, 3))))
        given = [
            [Term(graph, graph.constant(v)) if isinstance(v, np.ndarray) else v for v in a]
            if isinstance(a, list)
            else a
            for a in args
        ]
        row = table.row(name)
        assert isinstance(row, Sized), name
        made = row(call, x, *given)
        found.append(made if isinstance(made, Term) else made[0])
    return graph.module([t.value for t in found])


def test_no_padding_counts() -> None:
    module = _written(7)
    exe = build(module)
    for n in (2, 5, 7):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32) + 2
        for found in (evaluate(module, [x]), exe(x)):
            for ours, (name, _, wanted) in zip(found, OF_PART, strict=True):
                np.testing.assert_allclose(ours, wanted(x), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.split.Tensor", (2, 0)),
        ("aten.unbind.int", (0,)),
        ("aten.native_layer_norm.default", ([7, 3], None, None, 1e-5)),
        ("aten._unique2.default", ()),
        ("aten.take.default", (np.array([0]),)),
    ],
)
def test_work_along_a_size_that_varies_is_refused(name: str, args: tuple[Any, ...]) -> None:
    graph = Graph("refused")
    x = Term(graph, graph.parameter(Shape(f32, (7, 3), None, (True, False)), "x"))
    call = AtenCall(graph, name, (Shape(f32, (7, 3)), Shape(s64, (7,)), Shape(s64, (7,))))
    given = [Term(graph, graph.constant(a)) if isinstance(a, np.ndarray) else a for a in args]
    row = table.row(name)
    assert isinstance(row, Sized)
    with pytest.raises(UnsupportedError, match="depends on values"):
        row(call, x, *given)
