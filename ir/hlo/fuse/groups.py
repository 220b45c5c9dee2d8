"""The result of FuseOps, and how it is made from the grown groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..nodes import Computation, Instruction, Shape, TupleShape
from ..ops.definition import Pattern
from ..rewrite import assemble, make, parameter, with_attrs, with_operands
from .kinds import flops, is_free, is_view, is_work, pattern
from .state import Growing, State, accepts_clone

VIEW_FOLLOWS = "only a view follows"
"""The reason of an edge to a view outside of groups, which takes no time and no memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Instructions that become one kernel.

    ``kind`` is ``elementwise | injective | reduction | dot | convolution | attention | opaque``.
    ``inputs`` and ``outputs`` are instructions of the fused computation; ``members`` are those that
    the group computes, clones included, in program order. ``computation`` is the same work on its
    own: parameters in the order of ``inputs``, its root the one output or a tuple of all.
    """

    name: str
    kind: str
    computation: Computation
    inputs: tuple[Instruction, ...]
    outputs: tuple[Instruction, ...]
    members: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A value that flows from one operation to another: fused or not, and why."""

    producer: Instruction
    consumer: Instruction
    fused: bool
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """The groups of a computation in topological order, and what was decided for every edge."""

    computation: Computation
    groups: tuple[Group, ...]
    edges: tuple[Edge, ...]


def finish(state: State) -> Fusion:
    """Cut views off the groups' borders, order the groups and build their computations."""
    growing = list({id(g): g for g in state.group_of.values()}.values())
    for g in growing:
        _trim(state, g)
    filled = [g for g in growing if any(is_work(i) for i in g.members)]
    computed = {i: g for g in filled for i in g.members}
    groups = [_build(state, g, n) for n, g in enumerate(_ordered(state, filled, computed))]
    return Fusion(state.computation, tuple(groups), tuple(_edges(state, groups)))


def _trim(state: State, g: Growing) -> None:
    """A reshape at the border of a group is a view of the buffer outside and no work."""
    changed = True
    while changed:
        changed = False
        for i in [m for m in g.members if is_view(m)]:
            o = i.operands[0]
            reads_outside = o not in g.members and not is_free(o)
            reads_outside = reads_outside and o not in state.clones
            used_inside = any(u in g.members or _clone_inside(state, g, u) for u in state.users[i])
            if reads_outside or not used_inside:
                del g.members[i]
                del state.group_of[i]
                changed = True


def _clone_inside(state: State, g: Growing, u: Instruction) -> bool:
    return u in state.clones and any(
        v in g.members or _clone_inside(state, g, v) for v in state.users[u]
    )


def _with_clones(state: State, g: Growing) -> dict[Instruction, None]:
    """Members and the clones and free constants they use."""
    found: dict[Instruction, None] = dict.fromkeys(g.members)
    stack = list(g.members)
    while stack:
        i = stack.pop()
        for o in i.operands:
            cloned = (o in state.clones or is_free(o)) and accepts_clone(i, o)
            if cloned and o not in found:
                found[o] = None
                stack.append(o)
    return found


def _ordered(
    state: State, growing: list[Growing], computed: dict[Instruction, Growing]
) -> list[Growing]:
    """Each group right before the first that needs it, as a walk from the last one meets them."""
    done: dict[int, Growing] = {}
    needed: dict[Instruction, dict[int, Growing]] = {}
    for i in state.computation.instructions:  # what `i` waits for, seen through views and tuples
        owner = computed.get(i)
        needed[i] = {id(owner): owner} if owner is not None else {}
        if owner is None and (i not in state.clones or i in state.parts):
            for o in i.operands:
                needed[i].update(needed[o])
    before = {
        id(g): {k: x for i in _inputs(state, _with_clones(state, g)) for k, x in needed[i].items()}
        for g in growing
    }
    by_last = sorted(growing, key=lambda g: max(map(state.position, g.members)))
    stack: list[tuple[Growing, bool]] = [(g, False) for g in reversed(by_last)]
    while stack:
        g, expanded = stack.pop()
        if id(g) in done:
            continue
        if expanded:
            done[id(g)] = g
            continue
        stack.append((g, True))
        stack += [(x, False) for k, x in before[id(g)].items() if k not in done]
    return list(done.values())


def _inputs(state: State, members: dict[Instruction, None]) -> list[Instruction]:
    found: dict[Instruction, None] = {}
    for i in sorted(members, key=state.position):
        for o in i.operands:
            if o not in members:
                found[o] = None
    return list(found)


def _build(state: State, g: Growing, number: int) -> Group:
    members = _with_clones(state, g)
    ordered = sorted(members, key=state.position)
    inputs = _inputs(state, members)
    outputs = [i for i in sorted(g.members, key=state.position) if _leaves(state, g, i)]
    new = {o: _parameter(n, o) for n, o in enumerate(inputs)}
    parameters = tuple(new[o] for o in inputs)
    for i in ordered:
        new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    roots = tuple(new[o] for o in outputs)
    root = roots[0]
    if len(roots) > 1:
        root = make("tuple", TupleShape(tuple(r.shape for r in roots)), roots, name="results")
    name = _name(g, outputs, number)
    computation = assemble(name, parameters, root)
    return Group(name, _kind(state, g), computation, tuple(inputs), tuple(outputs), tuple(ordered))


