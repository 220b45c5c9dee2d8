"""Features of schedules: a row per point of a space, computed for thousands of points at once.

A row describes the task, the machine, the decisions, and derived quantities: the register tile's
utilization, the waste of partial tiles, footprints relative to caches, the balance of threads.
They are closed forms of the decisions and of the unscheduled function's accesses, so nothing is
lowered. Quantities with a wide range are logarithms. A decision that a sketch does not have is NaN,
which the model's trees can split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.arrays import Array
from ...ir.gpus import Gpu
from ...ir.loop.nodes import Func
from ...ir.target import Target, Work
from ...schedule.space.analyze import AccessPattern, BlockInfo, blocks_of
from ...schedule.space.space import Choice
from ..log.records import Json, canonical
from ..search.space import Point, Space

Columns: TypeAlias = Mapping[str, Array]
Code: TypeAlias = Mapping[str, Json]
Compiled: TypeAlias = tuple[float, float, float]
Launches: TypeAlias = Sequence[tuple[float, float, float, float]]
"""Registers, spills, bytes of shared memory and threads of a block of each launch."""
UNKNOWN: Compiled = (math.nan, math.nan, math.nan)

KINDS = ("dot", "convolution", "reduction", "row", "elementwise", "injective", "attention")
DECISIONS = (
    "rows",
    "vectors",
    "lanes",
    "unroll",
    "accumulators",
    "chunks",
    "grain",
    "order",
    "pack",
    "parallel",
)
EXTRA = 12  # columns for decisions that are not in DECISIONS, in the sketch's order

SMALLEST = 1e-7  # seconds of an almost empty kernel of a processor
CACHED = 4.0  # bandwidth of a GPU's L2 relative to its memory
SHORTEST = 1e-6  # seconds of an almost empty GPU kernel

DESCRIPTORS = (
    "flops",
    "bytes",
    "intensity",
    "points",
    "depth",
    "column",
    "row",
    "outer",
    "blocks",
    "loads",
    "item",
    "slow",
    "contiguous",
    "broadcast",
    "weights",
    "machine_lanes",
    "threads",
    "l1",
    "l2",
)
DERIVED = (
    "tile",
    "register_share",
    "latency_cover",
    "loads_per_fma",
    "row_waste",
    "column_waste",
    "lane_waste",
    "panel_l1",
    "panel_l2",
    "block_l1",
    "weights_l2",
    "tiles",
    "code",
    "parallel",
    "pieces",
    "imbalance",
)
NAMES: tuple[str, ...] = (
    *DESCRIPTORS,
    *(f"is_{k}" for k in KINDS),
    *DECISIONS,
    *(f"extra{i}" for i in range(EXTRA)),
    *DERIVED,
    "registers",
    "spills",
    "occupancy",
    "estimate",
    "estimate_over_roof",
)
COMPILED = NAMES.index("registers")  # the first of three columns that need compilation


def roof(flops: float, size: float, target: Target) -> float:
    """Return a roofline bound in seconds: FLOPs over peak, or bytes over bandwidth.

    On a GPU the peak is that of its fastest cores, and small data is assumed to be in L2.
    """
    return FIGURES[target.row.work].roof(flops, size, target)


def _processor_roof(flops: float, size: float, target: Target) -> float:
    core, threads = target.core, max(1, target.threads)
    peak = core.flops(target.vector_bits) * threads
    return max(flops / peak, size / core.stream(size, threads), SMALLEST)


def _gpu_roof(flops: float, size: float, target: Target) -> float:
    gpu = target.gpu
    fastest = max(gpu.f32_flops, *gpu.tensor_flops.values())
    cached = CACHED if size < gpu.l2 else 1.0
    return max(flops / fastest, size / (gpu.bandwidth * cached), SHORTEST)


class Encoder:
    """Turns points of one task's space into rows of features."""

    def __init__(self, func: Func, space: Space, target: Target, flops: float, size: float) -> None:
        self.space = space
        self.target = target
        self.roof = roof(flops * min((s.share for s in space.sketches), default=1.0), size, target)
        self._blocks = blocks_of(func)
        self._anchor = max(self._blocks, key=lambda b: b.flops, default=None)
        self._facts = _describe(self._blocks, self._anchor, target, flops, size)

    def encode(self, points: Sequence[Point], code: Sequence[Code] = ()) -> Array:
        """Return the features, f32 of shape ``[len(points), len(NAMES)]``.

        ``code`` has the compiler's facts about each point, if they were compiled: ``registers`` of
        a thread, bytes of ``spills``, bytes of ``shared`` memory and ``threads`` of a block, each a
        list with a number per launch.
        """
        out = np.full((len(points), len(NAMES)), np.nan, np.float32)
        numbers = np.array([p.sketch for p in points], np.int64)
        for number in np.unique(numbers):
            rows = np.flatnonzero(numbers == number)
            at = np.array([points[int(i)].at for i in rows], np.int64).reshape(len(rows), -1)
            out[rows] = self._encode(int(number), at)
        estimate = np.array([max(1e-12, self.space.cost(p)) for p in points])
        for row, facts in enumerate(code):
            out[row, COMPILED : COMPILED + 3] = self._compiled(facts)
        out[:, -2] = np.log2(estimate)
        out[:, -1] = np.log2(estimate / self.roof)
        return out

    def _encode(self, number: int, at: Array) -> Array:
        sketch = self.space.sketches[number]
        columns: dict[str, Array] = {}
        for axis, (name, domain) in enumerate(sketch.decisions.items()):
            columns[name] = _numeric(domain)[at[:, axis]]
        others = [c for n, c in columns.items() if n not in DECISIONS][:EXTRA]
        count = len(at)
        missing = np.full(count, np.nan)
        parts = [np.full(count, f) for f in self._facts]
        parts += [np.full(count, float(sketch.kind == k)) for k in KINDS]
        parts += [_log(columns[n]) if n in columns else missing for n in DECISIONS]
        parts += [_log(c) for c in others] + [missing] * (EXTRA - len(others))
        parts += self._derive(columns, count)
        return np.stack([*parts, *[missing] * 5], axis=1).astype(np.float32)

    def _compiled(self, facts: Code) -> Compiled:
        """Return the launches' most registers, most spills, least occupancy; NaN if unknown."""
        names = ("registers", "spills", "shared", "threads")
        launches = list(zip(*(_numbers(facts.get(k)) for k in names), strict=False))
        if not launches:
            return UNKNOWN
        return FIGURES[self.target.row.work].compiled(launches, self.target)

    def _derive(self, columns: Columns, count: int) -> list[Array]:
        """Return the columns of ``DERIVED``; missing decisions count as 1."""

        def of(name: str) -> Array:
            return np.maximum(columns.get(name, np.ones(count)), 1.0)

        a, t = self._anchor, self.target
        if a is None or not a.spatial:
            return [np.full(count, np.nan)] * len(DERIVED)
        column, row, depth = _extents(a)
        item = max((x.buffer.dtype.bytes for x in a.stores), default=4)
        rows, vectors, lanes = of("rows"), of("vectors"), of("lanes")
        tile, width = rows * vectors, vectors * lanes
        tiles_i, tiles_j = np.ceil(row / rows), np.ceil(column / width)
        outer = a.points / max(1, column * row * depth)
        chunks = of("chunks")
        by_column = columns.get("order", np.zeros(count)) == 0
        pieces = chunks * np.where(by_column, np.ceil(tiles_j / of("panels")), 1.0)
        wide = a.flops >= columns.get("grain", np.zeros(count))
        parallel = columns["parallel"] > 0 if "parallel" in columns else wide
        share = np.ceil(pieces / max(1, t.threads)) * max(1, t.threads) / pieces
        weights = _weight_bytes(a)
        return [
            _log(tile),
            tile / t.registers,
            np.minimum(tile / 8, 4.0),
            (rows + vectors) / tile,
            tiles_i * rows / max(1, row),
            tiles_j * width / max(1, column),
            np.ceil(column / lanes) * lanes / max(1, column),
            _log(depth * width * item / t.l1),
            _log(depth * width * item / t.l2),
            _log(depth * rows * item / t.l1),
            np.full(count, math.log2(1 + weights / t.l2)),
            _log(tiles_i * tiles_j * outer),
            _log(tile * of("unroll")),
            parallel.astype(float),
            _log(pieces),
            np.where(parallel, share, max(1, t.threads)),
        ]


