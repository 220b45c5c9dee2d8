"""Reading the attributes that a custom call carries: ``{mode = 65 : ui8, eps = 1.0}``.

It is MLIR's text of a dictionary. XLA prints it without names; then the values are numbered, and
are in the order of their names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping

from .call import Attribute

MAX_DEPTH = 8
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
    | (?P<word>[A-Za-z_][\w.$]*)
    | (?P<mark>[{}\[\]<>(),=:])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def read(text: str) -> Mapping[str, Attribute]:
    """The values of a dictionary's text; empty where the text is none that can be read."""
    if not text.lstrip().startswith("{"):
        return {}
    try:
        reader = _Reader(tuple(_tokens(text)))
        found = reader.dictionary(0)
        return found if reader.at == len(reader.tokens) else {}
    except (ValueError, LookupError, struct.error, OverflowError):
        return {}


def unquoted(text: str) -> str:
    """A string without its quotes, escapes resolved; other text as it is."""
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        return text
    named = {"n": "\n", "t": "\t", "r": "\r"}

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 16)) if len(code) == 2 else named.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1])


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"cannot read {text[at : at + 20]!r}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


class _Reader:
    """Walks over tokens, each (kind, text)."""

    def __init__(self, tokens: tuple[tuple[str, str], ...]) -> None:
        self.tokens = tokens
        self.at = 0

    def next(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == ("mark", text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise ValueError(f"no {text!r}")

    def dictionary(self, depth: int) -> Mapping[str, Attribute]:
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        self.expect("{")
        found: dict[str, Attribute] = {}
        while not self.take("}"):
            if found:
                self.expect(",")
            name = str(len(found))
            ahead = self.tokens[self.at + 1]
            if self.tokens[self.at][0] in ("word", "string") and ahead == ("mark", "="):
                name = unquoted(self.next()[1])
                self.expect("=")
            found[name] = self.value(depth + 1)
        return found

    def value(self, depth: int) -> Attribute:
        """A value; the type that may follow it is dropped."""
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        if self.tokens[self.at] == ("mark", "{"):
            return self.dictionary(depth)
        if self.take("["):
            return self.items("]", depth)
        kind, text = self.next()
        if kind == "string":
            return unquoted(text)
        if kind == "word" and text in ("true", "false"):
            return text == "true"
        if kind == "word" and text == "array":
            self.expect("<")
            self.next()
            return self.items(">", depth) if self.take(":") else self.nothing(">")
        if kind == "number":
            return _number(text, self.next()[1] if self.take(":") else "")
        raise ValueError(f"{text!r} is not a value")

    def nothing(self, end: str) -> tuple[Attribute, ...]:
        self.expect(end)
        return ()

    def items(self, end: str, depth: int) -> tuple[Attribute, ...]:
        found: list[Attribute] = []
        while not self.take(end):
            if found:
                self.expect(",")
            found.append(self.value(depth + 1))
        return tuple(found)


def _number(text: str, kind: str) -> int | float:
    if kind.startswith(("f", "bf")) and "0x" in text:
        width = {"f16": ("H", "e"), "f32": ("I", "f"), "f64": ("Q", "d")}[kind]
        value: float = struct.unpack(width[1], struct.pack(width[0], int(text, 16)))[0]
        return value
    if "0x" in text:
        return int(text, 16)
    if kind.startswith(("f", "bf")) or re.search(r"[.eE]", text):
        return float(text)
    return int(text) if len(text) <= 20 else float(text)
