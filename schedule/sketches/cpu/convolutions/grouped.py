"""The sketch of grouped convolutions: in each feature group a product, tiled in registers.

The groups are one axis of the reduction's block and the features of a group another; both are one
dimension of the result. Features of a group share the inputs, which are broadcast. Groups narrower
than a vector may share one: its lanes take their inputs out of a vector of as many by a shuffle
for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.dtypes import DType
from .....ir.loop.nodes import BlockAxis, Func, Var
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import LINE, AccessPattern, BlockInfo, frozen_inputs, product_operands
from ....space.lookup import block_node, own_loops, read_number
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import AHEAD, consumers_of, feeders_of, heaviest, read_once
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo
from ..nests.padding import LINES_PER_FMA, MOST_LINES, kept_share, pads_ends
from ..nests.pointwise import may_share_flops
from ..nests.registers import keep_result, vectorize_init, vectorize_tile

MOST_ROWS = 28
VECTORS = (1, 2, 3, 4)
SHUFFLED = 16  # bytes of a vector that an instruction shuffles by an order of its own
LEAST_STEP = 4.0  # cycles of a step: FMAs on one sum depend on each other
STORED = 3.0  # cycles for each vector of a tile beside its steps
STARTED = 20.0  # cycles for each tile beside these
PART_OF_LINE = 1.2  # times the cycles, where groups that share cache lines are far apart
UNPACKED = 1.1  # times the cycles, with weights as they were given


@dataclass(frozen=True, slots=True)
class Grouped:
    """The roles of a grouped convolution's axes, which are those of ``anchor``.

    ``group`` and ``column`` are one dimension of the result. ``row`` is the other side of the tile,
    ``sweep`` are the axes around it. ``kept`` is the share of the products that are left without
    padding; None if the feeders do anything else.
    """

    anchor: BlockInfo
    consumer: BlockInfo | None
    group: BlockAxis
    column: BlockAxis
    row: BlockAxis
    sweep: tuple[BlockAxis, ...]
    weights: AccessPattern
    frozen: bool
    feeders: tuple[BlockInfo, ...]
    kept: float | None

    @property
    def dtype(self) -> DType:
        """The element type of the result."""
        return self.anchor.stores[0].buffer.dtype

    @property
    def features(self) -> int:
        """The features of all groups."""
        return self.group.extent * self.column.extent

    def crosses(self, c: Choices) -> bool:
        """True if groups share a vector."""
        return int(c["lanes"]) > self.column.extent

    def may_cross(self, lanes: int) -> bool:
        """True if groups with no more inputs than features fill vectors of ``lanes``.

        The inputs of a vector's groups are neighbors then, and part of one vector.
        """
        each, inputs = self.column.extent, self.inputs
        whole = lanes % each == 0 and self.features % lanes == 0
        return each < lanes and whole and inputs is not None and each % inputs == 0

    @property
    def near(self) -> bool:
        """True if lanes that cross groups take inputs from lanes that one instruction reaches."""
        return self.inputs == self.column.extent and self.inputs * self.dtype.bytes <= SHUFFLED

    @property
    def inputs(self) -> int | None:
        """The inputs of a group, if they are neighbors, and those of the next group follow."""
        pair = product_operands(self.anchor) or ()
        others = [a for a in pair if a != self.weights]
        if [a.step(self.group.var) for a in others] == [1]:
            return 1
        last = self.anchor.reduce[-1]
        steps = [(a.step(last.var), a.step(self.group.var)) for a in others]
        return last.extent if steps == [(1, last.extent)] else None


def grouped_of(func: Func, blocks: tuple[BlockInfo, ...]) -> Grouped | None:
    """Return the roles of the heaviest reduction's axes if it is a grouped convolution."""
    anchor = heaviest(blocks)
    if anchor is None or len(anchor.stores) != 1 or len(anchor.spatial) < 3:
        return None
    *sweep, row, group, column = anchor.spatial
    pair = product_operands(anchor)
    weights = next((a for a in pair or () if a.uses(column.var) and a.uses(group.var)), None)
    if pair is None or weights is None or not _is_grouped(anchor, group, column):
        return None
    if all(a.extent == 1 for a in anchor.reduce) or 0 in (a.extent for a in anchor.spatial):
        return None
    if weights.stride(column.var) != 1 or any(weights.uses(a.var) for a in (*sweep, row)):
        return None
    if not all(a == weights or not a.uses(column.var) for a in pair):
        return None
    feeders = feeders_of(blocks, anchor)
    kept = math.prod(kept_share(f, anchor) for f in feeders)
    frozen = weights.buffer in read_once(blocks, frozen_inputs(func))
    return Grouped(
        anchor=anchor,
        consumer=_consumer(func, blocks, anchor),
        group=group,
        column=column,
        row=row,
        sweep=tuple(a for a in sweep if a.extent > 1),
        weights=weights,
        frozen=frozen,
        feeders=feeders,
        kept=kept if feeders and all(map(pads_ends, feeders)) else None,
    )


