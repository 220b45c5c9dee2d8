"""If, Loop and Scan: conditionals and loops of HLO, or written out where shapes ask for it.

A loop whose state keeps its shapes becomes a ``while``. One whose state is a sequence or grows, or
whose body takes a shape from the iteration's number, is written out, iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from ....dtypes import pred, s32, s64
from ....errors import NestwrightError
from ....hlo.limits import INSTRUCTIONS, require_bytes
from ....hlo.nodes import Shape
from ...lax import bounded, control, counted, indexing, shaping
from ...lax.graph import Graph
from ...lax.term import Term
from ..nodes.node import Body, NeedsValueError, Node
from ..nodes.table import operator
from ..nodes.values import Value

FEW = 4
"""Iterations up to which a loop is written out."""


@operator("If", sized=True)
def if_(node: Node) -> tuple[Value, ...]:
    """The results of one branch. Where both do not return arrays of the same shapes, the condition
    has to be known, unless they differ in sizes that values decide."""
    choice = shaping.reshape(node.input(0), ())
    bodies = [node.graph_in("then_branch"), node.graph_in("else_branch")]
    if (known := choice.known()) is not None:
        return tuple(bodies[0 if known.all() else 1]())
    seen: list[list[Shape]] = []
    try:
        return tuple(_either(node, choice, bodies, seen, []))
    except _SizesDiffer as e:
        return tuple(_either(node, choice, bodies, [], e.common))


class _SizesDiffer(Exception):
    """Branches return arrays of other sizes, which have these bounds in common."""

    def __init__(self, common: list[Shape]) -> None:
        super().__init__()
        self.common = common


def _either(
    node: Node, choice: Term, bodies: Sequence[Body], seen: list[list[Shape]], common: list[Shape]
) -> list[Term]:
    """The results of one of two branches: brought to the shapes in ``common``, or as they are."""

    def branch(body: Body, marker: Term) -> list[Term]:
        try:
            made = body(whole=marker.site)
        except NeedsValueError:
            raise
        except NestwrightError:
            if not node.sources(choice):
                raise
            node.value(choice, "its condition")  # raises: the branch may not be the one taken
            raise
        terms = [t for t in made if isinstance(t, Term)]
        if common:
            return [bounded.within(t, s) for t, s in zip(terms, common, strict=True)]
        seen.append([t.shape for t in terms])
        if len(terms) < len(made) or seen[-1] != seen[0]:
            if len(terms) == len(made) and (shapes := _common_bounds(*seen)):
                raise _SizesDiffer(shapes)
            node.value(choice, "input 0")  # raises: the branches' results differ in form
        return terms

    yes, no = (partial(branch, body) for body in bodies)
    return control.cond(choice, yes, no, [_true(node)])


def _common_bounds(these: Sequence[Shape], those: Sequence[Shape]) -> list[Shape]:
    """Return shapes that results of both kinds have; none where sizes differ that no value decides,
    or anything else does."""
    found = []
    for a, b in zip(these, those, strict=True):
        if a.dtype != b.dtype or a.rank != b.rank:
            return []
        either = [x or y for x, y in zip(a.marks, b.marks, strict=True)]
        sizes = list(zip(a.dims, b.dims, strict=True))
        if any(x != y and not mark for (x, y), mark in zip(sizes, either, strict=True)):
            return []
        dims = tuple(max(pair) for pair in sizes)
        found.append(Shape(a.dtype, dims, None, tuple(either) if any(either) else ()))
    return found


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration seen from outside: shapes of the state before and after it, and of its further
    results; ``goes_on`` if the loop never ends by its condition; how often it ``runs`` if it begins
    and counters decide that."""

    before: list[Shape]
    after: list[Shape]
    rows: list[Shape]
    goes_on: bool
    runs: int | None

    @property
    def steady(self) -> bool:
        """True if the state keeps its shapes."""
        return self.before == self.after


