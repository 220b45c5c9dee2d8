"""The steps of a schedule as plain data, printable as Python and serializable to JSON."""

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
class Result:
    """A loop, block or value in a trace, by the name that its step gave it."""

    name: str


Argument: TypeAlias = "bool | int | str | Result | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive call: its arguments, and the names of its results.

    Blocks that are not a result of a step are given by their own names, as strings.
    """

    name: str
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] = ()


def argument_text(a: Argument) -> str:
    """Return an argument as Python source."""
    match a:
        case tuple():
            return f"[{', '.join(map(argument_text, a))}]"
        case Result(name=name):
            return name
        case str():
            return json.dumps(a, ensure_ascii=False)
        case _:
            return repr(a)


def to_json(steps: Sequence[Step]) -> list[Plain]:
    """Return the steps as JSON values: ``[name, [argument, ...], [result, ...]]`` each."""
    return [[s.name, [_to_plain(a) for a in s.arguments], list(s.results)] for s in steps]


def from_json(data: object) -> tuple[Step, ...]:
    """Invert ``to_json``; raise ``ScheduleError`` for any other value."""
    if not isinstance(data, list) or len(data) > MAX_STEPS:
        raise _bad(f"it is not a list of at most {MAX_STEPS} steps")
    return tuple(_step(n, item) for n, item in enumerate(data))


def _bad(why: str) -> ScheduleError:
    return ScheduleError("read the trace", why, hint="a trace is what Trace.to_json gives")


def _to_plain(a: Argument) -> Plain:
    match a:
        case Result(name=name):
            return {"result": name}
        case tuple():
            return [_to_plain(x) for x in a]
        case _:
            return a


def _step(n: int, item: object) -> Step:
    match item:
        case [str(name), list() as args, list() as results] if len(args) <= MAX_ITEMS:
            if len(results) > MAX_ITEMS or not all(map(_is_name, results)):
                raise _bad(f"step {n} has results that are not names")
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
        case {"result": str(name), **rest} if not rest and _is_name(name):
            return Result(name)
        case {"loop": str(name), **rest} if not rest and _is_name(name):
            return Result(name)  # as older traces have it
        case {"block": str(name), **rest} if not rest and len(name) <= MAX_TEXT:
            return name  # in older traces, a block where a loop is allowed too
        case list() if len(a) <= MAX_ITEMS and depth < 4:
            return tuple(_from_plain(n, x, depth + 1) for x in a)
        case _:
            raise _bad(f"step {n} has an argument that no primitive takes")
