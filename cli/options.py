"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def excess_precision_option(default: bool | None = True) -> Callable[[Any], Any]:
    """``--excess-precision / --no-excess-precision``; without a default what is read decides."""
    return click.option(
        "--excess-precision/--no-excess-precision",
        default=default,
        show_default=default is not None,
        help="Keep narrow floats as f32 inside of fused groups, or round after every operation.",
    )
