"""The Winograd sketch: 3 x 3 convolutions as products of transformed tiles, chunk by chunk.

Rows of tiles are processed in chunks whose transformed data stay in a core's L2: the input's tiles
are transformed, multiplied with the weights, and transformed back into the consumer. Threads take
chunks, or share each step where there is only one. It is offered where the target's ``accuracy``
allows its error and the estimate is not far behind the direct convolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import Var
from .....ir.target import Target
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....primitives.products.winograd import SIZES, TAPS, Convolution, convolution_of
from ....space.analyze import BlockInfo, point_reads
from ....space.lookup import own_loops
from ....space.space import Choices, Sketch, columns_of
from ....transforms import relative_error
from ..nests.contraction import Contraction
from ..nests.fallback import around_anchor
from ..nests.matching import CPU, FuncInfo, once
from ..products.batched import (
    inline_ends,
    result_axes,
    spread,
    tile_cycles,
    tile_fits,
    tile_products,
    vectorize_ends,
)
from ..products.tiling import ROWS, beside_tiling

CHUNKS = 8  # chunk sizes to choose from, at most
BEHIND = 1.1  # times the direct convolution's estimate up to which the sketch is worth trying


@CPU.row(9)
def match_faster(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a convolution that is expected to be faster in transformed tiles."""
    return beside_tiling(_matched(work, target), work, target, 0.0, 1.0)


@CPU.row(11)
def match_close(work: FuncInfo, target: Target) -> Sketch | None:
    """Match a convolution that may be as fast in transformed tiles."""
    return beside_tiling(_matched(work, target), work, target, 1.0, BEHIND)


@once
def _matched(work: FuncInfo, target: Target) -> Sketch | None:
    if not target.accuracy or work.contraction is None:
        return None
    shape = _shape(work.contraction, target)
    return None if shape is None else _sketch(work, shape, target)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A convolution with frozen weights, and the block that computes its final result.

    ``part`` maps axes of ``out`` to those of the convolution; ``out`` is None without a consumer
    that reads it element by element. ``sizes`` are the tiles whose error is allowed.
    """

    k: Contraction
    conv: Convolution
    out: BlockInfo | None
    part: dict[Var, Var]
    sizes: tuple[int, ...]

    @property
    def channels(self) -> int:
        """The number of channels of the data."""
        return self.conv.channels[0].extent

    @property
    def columns(self) -> int:
        """The number of channels of the result."""
        return self.conv.columns[0].extent

    def tiles(self, size: int) -> tuple[int, int]:
        """Return the rows of tiles, those of all images, and the tiles in a row."""
        y, x = (-(-axis.extent // size) for axis, _ in self.conv.window)
        return y * math.prod(a.extent for a in self.conv.batch), x

    def weight_bytes(self, size: int) -> float:
        """Return the bytes of the weights of tiles of a size; 0 for those that are not."""
        taps = size + TAPS - 1 if size else TAPS
        return 4.0 * taps**2 * self.channels * self.columns


def _shape(k: Contraction, target: Target) -> _Shape | None:
    conv = convolution_of(k.anchor.block)
    if conv is None or not k.frozen or len(conv.channels) != 1 or len(conv.columns) != 1:
        return None
    if conv.columns[0].var != k.anchor_column:
        return None
    terms = conv.channels[0].extent
    sizes = tuple(m for m in SIZES if relative_error(m, TAPS, terms) <= target.accuracy)
    found = _consumer(k)
    return _Shape(k, conv, *found, sizes) if sizes else None


def _consumer(k: Contraction) -> tuple[BlockInfo | None, dict[Var, Var]]:
    """Return the consumer whose axes are the convolution's, one by one, and the map of axes."""
    part = None if k.consumer is None else point_reads(k.consumer, k.anchor)
    if k.consumer is None or part is None or any(step != 1 for _, step in part.values()):
        return None, {}
    back = {axis: v for v, (axis, _) in part.items()}
    if len(back) != len(part) or k.consumer.spatial[-1].var != back.get(k.anchor_column):
        return None, {}
    return k.consumer, back


def _sketch(work: FuncInfo, shape: _Shape, target: Target) -> Sketch | None:
    k = shape.k
    others = work.besides(k.anchor, shape.out, *k.feeders)
    lanes = max(1, target.lanes(k.dtype))
    vectors = tuple(v for v in (1, 2, 3, 4, 6) if v == 1 or (v - 1) * lanes < shape.columns)
    decisions = {
        "size": shape.sizes,
        "chunk": tuple(sorted({n for m in shape.sizes for n in _chunks(shape, m)})),
        "rows": ROWS,
        "vectors": vectors,
        "lanes": (min(lanes, shape.columns),),
        "unroll": (1, 2, 4),
        "parallel": (1, 0) if target.threads > 1 else (0,),
    }

    fixed = {"lanes": decisions["lanes"][0], "parallel": decisions["parallel"][0], "unroll": 1}
    return around_anchor(
        "winograd@1",
        decisions,
        valid=lambda c: _valid(shape, c, target),
        cost=lambda c: _cost(shape, c, target),
        apply=lambda sch, c: _apply(sch, shape, c, target),
        others=others,
        target=target,
        fixed=fixed,
        share=min(((m + TAPS - 1) / (m * TAPS)) ** 2 for m in shape.sizes),
    )


