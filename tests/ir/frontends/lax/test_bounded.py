"""Bounded sizes in terms: shapes say which dimensions vary, and counts leave the padding out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nestwright.ir.dtypes import f32, s32
from nestwright.ir.frontends.lax import (
    bounded,
    fft,
    functions,
    indexing,
    linear,
    order,
    reductions,
    shaping,
)
from nestwright.ir.frontends.lax.extremes import extremes
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import Shape

DIMS = 5, 4, 6
BOTH = 3, 2
"""Live sizes of the dimensions 0 and 1."""


def _ones(x: Term, *dims: int) -> Term:
    return shaping.full(x.site, 1, f32, dims)


def _mixed(x: Term) -> Term:
    """An array whose dimension 0 varies, plus one whose dimension 1 does."""
    other = shaping.full(x.site, 2, f32, DIMS)
    return bounded.resized(other, 1, shaping.full(x.site, BOTH[1], s32)) + x


FUNCTIONS: dict[str, Callable[[Term], Term]] = {
    "slice": lambda x: shaping.slice_in_dim(x, 0, 1, 1),
    "slice_of_what_varies": lambda x: shaping.slice_in_dim(x, 1, 4, 0),
    "element_of_what_varies": lambda x: shaping.slice_in_dim(x, 1, 2, 0),
    "pad": lambda x: shaping.pad(x, 0, [1, 2, 0], [0, 0, 0]),
    "dynamic_slice": lambda x: indexing.dynamic_slice(x, [0, 1, 0], [5, 2, 6]),
    "argmax": lambda x: reductions.argmax(x, 1),
    "cumulative": lambda x: reductions.cumulative(x, "add", 1),
    "top_k": lambda x: order.top_k(x, 2)[1],
    "dot": lambda x: linear.dot_general(x, _ones(x, 6, 3), ([2], [0])),
    "conv": lambda x: linear.conv(x, _ones(x, 3, 4, 2), [1], [(0, 0)]),
    "fft": lambda x: fft.fft(x, "RFFT", 6, 2).do("real"),
    "mixed": _mixed,
    "mixed_swapped": lambda x: (x > _mixed(x)).select(1, x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_shape_says_which_sizes_vary(name: str) -> None:
    graph = Graph("test")
    size = Term(graph, graph.parameter(Shape(s32), "n"))
    array = Term(graph, graph.parameter(Shape(f32, DIMS), "x"))
    found = FUNCTIONS[name](bounded.resized(array, 0, size))
    x = np.arange(120, dtype=np.float32).reshape(DIMS)
    value = evaluate(graph.module([found.value]), [np.int32(BOTH[0]), x])
    varies = tuple(a != b for a, b in zip(value.shape, found.dims, strict=True))
    assert found.shape.marks == varies


def test_a_mean_counts_what_there_is() -> None:
    graph = Graph("test")
    size = Term(graph, graph.parameter(Shape(s32), "n"))
    array = Term(graph, graph.parameter(Shape(f32, (5, 2)), "x"))
    found = functions.mean(bounded.resized(array, 0, size), [0])
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    value = evaluate(graph.module([found.value]), [np.int32(3), x])
    np.testing.assert_array_equal(value, x[:3].mean(0))


ARITHMETIC: dict[str, tuple[Callable[[Term], Term], int, int]] = {
    "scaled": (lambda n: (n * 3 + 1) / 2, 0, 8),
    "from_a_number": (lambda n: 9 - n, 4, 9),
    "the_less": (lambda n: n.do("minimum", 3), 0, 3),
    "chosen": (lambda n: (n < -1).select(7, n), 0, 5),
    "open_choice": (lambda n: (n >= 4).select(-2, n), -2, 5),
    "never_equal": (lambda n: n.equals(6).select(9, n * 0), 0, 0),
    "least_of": (lambda n: reductions.min_(shaping.stack([n, n * 0 + 4])), 0, 4),
    "product_of": (lambda n: reductions.prod_(shaping.stack([n, n + 1])), 0, 30),
    "always_other": (lambda n: n.differs(-1).select(n * 0, 9), 0, 0),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_extremes_of_arithmetic_on_sizes(name: str) -> None:
    of, least, most = ARITHMETIC[name]
    graph = Graph("test")
    size = Term(graph, graph.parameter(Shape(s32), "n"))
    array = Term(graph, graph.parameter(Shape(f32, (5,)), "x"))
    found = of(bounded.size(bounded.resized(array, 0, size), 0))
    assert extremes(found) == (least, most)
    values = [
        evaluate(graph.module([found.value]), [np.int32(n), np.zeros(5, np.float32)])
        for n in range(6)
    ]
    assert least <= min(values) and max(values) <= most
    assert extremes(size) is None and extremes(size * found) is None
