"""A graph of one function of terms, run by the interpreter or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nestwright.ir import hlo
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import from_numpy
from nestwright.ir.frontends.lax.graph import Graph
from nestwright.ir.frontends.lax.term import Term
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Shape

Function = Callable[..., "Term | Sequence[Term]"]


def module_of(function: Function, *args: Array) -> HloModule:
    """Return the verified module of a function of terms, for arguments like these."""
    graph = Graph("main")
    given = [Term(graph, graph.parameter(Shape(from_numpy(a.dtype), a.shape))) for a in args]
    made = function(*given)
    results = [made] if isinstance(made, Term) else list(made)
    module = graph.module([r.value for r in results])
    hlo.verify(module)
    assert hlo.show(hlo.parse(hlo.show(module))) == hlo.show(module)
    return module


@pytest.fixture
def run() -> Callable[..., Any]:
    """Interpret a function of terms on arrays."""
    return lambda function, *args: evaluate(module_of(function, *args), list(args))
