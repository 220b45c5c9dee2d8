"""The sketches of attention: their decisions, which of them are valid, and analytic costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from .....ir.loop.forms import IntrinsicDef
from .....ir.loop.nodes import CHUNK
from .....ir.loop.notes import MIN_BLOCKS
from .....ir.loop.warpgroups import WARPGROUP
from .....ir.target import Target
from ....language.schedule import Schedule
from ....space.attention import Attention
from ....space.space import Choice, Choices, Sketch, cheapest
from ..launches.machine import (
    ARRIVAL,
    BARRIER,
    LATENCY,
    LAUNCH,
    WIDEST,
    LaunchShape,
    launch_seconds,
    resident,
)
from ..launches.threads import power_up, powers
from ..matching import KINDS, GroupInfo
from ..products.group_space import BARRIERS
from ..products.mma import COLUMNS, ROWS
from ..products.results import ROWS as GROUP_ROWS
from ..products.tiles import can_copy_ahead
from .mma import apply_mma, attention_core
from .simt import BANKS, LANES, apply_attention
from .split import apply_split, is_splittable
from .wgmma import apply_wgmma, columns_of, group_cores

SOFTMAX = 20.0  # instructions of a score between the products
ROUNDED = 12.0  # as many where exponentials are rounded to 16 bits
PRODUCT = 3.0  # issue slots of a matrix instruction, with its share of the loads
GROUP_PRODUCT = 1.0  # as many for a warp's part of a warp group's, which loads nothing
COPY = 0.75  # instructions of an element that a thread copies to shared memory
FIXED = 40  # registers for addresses and values of rows
SPARE = 24  # registers that an estimate leaves free
AT_ONCE = 8  # loads of a thread that are under way together
PLACES = 6  # registers of the addresses of a copy that are not a step from those of another one
FILLED = 3  # registers of a copy that fills the rest of a row with zeros
LOADS = 2  # loads of a part that wait for memory: keys and values
FEW = 16  # queries of a head, up to which its keys are shared out among blocks
BUSY = 12.0  # warps of a multiprocessor that hide each other's latency


@KINDS.row(10)
def match_simt(work: GroupInfo, target: Target) -> Sketch | None:
    """Match an attention of several queries, for ordinary cores."""
    if work.attention is None or work.attention[0].queries == 1:
        return None
    k, moved = work.attention
    return _sketch(SimtSpace(k, target), moved)


@KINDS.row(20)
def match_split(work: GroupInfo, target: Target) -> Sketch | None:
    """Match an attention of few queries, for ordinary cores."""
    if work.attention is None:
        return None
    k, moved = work.attention
    few = k.queries <= FEW and is_splittable(k)
    return _sketch(SplitSpace(k, target), moved) if few else None


@KINDS.row(30)
def match_mma(work: GroupInfo, target: Target) -> Sketch | None:
    """Match an attention for tensor cores."""
    if work.attention is None:
        return None
    k, moved = work.attention
    core = attention_core(k, target)
    return None if core is None else _sketch(MmaSpace(k, target, core), moved)


@KINDS.row(40)
def match_wgmma(work: GroupInfo, target: Target) -> Sketch | None:
    """Match an attention for the tensor cores of warp groups."""
    if work.attention is None:
        return None
    k, moved = work.attention
    cores = group_cores(k, target)
    if columns_of(k) not in cores:
        return None
    return _sketch(WarpgroupSpace(k, target, cores), moved)


class AttentionSpace(Protocol):
    """The schedules of an attention in one way."""

    name: ClassVar[str]

    def decisions(self) -> Mapping[str, tuple[Choice, ...]]:
        """Return the domain of each decision."""

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the attention with the given choices."""

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, and its tiles fit the attention."""

    def cost(self, c: Choices) -> float:
        """Estimate the seconds."""


def _sketch(space: AttentionSpace, moved: Sequence[str]) -> Sketch | None:
    decisions = space.decisions()
    default = cheapest(decisions, space.valid, space.cost, {})
    if not space.valid(default):
        return None

    def apply(sch: Schedule, c: Choices) -> None:
        for name in moved:
            sch.compute_inline(name)
        space.apply(sch, c)

    return Sketch(
        name=f"{space.name}@1",
        kind="attention",
        decisions=decisions,
        default=default,
        apply=apply,
        valid=space.valid,
        cost=space.cost,
    )


def ration_registers(k: Attention, sch: Schedule, shape: LaunchShape, target: Target) -> None:
    """Ask for as many blocks a multiprocessor as the estimate allows with registers to spare.

    Without it ptxas may spill to fit one more block.
    """
    spared = replace(shape, registers=shape.registers + SPARE)
    blocks = sch.get_loops(k.scores.name)[0]
    sch.annotate(blocks, MIN_BLOCKS.key, max(1, resident(target, spared)))


@dataclass(frozen=True, slots=True)
class SimtSpace:
    """Attention on ordinary cores: ``warps`` of ``rows`` queries each, ``keys`` at a time."""

    name: ClassVar[str] = "gpu_attention"
    k: Attention
    target: Target

    def decisions(self) -> Mapping[str, tuple[Choice, ...]]:
        """Return the domain of each decision."""
        rows = min(8, power_up(self.k.queries))
        keys = min(128, max(LANES, power_up(self.k.length)))
        return {"warps": powers(1, 8), "rows": powers(1, rows), "keys": powers(LANES, keys)}

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the attention with the given choices."""
        apply_attention(self.k, sch, c, self.target)
        ration_registers(self.k, sch, self.launch(c), self.target)

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, and most of its rows are queries."""
        warps, rows = int(c["warps"]), int(c["rows"])
        if rows > 1 and warps * rows > power_up(self.k.queries):
            return False  # with one row each, warps without a query help to copy
        shape = self.launch(c)
        fits = shape.registers <= self.target.gpu.registers_per_thread
        return fits and resident(self.target, shape) > 0

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the launch: queries, exponentials, keys and values are shared."""
        k, warps, each, keys = self.k, int(c["warps"]), int(c["rows"]), int(c["keys"])
        rows, size = warps * each, k.keys.buffer.dtype.bytes
        padding = BANKS if k.by_key else 0
        shared = rows * (k.depth * size + keys * 4) + keys * (k.depth + padding + k.width) * size
        held = each * (2 * keys // LANES + math.ceil(k.width / LANES) + 4) + FIXED
        blocks = k.heads * math.ceil(k.queries / rows)
        return LaunchShape(blocks, warps * LANES, 0.0, shared, held)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds."""
        k, rows, keys = self.k, int(c["rows"]), int(c["keys"])
        lanes, columns = keys // LANES, math.ceil(k.width / LANES)
        score = k.depth * (rows * lanes + rows / 4 + lanes)
        value = keys * (rows * columns + rows / 4 + columns)
        copies = COPY * keys * (k.depth + k.width) / (LANES * int(c["warps"]))
        work = score + value + rows * lanes * SOFTMAX + rows * (columns + 24.0) + copies
        return _seconds(k, self.target, self.launch(c), keys, work, 1)


@dataclass(frozen=True, slots=True)
class MmaSpace:
    """Attention on tensor cores: ``warps`` of 16 queries each, ``keys`` at a time."""

    name: ClassVar[str] = "gpu_attention_mma"
    k: Attention
    target: Target
    core: IntrinsicDef

    def decisions(self) -> Mapping[str, tuple[Choice, ...]]:
        """Return the domain of each decision."""
        keys = min(128, max(LANES, power_up(self.k.length)))
        stages = (2, 3, 1) if can_copy_ahead(self.target) else (1, 2)
        return {"warps": powers(1, 8), "keys": powers(LANES, keys), "stages": stages}

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the attention with the given choices."""
        apply_mma(self.k, self.core, sch, c, self.target)

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, and its rows are all queries."""
        shape = self.launch(c)
        most = self.target.gpu.registers_per_thread - SPARE
        whole = self.k.queries % (int(c["warps"]) * ROWS) == 0
        return whole and shape.registers <= most and resident(self.target, shape) > 0

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the launch: queries, keys and values are shared."""
        k, warps, keys, stages = self.k, *(int(c[n]) for n in ("warps", "keys", "stages"))
        depth, width = (-(-n // ROWS) * ROWS for n in (k.depth, k.width))
        shared = 2 * max(warps * ROWS * depth, stages * keys * (depth + width))
        held = keys // 2 + keys // 4 + width // 2 + depth // 4 + FIXED
        if any(warps * LANES * CHUNK % (2 * n) for n in (depth, width)):
            held += PLACES * math.ceil(keys * (depth + width) / (warps * LANES * CHUNK / 2))
        blocks = k.heads * (k.queries // (warps * ROWS))
        return LaunchShape(blocks, warps * LANES, 0.0, shared, held)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds."""
        k, keys = self.k, int(c["keys"])
        boxes = keys * (-(-k.depth // ROWS) + -(-k.width // ROWS)) / COLUMNS
        copies = COPY / 2 * keys * (k.depth + k.width) / (LANES * int(c["warps"]))
        work = boxes * PRODUCT + keys / 2 * ROUNDED + k.width / 2 + 80.0 + copies
        return _seconds(k, self.target, self.launch(c), keys, work, int(c["stages"]))


@dataclass(frozen=True, slots=True)
class WarpgroupSpace:
    """Attention by warp groups: ``groups`` of 64 queries each, ``keys`` at a time."""

    name: ClassVar[str] = "gpu_attention_wgmma"
    k: Attention
    target: Target
    cores: dict[int, str]

    def decisions(self) -> Mapping[str, tuple[Choice, ...]]:
        """Return the domain of each decision."""
        keys = tuple(n for n in (64, 128) if n <= max(64, power_up(self.k.length)))
        return {"groups": (1, 2), "keys": keys, "stages": (2, 3, 1), "bulk": (1, 0)}

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the attention with the given choices."""
        apply_wgmma(self.k, self.cores, sch, c, self.target)

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, its rows are all queries, and its threads copy
        no rows beyond a tile."""
        shape, groups = self.launch(c), int(c["groups"])
        most = self.target.gpu.registers_per_thread - SPARE
        at_once = shape.threads * CHUNK // self.k.keys.buffer.dtype.bytes
        even = all(int(c["keys"]) * n % at_once == 0 for n in self.columns)
        whole = even and self.k.queries % (groups * GROUP_ROWS) == 0
        return whole and shape.registers <= most and resident(self.target, shape) > 0

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a tile of keys, and of one of values."""
        return -(-self.k.depth // ROWS) * ROWS, columns_of(self.k)

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the launch: queries, keys and values are shared."""
        k, groups, keys, stages = self.k, *(int(c[n]) for n in ("groups", "keys", "stages"))
        depth, width = self.columns
        shared = 2 * (groups * GROUP_ROWS * depth + stages * keys * (depth + width)) + BARRIERS
        held = keys // 2 + keys // 4 + width // 2 + FIXED
        if (depth, width) != (k.depth, k.width):  # zeros beside what is copied
            held += FILLED * keys * (depth + width) // (groups * WARPGROUP * CHUNK // 2)
        blocks = k.heads * (k.queries // (groups * GROUP_ROWS))
        return LaunchShape(blocks, groups * WARPGROUP, 0.0, shared, held)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds."""
        k, keys = self.k, int(c["keys"])
        boxes = keys * sum(self.columns) / (ROWS * COLUMNS)
        each = COPY / (4 if c["bulk"] else 2)
        copies = each * keys * (k.depth + k.width) / (WARPGROUP * int(c["groups"]))
        work = boxes * GROUP_PRODUCT + keys / 2 * ROUNDED + k.width / 2 + 80.0 + copies
        return _seconds(k, self.target, self.launch(c), keys, work, int(c["stages"]))


@dataclass(frozen=True, slots=True)
class SplitSpace:
    """Attention of few queries: blocks of ``warps`` with ``keys`` keys of a head each."""

    name: ClassVar[str] = "gpu_attention_split"
    k: Attention
    target: Target

    def decisions(self) -> Mapping[str, tuple[Choice, ...]]:
        """Return the domain of each decision."""
        keys = min(512, max(LANES, power_up(self.k.length)))
        return {"warps": powers(1, 8), "keys": powers(LANES, keys)}

    def apply(self, sch: Schedule, c: Choices) -> None:
        """Schedule the attention with the given choices."""
        apply_split(self.k, sch, c, self.target)
        ration_registers(self.k, sch, self.launch(c), self.target)

    def valid(self, c: Choices) -> bool:
        """True if a block fits on a multiprocessor, and each of its threads has a key."""
        shape = self.launch(c)
        fits = shape.registers <= self.target.gpu.registers_per_thread - SPARE
        busy = int(c["warps"]) * LANES <= int(c["keys"])
        return fits and busy and resident(self.target, shape) > 0

    def launch(self, c: Choices) -> LaunchShape:
        """Return the shape of the launch: keys, values, exponentials and results are shared."""
        k, warps, keys = self.k, int(c["warps"]), int(c["keys"])
        size, parts = k.keys.buffer.dtype.bytes, math.ceil(k.length / keys)
        padding = WIDEST // size if k.by_key else 0
        shared = size * (keys * (k.depth + padding + k.width) + k.queries * k.depth)
        shared += 4 * k.queries * (keys + warps * (k.width + 2) + parts + 4)
        scores = k.queries * math.ceil(keys / (warps * LANES))
        results = k.queries * math.ceil(k.width / LANES)
        held = max(2 * scores, results) + WIDEST + FIXED
        return LaunchShape(k.heads * parts, warps * LANES, WIDEST * AT_ONCE / 2, shared, held)

    def cost(self, c: Choices) -> float:
        """Estimate the seconds."""
        k, target, shape, keys = self.k, self.target, self.launch(c), int(c["keys"])
        here, parts = resident(target, shape), math.ceil(k.length / keys)
        if not here:
            return math.inf
        size, results = k.keys.buffer.dtype.bytes, k.heads * k.queries * k.width
        moved = k.heads * k.length * (k.depth + k.width) * size + 8.0 * parts * results
        flops = 2.0 * k.heads * k.queries * k.length * (k.depth + k.width + SOFTMAX)
        waves = max(1.0, shape.blocks / (here * target.gpu.multiprocessors))
        wait = waves * (LOADS * LATENCY + 8 * BARRIER)
        joined = ARRIVAL + LATENCY + parts * k.queries * k.width / shape.threads * BARRIER / 2
        return launch_seconds(target, shape, moved, flops) + wait + joined


def _seconds(
    k: Attention, target: Target, shape: LaunchShape, keys: int, work: float, stages: int
) -> float:
    """Estimate the seconds from the instructions of a warp for a part of ``keys`` keys."""
    here = resident(target, shape)
    if not here:
        return math.inf
    gpu, warps = target.gpu, shape.threads // LANES
    most = math.ceil(shape.blocks / gpu.multiprocessors)
    at_once = min(most, here)
    parts = math.ceil(k.length / keys) * (k.shown if k.shown is not None and k.skips else 1.0)
    issued = most * warps * parts * work
    rate = gpu.f32_flops / gpu.multiprocessors / (2 * LANES)
    busy = min(1.0, at_once * warps / BUSY)
    moved = keys * (k.depth + k.width) * k.keys.buffer.dtype.bytes / (WIDEST * shape.threads)
    loads = LOADS + moved / AT_ONCE
    wait = 4 * BARRIER + (loads * LATENCY if stages == 1 else LATENCY / stages)
    waiting = math.ceil(most / at_once) * parts * wait
    return LAUNCH + 2 * LATENCY + math.hypot(issued / rate / busy, waiting)
