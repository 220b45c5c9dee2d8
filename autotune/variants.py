"""A model built for one processor, or for several in one executable."""

from __future__ import annotations

import os
from typing import Any

from ..codegen.runtime.executable import Executable
from ..ir.frontends.registry import Shapes
from ..ir.target import Target
from .lowered import lower
from .recipe import GraphLike


def built(
    model: GraphLike,
    example: tuple[Any, ...],
    shapes: Shapes | None,
    log: str | os.PathLike[str] | None,
    timings: dict[str, float] | None,
    cache: bool,
    target: str | Target,
    **options: Any,
) -> Executable:
    """Return the executable of a model for the target or targets that a spec names.

    ``options`` are those of ``lower``. ``timings`` has the seconds of all variants.
    """
    made = []
    spent: dict[str, float] = {}
    for each in Target.several(target):
        one: dict[str, float] = {}
        lowered = lower(model, *example, target=each, shapes=shapes, **options)
        made.append(lowered.compile(log, one, cache))
        spent |= {stage: spent.get(stage, 0.0) + seconds for stage, seconds in one.items()}
    if timings is not None:
        timings |= spent
    if len(made) == 1:
        return made[0]
    from ..codegen.driver.variants import together  # most builds have one

    return together(made)
