"""Operands of an attention in panels, and instructions that add up several terms in each lane.

For each piece, keys are packed as ``[.., columns / width, terms, width]``; for instructions that
take d terms keys and values as ``[.., columns / width, terms / d, width, d]``, and the exponentials
are copied in the type of the values. So a loop over d terms is innermost in both products, inside
of the lanes, as in ``products/lane_dots.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....ir.accuracy import BF16_PRODUCTS
from .....ir.dtypes import f32
from .....ir.lane_dots import lane_dot
from .....ir.loop.nodes import Buffer, Var
from .....ir.target import Target
from .....ir.tile_dots import tile_dot
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, BlockInfo, product_operands
from ....space.attention import Attention
from ....space.lookup import block_node, extent, own_loops, read_number


@dataclass(frozen=True, slots=True)
class OperandPanel:
    """Panels of ``width`` columns; ``column`` and ``terms`` are dimensions of what is packed.

    ``depth`` terms are neighbors in a panel.
    """

    column: int
    terms: int
    depth: int = 1
    width: int = 0


@dataclass(frozen=True, slots=True)
class LaneProducts:
    """The panels of keys and values. ``weights`` are exponentials that are to become narrow.

    With ``tiled`` the products are made in tile registers, for which operands lie as for lanes.
    """

    keys: OperandPanel
    values: OperandPanel
    weights: Buffer | None
    tiled: bool = False


def tile_products(k: Attention, target: Target) -> LaneProducts | None:
    """Return the same for tile registers; None if they do not take the products."""
    found = lane_products(k, target)
    queries = None if found is None else _other(k.scores, k.keys)
    if found is None or queries is None:
        return None
    own = k.value_operand.buffer.dtype
    taken = (queries.buffer.dtype, k.keys.buffer.dtype), (own, own)
    dots = [tile_dot(target, *types) for types in taken]
    if any(dot is None or dot.sums != k.dtype for dot in dots):
        return None
    return replace(found, tiled=True)


def lane_products(k: Attention, target: Target) -> LaneProducts | None:
    """Return the instructions of an attention's products; None if it has another form.

    Exponentials become as narrow as the values only where the result is, too, or the accuracy that
    is asked for allows it.
    """
    lanes = target.lanes(k.dtype)
    if k.by_key or k.dtype != f32 or min(k.length, k.width) < lanes:
        return None
    queries, weights = _other(k.scores, k.keys), _other(k.values, k.value_operand)
    if queries is None or weights is None:
        return None
    own = k.value_operand.buffer.dtype
    scores = lane_dot(target, queries.buffer.dtype, k.keys.buffer.dtype, lanes)
    values = lane_dot(target, own, own, lanes)
    if scores is None or values is None or k.depth % scores.depth:
        return None
    terms = (k.scores.reduce[0].var, k.values.reduce[0].var)
    if queries.stride(terms[0]) != 1 or {scores.sums, values.sums} != {k.dtype}:
        return None
    keys = key_dims(k)
    columns = _dims(k.value_operand, k.values.spatial[-1].var, terms[1])
    if keys is None or columns is None or weights.buffer.dtype not in (own, k.dtype):
        return None
    narrows = weights.buffer.dtype != own
    stored = (k.consumer or k.values).stores[0].buffer.dtype
    if narrows and stored.bytes > own.bytes and target.accuracy < BF16_PRODUCTS:
        return None
    return LaneProducts(
        OperandPanel(*keys, scores.depth),
        OperandPanel(*columns, values.depth),
        weights.buffer if narrows else None,
    )


def _other(product: BlockInfo, operand: AccessPattern) -> AccessPattern | None:
    pair = product_operands(product) or ()
    return next((a for a in pair if a.buffer is not operand.buffer), None)


def key_dims(k: Attention) -> tuple[int, int] | None:
    """Return the dimensions of the keys' operand that are its keys, and its terms, if they are."""
    return _dims(k.keys, k.key_axis, k.scores.reduce[0].var)


def _dims(a: AccessPattern, column: Var, terms: Var) -> tuple[int, int] | None:
    found = [[d for d, f in enumerate(a.coefficients) if f == {v: 1}] for v in (column, terms)]
    return (found[0][0], found[1][0]) if [len(x) for x in found] == [1, 1] else None


def copy_operand(
    sch: Schedule, product: str, operand: AccessPattern, at: LoopRef, panel: OperandPanel
) -> BlockRef:
    """Copy an operand of a product inside ``at``, with zeros behind that fill its panels."""
    copy = sch.cache_read(product, read_number(sch, product, operand.buffer), "global")
    multiples = [1] * len(operand.buffer.shape)
    multiples[panel.column] = min(panel.width, operand.buffer.shape[panel.column])
    multiples[panel.terms] = panel.depth
    sch.pad(copy, multiples)
    sch.compute_at(copy, at, False, multiples)
    return copy


def pack(sch: Schedule, copy: BlockRef, at: LoopRef, panel: OperandPanel, lanes: int) -> None:
    """Pack a copy inside ``at``, after the product that reads it is tiled.

    As many rows as are neighbors in a panel are interleaved.
    """
    shape = sch.block(copy).writes[0].buffer.shape
    rank, column, terms = len(shape), panel.column, panel.terms
    lead = [d for d in range(rank) if d not in (column, terms)]
    width = min(panel.width, shape[column])
    order, parts = [*lead, column, terms, rank], [(column, width)]
    if panel.depth > 1:
        order, parts = [*order, rank + 1], [*parts, (terms, panel.depth)]
    sch.transform_layout(copy, 0, order, parts)
    axes, own = [a.var for a in block_node(sch, copy).axes], own_loops(sch, copy, at)
    along, lane = sch.split(own[axes[column]], [None, lanes if panel.depth > 1 else width])
    sch.vectorize(lane)
    if panel.depth > 1:
        row, term = sch.split(own[axes[terms]], [None, panel.depth])
        sch.reorder(row, along, term, lane)
        sch.unroll(term)


def copy_narrow(sch: Schedule, product: str, weights: Buffer, lanes: int) -> None:
    """Copy exponentials, where they are computed, in the type of the values."""
    copy = sch.cache_read(product, read_number(sch, product, weights), "global")
    sch.narrow(copy)
    along = sch.get_loops(copy)[-1]
    if extent(sch, along) > lanes:
        _, along = sch.split(along, [None, lanes])
    sch.vectorize(along)
