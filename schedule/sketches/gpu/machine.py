"""What a launch costs on a GPU: traffic, latency, waves of blocks, arithmetic, the launch itself.

A roofline with three corrections. Memory answers late, so bandwidth is reached only with enough
bytes under way (Little's law). Blocks run in waves, the last of which may be nearly empty. And
threads beside each other get whole sectors of 32 bytes, used or not. Only ratios matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....ir.loop.nodes import Var
from ....ir.target import Target
from ...space.analyze import AccessPattern, BlockInfo

LAUNCH = 3e-6  # seconds from the end of one kernel to the start of the next
LATENCY = 600e-9  # of memory
LOADED = 1e-6  # of memory when it is busy
BARRIER = 40e-9  # of one round through shared memory, or of shuffles
SECTOR = 32  # bytes that memory gives at least
LINE = 128  # bytes side by side that it gives best
REACHED = 0.9  # of the nominal bandwidth
SPECIAL = 8.0  # FLOP that a transcendental function counts for


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The shape of a launch: blocks, threads of one, bytes that a thread asks for at once, and
    what one block or thread holds."""

    blocks: int
    threads: int
    in_flight: float
    shared: int = 0
    registers: int = 32


def resident(target: Target, shape: LaunchShape) -> int:
    """Blocks that run on a multiprocessor at once; 0 where not even one fits."""
    gpu = target.gpu
    warps = -(-shape.threads // gpu.warp)
    registers = warps * gpu.warp * -(-shape.registers // 8) * 8
    most = min(
        gpu.blocks_per_multiprocessor,
        gpu.warps_per_multiprocessor // warps,
        gpu.registers_per_multiprocessor // max(registers, 1),
    )
    if shape.shared:
        most = min(most, gpu.shared_per_multiprocessor // (shape.shared + 1024))
    fits = shape.shared <= gpu.shared_per_block and shape.threads <= gpu.threads_per_block
    return most if fits else 0


def launch_seconds(target: Target, shape: LaunchShape, bytes_: float, flops: float) -> float:
    """Estimated time of one launch that moves so many bytes and does so much work."""
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
    spread = at_once / gpu.multiprocessors  # none of which takes more than its part
    memory = bytes_ / (gpu.bandwidth * REACHED * min(1.0, under_way / wanted, spread))
    busy = min(1.0, at_once * shape.threads / (gpu.multiprocessors * 512))
    work = flops / (gpu.f32_flops * 0.5 * max(busy, 1e-4))
    return LAUNCH + LATENCY + max(memory, work) * uneven


def memory_seconds(target: Target, bytes_: float) -> float:
    """Time to move so many bytes at the bandwidth that is reached."""
    return bytes_ / (target.gpu.bandwidth * REACHED)


def shared_seconds(target: Target, bytes_: float) -> float:
    """Time to move so many bytes to and from shared memory, on all multiprocessors."""
    gpu = target.gpu
    return bytes_ / (gpu.multiprocessors * gpu.banks * 4 * gpu.clock)


def issue_seconds(target: Target, accesses: float) -> float:
    """Time in which all multiprocessors ask for so many accesses of one thread each."""
    gpu = target.gpu
    return accesses / (gpu.multiprocessors * gpu.warp * gpu.clock)


def work_seconds(target: Target, flops: float) -> float:
    """Time of so much arithmetic on the whole GPU."""
    return flops / (target.gpu.f32_flops * 0.5)


def flops_of(info: BlockInfo) -> float:
    """The work of a block, functions without an instruction counted as what they expand to."""
    return info.flops * (SPECIAL if info.transcendental else 1.0)


def access_bytes(info: BlockInfo, a: AccessPattern, along: Var | None, lanes: int) -> float:
    """Bytes that an access moves when neighbours in a warp step along an axis.

    ``lanes`` elements of the axis are one thread's. An access that stands still along the axis is
    one sector for a warp; one that steps far takes a sector for each element.
    """
    return distinct(info, a) * a.buffer.dtype.bytes * waste(a, along, lanes)


def bursts(run: float) -> float:
    """The cost of a byte where neighbours ask for ``run`` bytes side by side, over the least."""
    return 1.0 + 0.3 * (LINE / max(run, SECTOR) - 1.0) if run < LINE else 1.0


def overlapped(*seconds: float) -> float:
    """What several things take that go on at once, none of them wholly hidden by the longest."""
    longest = max(seconds)
    return longest + 0.15 * (sum(seconds) - longest)


def distinct(info: BlockInfo, access: AccessPattern) -> float:
    """How many elements an access touches, repetitions that caches serve left out."""
    own = math.prod(a.extent for a in info.block.axes if access.uses(a.var))
    return float(min(own, math.prod(access.buffer.shape) if access.buffer.shape else 1))


def waste(access: AccessPattern, along: Var | None, lanes: int) -> float:
    """Bytes moved per byte used."""
    size = access.buffer.dtype.bytes
    step = access.step(along) if along is not None else 1
    if step in (0, 1):
        return 1.0
    if step is None:
        return SECTOR / size / 2
    return min(abs(step) * 1.0, max(1.0, SECTOR / size))
