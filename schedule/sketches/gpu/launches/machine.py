"""An analytic cost model of GPU launches: traffic, latency, waves of blocks, arithmetic.

A roofline model with three corrections. Memory has latency, so its bandwidth is reached only with
enough bytes in flight (Little's law). Blocks run in waves, the last of which may be nearly empty.
Memory is accessed in whole sectors of 32 bytes, used or not. Only ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .....ir.loop.nodes import Var
from .....ir.target import Target
from ....space.analyze import AccessPattern, BlockInfo

LAUNCH = 1.5e-6  # seconds from the end of one kernel of a graph to the start of the next
ARRIVAL = 1e-6  # seconds of an atomic operation that orders memory, and of two barriers around it
LATENCY = 600e-9  # seconds of a memory access
LOADED = 1e-6  # seconds of an access to busy memory
BARRIER = 40e-9  # seconds of an exchange through shared memory, or by shuffles
SECTOR = 32  # bytes of the smallest memory access
WIDEST = 16  # bytes of the widest load or store of a thread
LINE = 128  # contiguous bytes that memory serves best
REACHED = 0.9  # achievable share of the nominal bandwidth
SPECIAL = 8.0  # cost in FLOPs of a transcendental function


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The shape of a launch.

    The number of blocks, the threads of a block, the bytes that a thread has in flight, the shared
    memory of a block in bytes, and the registers of a thread.
    """

    blocks: int
    threads: int
    in_flight: float
    shared: int = 0
    registers: int = 32


def resident(target: Target, shape: LaunchShape) -> int:
    """Return the blocks that run concurrently on a multiprocessor; 0 if not even one fits."""
    return target.gpu.blocks_at_once(shape.threads, shape.registers, shape.shared)


def launch_seconds(target: Target, shape: LaunchShape, bytes_: float, flops: float) -> float:
    """Estimate the seconds of one launch from its memory traffic and arithmetic."""
    gpu, here = target.gpu, resident(target, shape)
    if not here:
        return math.inf
    if not shape.blocks:
        return 0.0  # arrays without elements
    at_once = min(shape.blocks, here * gpu.multiprocessors)
    waves = shape.blocks / (here * gpu.multiprocessors)
    uneven = math.ceil(waves) / waves if waves > 1 else 1.0
    under_way = at_once * shape.threads * shape.in_flight
    wanted = gpu.bandwidth * LOADED
    spread = at_once / gpu.multiprocessors  # each can use only its share of the bandwidth
    memory = bytes_ / (gpu.bandwidth * REACHED * min(1.0, under_way / wanted, spread))
    busy = min(1.0, at_once * shape.threads / (gpu.multiprocessors * 512))
    work = flops / (gpu.f32_flops * 0.5 * max(busy, 1e-4))
    return LAUNCH + LATENCY + max(memory, work) * uneven


def memory_seconds(target: Target, bytes_: float) -> float:
    """Return the seconds to move bytes at the achievable bandwidth."""
    return bytes_ / (target.gpu.bandwidth * REACHED)


def shared_seconds(target: Target, bytes_: float) -> float:
    """Return the seconds to move bytes to and from shared memory, on all multiprocessors."""
    gpu = target.gpu
    return bytes_ / (gpu.multiprocessors * gpu.banks * 4 * gpu.clock)


def issue_seconds(target: Target, accesses: float) -> float:
    """Return the seconds in which all multiprocessors issue that many accesses of one thread."""
    gpu = target.gpu
    return accesses / (gpu.multiprocessors * gpu.warp * gpu.clock)


def work_seconds(target: Target, flops: float) -> float:
    """Return the seconds of arithmetic on the whole GPU."""
    return flops / (target.gpu.f32_flops * 0.5)


def flops_of(info: BlockInfo) -> float:
    """Return the FLOPs of a block, weighted if it evaluates transcendental functions."""
    return info.flops * (SPECIAL if info.transcendental else 1.0)


def vector_width(sizes: Iterable[int], *extents: int) -> int:
    """Return the most elements that a thread can load or store at once.

    ``sizes`` are the bytes of the elements accessed; vectors divide all ``extents`` evenly.
    """
    return math.gcd(max(1, WIDEST // min(sizes, default=WIDEST)), *extents)


def access_bytes(info: BlockInfo, a: AccessPattern, along: Var | None, lanes: int) -> float:
    """Return the bytes that an access moves if neighbors in a warp step along an axis.

    A thread has ``lanes`` elements of the axis. An access that is invariant along the axis takes
    one sector per warp; one with a large stride takes a sector per element.
    """
    return distinct(info, a) * a.buffer.dtype.bytes * waste(a, along, lanes)


def bursts(run: float) -> float:
    """Return the relative cost of a byte if a warp accesses ``run`` contiguous bytes."""
    return 1.0 + 0.3 * (LINE / max(run, SECTOR) - 1.0) if run < LINE else 1.0


def overlapped(*seconds: float) -> float:
    """Return the time of concurrent activities, which the longest does not hide completely."""
    longest = max(seconds)
    return longest + 0.15 * (sum(seconds) - longest)


def distinct(info: BlockInfo, access: AccessPattern) -> float:
    """Return the number of distinct elements of an access; caches serve repetitions."""
    own = math.prod(a.extent for a in info.block.axes if access.uses(a.var))
    return float(min(own, math.prod(access.buffer.shape) if access.buffer.shape else 1))


def waste(access: AccessPattern, along: Var | None, lanes: int) -> float:
    """Return the bytes moved per byte used."""
    size = access.buffer.dtype.bytes
    step = access.step(along) if along is not None else 1
    if step in (0, 1):
        return 1.0
    if step is None:
        return SECTOR / size / 2
    return min(abs(step) * 1.0, max(1.0, SECTOR / size))