def _is_grouped(anchor: BlockInfo, group: BlockAxis, column: BlockAxis) -> bool:
    """True if the last dimension of the result is the group's number and the feature in it."""
    *outer, last = anchor.stores[0].coefficients
    plain = all(f is not None and len(f) <= 1 for f in outer)
    return plain and last == {group.var: column.extent, column.var: 1} and column.extent > 1


def _consumer(func: Func, blocks: tuple[BlockInfo, ...], anchor: BlockInfo) -> BlockInfo | None:
    """Return the only reader of the result if it reads its own point and nothing else needs it."""
    out = anchor.stores[0].buffer
    users = consumers_of(blocks, anchor)
    if len(users) != 1 or out not in func.allocs or users[0].reduce or users[0].opaque:
        return None
    axes = [a.var for a in users[0].spatial]
    read = [a for a in users[0].loads if a.buffer is out]
    if len(axes) != len(out.shape) or len(read) != 1:
        return None
    points = [{v: 1} if n > 1 else {} for v, n in zip(axes, out.shape, strict=True)]
    found = [{} if n == 1 else f for f, n in zip(read[0].coefficients, out.shape, strict=True)]
    return users[0] if found == points else None


@CPU.row(9)
def match_grouped(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a convolution with feature groups of more than one feature."""
    g = grouped_of(work.func, work.blocks)
    if g is None:
        return None
    return grouped_sketch(g, work.besides(g.anchor, g.consumer, *g.feeders), target)


def grouped_sketch(g: Grouped, others: tuple[BlockInfo, ...], target: Target) -> Sketch | None:
    """Return the space of a grouped convolution; None if it is empty."""
    return around_anchor(
        "grouped@1",
        _decisions(g, target),
        valid=lambda c: _is_valid(g, c, target),
        cost=lambda c: _cost(g, c, target),
        apply=lambda sch, c: _apply(g, sch, c),
        others=others if g.kept is not None else (*others, *g.feeders),
        target=target,
    )


def _decisions(g: Grouped, target: Target) -> dict[str, tuple[Choice, ...]]:
    full, each = max(1, target.lanes(g.dtype)), g.column.extent
    half = full // 2 if full > 2 else full  # one lane is no vector
    lanes = {each} if each <= full else {full} | {n for n in (full, half) if each % n == 0}
    lanes |= {half} if each == full else set()
    lanes |= {full} if g.may_cross(full) else set()
    most = min(g.row.extent, MOST_ROWS)
    rows = {math.ceil(g.row.extent / n) for n in range(1, g.row.extent + 1)}
    across = g.sweep[-1].extent if g.sweep else 1
    shared = may_share_flops(g.anchor.flops, target)
    return {
        "rows": tuple(sorted(r for r in rows if r <= most)),
        "vectors": VECTORS,
        "lanes": tuple(sorted(lanes, reverse=True)),
        "order": ("group", "row"),
        "chunks": tuple(n for n in (1, 2, 4, 8, 16, 32) if n <= across),
        "pack": (AHEAD, 0) if g.frozen else (0,),
        "parallel": (1, 0) if shared else (0,),
    }


def _is_valid(g: Grouped, c: Choices, target: Target) -> bool:
    rows, vectors, lanes = int(c["rows"]), int(c["vectors"]), int(c["lanes"])
    each, width = g.column.extent, lanes * vectors
    if (g.features if g.crosses(c) else each) % width and not width - lanes < each < width:
        return False  # neither whole vectors, nor a group in one tile
    tiles = math.ceil(g.row.extent / rows)
    taps = max((a.extent for a in g.anchor.reduce[:-1]), default=1)
    copies = 1 if g.kept is None else min(2, tiles) * taps + (tiles > 2)
    if copies * rows * vectors * LINES_PER_FMA > MOST_LINES:
        return False
    vectors *= math.ceil(lanes / max(1, target.lanes(g.dtype)))
    return rows * vectors + _beside(g, c, vectors) <= target.registers - 1


def _beside(g: Grouped, c: Choices, vectors: int) -> int:
    """Return the registers that a tile takes beside its results: weights, an input, an address.

    Where lanes take inputs from far, each of these has an order of a shuffle.
    """
    if not g.crosses(c) or g.inputs is None:
        return vectors + 2
    return vectors * g.inputs + 2 + (0 if g.near else g.inputs)


def _cost(g: Grouped, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run: ports in a tile, and lines of the input that are shared."""
    rows, vectors = int(c["rows"]), int(c["vectors"])
    depth = g.anchor.terms * (g.kept or 1.0)
    tiles = _tiles_of_features(g, c)
    tiles *= math.ceil(g.row.extent / rows) * math.prod(a.extent for a in g.sweep)
    each = 1 + g.crosses(c) + _spills(g, c, target)  # instructions: a shuffle and a product
    step = max(each * rows * vectors / 2, (rows + vectors) / 2, LEAST_STEP)
    cycles = tiles * (depth * step + STORED * rows * vectors + STARTED)
    if c["order"] == "group" and g.anchor.reduce[-1].extent * g.dtype.bytes < LINE:
        cycles *= PART_OF_LINE
    if c["pack"] != AHEAD:
        cycles *= UNPACKED
    if target.threads == 1 or not c["parallel"]:
        return target.core.seconds(cycles)
    n = int(c["chunks"]) * (g.group.extent if c["order"] == "group" else 1)
    share = math.ceil(n / target.threads) / n
    core = target.core
    return core.seconds(cycles * share + core.sharing + core.claim * n / target.threads)


def _tiles_of_features(g: Grouped, c: Choices) -> int:
    width = int(c["lanes"]) * int(c["vectors"])
    if g.crosses(c):
        return g.features // width
    return g.group.extent * math.ceil(g.column.extent / width)


def _spills(g: Grouped, c: Choices, target: Target) -> bool:
    """True if shuffled inputs, which taps side by side share, take more registers than are left.

    Taps are unrolled where zeros are skipped: in the first and the last tile of a row.
    """
    rows, vectors = int(c["rows"]), int(c["vectors"])
    few = math.ceil(g.row.extent / rows) <= 2 and g.kept is not None
    if not few or not g.crosses(c) or g.inputs is None or g.near:
        return False
    taps = max(a.extent for a in g.anchor.reduce[-2:])
    held = rows * vectors + _beside(g, c, vectors) + (rows + taps - 1) * g.inputs
    return held > target.registers


def _apply(g: Grouped, sch: Schedule, c: Choices) -> None:
    """Tile the result, compute the reduction on the tile in registers, vectorize both."""
    anchor = g.anchor.name
    if g.kept is not None:
        for info in g.feeders:
            sch.compute_inline(info.name)
        sch.skip_zeros(anchor)
    out = keep_result(sch, anchor, g.consumer)
    at, rows, features = _tile_output(g, sch, c, out)
    sch.compute_at(anchor, at)
    _tile_anchor(g, sch, c, at)
    if c["pack"] == AHEAD:
        _pack_ahead(g, sch, int(c["lanes"]) if g.crosses(c) else g.column.extent)
    vector, lane = _across(sch, c, features) if g.crosses(c) else features
    sch.reorder(vector, *rows, lane)
    vectorize_tile(sch, [vector, *rows, lane])


def _across(sch: Schedule, c: Choices, features: tuple[LoopRef, ...]) -> list[LoopRef]:
    """Make loops over vectors and over lanes of those over groups and over their features."""
    return sch.split(sch.fuse(*features), [int(c["vectors"]), int(c["lanes"])])


def _result_loops(
    g: Grouped, sch: Schedule, out: str
) -> tuple[dict[Var, LoopRef], LoopRef, LoopRef]:
    """Return loops by axis of the anchor, and those over groups and over features of a group."""
    own = own_loops(sch, out)
    axes = block_node(sch, out).axes
    loops = {
        a.var: own[b.var] for a, b in zip(g.anchor.spatial, axes, strict=False) if b.var in own
    }
    if len(axes) == len(g.anchor.spatial):
        return loops, loops[g.group.var], loops[g.column.var]
    group, column = sch.split(own[axes[-1].var], [None, g.column.extent])
    return loops, group, column


def _tile_output(
    g: Grouped, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, list[LoopRef], tuple[LoopRef, LoopRef]]:
    """Split and reorder the output's loops; return the loop around a tile and those of the tile:
    over rows, and over vectors and their lanes, or groups and their features.
    """
    loops, group, column = _result_loops(g, sch, out)
    vectors, lanes = int(c["vectors"]), int(c["lanes"])
    columns: list[LoopRef] = []
    if g.crosses(c):
        group, near = sch.split(group, [None, vectors * lanes // g.column.extent])
    else:
        around_column, near, column = sch.split(column, [None, vectors, lanes])
        columns.append(around_column)
    rows: list[LoopRef] = []
    if g.row.var in loops:  # unit axes have no loop
        rows = list(sch.split(loops[g.row.var], [None, int(c["rows"])]))
    inside = [loops[a.var] for a in g.sweep if a.var in loops]
    head: list[LoopRef] = []
    if inside and int(c["chunks"]) > 1:
        chunk, inside[-1] = sch.split(inside[-1], [int(c["chunks"]), None])
        head = [*inside[:-1], chunk]
        inside = inside[-1:]
    by_group = c["order"] == "group"
    head = [group, *head] if by_group else head
    around = [*inside, *rows[:1]] if by_group else [*inside, *rows[:1], group]
    sch.reorder(*head, *around, *columns, *rows[1:], near, column)
    if not head:
        head, around = around[:1], around[1:]
    share = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(share)
    return [share, *around, *columns][-1], rows[1:], (near, column)


def _tile_anchor(g: Grouped, sch: Schedule, c: Choices, at: LoopRef) -> None:
    """Move the reduction outside the tile, decompose its init, unroll rows and vectors."""
    anchor = g.anchor.name
    own = own_loops(sch, anchor, at)
    lane, tile = own[g.column.var], []
    if g.row.var in own:
        tile.append(own[g.row.var])
    if g.crosses(c):
        vector, lane = _across(sch, c, (own[g.group.var], lane))
        tile.append(vector)
    elif int(c["vectors"]) > 1:
        vector, lane = sch.split(lane, [int(c["vectors"]), int(c["lanes"])])
        tile.append(vector)
    reduce = [own[a.var] for a in g.anchor.reduce if a.var in own]
    several = g.crosses(c) and (g.inputs or 1) > 1
    inputs = [reduce.pop()] if several else []  # of one vector, so they are unrolled inside
    sch.reorder(*reduce, *tile, *inputs, lane)
    init = sch.decompose_reduction(anchor, (*reduce, *tile, *inputs)[0])
    vectorize_tile(sch, [*tile, *inputs, lane])
    vectorize_init(sch, init, len(tile) + 1)


def _pack_ahead(g: Grouped, sch: Schedule, width: int) -> None:
    """Lay the weights out as ``[.., reduction.., width features]``, ahead of time."""
    block = sch.get_block(g.anchor.name)
    packed = sch.cache_read(block, read_number(sch, block, g.weights.buffer), "global")
    rank = len(g.weights.buffer.shape)
    last = next(n for n, f in enumerate(g.weights.coefficients) if f and g.column.var in f)
    order = [last, *(n for n in range(rank) if n != last), rank]
    sch.transform_layout(packed, 0, order, [(last, width)])
