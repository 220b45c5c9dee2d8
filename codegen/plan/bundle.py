"""A built model as plain data; ``saved`` is the one file that holds it.

Nothing in it is executed but its code, which only a matching target loads, and only with the plan
that it was made for (``codegen.plan.saved.seal``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...ir.target import Target
from .code.form import Code, code_bytes
from .nodes import Plan
from .notes import EXCESS_PRECISION


class Variant(NamedTuple):
    """One of the processors that a file was built for.

    ``missing`` are the features that this machine lacks for it; ``in_force`` is true for the
    variant that was loaded.
    """

    target: str
    missing: tuple[str, ...]
    in_force: bool


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A built model as plain data.

    ``kernels`` is code by symbol, ``buffers`` the bytes of each argument of a kernel. ``costs`` are
    the numbers of ``cost_analysis``; ``notes`` record its origin. ``variants`` are those of the
    file that it was read from, if they are several.
    """

    name: str
    target: Target
    plan: Plan
    kernels: Mapping[str, Code]
    buffers: Mapping[str, tuple[int, ...]]
    program: bytes
    runtime: tuple[bytes, ...]
    constants: np.ndarray[Any, np.dtype[np.uint8]]
    costs: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()

    @property
    def excess_precision(self) -> bool:
        """True if narrow floats stay f32 inside of groups."""
        return self.notes.get(EXCESS_PRECISION) == "1"

    @property
    def code_bytes(self) -> int:
        """Bytes of machine code of the kernels and the program; of PTX for kernels without machine
        code.
        """
        return len(self.program) + sum(map(code_bytes, self.kernels.values()))


def best(targets: Sequence[Target]) -> int:
    """Return the number of the variant to use: the one of most features that runs here.

    If none does, the one for which the least is missing.
    """
    lacks = [len(target.missing) for target in targets]
    return min(range(len(targets)), key=lambda n: (lacks[n], -len(targets[n].features)))


def variants(targets: Sequence[Target]) -> tuple[Variant, ...]:
    """Return the rows of the variants for several targets; none for one."""
    if len(targets) == 1:
        return ()
    chosen = best(targets)
    return tuple(Variant(t.spec, t.missing, n == chosen) for n, t in enumerate(targets))
