"""Attention on ordinary cores: a warp for some rows of scores, its lanes for keys and columns.

A block of threads has a tile of queries of one head. It walks over the keys in parts, whose tiles
of keys and values are in shared memory. Scores, maxima, sums and results are in registers; only the
exponentials of a part pass through shared memory, from the lanes that have them to the whole warp.
The softmax is put together as the parts come (``online``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .....ir.loop.nodes import Buffer
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import product_operands
from ....space.attention import (
    Attention,
    SoftmaxParts,
    in_order,
    is_full,
    merged_parts,
    more_reductions,
    pieces,
    take_parts,
)
from ....space.lookup import below, read_number
from ....space.space import Choices
from ..fallback import schedule_fallback
from ..launches.machine import WIDEST
from ..launches.threads import BLOCKS, X, Y
from ..products.tiles import BlockDim, divide_among_threads

LANES = 32
BANKS = 32
UNROLLED = 4  # terms of a score


def apply_attention(k: Attention, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule an attention with the given decisions."""
    assert k.exponential is not None
    for info in k.others:
        schedule_fallback(sch, info, target)
    tiles = copies_apart(k, sch)
    host = _host(k, sch)
    warps, rows, keys = int(c["warps"]), int(c["rows"]), int(c["keys"])
    parts = take_parts(sch, k.exponential, keys)
    block = pieces(k, sch, host, warps * rows)
    row = below(sch, host, block)[0]
    warp, _ = sch.split(row, [warps, None])
    more = {n: _by_lanes(sch, n, keys) for n in more_reductions(k, parts)}
    for name in reversed(in_order(k, parts)):
        if name != host:
            sch.compute_at(name, warp, True)
        if name in more:
            sch.compute_at(more[name], warp, True)
    inside = merged_parts(k, sch, parts, keys, warp, _in_parts(sch, more, warp))
    sch.compute_at(k.scores.name, inside)
    sch.bind(block, BLOCKS)
    sch.bind(warp, Y)
    value = parts.partial[k.values.name]
    copy_operands(k, sch, value, (warp, inside), warps, tiles)
    _spread(k, sch, parts, (warp, inside), more)
    _lanes(sch, below(sch, host, warp)[-1])
    _place(k, sch, parts, more)
    _unroll(k, sch, parts, (warp, inside))
    if k.shown is not None and k.skips and k.length > keys:
        skip_hidden(sch, inside)
    sch.online(inside)


def _host(k: Attention, sch: Schedule) -> str:
    """Return the block that stores the result."""
    if k.consumer is not None:
        return k.consumer.name
    return sch.cache_write(k.values.name, 0, "register").name


def copies_apart(k: Attention, sch: Schedule) -> dict[Buffer, BlockRef]:
    """Copy queries and keys apart from each other if they are in one buffer; return the copies."""
    if len({a.buffer for a in product_operands(k.scores) or ()}) > 1:
        return {}
    layout = "nk" if k.by_key else "kn"
    queries, keys, scores = sch.to_matmul(k.scores.name, (1, 1, 1), ("mk", layout))
    sch.compute_inline(scores)
    return {sch.block(x).writes[0].buffer: x for x in (queries, keys)}