def occupancy(gpu: Gpu, registers: float, shared: float, threads: float) -> float:
    """Return the share of a multiprocessor's warps that can be resident, in [0, 1]."""
    warps = -(-threads // gpu.warp)
    blocks = gpu.blocks_at_once(int(threads), int(registers), int(shared))
    return min(1.0, blocks * warps / gpu.warps_per_multiprocessor)


def _unknown(launches: Launches, target: Target) -> Compiled:
    return UNKNOWN


def _of_launches(launches: Launches, target: Target) -> Compiled:
    shares = [occupancy(target.gpu, r, s, t) for r, _, s, t in launches]
    return max(r for r, *_ in launches), max(p for _, p, *_ in launches), min(shares)


@dataclass(frozen=True, slots=True)
class Figures:
    """The features that depend on how a machine spreads work.

    ``roof`` is as the function of that name; ``compiled`` returns the most registers, most spills
    and least occupancy of a kernel's launches.
    """

    roof: Callable[[float, float, Target], float]
    compiled: Callable[[Launches, Target], Compiled]


FIGURES: Mapping[Work, Figures] = {
    "threads": Figures(_processor_roof, _unknown),
    "launches": Figures(_gpu_roof, _of_launches),
}


def _numbers(value: Json) -> list[float]:
    items = value if isinstance(value, list) else []
    return [float(x) for x in items if isinstance(x, int | float)]


def _log(x: Array) -> Array:
    return np.log2(np.maximum(x, 2.0**-20))


def _numeric(domain: Sequence[Choice]) -> Array:
    """Return a domain as numbers: unchanged if numeric, else the index in sorted order."""
    if all(isinstance(c, int | float) for c in domain):
        return np.array([float(c) for c in domain])
    ordered = sorted(domain, key=canonical)
    return np.array([float(ordered.index(c)) for c in domain])


def _extents(a: BlockInfo) -> tuple[int, int, int]:
    """Return the last spatial extent, the next one above 1, and the number of terms; at least 1."""
    column = a.spatial[-1].extent
    row = next((x.extent for x in reversed(a.spatial[:-1]) if x.extent > 1), 1)
    return max(1, column), row, max(1, math.prod(x.extent for x in a.reduce))


def _weight_bytes(a: BlockInfo) -> float:
    """Return the bytes of the largest input that depends on the column and a reduction axis."""
    column = a.spatial[-1].var
    sizes = [
        math.prod(x.buffer.shape) * x.buffer.dtype.bytes
        for x in a.inputs
        if x.uses(column) and any(x.uses(r.var) for r in a.reduce)
    ]
    return float(max(sizes, default=0))


def _strides(a: BlockInfo, accept: Callable[[int | None], bool]) -> int:
    column = a.spatial[-1].var
    access: Sequence[AccessPattern] = (*a.inputs, *a.stores)
    return sum(accept(x.stride(column)) for x in access)


def _describe(
    blocks: Sequence[BlockInfo], a: BlockInfo | None, t: Target, flops: float, size: float
) -> list[float]:
    """Return the columns of ``DESCRIPTORS``."""
    if a is None or not a.spatial:
        anchor = [math.nan] * 5 + [float(len(blocks))] + [math.nan] * 6
    else:
        column, row, depth = _extents(a)
        rest = a.points / (column * row * depth)
        anchor = [
            math.log2(max(1, a.points)),
            math.log2(depth),
            math.log2(column),
            math.log2(row),
            math.log2(max(1.0, rest)),
            float(len(blocks)),
            float(len(a.inputs)),
            float(max(x.buffer.dtype.bytes for x in a.stores)),
            float(a.transcendental),
            float(_strides(a, lambda s: s == 1)),
            float(_strides(a, lambda s: s == 0)),
            math.log2(1 + _weight_bytes(a)),
        ]
    work = [math.log2(1 + flops), math.log2(1 + size), math.log2((1 + flops) / (1 + size))]
    machine = [t.vector_bits / 32, float(t.threads), math.log2(t.l1), math.log2(t.l2)]
    return [*work, *anchor, *machine]
