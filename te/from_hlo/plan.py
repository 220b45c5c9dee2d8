"""Choose the instructions of a group that get a buffer; the rest is computed where it is used.

Instructions are visited from the root up. Each collects *demands*: which stage asks for its
elements, along which way of indexing, and how many times. Where that makes work be done again and
the work is worth a buffer, the instruction becomes a stage of its own, and what it needs is asked
for once. Nothing is expanded, so the plan takes time linear in the group, whatever its fan-out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...ir.dtypes import f32, pred
from ...ir.hlo.attributes import SKIPS
from ...ir.hlo.nodes import Computation, Instruction, Shape, TupleShape
from ...ir.hlo.ops.definition import Role
from ...ir.hlo.ops.registry import definition
from ...ir.hlo.patterns.nibbles import nibbles_of
from ...ir.hlo.patterns.parts import parts_of
from ...ir.hlo.rewrite import users
from .emitter import Leaf, leaf
from .reshaping import is_clean
from .scalars import is_elementwise, splat

DEEP = 64  # levels of nested instructions in one expression; beyond, one of them gets a buffer
HEAVY = 4.0  # FLOP per element above which a buffer is cheaper than recomputation
MASK = 16.0  # the same for a truth value, which takes only a byte to store
MANY_LOADS = 3  # operands per element above which a buffer is cheaper, whatever the arithmetic
MANY_WAYS = 8  # different index expressions for one instruction, each of which is code of its own

Demand: TypeAlias = dict[int, int]  # times asked for, by way


@dataclass(frozen=True, slots=True)
class StagePlan:
    """``stages`` in topological order; ``outputs`` are leaves, in the order of the results."""

    stages: tuple[Instruction, ...]
    outputs: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of one element computed from the stages below: FLOP, loads, levels of nesting."""

    flops: float = 0.0
    loads: int = 0
    depth: int = 0

    @property
    def heavy(self) -> bool:
        """True if computing an element a second time costs more than keeping the first."""
        return self.flops >= HEAVY or (self.flops >= 1 and self.loads >= MANY_LOADS)


@dataclass(slots=True)
class _Planner:
    costs: dict[Instruction, _Cost]
    forced: set[Instruction]
    demands: dict[Instruction, Demand] = field(default_factory=dict)
    ways: dict[Hashable, int] = field(default_factory=dict)

    def ask(self, x: Instruction, way: Hashable, times: int) -> None:
        """Note that elements of ``x`` are needed ``times`` times; equal ways are one number."""
        source, _ = leaf(x)
        number = self.ways.setdefault(way, len(self.ways))
        self.demands.setdefault(source, {})[number] = times

    def is_stage(self, x: Instruction) -> bool:
        """True if ``x``, all of whose users were visited, gets a buffer."""
        if x in self.forced:
            return True
        ways, cost = self.demands[x], self.costs[x]
        if len(ways) > MANY_WAYS and (cost.flops or cost.loads > 1):
            return True
        again = sum(ways.values()) >= 2 * max(x.array.size, 1)
        mask = x.array.dtype == pred and cost.loads < MANY_LOADS and cost.flops < MASK
        return again and cost.heavy and is_computed(x) and not mask

    def propagate_demand(self, x: Instruction, n: int, operand: Instruction) -> None:
        """Pass the demands on ``x`` to an operand, composed with how ``x`` indexes it."""
        here = is_computed(x)
        for way, times in self.demands[x].items():
            if here:
                self.demands.setdefault(leaf(operand)[0], {})[way] = times
            else:
                self.ask(operand, (way, _movement(x, n)), times)

    def expect(self, x: Instruction) -> None:
        """Record the demands of stage ``x`` on its operands."""
        for n, operand in enumerate(x.operands):
            way = x if is_computed(x) else (x, _movement(x, n))
            self.ask(operand, way, _evaluations(x, n))
        if x.opcode in ("dot", "convolution"):
            for n, operand in enumerate(x.operands):
                if not (x.opcode == "convolution" and n == 0 and is_padded(x)):
                    self.view(operand)

    def view(self, x: Instruction) -> None:
        """Make the inner loops of a contraction read ``x`` by plain loads."""
        x, _ = leaf(x)
        while definition(x.opcode).view and x not in self.forced:
            source = x.operands[0]
            bent = x.opcode == "reshape"
            if bent and not is_clean(source.array.dims, x.array.dims):
                break
            x, _ = leaf(source)
        if is_decoded(x) or x.opcode == "parameter" or (x.opcode == "constant" and splat(x)):
            return
        self.forced.add(x)


