"""The options of ``torch.compile(model, backend="nestwright", options={...})``, checked."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from ...ir.errors import ArgumentError

_Kinds: TypeAlias = tuple[type, ...]
TRIALS = 200  # of mode="max-autotune"


@dataclass(frozen=True, slots=True)
class Settings:
    """How graphs are compiled.

    ``target``, ``log``, ``weights``, ``accuracy``, ``denormals`` and ``excess_precision`` are those
    of ``nestwright.build``. ``tune`` is a number of trials, spent on each graph when it is first
    compiled; its records go to ``log``, or to the default log. ``freeze`` compiles parameters and
    buffers in as constants where nothing asks for gradients. Clusters of fewer than
    ``min_operators`` operators stay in eager mode. Of a graph whose sizes torch leaves open at most
    ``sizes`` combinations stay compiled.
    """

    target: str = "cpu"
    log: str | os.PathLike[str] | None = None
    tune: int = 0
    weights: str | None = None
    accuracy: float | None = None
    denormals: str | None = None
    excess_precision: bool = True
    freeze: bool = True
    min_operators: int = 2
    sizes: int = 64


def _kinds(hint: Any) -> _Kinds:
    """Return the classes of a field's values; a float may be written as an int."""
    found = (get_origin(part) or part for part in get_args(hint) or (hint,))
    return tuple(kind for x in found for kind in ((float, int) if x is float else (x,)))


_KINDS: Mapping[str, _Kinds] = {n: _kinds(h) for n, h in get_type_hints(Settings).items()}
_LEAST: Mapping[str, int] = {"tune": 0, "min_operators": 0, "sizes": 1}
_MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"tune": TRIALS},
    "max-autotune-no-cudagraphs": {"tune": TRIALS},
}
_WHERE = 'torch.compile(backend="nestwright")'


def parse(mode: object = None, options: object = None) -> Settings:
    """Return the settings of torch's ``mode`` and ``options``.

    ``ArgumentError`` for an option that is unknown or of another type, and for an unknown mode.
    """
    if mode is not None and mode not in _MODES:
        raise ArgumentError(f"mode={mode!r}", f"the modes are {', '.join(_MODES)}", _WHERE)
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise ArgumentError(f"options of type {type(given).__name__}", "expected a dict", _WHERE)
    for name, value in given.items():
        _check(name, value)
    return replace(Settings(), **{**_MODES.get(str(mode), {}), **given})


def _check(name: str, value: object) -> None:
    if name not in _KINDS:
        near = difflib.get_close_matches(str(name), _KINDS, 1)
        known = ", ".join(f.name for f in fields(Settings))
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(f"option {name!r}", f"the options are {known}", _WHERE, hint)
    kinds = _KINDS[name]
    is_bool = isinstance(value, bool)
    if not isinstance(value, kinds) or (is_bool and bool not in kinds):
        wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        raise ArgumentError(f"option {name}={value!r}", f"expected {wanted}", _WHERE)
    least = _LEAST.get(name)
    if least is not None and isinstance(value, int) and value < least:
        raise ArgumentError(
            f"option {name}={value!r}", f"expected a number from {least} on", _WHERE
        )
