"""How often a loop runs whose condition depends on counters alone, found by counting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import to_numpy
from ...hlo.nodes import Computation, Instruction, TupleShape
from ...hlo.rewrite import assemble, make, parameter, post_order, with_operands
from .graph import Graph
from .term import Term

MOST = 4096
"""Iterations up to which they are counted."""


def runs(
    body: Graph, going: Term, after: Sequence[Term], start: Sequence[Term], trips: int | None
) -> int | None:
    """Return how often a loop runs that begins, None where its values decide that.

    The parameters of ``body`` are the number of the iteration and the state; ``after`` is the state
    that it returns, ``start`` the first one, ``trips`` the limit of its iterations. Counters are
    what the condition ``going`` is made of: the number, and state of known start that is made of
    counters.
    """
    counters = _counters(body, going, after)
    if counters is None:
        return None
    known = [start[k].known() for k in counters]
    values = [v for v in known if v is not None]
    if len(values) < len(known):
        return None
    step = _step(body, going, [after[k] for k in counters], counters)
    number, number_type = 0, to_numpy(body.parameters[0].array.dtype)
    while trips is None or number < trips:
        if number > MOST:
            return None
        found = body.called(step, [np.array(number, number_type), *values])
        if found is None:
            return None
        on, *values = found
        number += 1
        if not on.all():
            break
    return number


def _counters(body: Graph, going: Term, after: Sequence[Term]) -> list[int] | None:
    """Return the places of the state that the condition is made of, None if more is in it."""
    own = {p: n - 1 for n, p in enumerate(body.parameters[: 1 + len(after)])}
    found: list[int] = []
    while True:
        roots = [body.inside(t.value) for t in (going, *(after[k] for k in found))]
        read = [i for i in post_order(roots) if i.opcode == "parameter"]
        if any(p not in own for p in read):
            return None
        needed = sorted({*found, *(own[p] for p in read if own[p] >= 0)})
        if needed == found:
            return found
        found = needed


def _step(body: Graph, going: Term, after: Sequence[Term], counters: Sequence[int]) -> Computation:
    """Return the computation ``(number, counters..) -> (going, counters..)``."""
    given = [body.parameters[0], *(body.parameters[1 + k] for k in counters)]
    parameters = [parameter(n, p.shape, p.name) for n, p in enumerate(given)]
    new: dict[Instruction, Instruction] = dict(zip(given, parameters, strict=True))
    results = [body.inside(t.value) for t in (going, *after)]
    root = make("tuple", TupleShape(tuple(r.shape for r in results)), results)
    for i in post_order([root]):
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands))
    return assemble("step", parameters, new[root])