def is_decoded(x: Instruction) -> bool:
    """True if ``x`` widens a constant or a narrow float, which is loaded in its narrow form.

    The constant may be in two parts, or have two codes of 4 bits in a byte.
    """
    if (parts := parts_of(x)) is not None:
        return all(leaf(p)[0].attrs.get("frozen") for p in parts)
    if (codes := nibbles_of(x)) is not None:
        return bool(leaf(codes)[0].attrs.get("frozen"))
    if x.opcode != "convert":
        return False
    source, _ = leaf(x.operands[0])
    small = source.opcode == "parameter" and x.operands[0].array.dtype.is_float
    return bool(source.attrs.get("frozen")) or (small and x.array.dtype == f32)


def make_plan(computation: Computation) -> StagePlan:
    """Decide the stages of a group."""
    outputs = tuple(_leaves(computation.root))
    forced = {x for x, _ in outputs if x.opcode != "parameter"}
    forced |= {x for x in computation.instructions if is_material(x)} - _nested(computation)
    forced |= _scores(computation) | _gathered(computation)
    planner = _Planner(_costs(computation, forced), forced)
    stages: list[Instruction] = []
    for x, _ in outputs:
        planner.demands.setdefault(x, {})
    for x in reversed(computation.instructions):
        if x not in planner.demands or x.opcode == "parameter" or is_plumbing(x):
            continue
        if planner.is_stage(x):
            stages.append(x)
            planner.expect(x)
        else:
            for n, operand in enumerate(x.operands):
                planner.propagate_demand(x, n, operand)
    return StagePlan(_anchors_late(computation, reversed(stages)), outputs)


def _nested(computation: Computation) -> set[Instruction]:
    """Return the concatenations whose parts are only concatenated again, once.

    Edges around edges and rotations are such. Each element of the outer concatenation is selected
    among the operands of the inner one, which then needs no buffer.
    """
    used = users(computation)
    found: set[Instruction] = set()
    for x in computation.instructions:
        if x.opcode == "concatenate" and used[x]:
            parts, ends = [x], []
            while parts:
                part = parts.pop()
                ends += [u for u in used[part] if not _takes_parts(u)]
                parts += [u for u in used[part] if _takes_parts(u)]
            ends = list(dict.fromkeys(ends))
            alone = len(ends) == 1 and ends[0].opcode == "concatenate"
            if alone and ends[0].array.size < 2 * x.array.size:
                found.add(x)
    return found


def _takes_parts(x: Instruction) -> bool:
    """True if ``x`` takes parts of its operand, or repeats them, with the dimensions in order."""
    op = definition(x.opcode)
    return op.role is Role.MOVES and op.view and not op.permutes


def _scores(computation: Computation) -> set[Instruction]:
    """Return the last element-wise instruction on each dot product whose rows are reduced.

    It gets a buffer: a mask and a scale are then applied to attention scores once, rather than by
    every stage that reads them.
    """
    used = users(computation)
    found: set[Instruction] = set()
    for x in computation.instructions:
        y = x
        while x.opcode == "dot" and len(used[y]) == 1 and is_elementwise(used[y][0]):
            (y,) = used[y]
        if y is not x and any(_reduces_rows(u) for u in used[y]):
            found.add(y)
    return found


def _reduces_rows(x: Instruction) -> bool:
    return x.opcode == "reduce" and x.operands[0].array.rank - 1 in x.attrs["dimensions"]


def _gathered(computation: Computation) -> set[Instruction]:
    """Return the transposed instructions that are computed from single gathered elements.

    They get a buffer in the order of the gather. Code generation can transpose that in registers,
    but not elements whose places are read from memory.
    """
    gathers: set[Instruction] = set()
    found: set[Instruction] = set()
    for x in computation.instructions:
        alone = x.opcode == "gather" and x.array.rank - 1 not in x.attrs["offset_dims"]
        if alone or (is_computed(x) and not gathers.isdisjoint(x.operands)):
            gathers.add(x)
        elif x.opcode == "transpose" and x.operands[0] in gathers and _moves_last(x):
            found.add(leaf(x.operands[0])[0])
    return found


