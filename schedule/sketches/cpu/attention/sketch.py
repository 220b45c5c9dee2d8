"""The sketch of attention: its decisions, which of them are valid, and an analytic cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from .....ir.target import Target
from .....ir.tile_dots import COLUMNS, GROUPS, fits
from ....space.attention import Attention, find_attention
from ....space.space import Choice, Choices, Sketch
from ..nests.contraction import MOST_FMAS
from ..nests.matching import CPU, FuncInfo
from ..nests.pointwise import may_share_flops
from ..products.tile_registers import LOAD, PRODUCT
from .nest import apply_attention
from .panels import LaneProducts, key_dims, lane_products, tile_products

TILES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FEWEST = 8  # queries, for which packing keys and values pays
SMALLEST_PART, LARGEST_PART = 64, 1024  # keys that are taken at a time
ROWS, TILE_ROWS = (4, 5, 6, 7, 8, 10, 12, 14), (16, 32)
SOFTMAX_CYCLES = 22.0  # of one vector of scores: maximum, exponential, sum
COPY_CYCLES = 3.0  # of a vector of exponentials that become narrow
ROW_CYCLES = 60.0  # of one row, or part of it: maximum and sum across the lanes
PANEL_MISS_CYCLES = 3.0  # of a line of keys whose rows are far apart
FAR_ROWS = 2048  # bytes between rows of keys, from which they are


@CPU.row(5)
def match_attention(work: FuncInfo, target: Target) -> Sketch | None:
    """Match the product of queries and keys, a softmax, and the product with the values."""
    k = find_attention(work.func, work.blocks)
    return None if k is None or k.by_key else attention_sketch(k, target)


@CPU.row(4)
def match_lane_attention(work: FuncInfo, target: Target) -> Sketch | None:
    """Match one whose products an instruction computes several terms at a time."""
    k = find_attention(work.func, work.blocks)
    pairs = None if k is None else lane_products(k, target)
    if k is None or pairs is None or k.queries < FEWEST:
        return None
    return attention_sketch(k, target, pairs)


@CPU.row(3)
def match_tile_attention(work: FuncInfo, target: Target) -> Sketch | None:
    """Match one whose products tile registers take."""
    k = find_attention(work.func, work.blocks)
    tiles = None if k is None else tile_products(k, target)
    if k is None or tiles is None or k.queries < FEWEST:
        return None
    return attention_sketch(k, target, tiles)


def attention_sketch(k: Attention, target: Target, pairs: LaneProducts | None = None) -> Sketch:
    """Return the space of an attention; with ``pairs`` its products are by those instructions."""
    decisions = _decisions(k, target, pairs)
    paired = "attention_tiles@1" if pairs is not None and pairs.tiled else "attention_pairs@1"
    return Sketch(
        name="attention@2" if pairs is None else paired,
        kind="attention",
        decisions=decisions,
        default=_default(k, decisions, target),
        apply=lambda sch, c: apply_attention(k, sch, c, target, pairs),
        valid=lambda c: attention_valid(k, c, target),
        cost=lambda c: attention_cost(k, c, target),
    )


def _decisions(
    k: Attention, target: Target, pairs: LaneProducts | None
) -> dict[str, tuple[Choice, ...]]:
    flops = k.scores.flops + k.values.flops
    tiled = pairs is not None and pairs.tiled
    sides = TILE_ROWS if tiled else ROWS
    rows = tuple(r for r in sides if r <= k.queries) or tuple(range(1, k.queries + 1))
    whole = {-(-k.queries // r) * r for r in rows}
    tiles = {t for t in TILES if t < k.queries} | {t for t in whole if t <= 2 * TILES[-1]}
    lanes = target.lanes(k.dtype)
    parts = [p for p in range(lanes, LARGEST_PART + 1, lanes) if k.length % p == 0]
    parts = [
        p
        for p in parts
        if 2 * p <= k.length and p >= SMALLEST_PART and k.exponential and k.queries > 1
    ]
    together = {} if pairs is None else {"together": (pairs.keys.depth,)}
    together |= {"tiled": (1,)} if tiled else {}
    return {
        "tile": tuple(sorted(tiles)),
        "part": (0, *parts),
        "rows": rows,
        "vectors": (1, 2, 3, 4),
        "value_rows": rows,
        "value_vectors": (1, 2, 4),
        "pack": (1,) if pairs is not None else (0,) if key_dims(k) is None else (0, 1),
        "unroll": (1,) if tiled else (1, 2, 4),
        "accumulators": (1, 2, 4),
        "parallel": (1, 0) if may_share_flops(flops, target) else (0,),
        **together,
    }


def _together(c: Choices) -> int:
    """Return the terms that a lane adds up at once."""
    return int(c.get("together", 1))


def _default(
    k: Attention, decisions: Mapping[str, tuple[Choice, ...]], target: Target
) -> dict[str, Choice]:
    """Return the cheapest choices: of each product's tile for itself, as far as they are free."""
    best: dict[str, Choice] = {n: values[0] for n, values in decisions.items()}
    best |= {"unroll": min(2, int(decisions["unroll"][-1])), "accumulators": 2}
    least = math.inf
    for tile, part, pack in itertools.product(*(decisions[n] for n in ("tile", "part", "pack"))):
        c: dict[str, Choice] = {**best, "tile": tile, "part": part, "pack": pack}
        for product in (("rows", "vectors"), ("value_rows", "value_vectors")):
            points = [
                {**c, **dict(zip(product, p, strict=True))}
                for p in itertools.product(*(decisions[n] for n in product))
            ]
            of = _score_cycles if product[0] == "rows" else _value_cycles
            fits = [p for p in points if _fits(k, p, product, target)]
            c = min(fits, key=lambda p: of(k, p, target), default=c)
        if attention_valid(k, c, target) and (cost := attention_cost(k, c, target)) < least:
            best, least = c, cost
    shared = ({**best, "parallel": n} for n in decisions["parallel"])
    return min(shared, key=lambda c: attention_cost(k, c, target))


