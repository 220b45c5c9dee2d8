"""How much work an iteration of a loop does, by its instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..disassembly import CountedLoop

VECTOR = 16  # bytes
_WARPS = 4  # of a warp group, which does one HGMMA together
_FRAGMENT = 16 * 8 * 16  # products of a HMMA.16816
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_SHAPE = re.compile(r"GMMA\.(\d+)x(\d+)x(\d+)")


def _bytes(loop: CountedLoop, *opcodes: str) -> float:
    """Return the bytes that a thread moves by instructions of these kinds."""
    total = 0
    for name, count in loop.opcodes.items():
        kind, *modifiers = name.split(".")
        if kind in opcodes:
            total += count * next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 4)
    return total


def _fragments(loop: CountedLoop) -> float:
    """Return a warp's products in units of HMMA.16816."""
    total = float(loop.count("HMMA.16816", "IMMA.16832", "QMMA.16832"))
    total += loop.count("HMMA.1688") / 2
    for name, count in loop.opcodes.items():
        if (shape := _SHAPE.search(name)) is not None:
            m, n, k = map(int, shape.groups())
            total += count * m * n * k / _FRAGMENT / _WARPS
    return total


def _fmas(loop: CountedLoop) -> float:
    return float(loop.count("FFMA") + 2 * loop.count("FFMA2"))


MEASURES: Mapping[str, Callable[[CountedLoop], float]] = MappingProxyType(
    {
        "4 exponentials": lambda loop: loop.count("MUFU.EX2") / 4,
        "16 bytes stored": lambda loop: _bytes(loop, "STG") / VECTOR,
        "16 bytes loaded": lambda loop: _bytes(loop, "LDG", "LDGSTS") / VECTOR,
        "HMMA.16816": _fragments,
        "FFMA": _fmas,
    }
)
"""By name; a loop is the hottest by such a measure."""
