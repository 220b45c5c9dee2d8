"""Analysis of an attention: the roles of a function's blocks, and its softmax taken in parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dtypes import DType
from ...ir.loop.affine import bounds
from ...ir.loop.nodes import AxisKind, Block, BlockAxis, Const, Func, Var
from ...ir.loop.visit import loads_in
from ..cursor import LoopRef, Nest, nest
from ..errors import ScheduleError
from ..language.schedule import Schedule
from ..softmax.masks import mask_of, shown_keys
from ..stores import update_of
from .analyze import AccessPattern, BlockInfo, point_reads, product_operands
from .lookup import below, block_node, own_loops


@dataclass(frozen=True, slots=True)
class Attention:
    """The blocks of an attention, in program order, and the extents of its axes.

    ``scores`` and ``values`` are the two products; ``stages`` are the blocks on scores and on rows
    besides, ``exponential`` the name of the one that can be taken in parts (None if none can).
    ``consumer`` stores the result, and ``to_values`` maps its axes to those of ``values``, several
    to one, the innermost first, where it splits the heads of all batches or the rows; without one
    ``values`` does. ``keys`` is the
    operand of ``scores`` that depends on the key, ``by_key`` says that the terms of one key are
    neighbors in it, rather than the keys. ``others`` are independent of the scores. ``shown`` is
    the share of the keys that a causal mask, a window or a length shows, over all rows; None
    without one. ``skips`` says that it makes scores -inf, so that what it hides adds nothing.
    """

    scores: BlockInfo
    values: BlockInfo
    stages: tuple[BlockInfo, ...]
    exponential: str | None
    consumer: BlockInfo | None
    to_values: dict[Var, Var]
    keys: AccessPattern
    by_key: bool
    others: tuple[BlockInfo, ...]
    dtype: DType
    shown: float | None
    skips: bool

    @property
    def value_operand(self) -> AccessPattern:
        """The operand of ``values`` that has its columns."""
        return _column_operand(self.values)

    @property
    def key_axis(self) -> Var:
        """The axis of the keys in the block of the scores."""
        return self.scores.spatial[-1].var

    @property
    def heads(self) -> int:
        """The number of heads of all batches."""
        return math.prod(a.extent for a in self.scores.spatial[:-2])

    @property
    def queries(self) -> int:
        """The number of rows of scores of one head."""
        return self.scores.spatial[-2].extent

    @property
    def length(self) -> int:
        """The number of keys: elements in a row of scores."""
        return self.scores.spatial[-1].extent

    @property
    def depth(self) -> int:
        """The number of terms of a score."""
        return self.scores.reduce[0].extent

    @property
    def width(self) -> int:
        """The number of elements in a row of the result."""
        return self.values.spatial[-1].extent


def find_attention(func: Func, blocks: tuple[BlockInfo, ...]) -> Attention | None:
    """Return the roles of a function's blocks; None if it is no attention."""
    products = [b for b in blocks if product_operands(b) is not None]
    if len(products) != 2 or any(b.opaque or len(b.stores) != 1 for b in blocks):
        return None
    scores, values = products
    after, last = _follows(scores, blocks), _follows(values, blocks)
    if values not in after or len(last) > 1:
        return None
    stages = tuple(b for b in after if b is not values and b not in last)
    if not any(b.transcendental for b in stages) or not any(b.reduce for b in stages):
        return None
    lead = scores.spatial[:-1]
    plain = all(len(b.spatial) in (len(lead), len(lead) + 1) for b in stages)
    if not plain or any(_extents(b.spatial[: len(lead)]) != _extents(lead) for b in stages):
        return None
    by_key = _by_key(scores)
    if _extents(values.spatial[:-1]) != _extents(lead) or not _contiguous(values):
        return None
    if not (by_key or _contiguous(scores)):
        return None
    if values.reduce[0].extent != scores.spatial[-1].extent:
        return None
    consumer = last[0] if last else None
    to_values = {a.var: a.var for a in values.spatial}
    if consumer is not None:
        found = point_reads(consumer, values)
        if found is None or [v for v, _ in found.values()].count(values.spatial[-1].var) > 1:
            return None
        to_values = {v: found[v][0] for v in found}
    mine = (scores, values, *stages, *last)
    return Attention(
        scores=scores,
        values=values,
        stages=stages,
        exponential=_exponential(func, stages, scores.spatial[-1].extent),
        consumer=consumer,
        to_values=to_values,
        keys=_column_operand(scores),
        by_key=by_key,
        others=tuple(b for b in blocks if b not in mine),
        dtype=scores.stores[0].buffer.dtype,
        shown=_shown(nest(func), stages),
        skips=any(_hides_wholly(nest(func).block(b.name)) for b in stages),
    )


