"""Register-tiled reductions: the roles of their axes.

Matrix products, convolutions, pooling, sums down the columns.

The reduction's last spatial axis is contiguous in memory and becomes vectors (the *columns*); a few
neighbors on another axis become *rows*; rows x vectors of accumulators stay in registers during
the reduction. A consumer that reads the result pointwise is computed on the tile while it is still
in registers. What such a tile costs is in ``tile_cost``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypedDict, TypeVar

from .....ir.arrays import Array
from .....ir.dtypes import DType
from .....ir.loop.nodes import BlockAxis, Buffer, Func, Var
from ....space.analyze import (
    AccessPattern,
    BlockInfo,
    frozen_inputs,
    point_reads,
    product_operands,
    weight_in_parts,
)
from ....space.space import Choices
from .padding import kept_share, pads_ends

PANEL, AHEAD = 1, 2  # packing of weights: panel by panel in the kernel, or before any call
CHUNK, INLINE, SKIP = 1, 2, 3  # placement of feeders: each chunk's loop, inlined, bounds
MOST_FMAS = 96  # of a tile's body: more exceeds the decoded-instruction cache
TAKEN = 1 / 8  # of a fork: what a row of the result costs that two threads write
SHORT = 7  # an axis of fewer iterations makes no good tile of rows

N = TypeVar("N")
W = TypeVar("W")


class TileDecisions(TypedDict, Generic[N, W]):
    """The decisions of a register-tiled reduction: the one declaration of their names.

    A sketch has the tuple of values of each, ``apply`` one value, ``valid`` and ``cost`` a column.
    """

    rows: N
    vectors: N
    lanes: N
    order: W
    chunks: N
    panels: N
    pack: N
    unroll: N
    inside: N
    parallel: N


TileDomains: TypeAlias = TileDecisions[tuple[int, ...], tuple[str, ...]]
TileChoices: TypeAlias = TileDecisions[int, str]
TileColumns: TypeAlias = TileDecisions[Array, Array]


@dataclass(frozen=True, slots=True)
class Contraction:
    """The roles of the axes around one reduction block.

    ``column``, ``row``, ``outer`` and ``sweep`` are axes of the block that writes the result: the
    consumer, or a copy with the anchor's own axes. ``column`` is vectorized. ``row`` is the
    other side of the register tile (None if there is no second axis). Each iteration of ``outer``
    has its own panel of weights; ``sweep``, like the row, reuses them. ``anchor_column`` and
    ``anchor_row`` are the anchor's axes of which column and row are (a part); ``part`` has these
    for all axes of the result, and their step in the anchor's axis. ``frozen`` weights
    are constants, which can be packed ahead of time. ``lower`` is the second part of weights that
    are in two arrays, whose indices are the same. ``turned`` weights are contiguous along the
    reduction instead, and have to be packed. ``feeders`` are blocks that only the anchor
    reads, such as the padding of a convolution's input. ``kept`` is the share of the products
    that are left where bounds skip all that the feeders pad; None if they do anything else.
    ``kept_in_rows`` is that of a row: a tile has all steps, and fewer products in some.
    """

    anchor: BlockInfo
    consumer: BlockInfo | None
    column: BlockAxis
    row: BlockAxis | None
    outer: tuple[BlockAxis, ...]
    sweep: tuple[BlockAxis, ...]
    anchor_column: Var
    anchor_row: Var | None
    part: Mapping[Var, tuple[Var, int]]
    weights: AccessPattern | None
    lower: AccessPattern | None
    frozen: bool
    turned: bool
    feeders: tuple[BlockInfo, ...]
    kept: float | None
    kept_in_rows: float
    dtype: DType

    @property
    def weight_parts(self) -> tuple[AccessPattern, ...]:
        """The arrays of the weights: none, one or two."""
        return tuple(a for a in (self.weights, self.lower) if a is not None)

    @property
    def depth(self) -> int:
        """The number of terms of the reduction."""
        return self.anchor.terms

    @property
    def all_rows(self) -> int:
        """The number of rows of the result that each panel of weights is used for."""
        return math.prod(a.extent for a in (*self.sweep, *((self.row,) if self.row else ())))

    def in_parts(self, axis: BlockAxis, var: Var | None) -> bool:
        """True if an axis of the result is a part of an axis ``var`` of the anchor."""
        return any(a.var is var and a.extent != axis.extent for a in self.anchor.spatial)


def contraction_of(
    func: Func, blocks: tuple[BlockInfo, ...], across: bool = False
) -> Contraction | None:
    """Return the axis roles of a function's heaviest reduction; None if it cannot be tiled.

    With ``across`` the columns are those of the result, where a consumer stores it transposed.
    """
    anchor = heaviest(blocks)
    if anchor is None:
        return None
    kept = all(s.buffer in func.allocs for s in anchor.stores)  # not an output as well
    consumers = consumers_of(blocks, anchor) if kept else ()
    frozen = read_once(blocks, frozen_inputs(func))
    return find_contraction(anchor, consumers, feeders_of(blocks, anchor), frozen, across)


def heaviest(blocks: tuple[BlockInfo, ...]) -> BlockInfo | None:
    """Return the heaviest reduction; None if there is none."""
    reductions = [b for b in blocks if b.reduce and not b.opaque]
    return max(reductions, key=lambda b: b.flops, default=None)


def read_once(blocks: tuple[BlockInfo, ...], buffers: frozenset[Buffer]) -> frozenset[Buffer]:
    """Return the buffers that only one block reads, so that their layout can change."""
    readers = [b for i in blocks for b in {a.buffer for a in i.loads}]
    return frozenset(b for b in buffers if readers.count(b) == 1)


def feeders_of(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    """Return the element-wise blocks that only ``info`` reads."""
    found = []
    for b in blocks:
        written = {s.buffer for s in b.stores}
        readers = [r for r in blocks if any(a.buffer in written for a in r.loads)]
        if readers == [info] and not b.reduce and not b.opaque and len(b.stores) == 1:
            found.append(b)
    return tuple(found)


def consumers_of(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    """Return the other blocks that read what ``info`` writes."""
    written = {s.buffer for s in info.stores}
    return tuple(b for b in blocks if b is not info and any(a.buffer in written for a in b.loads))


def find_contraction(
    info: BlockInfo,
    consumers: tuple[BlockInfo, ...],
    feeders: tuple[BlockInfo, ...] = (),
    frozen: frozenset[Buffer] = frozenset(),
    across: bool = False,
) -> Contraction | None:
    """Return the roles of a reduction block's axes; None if its last axis is not contiguous.

    None also for a reduction of one term, whose init cannot be decomposed from the loop. With
    ``across`` not the last axis becomes vectors, but that of which a consumer's last one is (a
    part); None if they are the same.
    """
    if not info.reduce or not info.spatial or info.opaque or not writes_in_order(info):
        return None
    if all(a.extent == 1 for a in info.reduce):
        return None
    consumer, axes, part = _result_axes(info, consumers)
    last = _stored_axis(info, axes, part) if across else info.spatial[-1]
    if last is None:
        return None
    strides = [a.stride(last.var) for a in info.inputs]
    beside = all(s in (0, 1) for s in strides) and 1 in strides
    if last.extent < 2 or not (beside or _turned(info, last.var)):
        return None
    columns = [a for a in axes if part.get(a.var) == (last.var, 1)]
    if len(columns) != 1:
        return None
    column = columns[0]
    weights, lower = _weights(info, last.var)
    others = [a for a in axes if a is not column and a.extent > 1]
    used = [a for a in others if weights is not None and weights.uses(part[a.var][0])]
    free = [a for a in others if a not in used]
    row = _row(info, [a for a in free if part[a.var][1] == 1], part)
    return Contraction(
        anchor=info,
        consumer=consumer,
        column=column,
        row=row,
        outer=tuple(used),
        sweep=tuple(a for a in free if a is not row),
        anchor_column=last.var,
        anchor_row=part[row.var][0] if row is not None else None,
        part=part,
        weights=weights,
        lower=lower,
        frozen=all(a is None or a.buffer in frozen for a in (weights, lower)) and bool(weights),
        turned=not beside,
        feeders=feeders,
        kept=_kept(info, feeders),
        kept_in_rows=_kept(info, feeders, part[row.var][0]) or 1.0 if row is not None else 1.0,
        dtype=info.stores[0].buffer.dtype,
    )


def _row(
    info: BlockInfo, axes: list[BlockAxis], part: dict[Var, tuple[Var, int]]
) -> BlockAxis | None:
    """Return the axis of the tile's rows: the last one, or a longer one if that is too short.

    That is none along which windows slide: images and their batches are far apart.
    """
    last = axes[-1] if axes else None
    still = [a for a in axes if not _slides(info, part[a.var][0])]
    longest = max(reversed(still), key=lambda a: a.extent, default=None)
    if last is None or longest is None or last.extent >= SHORT or longest.extent < SHORT:
        return last
    return longest


def _slides(info: BlockInfo, axis: Var) -> bool:
    """True if a window slides along an axis: an index is made of it and of an axis of terms."""
    terms = {a.var for a in info.reduce}
    at = (form for a in info.inputs for form in a.coefficients)
    return any(form is None or (axis in form and not terms.isdisjoint(form)) for form in at)


def _stored_axis(
    info: BlockInfo, axes: tuple[BlockAxis, ...], part: dict[Var, tuple[Var, int]]
) -> BlockAxis | None:
    """Return the axis along which the result is contiguous, if it is another than the last."""
    if not axes:  # a scalar of the one element
        return None
    stored, factor = part.get(axes[-1].var, (None, 1))
    others = info.spatial[:-1] if factor == 1 else ()
    return next((a for a in others if a.var is stored), None)


def _turned(info: BlockInfo, column: Var) -> bool:
    """True for a product of which one operand has columns, as rows that are contiguous."""
    pair = product_operands(info)
    if pair is None or len(info.reduce) != 1:
        return False
    mine = [a for a in pair if a.uses(column)]
    return len(mine) == 1 and mine[0].stride(info.reduce[0].var) == 1


def _kept(
    info: BlockInfo, feeders: tuple[BlockInfo, ...], along: Var | None = None
) -> float | None:
    if not feeders or not all(map(pads_ends, feeders)):
        return None
    return math.prod(kept_share(f, info, along) for f in feeders)


def writes_in_order(info: BlockInfo) -> bool:
    """True if the block has one store, indexed by the spatial axes in order."""
    if len(info.stores) != 1:
        return False
    store = info.stores[0]
    if len(store.coefficients) != len(info.spatial):
        return False
    at = [{} if n == 1 else f for f, n in zip(store.coefficients, store.buffer.shape, strict=True)]
    return at == [{a.var: 1} if a.extent > 1 else {} for a in info.spatial]


def _result_axes(
    info: BlockInfo, consumers: tuple[BlockInfo, ...]
) -> tuple[BlockInfo | None, tuple[BlockAxis, ...], dict[Var, tuple[Var, int]]]:
    """Return the consumer that can run on the tile, the result's axes, and what they map to."""
    if len(consumers) == 1:
        part = point_reads(consumers[0], info)
        if part is not None:
            return consumers[0], consumers[0].spatial, part
    return None, info.spatial, {a.var: (a.var, 1) for a in info.spatial}


