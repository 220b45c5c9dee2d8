"""Locations of MLIR text, ``loc("jit(f)/add"("f.py":3:1))``, and the metadata HLO keeps of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from ....hlo.nodes import Metadata
from .lexer import MAX_DEPTH, Tokens, unquoted
from .syntax import Location

MAX_PARTS = 256  # of one location that are looked at

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SPECIAL = re.compile(r'(["\\])')


def parse_location(tokens: Tokens) -> Location:
    """``loc(..)``"""
    tokens.expect("loc", "before a location")
    tokens.expect("(", "after `loc`")
    found = _inside(tokens)
    tokens.expect(")", "after a location")
    return found


def _inside(tokens: Tokens) -> Location:
    token = tokens.next
    if token.startswith("#"):
        tokens.advance()
        return Location(alias=token)
    if token.startswith('"'):
        return _named(tokens)
    match token:
        case "unknown":
            tokens.advance()
            return Location()
        case "loc":
            return parse_location(tokens)
        case "callsite":
            tokens.advance()
            tokens.expect("(", "after `callsite`")
            tokens.enter("location")
            callee = _inside(tokens)
            tokens.expect("at", "between the locations of a call")
            caller = _inside(tokens)
            tokens.leave()
            tokens.expect(")", "after the locations of a call")
            return Location(inner=(callee, caller))
        case "fused":
            return _fused(tokens)
        case _:
            tokens.fail("expected a location")


def _named(tokens: Tokens) -> Location:
    """``"file":line:column [to ..]`` or ``"name"`` or ``"name"(location)``"""
    text = unquoted(tokens.advance())
    if tokens.take(":"):
        line = tokens.integer("a line")
        if tokens.take(":"):
            tokens.integer("a column")
        if tokens.take("to"):
            while tokens.take(":") or tokens.next.isdecimal():
                tokens.integer("a line or column")
        return Location(file=text, line=line)
    if not tokens.take("("):
        return Location(name=text)
    tokens.enter("location")
    inner = _inside(tokens)
    tokens.leave()
    tokens.expect(")", "after a location")
    return Location(name=text, inner=(inner,))


def _fused(tokens: Tokens) -> Location:
    tokens.advance()
    if tokens.next == "<":
        tokens.balanced("location")
    tokens.expect("[", "after `fused`")
    tokens.enter("location")
    parts: list[Location] = []
    while not tokens.take("]"):
        if parts:
            tokens.expect(",", "between locations")
        parts.append(_inside(tokens))
    tokens.leave()
    return Location(inner=tuple(parts))


class Origins:
    """Metadata of locations, each alias resolved once."""

    def __init__(self, aliases: Mapping[str, Location]) -> None:
        self.aliases = aliases
        self.known: dict[Location, Metadata | None] = {}

    def metadata(self, location: Location | None) -> Metadata | None:
        """Name, file and line: the outermost name, the innermost frame of a call."""
        if location is None:
            return None
        if location not in self.known:
            self.known[location] = self._read(location)
        return self.known[location]

    def _read(self, location: Location) -> Metadata | None:
        name, file, line = "", "", 0
        for part in islice(self._walk(location, 0), MAX_PARTS):
            name = name or part.name
            if part.file:
                file, line = part.file, part.line
                break
        if not (name or file):
            return None
        return Metadata(op_name=_escaped(name), source_file=_escaped(file), source_line=line)

    def _walk(self, location: Location, depth: int) -> Iterator[Location]:
        for _ in range(MAX_DEPTH):
            if not location.alias:
                break
            location = self.aliases.get(location.alias, Location())
        yield location
        if depth < MAX_DEPTH:
            for part in location.inner:
                yield from self._walk(part, depth + 1)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", text))