def _by_lanes(sch: Schedule, name: str, keys: int) -> str:
    """Give each lane a partial result of a reduction; return the block of those."""
    *_, along = sch.get_loops(name)
    _, _, lane = sch.split(along, [None, keys // LANES, LANES])
    return sch.rfactor(lane).name


def _in_parts(sch: Schedule, more: Mapping[str, str], warp: LoopRef) -> list[LoopRef]:
    """Return the loops over parts of the partial results of other reductions, made outermost."""
    found: list[LoopRef] = []
    for partial in more.values():
        *rows, lane, part, _ = below(sch, partial, warp)
        sch.reorder(part, *rows, lane)
        found.append(part)
    return found


def skip_hidden(sch: Schedule, inside: LoopRef) -> None:
    """Leave out parts that are hidden wholly, where it is known for a tile which they are."""
    sch.attempt(lambda s: s.skip_masked(inside))


def copy_operands(
    k: Attention,
    sch: Schedule,
    value: str,
    places: tuple[LoopRef, LoopRef],
    warps: int,
    made: Mapping[Buffer, BlockRef],
    whole: bool = False,
) -> None:
    """Copy queries, and the keys and values of a part, to shared memory; some are ``made``.

    ``places`` are the loops in which queries and parts are copied; ``value`` reads the values.
    Terms of keys are read one at a time, or ``whole`` vectors of them.
    """
    threads = BlockDim(1, warps, LANES)
    read = {r.buffer for r in sch.block(k.scores.name).reads}
    keys = k.keys.buffer if k.keys.buffer in read else list(made)[1]
    for product, name in ((k.scores, k.scores.name), (k.values, value)):
        computed = {b.stores[0].buffer for b in (k.scores, *k.stages, k.values)}
        reads = [r.buffer for r in sch.block(name).reads]
        own = sch.block(name).writes[0].buffer
        for b in reads:
            if b is own or b in computed:
                continue
            if b in made:
                copy = made[b]
                sch.set_scope(copy, 0, "shared")
            else:
                copy = sch.cache_read(name, read_number(sch, name, b), "shared")
            queries = product is k.scores and b is not keys
            place = places[0] if queries else places[1]
            sch.compute_at(copy, place)
            padded = product is k.scores and not queries and k.by_key
            size = WIDEST // b.dtype.bytes if whole else 1
            _copy_tile(sch, copy, place, threads, size if padded else 0)


def _copy_tile(sch: Schedule, copy: BlockRef, at: LoopRef, threads: BlockDim, apart: int) -> None:
    """Copy a part of keys or values with all threads; rows begin ``apart`` elements of banks."""
    loops = below(sch, copy, at)
    buffer = sch.block(copy).writes[0].buffer
    most = apart or WIDEST // buffer.dtype.bytes
    lanes = math.gcd(most, buffer.shape[-1], sch.extent(loops[-1]))
    if apart:
        sch.storage_align(copy, 0, len(buffer.shape) - 2, BANKS, apart)
    divide_among_threads(sch, flat(sch, loops), threads, lanes)


def flat(sch: Schedule, loops: list[LoopRef]) -> LoopRef:
    """Return one loop over all iterations of some."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def _lanes(sch: Schedule, loop: LoopRef) -> LoopRef:
    """Give neighboring iterations to the lanes of a warp; return the loop over lanes."""
    _, lane = sch.split(loop, [None, LANES])
    sch.bind(lane, X)
    return lane


def _spread(
    k: Attention,
    sch: Schedule,
    parts: SoftmaxParts,
    places: tuple[LoopRef, LoopRef],
    more: Mapping[str, str],
) -> None:
    """Divide keys and columns of the result among lanes; a value of a row is every lane's."""
    warp, inside = places
    *_, key, _ = below(sch, k.scores.name, inside)
    _lanes(sch, key)
    *_, column, _ = below(sch, parts.partial[k.values.name], inside)
    _lanes(sch, column)
    for info in k.stages:
        name = parts.partial.get(info.name, info.name)
        if name in more:
            sch.bind(below(sch, more[name], inside)[-2], X)
            sch.bind(below(sch, name, warp)[-1], X)
        elif is_full(k, info) or info.reduce:
            _lanes(sch, below(sch, name, inside)[-1])
    for name in parts.partial:
        *rows, part = below(sch, name, warp)
        sch.reorder(part, *rows)
        if name == k.values.name:
            _lanes(sch, rows[-1])


def _place(k: Attention, sch: Schedule, parts: SoftmaxParts, more: Mapping[str, str]) -> None:
    """Keep everything in registers but the exponentials, which a whole warp reads."""
    stages = [b.name for b in (k.scores, *k.stages, k.values)]
    for name in (*stages, *more.values(), *parts.partial.values(), parts.scale):
        sch.set_scope(name, 0, "shared" if name == k.exponential else "register")


def _unroll(
    k: Attention, sch: Schedule, parts: SoftmaxParts, places: tuple[LoopRef, LoopRef]
) -> None:
    """Begin each reduction before its loop, and write out the loops over what a lane has of it."""
    warp, inside = places
    for name in parts.partial:
        sch.decompose_reduction(name, below(sch, name, warp)[0])
    for name, terms in ((k.scores.name, UNROLLED), (parts.partial[k.values.name], 1)):
        *rows, steps, lane, term = below(sch, name, inside)
        term, each = sch.split(term, [None, terms])
        sch.reorder(lane, term, each, *rows, steps)
        init = sch.decompose_reduction(name, term)
        for loop in (each, *rows, steps, *below(sch, init, lane)):
            sch.unroll(loop)
