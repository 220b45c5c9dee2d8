"""The last tiles of a product, which do not fill all multiprocessors, divided along the depth.

Blocks of threads run in waves: 136 tiles on 132 multiprocessors take as long as 264. So the result
is cut where the whole waves end, in whole rows or columns of tiles. The tiles behind the cut are a
product of their own, whose depth is split; their blocks follow the others in the same launch, and
the last block of a tile adds its parts in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .....ir.loop.nodes import Var
from ....language.schedule import Schedule
from ....space.analyze import describe
from ....space.lookup import own_loops
from .matmul import Matmul


@dataclass(frozen=True, slots=True)
class LastWave:
    """A cut of a result's axis, ``axis`` in order, before iteration ``at``: tiles of both sides.

    The axis has the role ``role``, of which ``first`` points are before the cut.
    """

    role: str
    axis: int
    at: int
    first: int
    whole: int
    rest: int


def waves(whole: int, rest: int, parts: int, slots: int) -> float:
    """Return the time of the busiest of ``slots``, in tiles, if each takes the next when it can.

    ``whole`` tiles come first, then ``parts`` of each of ``rest`` others.
    """
    full, begun = divmod(whole, slots)
    beside = slots - begun if begun else 0
    left = max(0, rest - beside) * parts
    return full + (begun > 0) + math.ceil(left / slots) / parts


def find_last_wave(k: Matmul, tile: Mapping[str, int], slots: int) -> LastWave | None:
    """Return the cut of a result with these tiles that leaves the fewest of them behind it.

    None if the tiles fill all ``slots`` in each wave, or not even once.
    """
    count = {r: -(-k.extents[r] // tile[r]) for r in "mn"}
    tiles = k.extents["b"] * count["m"] * count["n"]
    filled = tiles // slots * slots
    if filled in (0, tiles):
        return None
    found = [_cut(k, r, tile[r], filled, tiles // count[r]) for r in "mn"]
    cuts = [x for x in found if x is not None]
    return max(cuts, key=lambda x: x.whole, default=None)


def _cut(k: Matmul, role: str, tile: int, filled: int, beside: int) -> LastWave | None:
    """Cut a role's outermost axis between tiles, of which ``beside`` have the same place there."""
    sizes = dict(zip(k.result.spatial, k.result.extents, strict=True))
    axes = [v for v in k.result.axes[role] if sizes[v] > 1]
    if not axes:
        return None
    each = math.prod(sizes[v] for v in axes[1:])
    step = tile // math.gcd(tile, each)  # iterations from one end of a tile to the next
    at = filled // beside * tile // each // step * step
    if not 0 < at < sizes[axes[0]]:
        return None
    first = at * each
    before, after = (-(-n // tile) * beside for n in (first, k.extents[role] - first))
    axis = k.result.spatial.index(axes[0])
    return LastWave(role, axis, at, first, before, after)


def divide(k: Matmul, sch: Schedule, wave: LastWave, held: bool = False) -> tuple[Matmul, Matmul]:
    """Cut the result, and compute the product for each of the two parts; return these.

    Results that threads of the first part are to have ``held`` are copied from shared memory there.
    """
    for name in k.feeders:
        sch.compute_inline(name)
    consumer = k.result.consumer
    last = sch.cache_write(k.anchor, 0).name if consumer is None else consumer.name
    copy = sch.cache_write(last, 0, "shared").name if held else None
    ends = copy or last
    loop = own_loops(sch, ends)[sch.block(ends).axes[wave.axis].var]
    sch.reorder(loop, *(x for x in sch.get_loops(ends) if x != loop))
    known = sch.blocks()
    sch.cut(loop, wave.at)
    (rest,) = (b for b in sch.blocks() if b not in known)
    reader = sch.duplicate(last, rest) if held else rest
    again = sch.duplicate(k.anchor, reader)
    if held:
        sch.compute_inline(reader)
    first = _part(k, sch, k.anchor, last, wave, wave.first)
    first = replace(first, result=replace(first.result, copy=copy))
    return first, _part(k, sch, again.name, rest.name, wave, k.extents[wave.role] - wave.first)


def _part(k: Matmul, sch: Schedule, anchor: str, last: str, wave: LastWave, size: int) -> Matmul:
    """Return the product of one side, whose block ``last`` reads the sums of ``anchor``."""
    info = describe(sch.block(last))
    named = {v: a.var for v, a in zip(k.result.spatial, info.spatial, strict=True)}
    axes: dict[str, tuple[Var, ...]] = {
        r: tuple(named[v] for v in own) for r, own in k.result.axes.items()
    }
    result = replace(
        k.result,
        consumer=info,
        spatial=tuple(a.var for a in info.spatial),
        extents=tuple(a.extent for a in info.spatial),
        axes=axes,
    )
    extents = {**k.extents, wave.role: size}
    return replace(k, anchor=anchor, feeders=(), extents=extents, result=result)
