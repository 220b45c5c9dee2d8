"""The steps of a schedule as plain data: they print as Python and go through JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .errors import ScheduleError

Plain: TypeAlias = "bool | int | str | list[Plain] | dict[str, Plain] | None"

MAX_STEPS = 4096
MAX_ITEMS = 64
MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in a trace: the name of the result that it was."""

    name: str


@dataclass(frozen=True, slots=True)
class BlockName:
    """A block in a trace, where a loop could stand as well."""

    name: str


Argument: TypeAlias = "bool | int | str | Loop | BlockName | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive, its arguments, and the names of the loops that it gave."""

    name: str
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] = ()

    def show(self) -> str:
        """A line of Python that does it again."""
        args = self.arguments
        if self.name in ("fuse", "reorder") and args and isinstance(args[0], tuple):
            args = args[0]
        call = f"sch.{self.name}({', '.join(map(_text, args))})"
        if not self.results:
            return call
        names = ", ".join(self.results)
        if self.name != "fuse" and len(self.results) == 1:
            names = f"({names},)"
        return f"{names} = {call}"


def _text(a: Argument) -> str:
    match a:
        case tuple():
            return f"[{', '.join(map(_text, a))}]"
        case Loop(name=name):
            return name
        case BlockName(name=text) | str(text):
            return json.dumps(text, ensure_ascii=False)
        case _:
            return repr(a)


def to_json(steps: Sequence[Step]) -> list[Plain]:
    """Lists, dicts, strings and numbers: ``[name, [argument, ...], [result, ...]]`` each."""
    return [[s.name, [_to_plain(a) for a in s.arguments], list(s.results)] for s in steps]


def from_json(data: object) -> tuple[Step, ...]:
    """The inverse of ``to_json``; a ``ScheduleError`` for anything else."""
    if not isinstance(data, list) or len(data) > MAX_STEPS:
        raise _bad(f"it is no list of at most {MAX_STEPS} steps")
    return tuple(_step(n, item) for n, item in enumerate(data))


def _bad(why: str) -> ScheduleError:
    return ScheduleError("read the trace", why)


def _to_plain(a: Argument) -> Plain:
    match a:
        case Loop(name=name):
            return {"loop": name}
        case BlockName(name=name):
            return {"block": name}
        case tuple():
            return [_to_plain(x) for x in a]
        case _:
            return a


def _step(n: int, item: object) -> Step:
    match item:
        case [str(name), list() as args, list() as results] if len(args) <= MAX_ITEMS:
            if len(results) > MAX_ITEMS or not all(map(_is_name, results)):
                raise _bad(f"step {n} has results that are no names")
            return Step(
                name,
                tuple(_from_plain(n, a, 0) for a in args),
                tuple(str(r) for r in results),
            )
        case _:
            raise _bad(f"step {n} is not [name, arguments, results]")


def _is_name(x: object) -> bool:
    return isinstance(x, str) and len(x) <= 64 and x.isascii() and x.isidentifier()


def _from_plain(n: int, a: object, depth: int) -> Argument:
    match a:
        case None | bool():
            return a
        case int() if abs(a) < 2**62:
            return a
        case str() if len(a) <= MAX_TEXT:
            return a
        case {"loop": str(name), **rest} if not rest and _is_name(name):
            return Loop(name)
        case {"block": str(name), **rest} if not rest and len(name) <= MAX_TEXT:
            return BlockName(name)
        case list() if len(a) <= MAX_ITEMS and depth < 4:
            return tuple(_from_plain(n, x, depth + 1) for x in a)
        case _:
            raise _bad(f"step {n} has an argument that no primitive takes")
