"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from ..ir.errors import ArgumentError

SHAPE_HINT = "--shape input=1x3x224x224, or --shape 0=8x? for the first input"
MOST_DIGITS = 18  # of a size, which has to fit 64 bits


class ModelCommand(click.Command):
    """A command that takes a MODEL; its help ends with the formats that are read."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the formats, as the rows of the front-ends have them now."""
        from ..ir.frontends.registry import readable_files

        self.epilog = f"MODEL is a file of {readable_files()}."
        super().format_epilog(ctx, formatter)


def shape_option() -> Callable[[Any], Any]:
    """``--shape input=1x3x224x224``, as often as there are inputs; ``read_shapes`` reads them."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=SIZES",
        help="Sizes of an input that the model leaves open, as input=1x3x224x224; repeatable.",
    )


def read_shapes(given: Sequence[str]) -> dict[str | int, tuple[int | None, ...]] | None:
    """Return the sizes of inputs by name or place; ``?`` is a size that the model knows.

    ``ArgumentError`` for what is not ``NAME=SIZES`` and for a size below zero.
    """
    found: dict[str | int, tuple[int | None, ...]] = {}
    for text in given:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.split("x") if sizes else []
        if not equals or not name or not all(p == "?" or _is_size(p) for p in parts):
            raise ArgumentError(f"--shape {text}", "it is not NAME=SIZES", hint=SHAPE_HINT)
        which = int(name) if _is_size(name) else name
        found[which] = tuple(None if p == "?" else int(p) for p in parts)
    return found or None


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def weights_option() -> Callable[[Any], Any]:
    """``--weights bf16|int8``."""
    return click.option(
        "--weights",
        help="Store constant f32 weights of dots and convolutions as bf16, or as int8 with a scale "
        "per output channel.",
    )


def accuracy_option() -> Callable[[Any], Any]:
    """``--accuracy``: the error that schedules may add to rounding."""
    return click.option(
        "--accuracy",
        type=float,
        metavar="BOUND",
        help="Error that schedules may add to rounding, relative to a result's rms, as 1e-5.",
    )


def excess_precision_option(default: bool | None = True) -> Callable[[Any], Any]:
    """``--excess-precision / --no-excess-precision``; without a default what is read decides."""
    return click.option(
        "--excess-precision/--no-excess-precision",
        default=default,
        show_default=default is not None,
        help="Keep narrow floats as f32 inside fused groups, or round after every operation.",
    )
