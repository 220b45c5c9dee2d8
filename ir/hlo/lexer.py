"""A cursor over HLO text: tokens, positions, and errors that give line and column."""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import ParseError

MAX_TEXT = 1 << 30
MAX_DEPTH = 64

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*)")
_ATTRIBUTE = re.compile(r"([A-Za-z_][\w\-]*)\s*=\s*")
_INT = re.compile(r"-?\d+(?![\w.])")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.S)
_BOUNDARY = re.compile(r"[(){}\[\],\n\"']|/\*|//")
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class Cursor:
    """A position in a text. Whatever is consumed, the blanks and comments after it are skipped.

    ``filled`` counts the bytes of constants that the text abbreviates.
    """

    __slots__ = ("filled", "pos", "source", "text")

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.pos = 0
        self.filled = 0
        if len(text) > MAX_TEXT:
            self.fail("cannot read HLO", f"the text has {len(text)} characters, over {MAX_TEXT}")
        self.skip()

    def where(self, pos: int | None = None) -> str:
        """Return ``source:line:column`` of a position, the current one by default."""
        at = self.pos if pos is None else pos
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return f"{self.source}:{line}:{column}"

    def fail(self, what: str, why: str = "", hint: str = "", at: int | None = None) -> NoReturn:
        """Raise a ``ParseError`` at position ``at``, the current one by default."""
        raise ParseError(what, why, self.where(at), hint)

    def skip(self) -> None:
        """Skip blanks and comments; ``ParseError`` for a comment without an end."""
        if found := _BLANK.match(self.text, self.pos):
            self.pos = found.end()
        if self.text.startswith("/*", self.pos):
            self.fail("comment has no end", "`/*` without `*/`")

    def at(self, token: str) -> bool:
        """True if ``token`` is next; nothing is consumed."""
        return self.text.startswith(token, self.pos)

    def starts(self, pattern: re.Pattern[str]) -> bool:
        """True if ``pattern`` matches here; nothing is consumed."""
        return pattern.match(self.text, self.pos) is not None

    def take(self, token: str) -> bool:
        """Consume ``token`` if it is next, and return True if it was."""
        if not self.text.startswith(token, self.pos):
            return False
        self.pos += len(token)
        self.skip()
        return True

    def expect(self, token: str, where: str) -> None:
        """Consume ``token``; ``ParseError`` "expected ... {where}" if something else is next."""
        if not self.take(token):
            self.fail(f"expected `{token}` {where}", f"found {self.found()}")

    def found(self) -> str:
        """Return the text that is next, up to 24 characters in quotes, for a message."""
        if self.pos >= len(self.text):
            return "the end of the text"
        return "`" + self.text[self.pos : self.pos + 24].split("\n")[0].rstrip() + "`"

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume what ``pattern`` matches here and return the match, or None."""
        if found := pattern.match(self.text, self.pos):
            self.pos = found.end()
            self.skip()
        return found

    def word(self, word: str) -> bool:
        """Consume ``word`` if it is next and a blank or the end follows; return True if so."""
        end = self.pos + len(word)
        if not self.text.startswith(word, self.pos) or self.text[end : end + 1].strip():
            return False
        self.pos = end
        self.skip()
        return True

    def name(self, of: str) -> str:
        """Consume an identifier and return it without its ``%``; errors call it ``of``."""
        found = self.match(_NAME)
        if found is None:
            self.fail(f"expected {of}", f"found {self.found()}")
        return found.group(1)

    def attribute_name(self) -> str:
        """Consume ``name=`` and return the name."""
        found = self.match(_ATTRIBUTE)
        if found is None:
            self.fail("expected an attribute `name=value`", f"found {self.found()}")
        return found.group(1)

    def integer(self, of: str) -> int:
        """Consume an integer that fits into 64 bits, signed; errors call it ``of``."""
        start = self.pos
        found = self.match(_INT)
        if found is None:
            self.fail(f"expected {of}", f"found {self.found()}")
        if len(found.group()) > 20 or not -(1 << 63) <= (value := int(found.group())) < 1 << 63:
            self.fail(f"{of} is out of range", "it does not fit 64 bits", at=start)
        return value

    def balanced(self, what: str) -> str:
        """Consume the text from the opening bracket here to its closing one, both included."""
        start = self.pos
        self.pos = self._past_bracket(what)
        text = self.text[start : self.pos]
        self.skip()
        return text

    def raw_value(self) -> str:
        """Consume text up to a comma, an unmatched closing bracket or the end of the line."""
        start = self.pos
        while found := _BOUNDARY.search(self.text, self.pos):
            self.pos = found.start()
            match found.group():
                case "(" | "{" | "[":
                    self.pos = self._past_bracket("attribute value")
                case '"' | "'":
                    self.pos = self._past_string()
                case _:
                    break
        else:
            self.pos = len(self.text)
        text = self.text[start : self.pos].rstrip()
        self.skip()
        return text

    def string(self, of: str) -> str:
        """Consume a quoted string and return it without its quotes, escapes not replaced."""
        if self.text[self.pos : self.pos + 1] not in ("'", '"'):
            self.fail(f"expected {of} in quotes", f"found {self.found()}")
        start, self.pos = self.pos, self._past_string()
        text = self.text[start + 1 : self.pos - 1]
        self.skip()
        return text

    def _past_string(self) -> int:
        found = _STRING.match(self.text, self.pos)
        if found is None:
            self.fail("string has no end")
        return found.end()

    def _past_bracket(self, what: str) -> int:
        start, stack, pos = self.pos, [], self.pos
        while found := _BOUNDARY.search(self.text, pos):
            token, pos = found.group(), found.end()
            match token:
                case "(" | "{" | "[":
                    stack.append(_CLOSING[token])
                case ")" | "}" | "]":
                    if stack.pop() != token:
                        self.fail(f"{what} has unbalanced brackets", f"stray `{token}`", at=pos - 1)
                    if not stack:
                        return pos
                case '"' | "'":
                    self.pos = found.start()
                    pos = self._past_string()
                case "/*" | "//":
                    end = _BLANK.match(self.text, found.start())
                    pos = end.end() if end else pos
                case _:
                    pass
        self.fail(f"{what} has no closing `{stack[-1] if stack else '?'}`", at=start)