def _fits(k: Attention, c: Choices, product: tuple[str, str], target: Target) -> bool:
    """True if a product's register tile fits the registers, the piece and the problem."""
    rows, vectors = int(c[product[0]]), int(c[product[1]])
    lanes = target.lanes(k.dtype)
    if int(c["tile"]) % rows:
        return False
    if not _holds(c, rows, vectors, target):
        return False
    if product[0] == "rows":
        columns = int(c["part"]) or k.length
        whole = c["part"] or (c["pack"] and _together(c) == 1)
        even = columns % (vectors * lanes) == 0 or not whole
        return even and (vectors - 1) * lanes < columns
    return (vectors - 1) * lanes < k.width


def _holds(c: Choices, rows: int, vectors: int, target: Target) -> bool:
    """True if registers hold a tile of sums, beside what a step reads."""
    if c.get("tiled"):
        return fits(rows, vectors * COLUMNS)
    few = rows * vectors * int(c["unroll"]) <= MOST_FMAS
    return few and rows * vectors + vectors + 1 <= target.registers - 2


def attention_valid(k: Attention, c: Choices, target: Target) -> bool:
    """True if both register tiles fit, and the scores of a piece stay in cache."""
    if int(c["part"]) and int(c["part"]) * 2 > k.length:
        return False
    if c["part"] and _two_tails(k, int(c["tile"]), target.lanes(k.dtype)):
        return False
    both = (("rows", "vectors"), ("value_rows", "value_vectors"))
    if not all(_fits(k, c, product, target) for product in both):
        return False
    return _scores_bytes(k, c) <= max(target.l2, int(c["rows"]) * k.length * 8)


def _two_tails(k: Attention, tile: int, lanes: int) -> bool:
    """True if rows are left over both of a piece, as lanes, and of the last piece.

    Then it is not known that pieces touch different rows, so that they could not run in parallel.
    """
    return k.queries > tile > lanes and tile % lanes > 0 and k.queries % tile > 0


def _scores_bytes(k: Attention, c: Choices) -> int:
    """Return the bytes of the scores and the exponentials of a piece, or of a part of it."""
    return 2 * int(c["tile"]) * (int(c["part"]) or k.length) * k.dtype.bytes


