"""Names of loops that say what a loop is for: ``i_tile``, ``i_in``, ``i_lane``.

``split`` calls its parts after the axis that they run over: ``i_tile`` numbers the tiles, ``i_in``
the places in one. Where such a part is printed, how it runs takes the place of that: a vectorized
``i_in`` is ``i_lane``. A loop that was never split keeps the name of its axis, however it runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .nodes import For, Kind

TILE, IN = "tile", "in"
_BY_KIND = {Kind.PARALLEL: "par", Kind.VECTOR: "lane", Kind.UNROLLED: "unroll"}
_PART = re.compile(rf"(.+)_({TILE}|{IN})(?:_\d+)?")
_ROLES = (TILE, IN, "block", "thread", *_BY_KIND.values())
_ROLE = re.compile(rf"(.+?)_({'|'.join(_ROLES)})(?:_\d+)?")


def called(loop: For) -> str:
    """Return the name of a loop by its role, as it prints where no other loop has it.

    ``printer.loop_names`` has the names as they print.
    """
    part = None if loop.kind is Kind.SERIAL else _PART.fullmatch(loop.var.name)
    if part is None:
        return loop.var.name
    if loop.kind is Kind.THREAD:
        return f"{part[1]}_{loop.thread.partition('Idx')[0]}"
    return f"{part[1]}_{_BY_KIND[loop.kind]}"


def axis(name: str) -> str:
    """Return the name of what a loop was a part of: ``i_tile``, ``i_lane_1``  ->  ``i``."""
    part = _ROLE.fullmatch(name)
    return name if part is None else part[1]


def parts(name: str, count: int) -> tuple[str, ...]:
    """Return names for the parts of a loop, outer to inner: ``i_tile, i_tile, i_in``."""
    return (*[f"{axis(name)}_{TILE}"] * (count - 1), part_of(name))


def part_of(name: str) -> str:
    """Return a name for a loop over some of an axis at a time: ``i``  ->  ``i_in``."""
    return f"{axis(name)}_{IN}"


def fused(names: Sequence[str]) -> str:
    """Return a name for one loop in place of several: ``i, j_tile``  ->  ``i_j_tile``.

    All parts of an axis together are the axis: ``i_tile, i_in``  ->  ``i``.
    """
    axes = dict.fromkeys(map(axis, names))
    whole = "_".join(axes)[:40]
    last = _PART.fullmatch(names[-1])
    if last is None or (len(axes) == 1 and last[2] == IN):
        return whole
    return f"{whole}_{last[2]}"
