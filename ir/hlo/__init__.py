"""HLO graph IR: nodes, text, verifier, interpreter, passes, FuseOps.

``parse`` and ``show`` are loaded on first use, so that the nodes alone cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .text import parse as parse
    from .text import show as show

__all__ = ["parse", "show"]


def __getattr__(name: str) -> object:
    """Load ``parse`` or ``show`` on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(".text", __name__), name)
