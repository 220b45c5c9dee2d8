"""Higher-order operators: branches, loops and graphs inside graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Any

from ....dtypes import pred
from ....hlo.nodes import Shape
from ...lax import control
from ...lax.graph import Graph
from ...lax.shaping import full, reshape
from ...lax.term import Term, innermost
from .call import AtenCall, Rows, Sized
from .logic import truth

Subgraph = Callable[..., list[Term]]
"""Writes a graph in another one: of that, its terms, and ``required``, as in ``AtenCall``."""


def _graph(c: AtenCall, terms: Sequence[Any]) -> Graph:
    found = innermost(given) if (given := _terms(terms)) else c.graph
    assert isinstance(found, Graph)
    return found


def _terms(values: Sequence[Any]) -> list[Term]:
    return [v for v in values if isinstance(v, Term)]


def _requires(c: AtenCall, body: Subgraph, given: Sequence[Any]) -> bool:
    """True if a graph may require something of terms, or shapes of terms, and anybody asks."""
    if not isinstance(c.required, list):
        return False
    trial = Graph("trial", c.graph)
    shapes = [v.shape if isinstance(v, Term) else v for v in given]
    values = [Term(trial, trial.parameter(v)) if isinstance(v, Shape) else v for v in shapes]
    required: list[Term] = []
    body(trial, *values, required=required)
    return bool(required)


def _held(graph: Graph, required: Sequence[Term]) -> Term:
    return reduce(and_, required) if required else full(graph, True, pred)


def _cond(
    c: AtenCall, choice: Term, yes: Subgraph, no: Subgraph, operands: Sequence[Any] = ()
) -> list[Term]:
    if not isinstance(choice, Term):
        return (yes if choice else no)(c.graph, *operands, required=c.required)
    checked = _requires(c, yes, operands) or _requires(c, no, operands)

    def branch(body: Subgraph) -> Callable[..., list[Term]]:
        def write(*given: Term) -> list[Term]:
            terms, graph = iter(given), _graph(c, given)
            values = [next(terms) if isinstance(v, Term) else v for v in operands]
            if not checked:
                return body(graph, *values, required=c.inside)
            required: list[Term] = []
            found = body(graph, *values, required=required)
            return [*found, _held(graph, required)]

        return write

    truths = reshape(truth(choice), ())
    found = control.cond(truths, branch(yes), branch(no), _terms(operands))
    if checked:
        c.require(found.pop())
    return found


def _while_loop(
    c: AtenCall,
    condition: Subgraph,
    body: Subgraph,
    carried: Sequence[Term],
    more: Sequence[Term] = (),
) -> list[Term]:
    given = [*carried, *more]
    if not (_requires(c, condition, given) or _requires(c, body, given)):
        return control.while_loop(
            lambda *state: _goes_on(condition(_graph(c, state), *state, *more, required=c.inside)),
            lambda *state: body(_graph(c, state), *state, *more, required=c.inside),
            carried,
        )

    def goes_on(holds: Term, *state: Term) -> Term:
        required = [holds]
        found = condition(_graph(c, state), *state, *more, required=required)
        return _goes_on(found) & reduce(and_, required)

    def step(holds: Term, *state: Term) -> list[Term]:
        required = [holds]
        new = body(_graph(c, state), *state, *more, required=required)
        return [reduce(and_, required), *new]

    holds, *last = control.while_loop(goes_on, step, [full(c.graph, True, pred), *carried])
    c.require(holds)
    condition(c.graph, *last, *more, required=c.required)  # where the loop ended
    return last


def _goes_on(found: Sequence[Term]) -> Term:
    return reshape(truth(found[0]), ())


def _map(
    c: AtenCall, body: Subgraph, rows: Sequence[Term], more: Sequence[Term] = ()
) -> list[Term]:
    return _scan(c, body, [], rows, more)


def _scan(
    c: AtenCall,
    body: Subgraph,
    start: Sequence[Term],
    rows: Sequence[Term],
    more: Sequence[Term] = (),
) -> list[Term]:
    length = rows[0].dims[0]
    row = [Shape(r.dtype, r.dims[1:]) for r in rows]
    if not _requires(c, body, [*start, *row, *more]):
        return control.scan(
            lambda *state: body(_graph(c, state), *state, *more, required=c.inside),
            start,
            rows,
            length,
        )

    def step(holds: Term, *state: Term) -> list[Term]:
        required = [holds]
        new = body(_graph(c, state), *state, *more, required=required)
        return [reduce(and_, required), *new]

    holds, *found = control.scan(step, [full(c.graph, True, pred), *start], rows, length)
    c.require(holds)
    return found


def _wrapped(c: AtenCall, flag: Any, body: Subgraph, *operands: Term) -> list[Term]:
    return body(c.graph, *operands, required=c.required)


def _invoked(c: AtenCall, body: Subgraph, name: Any, *operands: Any) -> list[Term]:
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list) else operands
    return body(c.graph, *given, required=c.required)


ROWS: Rows = {
    "cond": Sized(_cond, numbers=True),
    "while_loop": _while_loop,
    "map_impl": _map,
    "scan": _scan,
    "wrap_with_set_grad_enabled": _wrapped,
    "invoke_subgraph": _invoked,
}
