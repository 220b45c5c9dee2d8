"""Loops and branches, whose bodies are Python functions of terms.

A body may use terms from around it: they become constants or further values of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dtypes import pred, s32
from ...errors import VerifyError
from ...hlo.nodes import Computation, Instruction, Shape
from .graph import Graph
from .indexing import dynamic_slice, dynamic_update_slice
from .shaping import expand_dims, full, pad, squeeze
from .term import Term, innermost, unpacked

State = Sequence[Term]
Body = Callable[..., State]


def while_loop(condition: Callable[..., Term], body: Body, start: State) -> list[Term]:
    """Repeat ``start = body(*start)`` as long as ``condition(*start)`` holds, a pred scalar.

    ``start`` has at least one term; the body keeps all types and shapes.
    """
    outer = _graph(start)
    test, holds = _traced(outer, "condition", lambda *s: [condition(*s)], start)
    inner, results = _traced(outer, "body", body, start)
    if [t.shape for t in results] != [t.shape for t in start]:
        shown = ", ".join(f"{t.dtype}{list(t.dims)}" for t in results)
        raise VerifyError("shapes do not fit", f"a loop's body changes its values to {shown}")
    taken = list({**test.captured, **inner.captured})
    state = outer.pack([outer.inside(v) for v in (*(t.value for t in start), *taken)])
    loop = outer.infer(
        "while",
        [state],
        condition=_packed(test, [t.value for t in holds], len(start), taken),
        body=_packed(inner, [t.value for t in results], len(start), taken, hand_on=True),
    )
    return unpacked(outer, loop)[: len(start)]


def fori_loop(count: Term | int, body: Callable[..., State], start: State) -> list[Term]:
    """Repeat ``start = body(number, *start)`` for every number below ``count``."""
    graph = _graph([*start, *([count] if isinstance(count, Term) else [])])
    dtype = count.dtype if isinstance(count, Term) else s32
    zero = full(graph, 0, dtype)

    def step(number: Term, *state: Term) -> State:
        return [number + 1, *body(number, *state)]

    return while_loop(lambda number, *_: number < count, step, [zero, *start])[1:]


def scan(body: Body, start: State, rows: State, length: int, axis: int = 0) -> list[Term]:
    """``(state.., row_results..) = body(*state, *row)`` for each part of ``rows`` along ``axis``.

    Returns the last state and the results of all rows, stacked along dimension 0; ``body`` returns
    as many state terms as ``start`` has, then any number of results.
    """
    graph = _graph([*start, *rows])
    shapes = _result_shapes(graph, body, start, rows if length else _longer(rows, axis), axis)
    stacks = [full(graph, 0, s.dtype, (length, *s.dims)) for s in shapes]
    if not length:
        return [*start, *stacks]

    def step(number: Term, *state: Term) -> State:
        row = [_row(r, number, axis) for r in rows]
        made = body(*state[: len(start)], *row)
        kept = [
            dynamic_update_slice(stack, expand_dims(new, [0]), [number, *([0] * new.rank)])
            for stack, new in zip(state[len(start) :], made[len(start) :], strict=True)
        ]
        return [*made[: len(start)], *kept]

    return fori_loop(length, step, [*start, *stacks])


def _longer(rows: State, axis: int) -> State:
    """Arrays with one more part along a dimension."""
    ends = [[int(k == axis % x.rank) for k in range(x.rank)] for x in rows]
    return [pad(x, 0, [0] * x.rank, high) for x, high in zip(rows, ends, strict=True)]


def _row(x: Term, number: Term, axis: int) -> Term:
    along = axis % x.rank
    starts = [number if k == along else 0 for k in range(x.rank)]
    sizes = [1 if k == along else d for k, d in enumerate(x.dims)]
    return squeeze(dynamic_slice(x, starts, sizes), [along])


def _result_shapes(outer: Graph, body: Body, start: State, rows: State, axis: int) -> State:
    """Return values like a body's row results, by tracing it once."""
    trial = Graph("trial", outer)
    number = Term(trial, trial.parameter(Shape(s32), "number"))
    state = [Term(trial, trial.parameter(t.shape, "state")) for t in start]
    made = body(*state, *(_row(r, number, axis) for r in rows))
    return list(made)[len(start) :]


def cond(choice: Term, yes: Body, no: Body, operands: State = ()) -> list[Term]:
    """The results of ``yes(*operands)`` where a pred scalar holds, else those of ``no(*operands)``.

    Where the choice is known, only that function is called. Only work on the operands waits for
    the choice: terms from around are computed with where they are.
    """
    if (known := choice.known()) is not None:
        return list((yes if known.all() else no)(*operands))
    return _branches(choice.to(pred), [yes, no], operands)


def switch(choice: Term, bodies: Sequence[Body], operands: State = ()) -> list[Term]:
    """The results of the function of number ``choice``; a number out of range means the last."""
    if (known := choice.known()) is not None:
        number = int(known.reshape(()))
        return list(bodies[number if 0 <= number < len(bodies) else -1](*operands))
    return _branches(choice.to(s32), bodies, operands)


def _branches(choice: Term, bodies: Sequence[Body], given: State) -> list[Term]:
    outer = _graph([choice, *given])
    computations, operands = [], []
    kinds = []
    for body in bodies:
        graph, results = _traced(outer, "branch", body, [], given)
        taken = list(graph.captured)
        operands.append(outer.pack([outer.inside(v) for v in taken]))
        computations.append(_packed(graph, [t.value for t in results], 0, taken))
        kinds.append([t.shape for t in results])
    if any(k != kinds[0] for k in kinds):
        raise VerifyError("shapes do not fit", "the branches return different shapes")
    value = outer.infer(
        "conditional",
        [choice.value, *operands],
        **(
            dict(zip(("true_computation", "false_computation"), computations, strict=True))
            if choice.dtype == pred
            else {"branch_computations": tuple(computations)}
        ),
    )
    return unpacked(outer, value)


def _traced(
    outer: Graph, name: str, body: Body, start: State, taken: State = ()
) -> tuple[Graph, list[Term]]:
    graph = Graph(name, outer)
    given = [Term(graph, graph.parameter(t.shape, f"state{n}")) for n, t in enumerate(start)]
    given += [Term(graph, graph.inside(t.value)) for t in taken]
    results = [Term(graph, graph.inside(t.value)) for t in body(*given)]
    return graph, results


def _packed(
    graph: Graph,
    results: Sequence[Instruction],
    count: int,
    taken: Sequence[Instruction],
    *,
    hand_on: bool = False,
) -> Computation:
    """The computation of one value: the first ``count`` parameters and those of ``taken``."""
    more = [graph.capture(v) for v in taken]
    order = [*graph.parameters[:count], *more]
    found = [*results, *(more if hand_on else ())]
    return graph.finish_packed(found, order)


def _graph(terms: Sequence[Term]) -> Graph:
    site = innermost(terms)
    assert isinstance(site, Graph)
    return site
