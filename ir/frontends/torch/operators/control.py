"""Higher-order operators: branches, loops and graphs inside graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...lax import control
from ...lax.graph import Graph
from ...lax.shaping import reshape
from ...lax.term import Term, innermost
from .call import AtenCall, Rows, Sized
from .logic import truth

Subgraph = Callable[..., list[Term]]


def _graph(c: AtenCall, terms: Sequence[Any]) -> Graph:
    found = innermost([t for t in terms if isinstance(t, Term)]) if terms else c.graph
    assert isinstance(found, Graph)
    return found


def _cond(
    c: AtenCall, choice: Term, yes: Subgraph, no: Subgraph, operands: Sequence[Term] = ()
) -> list[Term]:
    if not isinstance(choice, Term):
        return (yes if choice else no)(c.graph, *operands)
    return control.cond(
        reshape(truth(choice), ()),
        lambda: _inside(c, yes, operands),
        lambda: _inside(c, no, operands),
    )


def _inside(c: AtenCall, body: Subgraph, operands: Sequence[Term]) -> list[Term]:
    return body(c.graph, *operands)


def _while_loop(
    c: AtenCall,
    condition: Subgraph,
    body: Subgraph,
    carried: Sequence[Term],
    more: Sequence[Term] = (),
) -> list[Term]:
    return control.while_loop(
        lambda *state: reshape(truth(condition(_graph(c, state), *state, *more)[0]), ()),
        lambda *state: body(_graph(c, state), *state, *more),
        carried,
    )


def _map(
    c: AtenCall, body: Subgraph, rows: Sequence[Term], more: Sequence[Term] = ()
) -> list[Term]:
    def step(*row: Term) -> list[Term]:
        return body(_graph(c, row), *row, *more)

    return control.scan(step, [], rows, rows[0].dims[0])


def _scan(
    c: AtenCall,
    body: Subgraph,
    start: Sequence[Term],
    rows: Sequence[Term],
    more: Sequence[Term] = (),
) -> list[Term]:
    def step(*state: Term) -> list[Term]:
        return body(_graph(c, state), *state, *more)

    return control.scan(step, start, rows, rows[0].dims[0])


def _wrapped(c: AtenCall, flag: Any, body: Subgraph, *operands: Term) -> list[Term]:
    return body(c.graph, *operands)


def _invoked(c: AtenCall, body: Subgraph, name: Any, *operands: Any) -> list[Term]:
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list) else operands
    return body(c.graph, *given)


ROWS: Rows = {
    "cond": Sized(_cond, numbers=True),
    "while_loop": _while_loop,
    "map_impl": _map,
    "scan": _scan,
    "wrap_with_set_grad_enabled": _wrapped,
    "invoke_subgraph": _invoked,
}