def _chunks(shape: _Shape, size: int) -> tuple[int, ...]:
    """Return the rows of tiles that a chunk may have: parts of an image, or whole images."""
    rows, _ = shape.tiles(size)
    images = math.prod(a.extent for a in shape.conv.batch)
    image = rows // images
    parts = [n for n in range(1, image + 1) if image % n == 0]
    wholes = [n * image for n in range(2, images + 1) if images % n == 0]
    found = [*parts, *wholes]
    return tuple(found if len(found) <= CHUNKS else found[: CHUNKS - 1] + found[-1:])


def _valid(shape: _Shape, c: Choices, target: Target) -> bool:
    """True if the chunks and the register tile divide the tiles and fit the registers."""
    size, chunk, rows = (int(c[n]) for n in ("size", "chunk", "rows"))
    if chunk not in _chunks(shape, size) or chunk * shape.tiles(size)[1] % rows:
        return False
    return bool(tile_fits(columns_of(c), shape.channels, target))


def _cost(shape: _Shape, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run, with the weights coming from memory.

    Products are limited by FMAs or loads, transforms by stores. A chunk's data come from the cache
    that holds them, and every chunk reads all weights.
    """
    core, size, chunk = target.core, int(c["size"]), int(c["chunk"])
    rows, vectors, lanes = int(c["rows"]), int(c["vectors"]), int(c["lanes"])
    turns = core.turns(32 * lanes)
    tile_rows, tile_columns = shape.tiles(size)
    tiles, chunks, number = tile_rows * tile_columns, tile_rows // chunk, (size + TAPS - 1) ** 2
    panels = math.ceil(shape.columns / (vectors * lanes))
    tile = float(tile_cycles(columns_of(c), shape.channels, target))
    products = number * tiles / rows * panels * tile
    inputs, outputs = (math.ceil(n / lanes) for n in (shape.channels, shape.columns))
    moved = number / core.stores + number * 2 / core.fmas
    transforms = tiles * turns * (2 * inputs * moved + outputs * (moved + 2 * size**2))
    held = 4.0 * number * chunk * tile_columns * (shape.channels + shape.columns)
    weights = shape.weight_bytes(size)
    kept = weights <= core.l2.size / 2  # from chunk to chunk
    beside = weights if kept else 4.0 * shape.channels * vectors * lanes
    data = chunks * 2 * held / core.stream(held + beside, 1)
    again = (chunks - 1) * weights / core.stream(2 * weights, 1)
    seconds = core.seconds(products + transforms) + data + again
    cold = weights / core.bandwidth(1)
    if not c["parallel"]:
        return seconds + cold
    if chunks == 1:  # the threads share each step, so that each reads its part of the weights
        shared = seconds / target.threads + core.seconds(4 * core.fork)
        return shared + weights / core.bandwidth(target.threads)
    share = math.ceil(chunks / target.threads) / chunks
    return seconds * share + core.seconds(core.fork) + cold


@dataclass(frozen=True, slots=True)
class _ChunkLoops:
    """The loop over chunks, and inside it that over its rows of tiles."""

    chunk: LoopRef
    row: LoopRef


def _apply(sch: Schedule, shape: _Shape, c: Choices, target: Target) -> None:
    """Rewrite the convolution, and compute each chunk's steps in a loop of the result."""
    name, size, lanes = shape.k.anchor.name, int(c["size"]), int(c["lanes"])
    tiles, weights, inputs, outputs, copy = sch.winograd(name, size)
    out = inline_ends(sch, shape.k, shape.out, copy)
    loops, column = _tile_result(sch, shape, c, out, outputs)
    numbers = tile_products(sch, name, c, loops.chunk, weights, [0, 2, 1, 3], target)
    for block in (inputs, tiles):
        sch.compute_at(block, loops.chunk)
    vectorize_ends(sch, (inputs, tiles, weights, outputs), lanes)
    spread(sch, inputs, 0, target)
    sch.vectorize(column)
    if c["parallel"]:
        if sch.extent(loops.chunk) > 1:
            sch.parallel(loops.chunk)
        else:
            first = [sch.get_loops(b)[1] for b in (tiles, inputs)]
            for loop in (*first, numbers, loops.row):
                sch.parallel(loop)


def _tile_result(
    sch: Schedule, shape: _Shape, c: Choices, out: str, outputs: BlockRef
) -> tuple[_ChunkLoops, LoopRef]:
    """Split the result into chunks of tiles, and transform each tile back where it is used.

    Returns the loops around them and the loop of the columns.
    """
    size, lanes = int(c["size"]), int(c["lanes"])
    loops = _result_loops(sch, shape, out)
    (y, _), (x, _) = shape.conv.window
    row, in_row = sch.split(loops[y.var], [None, size])
    tile, in_tile = sch.split(loops[x.var], [None, size])
    column = loops[shape.conv.columns[0].var]
    inner: list[LoopRef] = []
    if sch.extent(column) > lanes:
        first, column = sch.split(column, [None, lanes])
        inner = [first]
    batch = [loops[a.var] for a in shape.conv.batch if a.var in loops]
    sch.reorder(*batch, row, tile, *inner, in_row, in_tile, column)
    chunk, row = sch.split(sch.fuse(*batch, row) if batch else row, [None, int(c["chunk"])])
    sch.compute_at(outputs, inner[0] if inner else tile)
    return _ChunkLoops(chunk, row), column


def _result_loops(sch: Schedule, shape: _Shape, out: str) -> dict[Var, LoopRef]:
    """Map each axis of the convolution to the loop of the block that writes the result."""
    if shape.out is None:
        return result_axes(sch, shape.k, out)
    own = own_loops(sch, out)
    return {axis: own[v] for axis, v in shape.part.items() if v in own}
