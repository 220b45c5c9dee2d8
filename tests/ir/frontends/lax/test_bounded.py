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
