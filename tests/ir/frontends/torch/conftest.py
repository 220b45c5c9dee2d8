"""Rows of the table, called with arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import DType, from_numpy
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.frontends.torch import table
from nestwright.ir.frontends.torch.operators.call import AtenCall
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import Shape


def _called(
    target: str, results: Sequence[tuple[DType, tuple[int, ...]]], *args: Any, **named: Any
) -> Any:
    """Return what a row computes: arrays among the arguments are parameters, read-only ones known.

    The first one lies in memory as the array does.
    """
    graph = Graph("test")
    given: list[Array] = []

    def term(a: Any) -> Any:
        if isinstance(a, np.ndarray) and not a.flags.writeable:
            return Term(graph, graph.constant(a))
        if isinstance(a, np.ndarray):
            given.append(a)
            shape = Shape(from_numpy(a.dtype), a.shape)
            return Term(graph, graph.parameter(shape, f"x{len(given)}"))
        return [term(x) for x in a] if isinstance(a, list) else a

    lies = None
    if args and isinstance(args[0], np.ndarray):
        lies = tuple(n // args[0].itemsize for n in args[0].strides), 0
    call = AtenCall(graph, target, tuple(Shape(d, dims) for d, dims in results), lies)
    row = table.row(target)
    assert row is not None
    found = row(call, *[term(a) for a in args], **{k: term(a) for k, a in named.items()})
    terms = [found] if isinstance(found, Term) else [t for t in found if t is not None]
    for t, (_, dims) in zip(terms, results, strict=True):
        assert t.dims == dims
    out = [t.to(d).value for t, (d, _) in zip(terms, results, strict=True)]
    with np.errstate(all="ignore"):
        return evaluate(graph.module(out), given)


@pytest.fixture
def called() -> Callable[..., Any]:
    return _called
