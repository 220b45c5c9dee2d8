"""Products whose weights are packed in groups of terms: their layout, and the loops around a tile.

Instructions that add up several products at a time take d neighboring terms of each column. So the
weights are packed as ``[.., columns / width, .., depth / d, width, d]``: frozen ones ahead of time,
others in the kernel, panel by panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....ir.loop.nodes import Buffer
from .....ir.target import Target
from .....ir.tile_dots import GROUPS
from ....cursor import BlockRef, LoopRef
from ....language.schedule import Schedule
from ....space.analyze import AccessPattern, product_operands
from ....space.lookup import block_node, own_loops, read_number
from ....space.space import Choices
from ..nests.contraction import TAKEN, Contraction, chunk_extent, made_by_feeder, tile_of
from .tiling import result_loops, split_chunks

FEWEST, FEW = 8, 16  # rows, from which packing weights in the kernel pays: in L2, and larger ones
STRIDED = 3.0  # cycles of a line of results that is touched panel by panel, beyond L2
SHARED = 14.0  # of one where threads share the rows
NEXT = 1 / 16  # of a fork: what a row costs in which threads write neighboring lines


@dataclass(frozen=True, slots=True)
class PackedForm:
    """The terms of a group, and the dimensions of the weights along the columns and the terms.

    ``steps`` is true if these terms are whole instructions of tile registers.
    """

    terms: int
    column: int
    depth: int
    steps: bool = False


def packed_form(k: Contraction, terms: int) -> PackedForm | None:
    """Return how a product's weights can be packed in groups of terms; None if they cannot be."""
    last = k.anchor.reduce[-1]
    if last.extent % terms or input_of(k).stride(last.var) != 1:
        return None
    if k.weights is None or input_of(k).uses(k.anchor_column):
        return None
    forms = list(k.weights.coefficients)
    column = [d for d, f in enumerate(forms) if f == {k.anchor_column: 1}]
    depth = [d for d, f in enumerate(forms) if f == {last.var: 1}]
    if len(column) != 1 or len(depth) != 1:
        return None
    return PackedForm(terms, column[0], depth[0], last.extent % (GROUPS * terms) == 0)


def is_narrow_product(k: Contraction) -> bool:
    """True for a product of two arrays, of which one can be packed."""
    pair = product_operands(k.anchor)
    if pair is None or k.weights is None or pair[0].buffer is pair[1].buffer:
        return False
    return k.frozen or not made_by_feeder(k)


def packing_pays(k: Contraction, target: Target) -> bool:
    """True if there are rows enough for weights that are packed in the kernel."""
    return k.all_rows >= (FEWEST if weights_bytes(k) <= target.l2 else FEW)


def weights_bytes(k: Contraction) -> int:
    """Return the bytes of the weights, as they are given."""
    assert k.weights is not None
    return math.prod(k.weights.buffer.shape) * k.weights.buffer.dtype.bytes


def input_of(k: Contraction) -> AccessPattern:
    """Return the access of the operand that is not the weights."""
    pair = product_operands(k.anchor) or ()
    return next(a for a in pair if k.weights is None or a.buffer is not k.weights.buffer)


def chunk_choices(k: Contraction) -> tuple[int, ...]:
    """Return the numbers of parts that rows may be shared in, if panels are not packed for each."""
    most = chunk_extent(k, 1) if k.frozen else 1
    return tuple(n for n in (1, 2, 4, 8, 16, 32) if n == 1 or n <= most)


def _strided_lines(k: Contraction, c: Choices, target: Target) -> float:
    """Return the cache lines of results, and of what is added to them, that come from beyond L2.

    By columns, a panel touches two lines of a row and goes on to the next one. What is fetched
    beside them is used in the next panel, if it stays that long.
    """
    info = k.consumer or k.anchor
    moved = {a.buffer for a in (*info.stores, *info.loads) if a.stride(k.column.var) == 1}
    size = k.all_rows * k.column.extent * sum(b.dtype.bytes for b in moved if _is_full(k, b))
    if c["order"] == "row" or size <= int(c["chunks"]) * target.l2:
        return 0.0
    return size / target.core.l1.line


def _is_full(k: Contraction, buffer: Buffer) -> bool:
    """True for a buffer with an element for each of the result's, but not the sums themselves."""
    whole = k.all_rows * k.column.extent
    return buffer is not k.anchor.stores[0].buffer and math.prod(buffer.shape) >= whole


def _torn_rows(k: Contraction, c: Choices, width: int, target: Target) -> int:
    """Return the rows of the result that have cache lines of two panels, which threads share.

    Narrow results end in the middle of a line, and each thread takes it from the other one.
    """
    store = (k.consumer or k.anchor).stores[0]
    if c["order"] == "row" or store.stride(k.column.var) != 1 or width >= k.column.extent:
        return 0
    whole = width * store.buffer.dtype.bytes % target.core.l1.line == 0
    return 0 if whole else k.all_rows


