"""Attributes of MLIR text: numbers, strings, lists, dictionaries, literals, dialects' own.

What a reading gives, by kind: ``int``, ``float``, ``bool``, ``str``, ``Word``, ``Symbol``,
``tuple`` (lists and ``array<..>``), ``Dictionary``, ``Dense``, ``Dialect``, ``Location`` or a type.
``unit`` is True.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from ....errors import ParseError
from ....hlo.nodes import ConvLabels, Shape
from .lexer import Tokens, unquoted
from .locations import parse_location
from .syntax import Dense, Dialect, Dictionary, Symbol, Word
from .types import Cache, is_scalar_type, parse_type

_NUMBER = re.compile(r"-?\d+(?:\.\d*(?:[eE][+\-]?\d+)?)?|0x[0-9A-Fa-f]+")
_ARRAY = re.compile(r"array<\s*(\w+)\s*(?::\s*([^:]*))?>")
_ITEM = re.compile(r"-?\d+|true|false")
_WORD = re.compile(r"[A-Za-z_][\w$.]*")
_READABLE = ("#stablehlo.", "#mhlo.", "#chlo.")


class Attributes:
    """Reads attributes. ``aliases`` are those that the text has defined so far."""

    def __init__(self, tokens: Tokens, types: Cache) -> None:
        self.tokens = tokens
        self.types = types
        self.aliases: dict[str, Any] = {}
        self.arrays: dict[str, tuple[Any, ...]] = {}

    def value(self) -> Any:
        """One attribute, with its type if it has one."""
        tokens = self.tokens
        token = tokens.next
        match token[:1]:
            case "a" if token.startswith("array<"):
                return self._array()
            case "d" if token.startswith("dense<"):
                tokens.advance()
                return self._dense(token)
            case '"':
                tokens.advance()
                self._type()
                return unquoted(token)
            case "[":
                return self.list()
            case "{":
                return self.dictionary()
            case "@":
                return self._symbol()
            case "#":
                return self._dialect()
            case "(" | "!":
                return parse_type(tokens, self.types)
            case "t" if token.startswith("tensor<") or token == "tuple":
                return parse_type(tokens, self.types)
            case _ if _NUMBER.fullmatch(token):
                return self._number()
            case _:
                return self._word()

    def _type(self) -> Any:
        """``: type`` where it follows a value."""
        tokens = self.tokens
        if tokens.next != ":":
            return None
        after = tokens.ahead()
        if not (is_scalar_type(after) or after[:1] == "!" or after.startswith("tensor<")):
            return None
        tokens.advance()
        return parse_type(tokens, self.types)

    def _number(self) -> int | float:
        tokens = self.tokens
        token, place = tokens.next, tokens.place
        if "." in token or ("e" in token.lower() and not token.startswith("0x")):
            tokens.advance()
            self._type()
            return float(token[:400])
        number = tokens.integer("an attribute")
        kind = self._type()
        if isinstance(kind, Shape) and kind.dtype.is_float:
            return self._float_bits(number, token, kind, place)
        return number

    def _float_bits(self, number: int, token: str, kind: Shape, place: int) -> float:
        """A float that is written as an integer: its bits if they are hexadecimal."""
        codes = {16: ("<H", "<e"), 32: ("<I", "<f"), 64: ("<Q", "<d")}
        if not token.startswith("0x"):
            return float(number)
        if number >> kind.dtype.bits or kind.dtype.bits not in codes:
            self.tokens.fail_at(place, f"`{token}` does not fit {kind.dtype}")
        if kind.dtype.name == "bf16":
            number, bits = number << 16, 32
        else:
            bits = kind.dtype.bits
        whole, real = codes[bits]
        value: float = struct.unpack(real, struct.pack(whole, number))[0]
        return value

    def _word(self) -> Any:
        tokens = self.tokens
        token = tokens.next
        if token == "dense_resource":
            return self._resource()
        if token == "loc":
            return parse_location(tokens)
        if not _WORD.fullmatch(token):
            tokens.fail("expected an attribute")
        tokens.advance()
        if token in ("true", "false"):
            return token == "true"
        if token == "unit":
            return True
        if tokens.next == "<":  # affine_map<..>, distinct<..> and types such as complex<f32>
            tokens.balanced("attribute")
            return Dialect(token, {})
        return Word(token)

    def _symbol(self) -> Symbol:
        tokens = self.tokens
        name = symbol_name(tokens.advance())
        while tokens.take("::"):
            name += "::" + symbol_name(tokens.advance())
        return Symbol(name)

    def list(self) -> tuple[Any, ...]:
        """``[value, ..]``"""
        tokens = self.tokens
        tokens.expect("[", "before a list")
        tokens.enter("list")
        found: list[Any] = []
        while not tokens.take("]"):
            if found:
                tokens.expect(",", "or `]` in a list")
            found.append(self.value())
        tokens.leave()
        return tuple(found)

    def _array(self) -> tuple[Any, ...]:
        """``array<i64: 1, 2>``"""
        tokens = self.tokens
        text = tokens.next
        if (known := self.arrays.get(text)) is None:
            found = _ARRAY.fullmatch(text)
            items = [i.strip() for i in (found.group(2) or "").split(",")] if found else [""]
            items = [] if items == [""] else items
            if found is None or not all(_ITEM.fullmatch(i) and len(i) < 20 for i in items):
                tokens.fail(f"`{text[:60]}` is not a list of integers")
            bools = {"true": True, "false": False}
            known = tuple(bools[i] if i in bools else int(i) for i in items)
            self.arrays[text] = known
        tokens.advance()
        return known

    def _dense(self, text: str) -> Dense:
        tokens = self.tokens
        place = tokens.place
        tokens.expect(":", "and a type after `dense<..>`")
        return Dense(text[text.index("<") + 1 : -1], parse_type(tokens, self.types), place)

    def _resource(self) -> Dense:
        tokens, place = self.tokens, self.tokens.place
        tokens.advance()
        tokens.expect("<", "after `dense_resource`")
        token = tokens.advance()
        name = unquoted(token) if token.startswith('"') else token
        tokens.expect(">", "after the name of a resource")
        tokens.expect(":", "and a type after `dense_resource<..>`")
        return Dense("", parse_type(tokens, self.types), place, name)

    def dictionary(self) -> Dictionary:
        """``{name = value, name}``; a name on its own is true."""
        tokens = self.tokens
        start = tokens.place
        tokens.expect("{", "before attributes")
        tokens.enter("attribute")
        found = Dictionary()
        while not tokens.take("}"):
            if found:
                tokens.expect(",", "or `}` between attributes")
            self._entry(found)
        tokens.leave()
        found.text = tokens.text[start : tokens.starts[tokens.at - 1] + 1]
        return found

    def _entry(self, found: dict[str, Any]) -> None:
        tokens = self.tokens
        token = tokens.next
        name = unquoted(token) if token.startswith('"') else token
        if not (token.startswith('"') or _WORD.fullmatch(token)):
            tokens.fail("expected the name of an attribute")
        if name in found:
            tokens.fail(f"attribute `{name}` is given twice", " ")
        tokens.advance()
        found[name] = self.value() if tokens.take("=") else True

    def fields(self) -> Mapping[str, Any]:
        """``<name = value, ..>`` or ``<word WORD>``, whose last word has the empty name."""
        tokens = self.tokens
        tokens.expect("<", "before fields")
        tokens.enter("attribute")
        found: dict[str, Any] = {}
        while not tokens.take(">"):
            if tokens.take(",") and tokens.take(">"):
                break
            if tokens.ahead() == "=":
                self._entry(found)
            else:
                found[""] = self.value()
        tokens.leave()
        return found

    def _dialect(self) -> Any:
        """``#name<fields>``, ``#dialect<kind WORD>`` or the alias of another attribute."""
        tokens = self.tokens
        name = tokens.advance()
        if tokens.next != "<":
            if name in self.aliases:
                return self.aliases[name]
            return Dialect(name[1:], {})
        if name in ("#stablehlo.conv", "#mhlo.conv"):
            tokens.advance()
            labels = self.labels()
            tokens.expect(">", "after dimension numbers")
            return labels
        if name in ("#stablehlo", "#mhlo", "#chlo") or name.startswith(_READABLE):
            at, depth = tokens.at, tokens.depth
            try:
                return Dialect(name[1:], self.fields())
            except ParseError:  # a form that nothing here needs to know
                tokens.at, tokens.depth = at, depth
        tokens.balanced("attribute")
        return Dialect(name[1:], {})

    def labels(self) -> ConvLabels:
        """``[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]``, or ``raw`` and every number by its name"""
        tokens, place = self.tokens, self.tokens.place
        if tokens.take("raw"):
            return self._raw_labels()
        lhs = self.list()
        tokens.expect("x", "between dimension numbers")
        rhs = self.list()
        tokens.expect("->", "between dimension numbers")
        out = self.list()
        spatial = list(range(len(lhs) - 2))
        for part, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
            if sorted(map(str, part)) != sorted([*letters, *map(str, spatial)]):
                why = "each part must have its two letters and the spatial numbers, each once"
                tokens.fail_at(place, "dimension numbers of a convolution are not readable", why)
        return ConvLabels(
            lhs_batch=lhs.index("b"),
            lhs_feature=lhs.index("f"),
            lhs_spatial=tuple(lhs.index(i) for i in spatial),
            rhs_input=rhs.index("i"),
            rhs_output=rhs.index("o"),
            rhs_spatial=tuple(rhs.index(i) for i in spatial),
            out_batch=out.index("b"),
            out_feature=out.index("f"),
            out_spatial=tuple(out.index(i) for i in spatial),
        )

    def _raw_labels(self) -> ConvLabels:
        """``input_batch_dimension = 0, .., output_spatial_dimensions = [1, 2]``"""
        place = self.tokens.place
        found: dict[str, Any] = {}
        while self.tokens.next != ">":
            if found:
                self.tokens.expect(",", "between dimension numbers")
            self._entry(found)
        numbers: list[Any] = []
        for side, first, second in RAW_LABELS:
            one = [found.get(f"{side}_{n}_dimension") for n in (first, second)]
            many = found.get(f"{side}_spatial_dimensions", ())
            wanted = list(range(len(many) + 2)) if isinstance(many, tuple) else [None]
            if not all(isinstance(n, int) for n in one) or sorted([*one, *many]) != wanted:
                what = "dimension numbers of a convolution are not readable"
                self.tokens.fail_at(place, what, f"those of the {side}")
            numbers += [*one, many]
        return ConvLabels(*numbers)


RAW_LABELS = (
    ("input", "batch", "feature"),
    ("kernel", "input_feature", "output_feature"),
    ("output", "batch", "feature"),
)


def symbol_name(token: str) -> str:
    """``name`` of ``@name`` or ``@"name"``."""
    name = token[1:]
    return unquoted(name) if name.startswith('"') else name
