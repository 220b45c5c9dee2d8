"""Reference semantics of HLO's operations in NumPy.

The definitions of operations name the functions; a module is imported when one of its functions is
first called, so that a graph is read and printed without them.
"""

from typing import TYPE_CHECKING

from ...lazy import LazyModule

if TYPE_CHECKING:
    from . import conv as conv
    from . import indexing as indexing
    from . import linear as linear
    from . import live as live
    from . import pointwise as pointwise
    from . import random as random
    from . import reduce as reduce
    from . import shaping as shaping
    from . import sort as sort
    from . import window as window

_MODULES = {
    "conv",
    "indexing",
    "linear",
    "live",
    "pointwise",
    "random",
    "reduce",
    "shaping",
    "sort",
    "window",
}


def __getattr__(name: str) -> LazyModule:
    """Return a module that has not been imported yet."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return LazyModule(f".{name}", __name__)