def _tried(node: Node, body: Body, state: Sequence[Value], trips: Term | None) -> Iteration | None:
    """Read the body of a Loop once; None where it takes shapes from what an iteration computes, or
    its state is not all arrays."""
    terms = [t for t in state if isinstance(t, Term)]
    if len(terms) < len(state):
        return None
    trial = Graph("trial", node.graph)
    number = Term(trial, trial.parameter(Shape(s64), "number"))
    given = [Term(trial, trial.parameter(t.shape, "state")) for t in terms]
    try:
        going, *made = body(number, _true(node), *given)
    except NeedsValueError:
        return None
    results = [t for t in made if isinstance(t, Term)]
    if len(results) < len(made) or not isinstance(going, Term):
        return None
    known = going.known()
    shapes = [t.shape for t in results]
    count = len(terms)
    on = known is not None and bool(known.all())
    most = None if trips is None else trips.known()
    runs = None
    if not on and (trips is None or most is not None):
        limit = None if most is None else int(most)
        runs = counted.runs(trial, going, results[:count], terms, limit)
    return Iteration([t.shape for t in terms], shapes[:count], shapes[count:], on, runs)


def _true(node: Node) -> Term:
    return shaping.full(node.graph, 1, pred)


@operator("Loop", sized=True)
def loop(node: Node) -> tuple[Value, ...]:
    """The last state, and the further results of all iterations, stacked.

    As many as iterations are stacked; where a condition may end the loop, their number is bounded
    by the trip count.
    """
    body, state = node.graph_in("body"), node.inputs[2:]
    trips = None if not node.has(0) else shaping.reshape(node.input(0), ()).to(s64)
    start = None if not node.has(1) else shaping.reshape(node.input(1), ())
    first = start is None or start.known()
    trial = _tried(node, body, state, trips)
    if trial and trial.runs is not None and first is not None and np.all(first):
        trips, start, first = node.constant(trial.runs, s64), None, True
        trial = replace(trial, goes_on=True)
    count = None if trips is None else trips.known()
    settled = first is not None and (trips is None or count is not None)
    few = count is not None and int(count) <= (FEW if trial and trial.goes_on else 0)
    if trial is None or not trial.steady or (settled and few):
        for n in (0, 1):
            if node.has(n):
                node.known(n)
        return _written_out(node, body, state, trial, None if count is None else int(count))
    return _while(node, body, trial, trips, start)


def _written_out(
    node: Node, body: Body, state: Sequence[Value], trial: Iteration | None, count: int | None
) -> tuple[Value, ...]:
    """Iteration by iteration; the condition has to be known each time."""
    going = bool(node.known(1).all()) if node.has(1) else True
    rows: list[list[Term]] = []
    number = 0
    while going and (count is None or number < count):
        on, *made = body(node.constant(number, s64), _true(node), *state)
        assert isinstance(on, Term)
        state, more = made[: len(state)], made[len(state) :]
        rows.append([t for t in more if isinstance(t, Term)])
        number += 1
        if number > INSTRUCTIONS:
            node.unsupported(f"it would be written out over {INSTRUCTIONS} times")
        if count is None or number < count:
            going = bool(node.value(on, "the condition of an iteration").all())
    if rows:
        stacked = [shaping.stack(list(each)) for each in zip(*rows, strict=True)]
    else:
        shapes = trial.rows if trial else []
        stacked = [shaping.full(node.graph, 0, s.dtype, (0, *s.dims)) for s in shapes]
    return (*state, *stacked)


def _while(
    node: Node, body: Body, trial: Iteration, trips: Term | None, start: Term | None
) -> tuple[Value, ...]:
    """A ``while`` whose state is the iteration's number, the condition, and the loop's own."""
    given = [t for t in node.inputs[2:] if isinstance(t, Term)]
    wanted = [k for k in range(len(trial.rows)) if node.wants(len(given) + k)]
    stacks = _stacks(node, [trial.rows[k] for k in wanted], trips)

    def going(number: Term, on: Term, *_: Term) -> Term:
        return on if trips is None else on & (number < trips)

    def step(number: Term, on: Term, *values: Term) -> list[Term]:
        result, *made = body(number, _true(node), *values[: len(given)])
        arrays = [t for t in [result, *made] if isinstance(t, Term)]
        kept = [
            indexing.dynamic_update_slice(s, shaping.expand_dims(r, [0]), [number, *[0] * r.rank])
            for s, r in zip(
                values[len(given) :], (arrays[1 + len(given) + k] for k in wanted), strict=True
            )
        ]
        return [number + 1, shaping.reshape(arrays[0], ()), *arrays[1 : 1 + len(given)], *kept]

    zero = shaping.full(node.graph, 0, s64)
    on = _true(node) if start is None else start
    number, _, *found = control.while_loop(going, step, [zero, on, *given, *stacks])
    first = None if start is None else start.known()
    whole = trial.goes_on and (start is None or (first is not None and bool(first.all())))
    rows: list[Value] = [None] * len(trial.rows)
    for k, stack in zip(wanted, found[len(given) :], strict=True):
        rows[k] = stack if whole else bounded.resized(stack, 0, number.to(s32))
    return (*found[: len(given)], *rows)


