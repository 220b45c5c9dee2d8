"""Options that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ...ir.errors import ArgumentError

if TYPE_CHECKING:  # `--help` needs no tuner
    from ...autotune.lowered import Lowered
    from ...autotune.recipe import ImportOptions
    from ...autotune.rules import OpenShapes, OpenSize, SizeRule
    from ...codegen.driver.options import BuildOptions
    from ...ir.frontends.registry import Shapes
    from ...ir.target import Target

SHAPE_HINT = "--shape input=1x3x224x224, or --shape 0=8x? for the first input"
RANGE_HINT = "--shape input=1..64x3x224x224 --rule buckets"
ONE_HINT = "--shape input=64x3x224x224; `nestwright run` and nw.build(shapes=...) take ranges"
RULE_HINT = "--rule exact, buckets (powers of two), 16 (multiples of 16), or 8,32,64"
MOST_DIGITS = 18  # of a size, which has to fit 64 bits
_OF_A_BUILD = ("shapes", "constants", "weights", "excess_precision", "accuracy", "denormals")


class ModelCommand(click.Command):
    """A command that takes a MODEL; its help ends with the formats that are read."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the formats, as the rows of the front-ends have them now."""
        from ...ir.frontends.registry import readable_files

        self.epilog = f"MODEL is a file of {readable_files()}."
        super().format_epilog(ctx, formatter)


def shape_option(ranges: bool = False) -> Callable[[Any], Any]:
    """``--shape input=1x3x224x224``, as often as there are inputs.

    ``read_shapes`` reads them, and ``read_open_shapes`` those that may be ``ranges``.
    """
    told = "Sizes of an input that the model leaves open, as input=1x3x224x224"
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=SIZES",
        help=told + (", or 1..64x3x224x224 with --rule" if ranges else "") + "; repeatable.",
    )


def rule_option() -> Callable[[Any], Any]:
    """``--rule exact|buckets|N|N,N,...``; ``read_rule`` reads it."""
    return click.option(
        "--rule",
        metavar="RULE",
        help="Sizes that are compiled for a range in --shape: `exact` (default), `buckets` (powers "
        "of two), 16 (its multiples) or 8,32,64; smaller inputs are padded.",
    )


def read_rule(text: str | None, shapes: OpenShapes | None) -> SizeRule:
    """Return the rule of ``--rule`` for sizes of ``--shape``; ``ArgumentError`` for no rule."""
    from ...autotune import rules

    if text is None:
        return "exact"
    if shapes is None or not has_ranges(shapes):
        raise ArgumentError(f"--rule {text}", "no size in --shape is a range", hint=RANGE_HINT)
    parts = text.split(",")
    numbers = [int(p) for p in parts if _is_size(p)]
    rule = text if len(numbers) < len(parts) else numbers[0] if len(parts) == 1 else numbers
    try:
        rules.read_rule(rule)
    except ArgumentError:
        raise ArgumentError(f"--rule {text}", "no such rule for sizes", hint=RULE_HINT) from None
    return rule


def read_shapes(given: Sequence[str]) -> dict[str | int, tuple[int | None, ...]] | None:
    """Return the sizes of inputs by name or place; ``?`` is a size that the model knows.

    ``ArgumentError`` for what is not ``NAME=SIZES``, for a size below zero, and for a range.
    """
    found: dict[str | int, tuple[int | None, ...]] = {}
    for text, (which, sizes) in zip(given, map(_read_shape, given), strict=True):
        if any(isinstance(n, range) for n in sizes):
            raise ArgumentError(f"--shape {text}", "this command takes one size", hint=ONE_HINT)
        found[which] = tuple(n if isinstance(n, int) else None for n in sizes)
    return found or None


def read_open_shapes(given: Sequence[str]) -> dict[str | int, tuple[OpenSize, ...]] | None:
    """Return the sizes of inputs as ``read_shapes`` does; ``1..64`` is a range."""
    return dict(map(_read_shape, given)) or None


def has_ranges(shapes: OpenShapes) -> bool:
    """True if any size is a range."""
    return any(isinstance(n, range) for sizes in shapes.values() for n in sizes)


def _read_shape(text: str) -> tuple[str | int, tuple[OpenSize, ...]]:
    name, equals, sizes = text.rpartition("=")
    parts = sizes.split("x") if sizes else []
    if not equals or not name or not all(map(_is_open_size, parts)):
        raise ArgumentError(f"--shape {text}", "it is not NAME=SIZES", hint=SHAPE_HINT)
    found = tuple(map(_size, parts))
    if any(isinstance(n, range) and not n for n in found):
        raise ArgumentError(f"--shape {text}", "no size is in the range", hint=RANGE_HINT)
    return int(name) if _is_size(name) else name, found


