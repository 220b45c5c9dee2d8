"""Errors of scheduling primitives: what was asked, why not, where, and what would work."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..ir.errors import NestwrightError
from ..ir.loop.names import called
from ..ir.loop.nodes import For, Func, Stmt
from ..ir.loop.printer import lines, loop_names

T = TypeVar("T")


@dataclass(eq=False)
class ScheduleError(NestwrightError):
    """A primitive was refused; the schedule is unchanged.

    ``nest`` is the function at that point, or its text already marked. The first lines of the
    statements in ``blame`` are marked with ``>``.
    """

    nest: Func | str = ""
    blame: tuple[Stmt, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as text: nodes compare by identity, which does not survive pickling."""
        return type(self), (self.what, self.why, self.where, self.hint, self.text())

    def text(self) -> str:
        """Return the nest with the blamed lines marked."""
        if isinstance(self.nest, str):
            return self.nest
        rows = []
        for n, (text, node) in enumerate(lines(self.nest), 1):
            mark = ">" if any(node is b for b in self.blame) else " "
            rows.append(f"  {mark} {n:3} | {text}")
        return "\n".join(rows)

    def __str__(self) -> str:
        rows = [f"cannot {self.what}: {self.why}" if self.why else f"cannot {self.what}"]
        if text := self.text():
            rows.append(text)
        if self.hint:
            rows.append(f"  hint: {self.hint}")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rewrite is illegal, and what would work; the checks in ``legality`` return it."""

    why: str
    blame: tuple[Stmt, ...] = ()
    hint: str = field(kw_only=True)


def did_you_mean(name: str, have: Iterable[str], alike: float = 0.6) -> str:
    """Return a hint with the closest name; empty if none is close."""
    near = difflib.get_close_matches(name, list(have), n=1, cutoff=alike)
    return f"did you mean `{near[0]}`?" if near else ""


def require(func: Func, asked: str, *reasons: Reason | None) -> None:
    """Raise ``ScheduleError`` with the first reason that is not None."""
    for reason in reasons:
        if reason is not None:
            raise _refusal(func, asked, reason)


def obtain(func: Func, asked: str, found: T | Reason) -> T:
    """Return what an analysis found, or raise ``ScheduleError`` with the reason it gave."""
    if isinstance(found, Reason):
        raise _refusal(func, asked, found)
    return found


def _refusal(func: Func, asked: str, reason: Reason) -> ScheduleError:
    why, hint = (_as_printed(t, func, reason.blame) for t in (reason.why, reason.hint))
    return ScheduleError(asked, why, "", hint, func, reason.blame)


def _as_printed(text: str, func: Func, blame: Sequence[Stmt]) -> str:
    """Return ``text`` with the blamed loops named as they print: numbered, if names repeat."""
    loops = [x for x in blame if isinstance(x, For)]
    printed = loop_names(func) if loops else {}
    for x in loops:
        name = called(x)
        if [called(y) for y in loops].count(name) == 1:
            text = re.sub(rf"(?<=[`\"]){re.escape(name)}(?=[`\"])", printed.get(x.var, name), text)
    return text
