"""The arrays that were frozen into an executable, which does not keep them alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ...ir.errors import ArtifactError

LARGE = 1 << 20  # bytes of an array that is not kept


class FrozenWeights:
    """References to frozen arrays, for stages of compilation that are shown later.

    An executable has its weights in its own layout. Large arrays that the caller drops are freed,
    so that they are in memory once.
    """

    def __init__(self, constants: Mapping[int | str, Any] | None) -> None:
        """Refer to the arrays of ``constants``, by parameter; small ones are kept."""
        self._held = {name: _reference(value) for name, value in (constants or {}).items()}

    def arrays(self) -> dict[int | str, Any]:
        """Return the arrays; ``ArtifactError`` if one of them is gone."""
        found = {name: get() for name, get in self._held.items()}
        gone = [name for name, value in found.items() if value is None]
        if gone:
            raise ArtifactError(
                f"the array that was frozen as parameter {gone[0]!r} is gone",
                "an executable does not keep the arrays that it was built from",
                hint="keep them for as long as you look at stages, or use `nestwright show`",
            )
        return found


def _reference(value: Any) -> Callable[[], Any]:
    if getattr(value, "nbytes", 0) >= LARGE:
        try:
            return weakref.ref(value)
        except TypeError:  # its type allows none
            pass
    return lambda: value
