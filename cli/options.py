"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class ModelCommand(click.Command):
    """A command that takes a MODEL; its help ends with the formats that are read."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the formats, as the rows of the front-ends have them now."""
        from ..ir.frontends.registry import readable_files

        self.epilog = f"MODEL is a file of {readable_files()}."
        super().format_epilog(ctx, formatter)


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
