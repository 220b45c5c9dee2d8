"""The options of a build that commands share: sizes, constants, and how numbers are kept."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .arrays import read_constants
from .options import excess_precision_option, read_shapes, shape_option

if TYPE_CHECKING:
    from ..autotune.lowered import Lowered

_NAMES = ("shapes", "constants", "weights", "excess_precision", "accuracy")


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """What was given on the command line; None, and no shapes, for what was not."""

    shapes: tuple[str, ...] = ()
    constants: str | None = None
    weights: str | None = None
    excess_precision: bool | None = None
    accuracy: float | None = None

    @property
    def given(self) -> dict[str, object]:
        """The values by the options' names, None for those that were not given."""
        return {
            "--shape": self.shapes or None,
            "--constants": self.constants,
            "--weights": self.weights,
            "--excess-precision": self.excess_precision,
            "--accuracy": self.accuracy,
        }

    @property
    def asked(self) -> str:
        """The options that decide what is tuned, as words of a command."""
        words = [f" --shape {shlex.quote(s)}" for s in self.shapes]
        if self.weights is not None:
            words.append(f" --weights {shlex.quote(self.weights)}")
        if self.accuracy is not None:
            words.append(f" --accuracy {self.accuracy:g}")
        return "".join(words)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``lower`` by keyword, files read; but for the accuracy."""
        return {
            "shapes": read_shapes(self.shapes),
            "constants": read_constants(self.constants),
            "weights": self.weights,
            "excess_precision": self.excess_precision,
        }

    def lowered(self, model: str, target: str) -> Lowered:
        """Return the model with these options; raises what ``lower`` raises."""
        from ..autotune.lowered import lower

        return lower(model, target=target, accuracy=self.accuracy, **self.arguments())


def recipe_options(
    *, ranges: bool = False, excess_precision: bool | None = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options of a build, which a command gets as its argument ``recipe``.

    With ``ranges`` a size may be a range. ``excess_precision`` is the default of its option.
    """
    options = (
        shape_option(ranges),
        click.option("--constants", type=click.Path(), help="Parameters to freeze, as .npz."),
        click.option(
            "--weights",
            help="Store constant f32 weights of dots and convolutions as bf16, or as int8 with a "
            "scale per output channel.",
        ),
        excess_precision_option(excess_precision),
        click.option(
            "--accuracy",
            type=float,
            metavar="BOUND",
            help="Error that schedules may add to rounding, relative to a result's rms, as 1e-5.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(*args: Any, **named: Any) -> Any:
            recipe = RecipeOptions(**{name: named.pop(name) for name in _NAMES})
            return command(*args, recipe=recipe, **named)

        for option in reversed(options):
            gathered = option(gathered)
        return gathered

    return decorate