def product_seconds(
    k: Contraction, c: Choices, target: Target, cycles: float, width: int, again: float
) -> float:
    """Return the seconds of tiles that take ``cycles``, with threads that share them.

    Panels have ``width`` columns. ``again`` are cycles of a thread whose rows are a chunk.
    """
    core, chunks, column = target.core, int(c["chunks"]), c["order"] == "column"
    divided = chunks > 1
    cycles += _strided_lines(k, c, target) * (STRIDED if divided or not c["parallel"] else SHARED)
    if not c["parallel"]:
        return core.seconds(cycles)
    panels = math.ceil(k.column.extent / width) * math.prod(a.extent for a in k.outer)
    pieces = chunks * (panels if column else 1)
    trips = chunk_extent(k, int(c["rows"]))
    uneven = math.ceil(trips / chunks) * chunks / trips
    share = min(1.0, math.ceil(pieces / target.threads) / pieces * uneven)
    beside = core.sharing + core.claim * pieces / target.threads
    beside += TAKEN * core.fork * _torn_rows(k, c, width, target)
    if divided:
        beside += again
    elif column:
        beside += NEXT * core.fork * k.all_rows
    return core.seconds(cycles * share + beside)


def tile_result(
    k: Contraction, sch: Schedule, c: Choices, out: str
) -> tuple[LoopRef, LoopRef, list[LoopRef]]:
    """Tile the result's loops; return the outermost loop, the innermost around the tile, and those
    of the tile.
    """
    rows, vectors, lanes = tile_of(c)
    loops = result_loops(k, sch, out)
    column, vector, lane = sch.split(loops[k.column.var], [None, vectors, lanes])
    tile = [vector, lane]
    if k.row is not None and k.row.var in loops:
        loops[k.row.var], row = sch.split(loops[k.row.var], [None, rows])
        tile = [row, *tile]
    chunk = split_chunks(k, sch, int(c["chunks"]), loops)
    around = (*k.sweep, k.row) if k.row is not None else k.sweep
    inside = [loops[a.var] for a in around if a.var in loops]
    head = [*(loops[a.var] for a in k.outer if a.var in loops), *chunk]
    if c["order"] == "row":
        inside = [*inside, column]
    else:
        head = [*head, column]
    if not head:
        head, inside = inside[:1], inside[1:]
    sch.reorder(*head, *inside, *tile)
    share = head[0] if len(head) == 1 else sch.fuse(*head)
    if c["parallel"]:
        sch.parallel(share)
    return share, (inside[-1] if inside else share), tile


def fill_panel(
    form: PackedForm,
    sch: Schedule,
    packed: BlockRef,
    share: LoopRef,
    turned: bool,
    lanes: int,
    pieces: bool = False,
) -> None:
    """Pack a panel before its use.

    As many rows of it as an instruction has terms are interleaved. Weights that are contiguous
    along the terms are transposed in squares, an element of which is the terms of one instruction.
    With ``pieces`` the first axis is that of the pieces of a number, which are made together.
    """
    sch.compute_at(packed, share)
    axes = [a.var for a in block_node(sch, packed).axes]
    own = own_loops(sch, packed, share)
    parts = [own[axes.pop(0)]] if pieces else []
    row, terms = sch.split(own[axes[form.depth]], [None, form.terms])
    vector, lane = sch.split(own[axes[form.column]], [None, lanes])
    if not turned:
        sch.reorder(row, vector, *parts, terms, lane)
        sch.vectorize(lane)
        for loop in (*parts, terms):
            sch.unroll(loop)
        return
    along, near = sch.split(row, [None, lanes])
    sch.reorder(vector, along, lane, near, terms)
    sch.vectorize(near)
    sch.unroll(lane)


def other_dims(k: Contraction, form: PackedForm) -> tuple[list[int], list[int]]:
    """Return the dimensions of weights beside the columns: those of the result, and of terms."""
    assert k.weights is not None
    outer = {a.var for a in k.anchor.spatial if a.var != k.anchor_column}
    forms = enumerate(k.weights.coefficients)
    first = [d for d, f in forms if d != form.column and outer & (f or {}).keys()]
    taken = (*first, form.column)
    return first, [d for d in range(len(k.weights.coefficients)) if d not in taken]


def pack_weights(k: Contraction, form: PackedForm, sch: Schedule, c: Choices) -> BlockRef:
    """Pack the weights as ``[.., columns / width, .., depth / d, width, d]``."""
    assert k.weights is not None
    _, vectors, lanes = tile_of(c)
    block = sch.get_block(k.anchor.name)
    packed = sch.cache_read(block, read_number(sch, block, k.weights.buffer), "global")
    first, rest = other_dims(k, form)
    rank = len(k.weights.coefficients)
    order = [*first, form.column, *rest, rank, rank + 1]
    width = min(vectors * lanes, k.weights.buffer.shape[form.column])
    sch.transform_layout(packed, 0, order, [(form.column, width), (form.depth, form.terms)])
    return packed
