"""Clusters: blocks of a function that pass values row by row and can share a launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .....ir.gpus import FEW_ROWS, LONG_ROW
from .....ir.loop.nodes import Buffer
from .....ir.loop.notes import STAGE_OF
from ....combiner import combiner_of
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.analyze import BlockInfo, describe
from ....space.lookup import below, own_loops
from ....space.registry import SketchTable
from ....stores import update_of

LITTLE = 1 << 10  # points that one block of threads computes as fast as many do


@dataclass(frozen=True, slots=True)
class Cluster:
    """Blocks in program order, with ``count`` leading axes (the *row*) in common.

    A value that one block writes is read in the row in which it was written, so each row can be
    computed independently. The *columns* of a block are its other spatial axes.
    """

    blocks: tuple[BlockInfo, ...]
    count: int
    outside: frozenset[Buffer] = frozenset()
    """Inputs and results of the function, which stay in global memory."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(a.extent for a in self.blocks[0].spatial[: self.count])

    @property
    def passed(self) -> frozenset[Buffer]:
        """The buffers that a block of the cluster writes and another one reads."""
        return passed_buffers(self.blocks)

    def columns(self, info: BlockInfo) -> int:
        """Return the spatial points of a block in one row."""
        return math.prod(a.extent for a in info.spatial[self.count :])

    @property
    def flat(self) -> bool:
        """True if no block has columns."""
        return all(self.columns(b) == 1 for b in self.blocks)

    @property
    def elementwise(self) -> bool:
        """True if no block reduces or has columns: one point per row and block."""
        return not self.reduces and bool(self.count) and self.flat

    @property
    def staged(self) -> bool:
        """True if the blocks are stages that belong together."""
        return STAGE_OF.of(self.blocks[0].block) is not None

    @property
    def reduces(self) -> bool:
        """True if a block is a reduction."""
        return any(b.reduce for b in self.blocks)


CLUSTERS: SketchTable[Cluster] = SketchTable()
"""Sketches of a cluster. The one of least estimated cost is preferred, regardless of rank."""


def passed_buffers(blocks: tuple[BlockInfo, ...]) -> frozenset[Buffer]:
    """Return the buffers that one of the blocks writes and another reads."""
    written = {s.buffer: b for b in blocks for s in b.stores}
    return frozenset(a.buffer for b in blocks for a in b.loads if written.get(a.buffer, b) is not b)


def find_clusters(
    blocks: tuple[BlockInfo, ...], outside: frozenset[Buffer] = frozenset()
) -> tuple[Cluster, ...]:
    """Partition the blocks into clusters, in program order of their last blocks.

    Opaque blocks, and those that share an output buffer with others, are clusters of their own,
    except for those that belong together.
    """
    found: list[tuple[BlockInfo, ...]] = []
    for block in blocks:
        number = STAGE_OF.of(block.block)
        if number is not None and found and STAGE_OF.of(found[-1][-1].block) == number:
            found[-1] = (*found[-1], block)
            continue
        joined: tuple[BlockInfo, ...] = (block,)
        for other in tuple(found) if _may_share(block, blocks) else ():
            merged = tuple(b for b in blocks if b in other or b in joined)
            near = _feeds(other, joined, blocks) or _same_elements(merged, blocks)
            shared = worth_one_launch(merged) or writes_terms(merged)
            if near and shared and _convex(merged, blocks):
                found.remove(other)
                joined = merged
        found.append(joined)
    return tuple(Cluster(part, common_rows(part), outside) for part in found)


def _may_share(block: BlockInfo, blocks: tuple[BlockInfo, ...]) -> bool:
    written = {s.buffer for s in block.stores}
    alone = not any(s.buffer in written for b in blocks if b is not block for s in b.stores)
    return alone and not block.opaque


def _feeds(
    first: tuple[BlockInfo, ...], then: tuple[BlockInfo, ...], blocks: tuple[BlockInfo, ...]
) -> bool:
    """True if a block of ``then`` reads what a block of ``first``, as the sole writer, writes."""
    written = {s.buffer for b in first if _may_share(b, blocks) for s in b.stores}
    return any(a.buffer in written for b in then for a in b.loads)


