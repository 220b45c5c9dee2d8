"""Two texts side by side: aligned lines, changed words marked, unchanged parts folded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markupsafe import Markup, escape

CONTEXT = 2  # unchanged lines that are shown around a change
ALIKE = 0.5  # similarity of two lines from which their words are compared
MOST = 400  # lines of a text up to which it is compared
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

Kind: TypeAlias = Literal["same", "changed", "left", "right", "fold"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the comparison; ``left`` and ``right`` are escaped, one is empty where only one is.

    In a ``fold`` both are empty, and ``count`` unchanged lines are left out.
    """

    kind: Kind
    left: Markup
    right: Markup
    count: int = 0


def aligned(left: str, right: str) -> tuple[Pair, ...]:
    """Return the rows of a comparison of two texts, line by line; empty if they are equal."""
    a, b = left.splitlines()[:MOST], right.splitlines()[:MOST]
    if a == b:
        return ()
    codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    rows: list[Pair] = []
    for n, (code, i, j, k, m) in enumerate(codes):
        if code == "equal":
            rows += _unchanged(a[i:j], first=n == 0, last=n == len(codes) - 1)
        else:
            rows += _changed(a[i:j], b[k:m])
    return tuple(rows)


def _unchanged(lines: Sequence[str], *, first: bool, last: bool) -> Iterator[Pair]:
    """Yield lines of the context, and a fold for those between."""
    before, after = (0 if first else CONTEXT), (0 if last else CONTEXT)
    hidden = len(lines) - before - after
    if hidden < 2:
        before, hidden = len(lines), 0
    for line in lines[:before]:
        yield Pair("same", escape(line), escape(line))
    if hidden:
        yield Pair("fold", Markup(""), Markup(""), hidden)
        for line in lines[before + hidden :]:
            yield Pair("same", escape(line), escape(line))


def _changed(a: Sequence[str], b: Sequence[str]) -> Iterator[Pair]:
    for x, y in zip(a, b, strict=False):
        yield Pair("changed", *_marked(x, y))
    for x in a[len(b) :]:
        yield Pair("left", escape(x), Markup(""))
    for y in b[len(a) :]:
        yield Pair("right", Markup(""), escape(y))


def _marked(left: str, right: str) -> tuple[Markup, Markup]:
    """Return both lines; if they are alike, with the words marked that the other does not have."""
    a, b = _WORDS.findall(left), _WORDS.findall(right)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < ALIKE:
        return escape(left), escape(right)
    codes = matcher.get_opcodes()
    sides = (
        [(code, "".join(a[i:j])) for code, i, j, _, _ in codes],
        [(code, "".join(b[k:m])) for code, _, _, k, m in codes],
    )
    found = [
        Markup("").join(
            escape(text) if code == "equal" else Markup("<mark>{}</mark>").format(text)
            for code, text in side
            if text
        )
        for side in sides
    ]
    return found[0], found[1]