def _column_operand(product: BlockInfo) -> AccessPattern:
    """Return the operand of a product that depends on its last axis."""
    column = product.spatial[-1].var
    return next(a for a in product_operands(product) or () if a.step(column) != 0)


def _extents(axes: tuple[BlockAxis, ...]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)


def _follows(start: BlockInfo, blocks: tuple[BlockInfo, ...]) -> tuple[BlockInfo, ...]:
    """Return the blocks that depend on ``start``, directly or not, in program order."""
    written = {start.stores[0].buffer}
    found: list[BlockInfo] = []
    for b in blocks:
        if b is not start and any(a.buffer in written for a in b.inputs):
            written.add(b.stores[0].buffer)
            found.append(b)
    return tuple(found)


def _contiguous(product: BlockInfo) -> bool:
    """True if a product has one axis of terms, and vectors along its last axis."""
    if len(product.spatial) < 2 or len(product.reduce) != 1:
        return False
    last, terms = product.spatial[-1], product.reduce[0]
    strides = [a.step(last.var) for a in product_operands(product) or ()]
    vectors = sorted(s if s is not None else -1 for s in strides) == [0, 1]
    return vectors and min(terms.extent, last.extent) >= 2


def _by_key(scores: BlockInfo) -> bool:
    """True if a product has one axis of terms, along which both operands are vectors."""
    if len(scores.spatial) < 2 or len(scores.reduce) != 1 or scores.spatial[-1].extent < 2:
        return False
    terms = scores.reduce[0]
    operands = product_operands(scores) or ()
    return terms.extent >= 2 and all(a.step(terms.var) == 1 for a in operands)


def _shown(func: Nest, stages: tuple[BlockInfo, ...]) -> float | None:
    """Return the share of the keys that a mask shows, between the first and the last of a row.

    A half if it depends on the inputs; None if the mask hides neither the first nor the last keys.
    """
    for info in stages:
        block = func.block(info.name)
        mask = mask_of(block)
        if mask is None or info.reduce:
            continue
        *_, row, key = block.axes
        shown = shown_keys(mask.cond, mask.hides, block.axes, key.var)
        first, end = shown.first or Const(0), shown.end or Const(key.extent)
        if shown.first is None and shown.end is None:
            continue
        if any(loads_in(first)) or any(loads_in(end)):
            return 0.5
        total = 0
        for i in range(row.extent):
            begin, stop = bounds(first, {row.var: (i, i)})[0], bounds(end, {row.var: (i, i)})[1]
            total += max(0, min(stop, key.extent) - max(begin, 0))
        return total / max(row.extent * key.extent, 1)
    return None


def _hides_wholly(block: Block) -> bool:
    mask = mask_of(block)
    return mask is not None and mask.fill.value == -math.inf


