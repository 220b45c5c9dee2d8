"""Functions that compute a whole group of a model: the user's, or a BLAS's, by name.

A function gets the group's inputs and then its outputs, all NumPy arrays, and writes the outputs.
Inputs are read-only, and no array may be kept: the memory is the executable's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from ..errors import LibraryError
from ..lazy import resolve
from .call import LibraryCall
from .session import checked

GroupFunction: TypeAlias = Callable[..., Any]

INTERPRETER = "interpreter"
"""The target of a ``LibraryCall`` whose ``backend_config`` is a group's text, interpreted."""

_INTERPRET = "..hlo.interp.group:interpret"

_functions: dict[str, GroupFunction | str] = {}  # a string: where to import it from, on first use


def register(name: str, function: GroupFunction) -> None:
    """Register a function under a name, in place of an earlier one."""
    _functions[name] = function


def unregister(name: str) -> None:
    """Forget the function of a name, if there is one."""
    _functions.pop(name, None)


def has(name: str) -> bool:
    """True if a function is registered under the name."""
    return name in _functions


def find(name: str) -> GroupFunction:
    """Return the function of a name; ``LibraryError`` if there is none."""
    found = _functions.get(name)
    if found is None:
        raise LibraryError(
            f"library function {name!r}",
            "it is not registered in this process",
            hint="nestwright.register_library(pattern, function, name=...) registers it",
        )
    if isinstance(found, str):
        module, _, path = found.partition(":")
        value: Any = import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
        found = _functions[name] = value
    return found


def run(call: LibraryCall, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Let a function compute a group's results into ``results``.

    It may also return them, as NumPy's functions do; ``LibraryError`` if what it returns does not
    fit. Its exceptions propagate, with a note.
    """
    try:
        if call.target == INTERPRETER:
            made = resolve(_INTERPRET, __package__)(call.backend_config, operands)
        else:
            made = find(call.target)(*operands, *results)
    except Exception as error:
        error.add_note(f"raised by the library function {call.target!r}")
        raise
    if made is None or any(made is r for r in results):
        return
    for result, value in zip(results, checked(made, call), strict=True):
        np.copyto(result, value)


def place_of(name: str) -> str:
    """Return where another process can import a function from: ``module:name``; "" if nowhere."""
    function = _functions.get(name, "")
    if isinstance(function, str):
        return function
    module = getattr(function, "__module__", None) or type(function).__module__
    path = getattr(function, "__qualname__", getattr(function, "__name__", ""))
    value: Any = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, part, None)
    return f"{module}:{path}" if value is function and module != "__main__" else ""


def for_children() -> str:
    """Return what a child process needs to call the functions that it can import, as text."""
    places = {name: place for name in _functions if (place := place_of(name))}
    return json.dumps({"path": sys.path, "functions": places}) if places else ""


def adopt(text: str) -> None:
    """Register what ``for_children`` of the parent process returned."""
    given: Mapping[str, Any] = json.loads(text) if text else {}
    sys.path += [p for p in given.get("path", []) if p not in sys.path]
    _functions.update(given.get("functions", {}))