def _same_elements(part: tuple[BlockInfo, ...], blocks: tuple[BlockInfo, ...]) -> bool:
    """True if the blocks are element-wise over the same extents.

    None of them may depend on a block between them that is not in ``part``.
    """
    extents = {tuple(a.extent for a in b.spatial) for b in part}
    if len(extents) > 1 or any(b.reduce or not _may_share(b, blocks) for b in part):
        return False
    first, last = blocks.index(part[0]), blocks.index(part[-1])
    between = [b for b in blocks[first:last] if b not in part]
    read = {a.buffer for b in part for a in b.loads}
    apart = not any(s.buffer in read for b in between for s in b.stores)
    return apart and common_rows(part) == len(part[0].spatial) > 0


def _convex(part: tuple[BlockInfo, ...], blocks: tuple[BlockInfo, ...]) -> bool:
    """True if no value leaves the part and returns to it through another block."""
    tainted: set[Buffer] = set()
    written = {s.buffer for b in part for s in b.stores}
    for b in blocks:
        reads = {a.buffer for a in b.loads}
        if b in part:
            if reads & tainted:
                return False
        elif reads & (written | tainted):
            tainted |= {s.buffer for s in b.stores}
    return True


def worth_one_launch(part: tuple[BlockInfo, ...]) -> bool:
    """True if the blocks share rows, and enough of them for the work in each.

    Without an axis in common, all that they compute is one row. A long row is worth it where but
    one block goes over it, and the others do something with what it finds.
    """
    count = common_rows(part)
    rows = math.prod(a.extent for a in part[0].spatial[:count])
    if rows >= FEW_ROWS:
        return True
    each = sorted(b.points // max(rows, 1) for b in part)
    if not count and not _worth_one_block(part):
        return False
    single = all(math.prod(a.extent for a in b.spatial[count:]) == 1 for b in part)
    return each[-1] <= LONG_ROW or (single and each[:-1][-1:] <= [1])


def writes_terms(part: tuple[BlockInfo, ...]) -> bool:
    """True if all but one reduction and what follows it compute its terms, element by element.

    A few long rows of them are worth a launch: each block of threads computes terms and reduces
    them.
    """
    heavy = next((b for b in part if b.reduce), None)
    if heavy is None or heavy.opaque or update_of(heavy.block) is None:
        return False
    at, count = part.index(heavy), common_rows(part)
    extents, last = [a.extent for a in heavy.reduce], heavy.reduce[-1].var
    alike = all([a.extent for a in b.spatial[count:]] == extents for b in part[:at])
    single = all(math.prod(a.extent for a in b.spatial[count:]) == 1 for b in part[at:])
    near = [a.step(last) for a in heavy.inputs]
    near += [a.step(b.spatial[-1].var) for b in part[:at] for a in b.inputs]
    plain = not any(b.reduce or b.opaque for b in (*part[:at], *part[at + 1 :]))
    return at > 0 and alike and single and plain and all(step in (0, 1) for step in near)


def _worth_one_block(part: tuple[BlockInfo, ...]) -> bool:
    """True if one block of threads can share the work of blocks without an axis in common."""
    if not any(b.reduce for b in part):
        return max(b.points for b in part) <= LITTLE
    return all(not b.reduce or b.spatial or combiner_of(b.block) is not None for b in part)


def common_rows(part: tuple[BlockInfo, ...]) -> int:
    """Return the number of leading axes that all blocks share, with values passed within a row."""
    if len(part) == 1:
        return len(part[0].spatial)
    passed, count = passed_buffers(part), 0
    while all(len(b.spatial) > count for b in part):
        if len({b.spatial[count].extent for b in part}) > 1:
            break
        if not all(_in_row(b, count, passed) for b in part):
            break
        count += 1
    return count


def _in_row(info: BlockInfo, n: int, passed: frozenset[Buffer]) -> bool:
    """True if a block accesses passed values at its own axis ``n``."""
    axis = info.spatial[n]
    for a in (*info.loads, *info.stores):
        if a.buffer in passed:
            form = a.coefficients[n] if n < len(a.coefficients) else None
            at_own = form == {axis.var: 1} or (axis.extent == 1 and form == {})
            if not at_own:
                return False
    return True


def row_loops(k: Cluster, sch: Schedule, inner: int, vector: int = 1) -> tuple[LoopRef, LoopRef]:
    """Return loops over groups of ``inner`` rows and over the rows of one, around every block.

    With ``vector``, each row consists of that many neighbors on the last axis.
    """
    row = merged_rows(k, sch, vector)
    at = row[0] if len(row) == 1 else sch.fuse(*row)
    outer, at = sch.split(at, [None, min(inner, max(sch.extent(at), 1))])
    return outer, at


def merged_rows(k: Cluster, sch: Schedule, vector: int = 1) -> list[LoopRef]:
    """Return the loops over the axes of the row, with every block of the cluster inside.

    Loops of extent 1 are moved inside: if they were fused with the others, a tail would have to be
    guarded in them, too.
    """
    nests = []
    for info in k.blocks:
        own = _wide_rows(k, sch, info) or [_unit(sch, info)]
        if vector > 1:
            own[-1], _ = sch.split(own[-1], [None, vector])
        nests.append(own)
    return merged(sch, nests)


def merged(sch: Schedule, nests: Sequence[Sequence[LoopRef]]) -> list[LoopRef]:
    """Merge consecutive nests level by level, and return the loops of the first.

    A nest of fewer loops is merged in the outer ones only.
    """
    first = list(nests[0])
    for level in range(len(first)):
        loops = [nest[level] for nest in nests if level < len(nest)]
        if len(loops) > 1:
            sch.merge(*loops)
    return first


def stage_loops(k: Cluster, sch: Schedule, info: BlockInfo, at: LoopRef) -> list[LoopRef]:
    """Return the loops of a block inside a loop over rows: those over its columns and terms."""
    own = own_loops(sch, info.name)
    rows = [own[a.var] for a in info.spatial[: k.count] if a.var in own]
    return [x for x in below(sch, info.name, at) if x not in rows or sch.extent(x) > 1]


def _wide_rows(k: Cluster, sch: Schedule, info: BlockInfo) -> list[LoopRef]:
    """Return the loops over a block's row, moved outermost; those of extent 1 are left out."""
    own = own_loops(sch, info.name)
    rows = [own[a.var] for a in info.spatial[: k.count] if a.var in own]
    wide = [x for x in sch.get_loops(info.name) if x in rows and sch.extent(x) > 1]
    if wide:
        sch.reorder(*wide, *(x for x in sch.get_loops(info.name) if x not in wide))
    return wide


def _unit(sch: Schedule, info: BlockInfo) -> LoopRef:
    """Add a loop of extent 1 around all other loops of a block, and return it."""
    inner = sch.get_loops(info.name)
    unit = sch.add_unit_loop(info.name)
    sch.reorder(unit, *inner)
    return unit


def stage_reductions(k: Cluster, sch: Schedule) -> Cluster:
    """Copy each reduction's result that other blocks need, so that it can accumulate in registers.

    Returns the cluster including the copies.
    """
    names = {b.name for b in k.blocks}
    blocks: list[BlockInfo] = []
    for info in k.blocks:
        blocks.append(info)
        written = [r.buffer for r in sch.block(info.name).writes]
        mine = all(r.name in names for r in sch.get_consumers(info.name))
        extents = sorted(a.extent for a in info.spatial)
        alike = all(sorted(b.shape) == extents for b in written)
        if info.reduce and alike and (not mine or not {*written}.isdisjoint(sch.func.params)):
            copies = [sch.cache_write(info.name, n) for n in range(len(written))]
            blocks[-1] = describe(sch.block(info.name))
            blocks += [describe(sch.block(copy)) for copy in copies]
    return Cluster(tuple(blocks), k.count, k.outside)


def place(k: Cluster, sch: Schedule, wide: str | None = None) -> None:
    """Set the scope of values that only the cluster reads.

    A single value per row goes to registers, a value with columns to ``wide``, if given.
    """
    names = {b.name for b in k.blocks}
    for info in k.blocks:
        written = [w.buffer for w in sch.block(info.name).writes]
        inside = all(r.name in names for r in sch.get_consumers(info.name))
        scope = "register" if k.columns(info) == 1 else wide
        if inside and {*written} <= {*sch.func.allocs} and scope is not None:
            for n in range(len(written)):
                sch.set_scope(info.name, n, scope)
