"""Library functions registered for groups: patterns over a group's computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, overload

from ...errors import ArgumentError
from ...library import functions
from ...library.functions import GroupFunction
from ..nodes import Computation
from ..ops.registry import is_known
from ..text import parse
from ..text.canonical import canonical_text, form_and_sizes

Pattern: TypeAlias = str | Callable[[Computation], bool]
"""An opcode, HLO text, or a predicate of a group's computation."""

_matches: dict[str, Callable[[Computation], bool]] = {}


@overload
def register_library(pattern: Pattern, function: GroupFunction, *, name: str = ...) -> Any: ...
@overload
def register_library(
    pattern: Pattern, function: None = ..., *, name: str = ...
) -> Callable[[GroupFunction], GroupFunction]: ...
def register_library(
    pattern: Pattern, function: GroupFunction | None = None, *, name: str = ""
) -> Any:
    """Offer ``function`` for groups that match ``pattern``; tuning measures it beside kernels.

    ``pattern`` is an opcode (``"dot"``: the group is this instruction alone), the text of an HLO
    module (the group's instructions are its entry's, with the same types, ranks and attributes; the
    sizes may be others), or a predicate of the group's ``Computation``. The function takes the
    group's inputs and outputs as NumPy arrays and writes the outputs. ``name`` identifies it in
    logs; by default its own. Without ``function`` this is a decorator. Returns the function.
    """
    matches = _matcher(pattern)

    def register(given: GroupFunction) -> GroupFunction:
        if not callable(given):
            raise ArgumentError("a library function", f"{given!r} is not a function")
        if not isinstance(name, str):
            raise ArgumentError("a library function", f"its name must be text, not {name!r}")
        called = name or getattr(given, "__name__", "")
        if not called:
            raise ArgumentError("a library function", "it has no name", hint='name="..."')
        _matches[called] = matches
        functions.register(called, given)
        return given

    return register if function is None else register(function)


def unregister_library(name: str) -> None:
    """Forget a library function, if there is one of this name."""
    _matches.pop(name, None)
    functions.unregister(name)


def matching(c: Computation) -> tuple[str, ...]:
    """Return the names of the registered functions that compute a group, in order."""
    return tuple(name for name, matches in _matches.items() if matches(c))


def _matcher(pattern: Pattern) -> Callable[[Computation], bool]:
    if callable(pattern):
        return pattern
    if not isinstance(pattern, str):
        raise ArgumentError(
            f"a library pattern of type {type(pattern).__name__}",
            "it is an opcode, HLO text, or a predicate of a group's computation",
        )
    if is_known(pattern):
        return lambda c: [i.opcode for i in c.instructions if i.opcode != "parameter"] == [pattern]
    if not pattern.lstrip().startswith("HloModule"):
        raise ArgumentError(
            f"the library pattern {pattern[:40]!r}",
            "no such opcode",
            hint='an opcode such as "dot", or the text of a module, which begins with HloModule',
        )
    wanted = _form(parse(pattern, "<library pattern>").entry)
    return lambda c: _form(c) == wanted


def _form(c: Computation) -> str:
    """Return the canonical text without sizes; their number stays."""
    form, _ = form_and_sizes(canonical_text(c))
    return form
