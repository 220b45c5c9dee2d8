"""What rows require of values where torch raises errors over others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import DType, f32, from_numpy, s64
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.shaping import iota
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.frontends.torch import table
from nestwright.ir.frontends.torch.operators.call import AtenCall
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import Shape

X = np.arange(4, dtype=np.float32)


def holds(target: str, result: tuple[DType, tuple[int, ...]], *args: Any) -> bool:
    """Call a row with arrays and other arguments; say whether all holds that it requires."""
    graph, given, required = Graph("test"), [], list[Term]()

    def term(a: Any) -> Any:
        if isinstance(a, np.ndarray):
            given.append(a)
            return Term(graph, graph.parameter(Shape(from_numpy(a.dtype), a.shape), "x"))
        return [term(x) for x in a] if isinstance(a, list) else a

    call = AtenCall(graph, target, (Shape(*result),), required=required)
    row = table.row(target)
    assert row is not None
    row(call, *[term(a) for a in args])
    found = evaluate(graph.module([t.value for t in required]), given)
    return bool(np.all(found))


@pytest.mark.parametrize(
    ("target", "args", "wraps"),
    [
        ("index.Tensor", lambda i: (X, [i]), True),
        ("index_put.default", lambda i: (X, [i], X[:1]), True),
        ("take.default", lambda i: (X, i), True),
        ("put.default", lambda i: (X, i, X[:2]), True),
        ("index_select.default", lambda i: (X, 0, i), False),
        ("gather.default", lambda i: (X, -1, i), False),
        ("scatter.src", lambda i: (X, 0, i, X[:2]), False),
        ("scatter_reduce.two", lambda i: (X, 0, i, X[:2], "sum"), False),
        ("embedding.default", lambda i: (np.stack([X, X], 1), i), False),
    ],
)
def test_places_are_inside(target: str, args: Any, wraps: bool) -> None:
    name, of = f"aten.{target}", (f32, (2,))
    kinds = [np.int64, np.int32]
    assert all(holds(name, of, *args(np.array([0, 3], k))) for k in kinds)
    assert not any(holds(name, of, *args(np.array([0, 4], k))) for k in kinds)
    assert not holds(name, of, *args(np.array([-5, 0])))
    assert holds(name, of, *args(np.array([0, -4]))) == wraps


def test_whole_numbers_are_not_divided_by_zero() -> None:
    a, zero, good = np.array([3, 4]), np.array([1, 0]), np.array([1, -2])
    for name, rest in (("floor_divide.default", ()), ("div.Tensor_mode", ("trunc",))):
        assert holds(f"aten.{name}", (s64, (2,)), a, good, *rest)
        assert not holds(f"aten.{name}", (s64, (2,)), a, zero, *rest)
    assert not holds("aten.remainder.Tensor", (s64, (2,)), a, zero)
    assert not holds("aten.fmod.Tensor", (s64, (2,)), a, zero)


def test_a_source_has_an_element_for_each_truth() -> None:
    mask = np.array([True, False, True, False])
    assert holds("aten.masked_scatter.default", (f32, (4,)), X, mask, X[:2])
    assert not holds("aten.masked_scatter.default", (f32, (4,)), X, mask, X[:1])


def test_places_of_unpooling_are_inside() -> None:
    x, name = X[:2].reshape(1, 1, 2), "aten.max_unpool2d.default"
    for last, found in ((3, True), (4, False), (-1, False)):
        places = np.array([[[0, last]]])
        assert holds(name, (f32, (1, 2, 2)), x, places, [2, 2]) == found


def test_what_is_known_is_not_computed() -> None:
    graph, required = Graph("test"), list[Term]()
    call = AtenCall(graph, "aten.index.Tensor", (Shape(f32, (4,)),), required=required)
    call.within(iota(graph, s64, (4,)), 4)
    assert not required
    call.within(iota(graph, s64, (4,)), 3)
    assert len(required) == 1


EMPTY = np.zeros((2, 0), np.float32)


@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("max.default", [EMPTY]),
        ("min.dim", [EMPTY, 1]),
        ("_adaptive_avg_pool2d.default", [EMPTY[None], [2, 2]]),
        ("bucketize.Tensor", [X, X.reshape(2, 2)]),
    ],
)
def test_what_torch_refuses_is_left_to_it(called: Any, target: str, args: list[Any]) -> None:
    results = [(f32, ()), (s64, ())][: 1 + target.startswith("min")]
    with pytest.raises(UnsupportedError, match=target):
        called(f"aten.{target}", results, *args)


def test_a_pseudo_inverse_without_elements() -> None:
    x = np.zeros((0, 5), np.float32)
    assert holds("aten.linalg_pinv.atol_rtol_tensor", (f32, (5, 0)), x)
