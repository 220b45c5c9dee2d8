"""Requirements on schedules that were tuned for another target: their error, and registers."""

from __future__ import annotations

from ..ir.loop.names import called
from ..ir.loop.nodes import For, Func
from ..ir.loop.notes import IN_TILES
from ..ir.loop.visit import walk
from ..ir.target import Target
from ..ir.tile_dots import has_tiles
from .errors import ScheduleError
from .excess_error import require_accuracy


def require_usable(func: Func, target: Target) -> None:
    """Raise ``ScheduleError`` for a schedule, made for any target, that this one should not use."""
    require_accuracy(func, target)
    require_tiles(func, target)


def require_tiles(func: Func, target: Target) -> None:
    """Raise ``ScheduleError`` for sums in tile registers, if the target has no such registers.

    As loops over memory they would be right, but slow.
    """
    if has_tiles(target):
        return
    for s in walk(func.body):
        if isinstance(s, For) and IN_TILES.of(s):
            raise ScheduleError(
                f"make the sums over loop `{called(s)}` in tile registers",
                f"{target.spec} has none",
                hint="the schedule is of another processor; tune on this one",
            )