def _stacks(node: Node, shapes: Sequence[Shape], trips: Term | None) -> list[Term]:
    """Room for the results of as many iterations as there may be."""
    if not shapes:
        return []
    if trips is None:
        node.unsupported("it stacks results without a bound on their number", "give it `M`")
    known = trips.known()
    most = int(node.known(0).reshape(())) if known is None else int(known)
    for s in shapes:
        if any(s.dynamic):
            node.unsupported("it stacks results whose sizes depend on values")
        require_bytes(most * prod(s.dims) * s.dtype.bytes, "the results of a Loop", node.place)
    return [shaping.full(node.graph, 0, s.dtype, (most, *s.dims)) for s in shapes]


@operator("Scan", since=9)
def scan(node: Node) -> tuple[Value, ...]:
    """One iteration for each part of the inputs; the last state and the stacked results."""
    body, count = node.graph_in("body"), node.int_("num_scan_inputs")
    given = node.arrays()
    state, rows = given[: len(given) - count], given[len(given) - count :]
    axes = [
        node.dimension(a, r.rank)
        for a, r in zip(node.ints("scan_input_axes") or [0] * count, rows, strict=True)
    ]
    backwards = node.ints("scan_input_directions") or [0] * count
    parts = [
        shaping.move_axis(shaping.reverse(r, [a]) if back else r, a, 0)
        for r, a, back in zip(rows, axes, backwards, strict=True)
    ]
    length = parts[0].dims[0]
    if any(p.dims[0] != length for p in parts):
        node.malformed("its inputs have different numbers of parts")
    found = _scanned(node, body, state, parts, length)
    made = len(found) - len(state)
    turned = node.ints("scan_output_directions") or [0] * made
    places = node.ints("scan_output_axes") or [0] * made
    stacked = [
        shaping.move_axis(shaping.reverse(t, [0]) if turn else t, 0, node.dimension(to, t.rank))
        for t, turn, to in zip(found[len(state) :], turned, places, strict=True)
    ]
    return (*found[: len(state)], *stacked)


@operator("Scan", since=8)
def scan_of_batches(node: Node) -> tuple[Value, ...]:
    """Scan as in operator set 8: each element of a batch has a state and a length of its own."""
    if node.has(0):
        node.unsupported("it gives sequences lengths of their own", "export it with operator set 9")
    body, count = node.graph_in("body"), node.int_("num_scan_inputs")
    given = [node.input(n) for n in range(1, len(node.inputs))]
    state, rows = given[: len(given) - count], given[len(given) - count :]
    turned = node.ints("directions") or [0] * count
    every = []
    for b in range(given[0].dims[0]):
        one = [shaping.squeeze(shaping.slice_in_dim(t, b, b + 1, 0), [0]) for t in (*state, *rows)]
        parts = [
            shaping.reverse(p, [0]) if turn else p
            for p, turn in zip(one[len(state) :], turned, strict=True)
        ]
        every.append(_scanned(node, body, one[: len(state)], parts, parts[0].dims[0]))
    return tuple(shaping.stack(list(each)) for each in zip(*every, strict=True))


def _scanned(
    node: Node, body: Body, state: Sequence[Term], parts: Sequence[Term], length: int
) -> list[Term]:
    """The last state, and the results of all parts along their first dimension."""

    def step(*values: Term) -> list[Term]:
        made = body(*values)
        return [t for t in made if isinstance(t, Term)]

    zero = shaping.full(node.graph, 0, s32)  # the loop is written where the node is

    def numbered(number: Term, *values: Term) -> list[Term]:
        return [number, *step(*values)]

    return control.scan(numbered, [zero, *state], list(parts), length)[1:]
