"""Code for a GPU, read without trust."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....ir.errors import ArtifactError
from ....ir.target import Target
from .device import DeviceCode, LaunchConfig, TensorMap
from .form import Code, Codec

if TYPE_CHECKING:
    from ....ir.gpus import Gpu


def _device_code(found: Mapping[str, bytes], target: Target) -> Code:
    try:
        facts = json.loads(found["json"])
        code = DeviceCode(
            ptx=found["ptx"].decode("ascii"),
            launches=tuple(_launch(x, target.gpu) for x in facts["launches"]),
            cubin=found["cubin"],
            registers=tuple(map(_count, facts["registers"])),
            spills=tuple(map(_count, facts["spills"])),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ArtifactError("a kernel cannot be read", why) from error
    if not code.launches:
        raise ArtifactError("a kernel cannot be read", "it launches nothing")
    return code


DEVICE = Codec(("json", "ptx", "cubin"), _device_code, linked=False)
"""Modules that a device loads, and how their kernels are launched."""


def _launch(data: Any, gpu: Gpu) -> LaunchConfig:
    """Return a launch that the device can take; ``ValueError`` for others."""
    symbol, grid, block, shared, *later = data
    if len(later) > 3:
        raise ValueError(f"{len(later)} facts more than a launch has")
    facts: list[Any] = [*later, *([], 0, 0)[len(later) :]]
    maps, resident, overlaps = facts[0], _count(facts[1]), _count(facts[2])
    if not (isinstance(symbol, str) and re.fullmatch(r"[A-Za-z_$][\w$]{0,511}", symbol)):
        raise ValueError(f"{symbol!r} is not a symbol")
    g, b = _extents(grid, gpu.grid_extents), _extents(block, gpu.block_extents)
    if math.prod(b) > gpu.threads_per_block:
        raise ValueError(f"{math.prod(b)} threads in a block")
    if _count(shared) > gpu.shared_per_block:
        raise ValueError(f"{shared} bytes of shared memory")
    if overlaps > gpu.overlaps:
        raise ValueError(f"a launch that overlaps others on {gpu.arch}")
    if resident > gpu.blocks_per_multiprocessor:
        raise ValueError(f"{resident} blocks for each multiprocessor")
    return LaunchConfig(symbol, g, b, shared, tuple(map(_map, maps)), resident, bool(overlaps))


def _map(data: Any) -> TensorMap:
    """Return a tensor map that the driver can make; ``ValueError`` for others."""
    made = TensorMap(*map(_count, data))
    wide = made.pitch * made.item
    if made.item not in (1, 2, 4, 8) or made.offset % 16 or wide % 16 or made.columns > made.pitch:
        raise ValueError(f"{data!r} is not a matrix that boxes are copied of")
    row = made.box_columns * made.item
    if not 0 < row <= (made.swizzle or row) or row % 16 or not 0 < made.box_rows <= 256:
        raise ValueError(f"{data!r} has no box that can be copied")
    if made.swizzle not in (0, 32, 64, 128):
        raise ValueError(f"{made.swizzle} is not a swizzle")
    return made


def _extents(data: Any, most: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = map(_count, data)
    if not all(1 <= n <= limit for n, limit in zip((x, y, z), most, strict=True)):
        raise ValueError(f"extents {data!r}, at most {most}")
    return x, y, z


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is not a count")
    return value
