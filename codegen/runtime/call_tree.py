"""Trees of a call: a model's own arguments and result, where these are more than flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...ir.errors import ArgumentError

if TYPE_CHECKING:
    from ...ir.frontends.imported import Flatten, Rebuild

HINT = "give the model's own arguments, structured as those it was lowered for, or their leaves"


@dataclass(frozen=True, slots=True)
class CallTree:
    """How a model's own calls look; a side that is None takes or gives flat arrays.

    Beside the model's own arguments their leaves are taken, by place or by name; with
    ``leaves_first`` they are what it is usually called with.
    """

    flatten: Flatten | None = None
    rebuild: Rebuild | None = None
    leaves_first: bool = False

    @property
    def after_leaves(self) -> bool:
        """True if a call that runs for leaves needs nothing of this."""
        return self.leaves_first and self.rebuild is None

    def call(
        self, flat: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Run a function of flat arrays for such arguments; results in ``out=`` stay flat."""
        results = self._results(flat, args, named)
        if self.rebuild is None or named.get("out") is not None:
            return results
        return self.rebuild(results if isinstance(results, tuple) else (results,))

    def _results(
        self, flat: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        if self.leaves_first:
            with suppress(ArgumentError):
                return flat(*args, **named)
        given = {k: v for k, v in named.items() if k != "out"}
        found = self.flatten(args, given) if self.flatten is not None else None
        if found is None:
            return self._of_leaves(flat, args, named)
        return flat(*found, **{k: v for k, v in named.items() if k == "out"})

    def _of_leaves(
        self, flat: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        try:
            return flat(*args, **named)
        except ArgumentError as e:
            hint = e.hint if self.flatten is None else e.hint or HINT
            raise replace(e, hint=hint) from None