def _moves_last(x: Instruction) -> bool:
    """True if a transposition puts another dimension last, of those with several elements."""
    before = [d for d, n in enumerate(x.operands[0].array.dims) if n > 1]
    after = [d for d in x.attrs["dimensions"] if d in before]
    return before[-1:] != after[-1:]


def _anchors_late(
    computation: Computation, stages: Iterable[Instruction]
) -> tuple[Instruction, ...]:
    """Sort stages, in topological order, so that those that wait for no anchor come first.

    An epilogue then follows its anchor (a reduction or a contraction) immediately and can be moved
    into its loops.
    """
    waits: dict[Instruction, bool] = {}
    for x in computation.instructions:
        waits[x] = is_material(x) or any(waits[o] for o in x.operands)
    return tuple(sorted(stages, key=lambda x: waits[x]))


def is_padded(x: Instruction) -> bool:
    """True if a window operation reads a padded copy of its input, in which holes are filled."""
    if x.attrs.get(SKIPS):
        return False
    return any(d.pad_low or d.pad_high or d.lhs_dilate != 1 for d in x.attrs.get("window", ()))


def _leaves(x: Instruction, element: int | None = None) -> list[Leaf]:
    """Return the arrays that a result is made of, in order."""
    if x.opcode == "tuple" and element is None:
        return [found for o in x.operands for found in _leaves(o)]
    if isinstance(x.shape, TupleShape):
        return [leaf(x, n) for n in range(len(x.shape.elements))]
    return [leaf(x)]


def _costs(computation: Computation, forced: set[Instruction]) -> dict[Instruction, _Cost]:
    """Cost per element; what is nested too deep is added to ``forced``."""
    costs: dict[Instruction, _Cost] = {}
    for x in computation.instructions:
        parts = [_seen_from(x, o, costs[o]) for o in x.operands]
        if x.opcode == "parameter":
            costs[x] = _Cost(loads=1)
            continue
        cost = _Cost(
            definition(x.opcode).flops + sum(p.flops for p in parts),
            sum(p.loads for p in parts),
            1 + max((p.depth for p in parts), default=0),
        )
        if cost.depth > DEEP and not is_plumbing(x):
            forced.add(x)
        costs[x] = _Cost(loads=1) if x in forced else cost
    return costs


def _seen_from(x: Instruction, operand: Instruction, cost: _Cost) -> _Cost:
    """Return an operand's cost to its user: a load if repetition will make it a stage."""
    repeated = x.opcode == "broadcast" and x.array.size >= 2 * max(operand.array.size, 1)
    return _Cost(loads=1) if repeated and cost.heavy else cost


def is_material(x: Instruction) -> bool:
    """True if ``x`` always has a buffer."""
    return definition(x.opcode).role is Role.MATERIAL


def is_plumbing(x: Instruction) -> bool:
    """True if ``x`` names a value or a part of it, and has no elements of its own."""
    return definition(x.opcode).role is Role.PLUMBING


def is_computed(x: Instruction) -> bool:
    """True if ``x`` computes, place by place, rather than moves data."""
    return is_elementwise(x) or x.opcode in ("map", "complex")


def _movement(x: Instruction, operand: int) -> Hashable:
    """Equal for instructions that move the data of an operand alike."""
    match x.opcode:
        case "broadcast" | "transpose" | "reverse":
            return x.opcode, x.array.dims, x.attrs.get("dimensions", ())
        case "reshape":
            return x.array.dims
        case "slice":
            return tuple(x.attrs["slice"])
        case "reduce" | "reduce-window" if operand < len(x.operands) // 2:
            return "terms"
        case _:
            return x, operand


def _evaluations(x: Instruction, operand: int) -> int:
    """Return how many elements of an operand the stage of ``x`` computes."""
    own = x.operands[operand].shape
    size = own.size if isinstance(own, Shape) else 1
    match x.opcode:
        case "dot":
            return x.array.size * definition(x.opcode).terms(x) if x.operands[1].array.size else 0
        case "convolution" | "reduce-window" if operand == 0 and is_padded(x):
            return size
        case "convolution":
            return x.array.size * max(1, x.operands[1].array.size)
        case "reduce-window" if operand < len(x.operands) // 2:
            return int(_first(x).size * definition(x.opcode).terms(x))
        case _ if is_material(x):
            return size
        case _:
            return x.array.size


def _first(x: Instruction) -> Shape:
    shape = x.shape
    while isinstance(shape, TupleShape):
        shape = shape.elements[0]
    assert isinstance(shape, Shape)
    return shape
