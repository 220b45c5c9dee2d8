"""Lines about the processors that a built model is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..codegen.runtime.executable import Executable


def variant_lines(exe: Executable) -> Iterator[str]:
    """Yield a line for each variant: in force, could be, or what this machine lacks for it."""
    for row in exe.variants:
        fits = "in force" if row.in_force and not row.missing else "fits"
        state = f"this machine lacks {', '.join(row.missing)}" if row.missing else fits
        yield f"  variant {row.target}: {state}"
