"""Parameters of primitives: checking, conversion and description by their annotations."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from ..ir.loop.nodes import Func
from .cursor import BlockRef, LoopRef, loop_named, nest
from .errors import ScheduleError


class ArgumentMismatch(Exception):
    """A value does not match the annotation of a parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a primitive; ``variadic`` if it is ``*name``, whose default is ``()``."""

    name: str
    hint: object
    default: object = inspect.Parameter.empty
    variadic: bool = False

    @property
    def optional(self) -> bool:
        """True if a call may leave it out."""
        return self.default is not inspect.Parameter.empty

    def convert(self, func: Func, value: object) -> object:
        """Convert an argument for the primitive; raise ``ArgumentMismatch`` if it cannot be."""
        return convert(func, self.hint, value)

    def type_text(self) -> str:
        """Return the parameter as in the method's signature."""
        star = "*" if self.variadic else ""
        hint = get_args(self.hint)[0] if self.variadic else self.hint
        text = f"{star}{self.name}: {type_text(hint)}"
        return f"{text} = {_literal(self.default)}" if self.optional and not star else text


def _literal(value: object) -> str:
    return repr(value.value if isinstance(value, Enum) else value)


def convert(func: Func, hint: object, value: object) -> object:
    """Convert ``value`` for a parameter annotated with ``hint``.

    A loop may be given by the name that it prints by in ``func``, a block by its name, a member of
    an enum by its value, a tuple as any sequence, and an integer as a NumPy integer.
    """
    if get_origin(hint) in (Union, UnionType):
        return _one_of(func, get_args(hint), value)
    if get_origin(hint) is tuple:
        return _sequence(func, get_args(hint), value)
    if hint is LoopRef and isinstance(value, str):
        return loop_named(func, value)
    if hint is BlockRef and isinstance(value, str):
        return BlockRef(value)
    if hint is int and hasattr(value, "__index__") and not isinstance(value, bool):
        return value if isinstance(value, int) else operator.index(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, value)
    if isinstance(hint, type) and hint is not int and isinstance(value, hint):
        return value
    raise ArgumentMismatch


def _one_of(func: Func, hints: Sequence[object], value: object) -> object:
    """Convert for a union; a name is a block's if there is such a block, else a loop's."""
    if isinstance(value, str) and LoopRef in hints and value not in nest(func).blocks:
        return loop_named(func, value)
    for hint in hints:
        try:
            return convert(func, hint, value)
        except ArgumentMismatch:
            continue
    raise ArgumentMismatch


def _sequence(func: Func, hints: Sequence[object], value: object) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentMismatch
    if hints[-1] is Ellipsis:
        return tuple(convert(func, hints[0], x) for x in value)
    if len(value) != len(hints):
        raise ArgumentMismatch
    return tuple(convert(func, h, x) for h, x in zip(hints, value, strict=True))


def _member(hint: type[Enum], value: object) -> Enum:
    try:
        return hint(value)
    except ValueError:
        raise ArgumentMismatch from None


def type_text(hint: object) -> str:
    """Return the type of the method's parameter as text: references may also be names, etc."""
    if get_origin(hint) in (Union, UnionType):
        parts = [x for h in get_args(hint) for x in type_text(h).split(" | ")]
        return " | ".join(dict.fromkeys(parts))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return f"Sequence[{type_text(first)}]"
        return f"tuple[{', '.join(map(type_text, (first, *rest)))}]"
    assert isinstance(hint, type)
    name = "None" if hint is NoneType else hint.__name__
    named = hint in (LoopRef, BlockRef) or issubclass(hint, Enum)
    return f"{name} | str" if named else name


_WORDS = {
    LoopRef: "a loop",
    BlockRef: "a block",
    int: "an integer",
    bool: "True or False",
    str: "a string",
    NoneType: "None",
}


def describe_type(hint: object) -> str:
    """Describe in words the values that a parameter takes."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(describe_type, get_args(hint)))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return f"a sequence, each item {describe_type(first)}"
        return f"({', '.join(map(describe_type, (first, *rest)))})"
    assert isinstance(hint, type)
    if issubclass(hint, Enum):
        return "one of " + ", ".join(repr(m.value) for m in hint)
    return _WORDS.get(hint) or hint.__name__


def mismatch_error(call: str, usage: str, p: Parameter, value: object) -> ScheduleError:
    """Return the error for an argument that does not match its parameter."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ScheduleError(
        call, f"`{p.name}` must be {describe_type(p.hint)}, not {shown}", hint=usage
    )
