"""The options of a build: what code is made for, and how it computes; one value for all stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.errors import ArgumentError
from ...ir.target import Target, with_arithmetic

FALLBACKS = (None, "interpreter")
"""What becomes of groups that cannot be compiled: they are refused, or interpreted."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """All that determines a model's code beside its graph, its constants and its schedules.

    The fields are the arguments of ``nestwright.build`` of the same names; ``accuracy`` and
    ``denormals`` are options of the target here.
    """

    target: Target
    excess_precision: bool = True
    weights: str | None = None
    fallback: str | None = None

    @staticmethod
    def of(options: OptionsLike) -> BuildOptions:
        """Return options as they are; a target, or the spec of one, stands for the defaults."""
        return options if isinstance(options, BuildOptions) else BuildOptions(Target.parse(options))

    @staticmethod
    def given(
        target: str | Target,
        excess_precision: bool = True,
        weights: str | None = None,
        accuracy: float | None = None,
        denormals: str | None = None,
        fallback: str | None = None,
    ) -> BuildOptions:
        """Return the options that the arguments of a public function say.

        ``TargetError`` as for ``with_arithmetic``, ``ArgumentError`` for an unknown fallback and
        for arguments of other types.
        """
        wide = switch("excess_precision", excess_precision)
        if not isinstance(weights, str | None):
            raise ArgumentError(
                f"weights={weights!r:.60}", "no form of weights", hint="'int8', 'bf16'"
            )
        if not isinstance(fallback, str | None) or fallback not in FALLBACKS:
            raise ArgumentError(f"fallback={fallback!r}", "no such fallback", hint="'interpreter'")
        machine = with_arithmetic(target, accuracy, denormals)
        return BuildOptions(machine, wide, weights, fallback)


def switch(name: str, value: object) -> bool:
    """Return an argument that is true or false; ``ArgumentError`` for another."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name}={value!r:.60}", "it is True or False")
    return bool(value)


OptionsLike: TypeAlias = BuildOptions | Target | str
"""What ``BuildOptions.of`` takes."""
