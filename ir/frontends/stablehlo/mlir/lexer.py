"""MLIR text cut into tokens, a cursor over them, and errors that name a place.

Types of tensors, literals of them and lists of integers are one token each: they are most of the
text, and each spelling is read once.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ....errors import ParseError, UnsupportedError

MAX_TEXT = 1 << 30
MAX_DEPTH = 64

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    r"(?:\s++|//[^\n]*+)*+"
    r"(?:(tensor<[^<>\n]*(?:<[^<>\n]*(?:<[^<>\n]*>[^<>\n]*)*>[^<>\n]*)*>"
    r"|%(?:\d+|[A-Za-z_$.\-][\w$.\-]*)(?:[#:]\d+)?"
    r"|[A-Za-z_][\w$.]*"
    rf"|{_STRING}"
    r"|\{-\#|\#-\}"
    rf"|[@#!^](?:[\w$.\-]+|{_STRING})"
    r"|0x[0-9A-Fa-f]+|-?\d+(?:\.\d*(?:[eE][+\-]?\d+)?)?|->|::|[-{}()\[\]<>,:=*+?/|;&.])"
    r"|$)"
)
_BLANK = re.compile(r"(?:\s++|//[^\n]*+)*+")
_DENSE = re.compile(rf"<\s*(?:{_STRING}\s*|[^<>\"]*)>")
_INTS = re.compile(r"<[^<>\"]*>")
_CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}
_INTEGER = re.compile(r"-?\d+|0x[0-9A-Fa-f]+")


class Tokens:
    """The tokens of a text, and the position of the reader among them."""

    __slots__ = ("at", "depth", "source", "starts", "text", "tokens")

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.tokens: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        self.depth = 0
        if len(text) > MAX_TEXT:
            what = f"the text has {len(text)} characters, over {MAX_TEXT}"
            raise ParseError("cannot read StableHLO", what, f"{source}:1:1")
        self._cut()

    def _cut(self) -> None:
        text, match, pos, end = self.text, _TOKEN.match, 0, len(self.text)
        tokens, starts = self.tokens, self.starts
        while pos < end:
            found = match(text, pos)
            if found is None:
                blank = _BLANK.match(text, pos)
                at = blank.end() if blank else pos
                self.fail_at(
                    at, "cannot read StableHLO", f"found `{text[at : at + 16].splitlines()[0]}`"
                )
            token, pos = found.group(1), found.end()
            if token is None:
                break
            starts.append(pos - len(token))
            if token in _WITH_BODY and (body := _WITH_BODY[token].match(text, pos)):
                token, pos = token + body.group(), body.end()
            tokens.append(token)
        tokens.append("")
        starts.append(end)

    @property
    def next(self) -> str:
        """The token here; the empty string at the end."""
        return self.tokens[self.at]

    def ahead(self, n: int = 1) -> str:
        """The token ``n`` places further on."""
        return self.tokens[min(self.at + n, len(self.tokens) - 1)]

    @property
    def place(self) -> int:
        """Return where the token here starts, in characters."""
        return self.starts[self.at]

    def where(self, place: int) -> str:
        """``source:line:column`` of a position."""
        line = self.text.count("\n", 0, place) + 1
        return f"{self.source}:{line}:{place - self.text.rfind(chr(10), 0, place)}"

    def fail_at(self, place: int, what: str, why: str = "", hint: str = "") -> NoReturn:
        """Raise a ``ParseError`` about a position in the text."""
        raise ParseError(what, why, self.where(place), hint)

    def refuse_at(self, place: int, what: str, why: str = "", hint: str = "") -> NoReturn:
        """Raise an ``UnsupportedError``: the text is valid, its meaning is out of reach."""
        raise UnsupportedError(what, why, self.where(place), hint)

    def fail(self, what: str, why: str = "", hint: str = "") -> NoReturn:
        """Raise a ``ParseError`` about the token here."""
        self.fail_at(self.place, what, why or f"found {self.found()}", hint)

    def found(self) -> str:
        """Return the token here as a message quotes it."""
        token = self.next
        return f"`{token[:40]}`" if token else "the end of the text"

    def advance(self) -> str:
        """Go past the token here, whatever it is."""
        token = self.tokens[self.at]
        if not token:
            self.fail("the text ends too early")
        self.at += 1
        return token

    def take(self, token: str) -> bool:
        """Go past ``token`` if it is here."""
        if self.tokens[self.at] != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str, where: str) -> None:
        """Go past ``token``; a ``ParseError`` if another is here."""
        if not self.take(token):
            self.fail(f"expected `{token}` {where}")

    def integer(self, of: str) -> int:
        """An integer that fits 64 bits."""
        token = self.next
        if not _INTEGER.fullmatch(token):
            self.fail(f"expected {of}, an integer")
        value = int(token, 0) if token.startswith("0x") and len(token) < 20 else _decimal(token)
        if value is None or not -(1 << 63) <= value < 1 << 64:
            self.fail(f"{of} is out of range", f"`{token[:24]}` does not fit 64 bits")
        self.at += 1
        return value

    def enter(self, what: str) -> None:
        """Count one level of nesting; ``leave`` takes it back."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"{what} is nested too deep", f"over {MAX_DEPTH} levels")

    def leave(self) -> None:
        """Take back one level of nesting."""
        self.depth -= 1

    def balanced(self, what: str) -> str:
        """The text from the opening bracket here to its closing one, both included."""
        start, stack = self.at, list[str]()
        while True:
            token = self.next
            if token in _CLOSING:
                stack.append(_CLOSING[token])
            elif token in (")", "}", "]", ">"):
                if not stack or stack.pop() != token:
                    self.fail(f"{what} has unbalanced brackets", f"stray `{token}`")
            elif not token:
                self.fail_at(self.starts[start], f"{what} has no closing bracket")
            self.at += 1
            if not stack:
                return self.text[self.starts[start] : self.starts[self.at - 1] + 1]


_WITH_BODY = {"dense": _DENSE, "array": _INTS}


def _decimal(token: str) -> int | None:
    return int(token) if len(token) <= 20 and "x" not in token else None


def unquoted(token: str) -> str:
    """Return the text of a quoted token.

    Its escapes (``\\n``, ``\\"``, two hex digits) are resolved.
    """
    inside = token[1:-1]
    if "\\" not in inside:
        return inside
    raw = _ESCAPE.sub(lambda m: _escaped(m.group(1)), inside)
    try:
        return raw.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw


_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.S)


def _escaped(code: str) -> str:
    return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)
