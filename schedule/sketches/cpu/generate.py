"""The sketches of a function for a CPU, in default order, and the rule for other blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...space.registry import Family, import_sketches
from ...space.space import Sketch
from ...usable import require_tiles
from .nests.fallback import schedule_fallback
from .nests.matching import CPU, FuncInfo

import_sketches(__package__, [str(Path(__file__).parent)])


def _sketches(func: Func, target: Target) -> Iterator[Sketch]:
    return CPU.each(FuncInfo(func), target)


FAMILY = Family(_sketches, lambda func, target: (), schedule_fallback, require_tiles)
