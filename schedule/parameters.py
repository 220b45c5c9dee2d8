"""What a primitive's parameter takes, by its annotation: how it is checked, spelled and worded."""

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


class MisfitError(Exception):
    """A value is not of the kind that a parameter takes."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a primitive; ``variadic`` where it is ``*name``."""

    name: str
    hint: object
    default: object = inspect.Parameter.empty
    variadic: bool = False

    @property
    def optional(self) -> bool:
        """True if a call may leave it out."""
        return self.default is not inspect.Parameter.empty

    def fitted(self, func: Func, value: object) -> object:
        """The argument as the primitive wants it; ``MisfitError`` if it is of another kind."""
        return fitted(func, self.hint, value)

    def spelled(self) -> str:
        """The parameter as it stands in the signature of the method."""
        star = "*" if self.variadic else ""
        hint = get_args(self.hint)[0] if self.variadic else self.hint
        text = f"{star}{self.name}: {spelled(hint)}"
        return f"{text} = {_literal(self.default)}" if self.optional else text


def _literal(value: object) -> str:
    return repr(value.value if isinstance(value, Enum) else value)


def fitted(func: Func, hint: object, value: object) -> object:
    """``value`` as a parameter annotated with ``hint`` takes it.

    Loops may be given by a name that is unique in ``func``, blocks by theirs, members of an enum
    by their values, tuples as any sequence, and integers as what NumPy makes of them.
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
    raise MisfitError


def _one_of(func: Func, hints: Sequence[object], value: object) -> object:
    """A name is a block's if there is such a block, else a loop's."""
    if isinstance(value, str) and LoopRef in hints and value not in nest(func).blocks:
        return loop_named(func, value)
    for hint in hints:
        try:
            return fitted(func, hint, value)
        except MisfitError:
            continue
    raise MisfitError


def _sequence(func: Func, hints: Sequence[object], value: object) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise MisfitError
    if hints[-1] is Ellipsis:
        return tuple(fitted(func, hints[0], x) for x in value)
    if len(value) != len(hints):
        raise MisfitError
    return tuple(fitted(func, h, x) for h, x in zip(hints, value, strict=True))


def _member(hint: type[Enum], value: object) -> Enum:
    try:
        return hint(value)
    except ValueError:
        raise MisfitError from None


def spelled(hint: object) -> str:
    """The type that a method's parameter has: names where references are wanted, and so on."""
    if get_origin(hint) in (Union, UnionType):
        parts = [x for h in get_args(hint) for x in spelled(h).split(" | ")]
        return " | ".join(dict.fromkeys(parts))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return f"Sequence[{spelled(first)}]"
        return f"tuple[{', '.join(map(spelled, (first, *rest)))}]"
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


def worded(hint: object) -> str:
    """What a parameter takes, in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(worded, get_args(hint)))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return f"a sequence of which each is {worded(first)}"
        return f"({', '.join(map(worded, (first, *rest)))})"
    assert isinstance(hint, type)
    if issubclass(hint, Enum):
        return "one of " + ", ".join(repr(m.value) for m in hint)
    return _WORDS.get(hint) or hint.__name__


def misfit(call: str, usage: str, p: Parameter, value: object) -> ScheduleError:
    """The refusal of an argument that is not of the kind that its parameter takes."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ScheduleError(call, f"`{p.name}` is {worded(p.hint)}, not {shown}", hint=usage)