def _size(text: str) -> OpenSize:
    first, dots, last = text.partition("..")
    if dots:
        return range(int(first), int(last) + 1)
    return None if text == "?" else int(text)


def _is_open_size(text: str) -> bool:
    first, dots, last = text.partition("..")
    return text == "?" or (_is_size(first) and (not dots or _is_size(last)))


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def trusted_option() -> Callable[[Any], Any]:
    """Return the option ``--trusted``: whose signature a built model must have."""
    return click.option(
        "--trusted", type=click.Path(), help="Load OUT only if signed for this public key."
    )


def refuse_trusted(model: str, trusted: str | None) -> None:
    """Raise ``ArgumentError`` if a key is given for what is no built model."""
    if trusted is not None:
        why = "it is not a built model, and only those are signed"
        raise ArgumentError(f"--trusted cannot be used with {model}", why)


def excess_precision_option(default: bool | None = True) -> Callable[[Any], Any]:
    """``--excess-precision / --no-excess-precision``; without a default what is read decides."""
    return click.option(
        "--excess-precision/--no-excess-precision",
        default=default,
        show_default=default is not None,
        help="Keep narrow floats as f32 inside fused groups, or round after every operation.",
    )


def profile_options() -> Callable[[Any], Any]:
    """``--profile`` and ``--trace``, which implies it."""
    table = click.option(
        "--profile", is_flag=True, help="Print the time of every step of a call, most time first."
    )
    trace = click.option(
        "--trace",
        type=click.Path(),
        metavar="T.json",
        help="Write the profile's events here as Chrome trace JSON, which Perfetto opens.",
    )
    return lambda command: table(trace(command))


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """The options as they were given; None, and no shapes, for those that were not."""

    shapes: tuple[str, ...] = ()
    constants: str | None = None
    weights: str | None = None
    excess_precision: bool | None = None
    accuracy: float | None = None
    denormals: str | None = None

    @property
    def given(self) -> dict[str, object]:
        """The values by the options' names, None for those that were not given."""
        return {
            "--shape": self.shapes or None,
            "--constants": self.constants,
            "--weights": self.weights,
            "--excess-precision": self.excess_precision,
            "--accuracy": self.accuracy,
            "--denormals": self.denormals,
        }

    @property
    def asked(self) -> str:
        """The options that decide what is tuned, as words of a command."""
        words = [f" --shape {shlex.quote(s)}" for s in self.shapes]
        if self.constants is not None:
            words.append(f" --constants {shlex.quote(self.constants)}")
        if self.weights is not None:
            words.append(f" --weights {shlex.quote(self.weights)}")
        if self.accuracy is not None:
            words.append(f" --accuracy {self.accuracy:g}")
        if self.denormals is not None:
            words.append(f" --denormals {shlex.quote(self.denormals)}")
        if self.excess_precision is False:
            words.append(" --no-excess-precision")
        return "".join(words)

    def build_options(self, target: str | Target) -> BuildOptions:
        """Return the options of a build for a target; errors as for ``BuildOptions.given``."""
        from ...codegen.driver.options import BuildOptions

        wide = self.excess_precision is not False
        return BuildOptions.given(target, wide, self.weights, self.accuracy, self.denormals)

    def importing(self, shapes: Shapes | None) -> ImportOptions:
        """Return how the model is read, with the file of constants; its ``shapes`` as read."""
        from ...autotune.recipe import ImportOptions
        from ..inputs.arrays import read_constants

        return ImportOptions(shapes, read_constants(self.constants))

    def lowered(self, model: str, target: str | Target) -> Lowered:
        """Return the model with these options; raises what ``lower`` raises."""
        return self.lowered_for(model, self.build_options(target))

    def lowered_for(self, model: str, options: BuildOptions) -> Lowered:
        """Return the model with ``build_options`` that were read before."""
        from ...autotune.lowered import lower_for

        return lower_for(options, self.importing(read_shapes(self.shapes)), model)


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
            help="Store constant f32 weights of dots and convolutions as bf16, as int8, int16 or "
            "int24 with a scale per output channel, or as int4 with a scale for each block of 32 "
            "terms; f32 keeps them in spite of --accuracy.",
        ),
        excess_precision_option(excess_precision),
        click.option(
            "--accuracy",
            type=float,
            metavar="BOUND",
            help="Error that schedules and narrow weights may add to rounding, relative to a "
            "result's rms, as 1e-5.",
        ),
        click.option(
            "--denormals",
            metavar="keep|flush",
            help="Keep numbers below the least normal one, or let operations take them for 0, as "
            "many processors are much faster with (default: keep).",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(*args: Any, **named: Any) -> Any:
            recipe = RecipeOptions(**{name: named.pop(name) for name in _OF_A_BUILD})
            return command(*args, recipe=recipe, **named)

        for option in reversed(options):
            gathered = option(gathered)
        return gathered

    return decorate