def attention_cost(k: Attention, c: Choices, target: Target) -> float:
    """Estimate the seconds of one run."""
    core, lanes, size = target.core, target.lanes(k.dtype), k.dtype.bytes
    tiles = math.ceil(k.queries / int(c["tile"]))
    parts = math.ceil(k.length / int(c["part"])) if c["part"] else 1
    rows = k.heads * k.queries
    shown = shown_share(k, int(c["tile"]), int(c["part"]))
    vectors, parts_shown = math.ceil(k.length / lanes) * shown, parts * shown
    compute = (_score_cycles(k, c, target) + _value_cycles(k, c, target)) * shown
    compute += rows * (vectors * SOFTMAX_CYCLES + parts_shown * ROW_CYCLES)
    if parts > 1:
        compute += rows * parts_shown * (3.0 * math.ceil(k.width / lanes) + 2.0)
    partial = 2.0 * parts_shown * k.width * k.dtype.bytes  # of a row's results, read and written
    if _together(c) > 1:
        size = k.keys.buffer.dtype.bytes
        compute += tiles * k.heads * k.length * (k.depth + k.width) * size / 16 * shown
        compute += rows * vectors * COPY_CYCLES
    elif c["pack"]:
        compute += tiles * k.heads * k.length * k.depth * size / 16 * shown
    head = k.length * (k.depth + k.width) * size
    rate = core.l2.rate if head < target.l2 / 2 else core.l3.rate
    traffic = tiles * k.heads * head / rate * shown
    kept = _scores_bytes(k, c)
    if kept > target.l1 / 2:
        near = kept + head / parts < 0.75 * target.l2
        rate = 2 * core.l2.rate if near else core.l3.rate
        traffic += 4.0 * shown * rows * k.length * k.dtype.bytes / rate
    if parts > 1 and int(c["tile"]) * partial > target.l2:
        traffic += rows * partial / core.l3.rate
    total = compute + max(0.0, traffic - 0.5 * compute) + 0.2 * min(traffic, compute)
    return core.seconds(total) * _imbalance(k, c, target, total)


def shown_share(k: Attention, tile: int, part: int) -> float:
    """Return the share of the scores that are computed: parts that a mask hides wholly are not."""
    if k.shown is None or not part:
        return 1.0
    return min(1.0, k.shown + (tile + part) / 2 / k.length)


def _padded_rows(k: Attention, tile: int, rows: int) -> float:
    """Return the rows of a head that register tiles compute, those of a ragged piece weighted."""
    whole, rest = divmod(k.queries, tile)
    ragged = math.ceil(rest / rows) * rows
    return whole * tile + ragged * (1.5 if whole and rest % rows else 1.0)


def _step(rows: int, vectors: int, c: Choices) -> float:
    """Return the cycles of one term of a register tile, or of a group of them."""
    if c.get("tiled"):
        down = math.ceil(rows / TILE_ROWS[0])
        return max(PRODUCT * down * vectors, LOAD * (down + vectors)) / GROUPS
    return max(rows * vectors / 2, (rows + vectors) / 2, 4.0) + 0.5 / int(c["unroll"])


def _score_cycles(k: Attention, c: Choices, target: Target) -> float:
    rows, vectors = int(c["rows"]), int(c["vectors"])
    count = math.ceil(k.length / (vectors * target.lanes(k.dtype)))
    tiles = k.heads * _padded_rows(k, int(c["tile"]), rows) / rows * count
    step = _step(rows, vectors, c)
    stride = k.length * k.dtype.bytes
    if not c["pack"] and stride >= FAR_ROWS:
        step += PANEL_MISS_CYCLES * vectors
    return tiles * (k.depth / _together(c) * step + 2.0 * rows * vectors + 20.0)


def _value_cycles(k: Attention, c: Choices, target: Target) -> float:
    rows, vectors = int(c["value_rows"]), int(c["value_vectors"])
    lanes = target.lanes(k.dtype)
    count = math.ceil(k.width / (vectors * lanes))
    tiles = k.heads * _padded_rows(k, int(c["tile"]), rows) / rows * count
    step = _step(rows, vectors, c)
    length = int(c["part"]) or k.length
    size = k.value_operand.buffer.dtype.bytes
    if length * vectors * lanes * size > target.l1 / 2:
        step += 0.4 * vectors
    stores = math.ceil(k.length / length) * (2.0 * rows * vectors + 20.0)
    return tiles * (k.length / _together(c) * step + stores)


def _imbalance(k: Attention, c: Choices, target: Target, cycles: float) -> float:
    """Estimate the slowest thread's time relative to a single thread."""
    if target.threads == 1 or not c["parallel"]:
        return 1.0
    pieces = k.heads * math.ceil(k.queries / int(c["tile"]))
    share = math.ceil(pieces / target.threads) / pieces
    claims = target.core.claim * pieces / target.threads
    return share + (target.core.sharing + claims) / max(cycles, 1.0)