def _parameter(number: int, source: Instruction) -> Instruction:
    """A group's parameter; ``frozen=true`` says that it is a constant matrix of the module.

    The mark is part of the group's text and so of its key: such a group may rearrange the constant
    ahead of time, and is scheduled and tuned apart from one that may not.
    """
    p = parameter(number, source.shape, source.name)
    if source.opcode == "constant" and isinstance(source.shape, Shape) and source.shape.rank > 1:
        return with_attrs(p, frozen=True)
    return p


def _leaves(state: State, g: Growing, i: Instruction) -> bool:
    """True if member ``i`` is a result: needed outside, by a view or by another group."""
    if isinstance(i.shape, TupleShape):
        return not any(u in g.members for u in state.users[i])
    if state.is_output(g, i):
        return True
    return not any(u in g.members or _clone_inside(state, g, u) for u in state.users[i])


def _name(g: Growing, outputs: Iterable[Instruction], number: int) -> str:
    last = [o.opcode for o in outputs if o.opcode not in (g.anchor.opcode, "get-tuple-element")]
    words = [g.anchor.opcode, *last[-1:]]
    return "_".join(w.replace("-", "_") for w in words) + f"_{number}"


def _kind(state: State, g: Growing) -> str:
    if g.kind != "elementwise":
        return g.kind
    own = (i for i in g.members if i not in state.clones or i is g.anchor)
    moves = any(pattern(i) is Pattern.INJECTIVE for i in own)
    return "injective" if moves else "elementwise"


def _edges(state: State, groups: list[Group]) -> list[Edge]:
    homes: dict[Instruction, set[str]] = {}
    for group in groups:
        for i in group.members:
            homes.setdefault(i, set()).add(group.name)
    stored = {o for group in groups for o in group.outputs}
    edges: list[Edge] = []
    for consumer in state.computation.instructions:
        if not is_work(consumer):
            continue
        for producer in dict.fromkeys(consumer.operands):
            if producer in stored or (is_work(producer) and not is_free(producer)):
                edges.append(_edge(state, homes, producer, consumer))
    return edges


def _edge(
    state: State, homes: dict[Instruction, set[str]], producer: Instruction, consumer: Instruction
) -> Edge:
    here, there = homes.get(producer, set()), homes.get(consumer, set())
    if state.is_alias(consumer) and not there:
        return Edge(producer, consumer, False, VIEW_FOLLOWS)
    if state.is_alias(producer) and not here:
        return Edge(producer, consumer, False, _through_view(state, producer, consumer))
    if there and there <= here:
        if producer in state.clones:
            return Edge(producer, consumer, True, "cheap: every user computes its own")
        return Edge(producer, consumer, True, f"same group, {next(iter(there))}")
    return Edge(producer, consumer, False, _reason(state, producer, consumer))


def _through_view(state: State, view: Instruction, consumer: Instruction) -> str:
    """Why what a view stands for was not fused with the view's reader."""
    origin = view
    while state.is_alias(origin):
        origin = origin.operands[0]
    if not is_work(origin) or is_free(origin):
        return "a view of the whole buffer, no work"
    why = _noted(state, view, consumer) or _reason(state, origin, consumer)
    return f"through a view: {why}"


def _reason(state: State, producer: Instruction, consumer: Instruction) -> str:
    if noted := _noted(state, producer, consumer):
        return noted
    match pattern(consumer):
        case Pattern.OUT_FUSABLE:
            if pattern(producer) is Pattern.REDUCTION:
                return f"reduction feeds a {consumer.opcode}: its result would be recomputed"
            return f"feeds a {consumer.opcode}: it would be recomputed for every tile of the result"
        case Pattern.OPAQUE | Pattern.IN_FUSABLE:
            return f"{consumer.opcode} reads whole arrays"
        case Pattern.WINDOW:
            return "feeds overlapping windows: it would be recomputed for each of them"
        case _:
            pass
    maker = producer.operands[0] if producer.opcode == "get-tuple-element" else producer
    if pattern(maker) in (Pattern.OPAQUE, Pattern.IN_FUSABLE):
        return f"{maker.opcode} is a group of its own"
    if (a := state.group_of.get(producer)) and (b := state.group_of.get(consumer)):
        blocker = state.clusters.cycle(a.anchor, b.anchor)
        if blocker is not None:
            return f"would make a cycle through `{blocker.name}`"
    if flops(producer) == 0:
        return "moves data that several groups need"
    return "its value is needed elsewhere or in another order"


def _noted(state: State, producer: Instruction, consumer: Instruction) -> str:
    """Return a phase's reason for this edge, or for one that goes on through clones."""
    waiting = [consumer]
    while waiting:
        u = waiting.pop()
        if (found := state.reasons.get((producer, u))) is not None:
            return found
        if u in state.clones:
            waiting += state.users[u]
    return ""