def _exponential(func: Func, stages: tuple[BlockInfo, ...], length: int) -> str | None:
    """Return the block of exponentials if the softmax can be taken in parts."""
    for b in stages:
        if b.transcendental and not b.reduce and length >= 4:
            try:
                take_parts(Schedule(func), b.name, length // 2)
            except ScheduleError:
                return None
            return b.name
    return None


@dataclass(frozen=True, slots=True)
class SoftmaxParts:
    """The names of the blocks of partial results, by the block that puts them together.

    ``copies`` are blocks that copy exponentials for a product.
    """

    partial: dict[str, str]
    scale: str
    maximum: str
    copies: tuple[str, ...] = ()


def take_parts(sch: Schedule, exponential: str, part: int) -> SoftmaxParts:
    """Take rows in parts of ``part`` elements."""
    at = sch.block(exponential)
    shift = {r.buffer for r in at.reads}
    weights = {at.writes[0].buffer}
    partial: dict[str, str] = {}
    copies: list[str] = []
    maximum = ""
    for name in [b.name for b in sch.blocks()]:
        node = sch.block(name)
        update = update_of(node)
        feeds = update is not None and node.writes[0].buffer in shift and update.op == "maximum"
        sums = any(r.buffer in weights for r in node.reads)
        if sums and update is None:  # a copy of the exponentials for a product
            weights.add(node.writes[0].buffer)
            copies.append(name)
            continue
        if not feeds and not sums:
            continue
        *rows, along = sch.get_loops(name)
        outer, inner = sch.split(along, [None, part])
        sch.reorder(outer, *rows, inner)
        partial[name] = sch.rfactor(outer, 0).name
        maximum = name if feeds else maximum
    return SoftmaxParts(partial, sch.rescale(exponential).name, maximum, tuple(copies))


def pieces(k: Attention, sch: Schedule, host: str, size: int) -> LoopRef:
    """Return the loop over all pieces, outermost in the nest of ``host``."""
    own = own_loops(sch, host)
    axes = [a.var for a in block_node(sch, host).axes if a.kind is AxisKind.SPATIAL]
    role = k.to_values
    if k.consumer is None:
        role = dict(zip(axes, (a.var for a in k.values.spatial), strict=True))
    *_, row, column = (a.var for a in k.values.spatial)
    lead = [own[v] for v in axes if v in own and role.get(v) not in (row, column)]
    columns = [own[v] for v in axes if v in own and role.get(v) == column]
    each = [own[v] for v in reversed(role) if v in own and role[v] == row]
    if len(each) > 1:
        sch.reorder(*lead, *each, *columns)
        each = [sch.fuse(*each)]
    tile, rows = sch.split(each[0] if each else sch.add_unit_loop(host), [None, size])
    sch.reorder(*lead, tile, rows, *columns)
    return sch.fuse(*lead, tile) if lead else tile


def in_order(k: Attention, parts: SoftmaxParts | None) -> list[str]:
    """Return the stages and the product with the values, with their partial results, in order."""
    names: list[str] = []
    for info in (*k.stages, k.values):
        if parts is not None and info is k.values:
            names += parts.copies
        if parts is not None and info.name in parts.partial:
            names.append(parts.partial[info.name])
        names.append(info.name)
        if parts is not None and info.name == parts.maximum:
            names.append(parts.scale)
    return names


def merged_parts(
    k: Attention,
    sch: Schedule,
    parts: SoftmaxParts,
    size: int,
    at: LoopRef,
    in_parts: Sequence[LoopRef] = (),
) -> LoopRef:
    """Return one loop over the parts of a row, with all that is done on each of them.

    ``in_parts`` are the loops over parts of other stages, outermost below ``at``.
    """
    first: LoopRef | None = None
    whole = {k.exponential, *parts.copies}
    names = [parts.partial.get(info.name, info.name) for info in k.stages]
    for name in (*names, *parts.copies, parts.partial[k.values.name]):
        if name not in whole and name not in parts.partial.values():
            continue
        *rest, along = below(sch, name, at)
        if name in whole:
            part, along = sch.split(along, [None, size])
        else:
            *rest, part = rest
        sch.reorder(part, *rest, along)
        first = part if first is None else sch.merge(first, part)
    assert first is not None
    for part in in_parts:
        sch.merge(first, part)
    for info in reversed(k.stages):
        if is_full(k, info) and info.name != k.exponential and info.name not in parts.partial:
            sch.compute_at(info.name, first)
    return first


def more_reductions(k: Attention, parts: SoftmaxParts) -> tuple[str, ...]:
    """Return the stages that reduce rows of scores besides the softmax: is any key shown?"""
    names = (b.name for b in k.stages if b.reduce and not is_full(k, b))
    return tuple(n for n in names if n not in parts.partial)


def is_full(k: Attention, info: BlockInfo) -> bool:
    """True if a stage has an element for each score, rather than for each row."""
    return len(info.spatial) == len(k.scores.spatial)
