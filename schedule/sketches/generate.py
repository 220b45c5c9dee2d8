"""Which sketches a function has, and the schedule it gets when nobody tuned it."""

from __future__ import annotations

import logging

from ...ir.loop.nodes import Buffer, Func
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule
from .alone import alone_sketch, schedule_alone
from .analyze import BlockInfo, blocks_of, frozen_inputs
from .contraction import find_contraction
from .gpu import generate as gpu
from .rows import find_rows, rows_sketch
from .sampled import rule_sketches
from .space import Sketch, first_fit
from .tiling import tiling_sketch
from .total import find_total, total_sketch

_log = logging.getLogger("nestwright.schedule")


def generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a function in default order, the preferred one first.

    Deterministic: the same function and target give the same sketches, decisions and defaults.
    Rules that a user registered come last.
    """
    own = gpu.generate(func, target) if target.is_gpu else _generate(func, target)
    return (*own, *rule_sketches(func, target, own[0].cost(own[0].default)))


def _generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    blocks = blocks_of(func)
    found: list[Sketch] = []
    anchor = _anchor(blocks)
    if anchor is not None:
        kept = all(s.buffer in func.allocs for s in anchor.stores)  # not an output as well
        consumers = _consumers(blocks, anchor) if kept else ()
        feeders = _feeders(blocks, anchor)
        frozen = _read_once(blocks, frozen_inputs(func))
        contraction = find_contraction(anchor, consumers, feeders, frozen)
        if contraction is not None:
            parts = (anchor, contraction.consumer, *feeders)
            others = tuple(b for b in blocks if all(b is not p for p in parts))
            found.append(tiling_sketch(contraction, others, target))
    if not found:
        rows = find_rows(blocks)
        if rows is not None:
            found.append(rows_sketch(rows, target))
        total = find_total(blocks)
        if total is not None:
            found.insert(0, total_sketch(total, target))
    found.append(alone_sketch(blocks, target))
    return tuple(found)


def default_schedule(func: Func, target: Target) -> Schedule:
    """The rule-based schedule: the first sketch that applies, with its default choices.

    Never fails: what no sketch can schedule is left in its default order, block by block.
    """
    if target.is_gpu:
        return gpu.default_schedule(func, target)
    schedule = first_fit(generate(func, target), func)
    if schedule is not None:
        return schedule
    schedule = Schedule(func)
    for info in blocks_of(func):
        schedule = _attempt(schedule, info, target)
    return schedule


def _attempt(schedule: Schedule, info: BlockInfo, target: Target) -> Schedule:
    """One block scheduled by rule, or the schedule as it was where a primitive refused."""
    trial = schedule.copy()
    try:
        schedule_alone(trial, info, target)
    except ScheduleError as refusal:
        _log.debug("left as it was: %s", refusal)
        return schedule
    return trial


def _anchor(blocks: tuple[BlockInfo, ...]) -> BlockInfo | None:
    """The heaviest reduction."""
    reductions = [b for b in blocks if b.reduce and not b.opaque]
    return max(reductions, key=lambda b: b.flops, default=None)


def _read_once(blocks: tuple[BlockInfo, ...], buffers: frozenset[Buffer]) -> frozenset[Buffer]:
    """Those that one block reads: a constant that others need as it is cannot be laid out anew."""
    readers = [b for i in blocks for b in {a.buffer for a in i.loads}]
    return frozenset(b for b in buffers if readers.count(b) == 1)


def _feeders(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    """Element-wise blocks over the anchor's input that nothing but the anchor reads."""
    found = []
    for b in blocks:
        written = {s.buffer for s in b.stores}
        readers = [r for r in blocks if any(a.buffer in written for a in r.loads)]
        if readers == [info] and not b.reduce and not b.opaque and len(b.stores) == 1:
            found.append(b)
    return tuple(found)


def _consumers(blocks: tuple[BlockInfo, ...], info: BlockInfo) -> tuple[BlockInfo, ...]:
    written = {s.buffer for s in info.stores}
    return tuple(b for b in blocks if b is not info and any(a.buffer in written for a in b.loads))
