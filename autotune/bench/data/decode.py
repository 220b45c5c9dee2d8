"""Plain JSON data back into frozen dataclasses, checked by their annotations."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Mismatch(ValueError):
    """A value that its annotation does not allow; the text says where and which."""


def decoded(kind: type[T], value: object, where: str = "") -> T:
    """Return the dataclass ``kind`` of an object of its fields.

    ``Mismatch`` for missing or unknown fields, and for values of another type. ``where`` is the
    place of the value, for messages.
    """
    if not isinstance(value, dict):
        raise Mismatch(f"{where or 'it'} is no object")
    known: Any = kind
    hints = _hints(known)
    if unknown := sorted(value.keys() - hints.keys()):
        raise Mismatch(f"{where or 'it'} has an unknown field {unknown[0]!r}")
    found = {}
    for f in fields(known):
        place = f"{where}.{f.name}" if where else f.name
        if f.name in value:
            found[f.name] = _value(hints[f.name], value[f.name], place)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise Mismatch(f"{place} is missing")
    return kind(**found)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: object, where: str) -> Any:
    """Return a value of an annotated type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise Mismatch(f"{where} is no list")
        return tuple(_value(args[0], v, f"{where}[{n}]") for n, v in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise Mismatch(f"{where} is no object")
        return {k: _value(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is list:
        if not isinstance(value, list):
            raise Mismatch(f"{where} is no list")
        return [_value(args[0], v, f"{where}[{n}]") for n, v in enumerate(value)]
    if is_dataclass(hint):
        return decoded(hint, value, where)  # type: ignore[arg-type]
    return _leaf(hint, value, where)


def _one_of(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [k for k in kinds if k is not type(None)]
    if len(others) == 1:
        return _value(others[0], value, where)
    if _is_plain(value):
        return value  # the union of all that JSON has
    raise Mismatch(f"{where} is no JSON value")


def _is_plain(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case None | bool() | int() | str():
            return True
        case list():
            return all(map(_is_plain, value))
        case dict():
            return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
        case _:
            return False


def _leaf(hint: Any, value: object, where: str) -> Any:
    """Return a number or text; an integer serves as a float, and a bool as neither."""
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise Mismatch(f"{where} is no {_NAMES.get(hint, hint)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Mismatch(f"{where} is not finite")
    return value


_NAMES: Mapping[Any, str] = {float: "number", int: "whole number", str: "text", bool: "truth value"}
