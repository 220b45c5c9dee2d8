"""A model built for one processor, or for several in one executable."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..codegen.driver.options import BuildOptions
from ..codegen.runtime.executable import Executable
from .lowered import Lowered


def built(
    lowered: Callable[[BuildOptions], Lowered],
    variants: Sequence[BuildOptions],
    log: str | os.PathLike[str] | None,
    timings: dict[str, float] | None,
    cache: bool,
) -> Executable:
    """Return the executable of a model for one target, or for several together.

    ``lowered(options)`` is the model for one of them; other arguments are as for ``build``.
    ``timings`` gets the seconds of all variants.
    """
    made = []
    spent: dict[str, float] = {}
    for each in variants:
        one: dict[str, float] = {}
        made.append(lowered(each).compile(log, one, cache))
        spent |= {stage: spent.get(stage, 0.0) + seconds for stage, seconds in one.items()}
    if timings is not None:
        timings |= spent
    if len(made) == 1:
        return made[0]
    from ..codegen.driver.variants import together  # most builds have one

    return together(made)