def _weights(
    info: BlockInfo, column: Var
) -> tuple[AccessPattern, AccessPattern] | tuple[AccessPattern | None, None]:
    """Return the operand of a product that depends on the columns, and its lower part, if any."""
    parts = weight_in_parts(info)
    if parts is not None:
        return parts if parts[0].uses(column) else (None, None)
    pair = product_operands(info) or ()
    return next((a for a in reversed(pair) if a.uses(column)), None), None


def tile_of(c: Choices | TileChoices) -> tuple[int, int, int]:
    """Return the register tile: rows, vectors in a row, lanes in a vector."""
    return int(c["rows"]), int(c["vectors"]), int(c["lanes"])


def made_by_feeder(k: Contraction) -> bool:
    """True if a feeder computes the weights."""
    weights = None if k.weights is None else k.weights.buffer
    return any(s.buffer is weights for info in k.feeders for s in info.stores)


def chunk_axis(k: Contraction) -> BlockAxis | None:
    """Return the axis that is split into chunks for the threads.

    It is the first one of those that use a panel again, or the rows if these are not the last.
    """
    swept = [a for a in k.sweep if a.extent > 1]
    order = [a.var for a in (k.consumer or k.anchor).spatial]
    if k.row is not None and swept and order.index(k.row.var) < order.index(swept[-1].var):
        return k.row
    return swept[0] if swept else k.row


def chunk_extent(k: Contraction, rows: int) -> int:
    """Return the largest number of chunks: the trip count of the loop that is split."""
    axis = chunk_axis(k)
    if axis is None:
        return 1
    return math.ceil(axis.extent / rows) if axis is k.row else axis.extent
