"""HLO text -> HloModule: the grammar that XLA prints, in all its styles.

Operands may have ``%`` and their shape, and may be instructions written in place; computations may
be written where they are called. Layouts, metadata and source tables are kept. A computation must
precede its callers and an instruction its users, as in XLA's text. The module's header may be left
out, as XLA does when it prints a computation.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from ...errors import NestwrightError, ParseError
from ..attributes import parse_attribute
from ..lexer import MAX_DEPTH, Cursor
from ..limits import LEAVES, leaf_count
from ..nodes import AnyShape, Computation, HloModule, Instruction, Metadata, Raw, Shape
from ..ops.registry import OPS, definition, infer, is_known, may_have
from ..shape_text import Cache, parse_shape, show_shape, starts_shape, too_large
from ..signatures import same_shape
from .literals import parse_literal

_MODULE_NAME = re.compile(r"[^\s,{}()]+")
_TABLES = re.compile(
    r"(?:(?:FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*\n"
    r"(?:[ \t]*\d+[ \t][^\n]*\n)*\s*)+"
)
_COMPUTATION = re.compile(r"ENTRY\s|%?[A-Za-z_][\w.\-]*\s*[({]")
_INSTRUCTIONS = re.compile(r"([\w.\-]+)\s*=")
_COMPUTATIONS = re.compile(r"([\w.\-]+)\s*[({]")
_THREAD = re.compile(r",\s*execution_thread\s*=\s*")
_SIGNATURE_END = re.compile(r"->")
_METADATA = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"{}]+)')
_RANGE = range(1 << 31)


def parse(text: str, source: str = "<text>") -> HloModule:
    """Parse a module. ``ParseError`` gives the position as ``source:line:column``."""
    if not isinstance(text, str):
        raise ParseError("this is not HLO text", f"it is of type {type(text).__name__}", source)
    return _Parser(Cursor(text, source)).module()


class _Parser:
    """A recursive-descent parser of one text. ``computations`` are those parsed so far, by name."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.computations: dict[str, Computation] = {}
        self.shapes: Cache = {}
        self.metadata: dict[str, Metadata] = {}
        self.leaves: dict[int, int] = {}
        self.taken: dict[re.Pattern[str], set[str]] = {}
        self.depth = 0

    def module(self) -> HloModule:
        """Parse ``[HloModule name [, attribute=value ..] [tables]] computations``.

        Without a header the module has the name of its entry.
        """
        cursor = self.cursor
        name, attrs = self.header()
        tables = cursor.match(_TABLES)
        entry: Computation | None = None
        last: Computation | None = None
        while cursor.pos < len(cursor.text):
            if cursor.at("HloModule"):
                cursor.fail("a second module in the same text", hint="one module per file")
            start = cursor.pos
            marked = cursor.word("ENTRY")
            last = self.computation()
            if marked and entry is not None:
                cursor.fail("a second ENTRY computation", f"{entry.name} is one", at=start)
            entry = last if marked else entry
        if last is None:
            cursor.fail("module has no computation", f"found {cursor.found()}")
        everything = tuple(self.computations.values())
        shown = tables.group().rstrip() if tables else ""
        entry = entry or last
        return HloModule(name or entry.name, everything, entry, MappingProxyType(attrs), shown)

    def header(self) -> tuple[str, dict[str, Any]]:
        """Parse the module's name and attributes; none if a computation stands here."""
        cursor = self.cursor
        if not cursor.word("HloModule"):
            if (other := _other_format(cursor.text)) or not cursor.starts(_COMPUTATION):
                why = other or "it does not start with a module header"
                cursor.fail("this is not HLO text", why, "HLO text starts with `HloModule name`")
            return "", {}
        if (found := cursor.match(_MODULE_NAME)) is None:
            cursor.fail("expected the name of the module", f"found {cursor.found()}")
        attrs: dict[str, Any] = {}
        while cursor.take(","):
            name = cursor.attribute_name()
            attrs[name] = Raw(cursor.raw_value())
        return found.group(), attrs

    def computation(self) -> Computation:
        """Parse ``name [(params) -> shape] { instructions } [, execution_thread=".."]``."""
        cursor, start = self.cursor, self.cursor.pos
        name = cursor.name("a computation")
        if name in self.computations:
            cursor.fail(f"computation `{name}` is defined twice", at=start)
        if cursor.at("("):
            cursor.balanced("signature")
            if cursor.match(_SIGNATURE_END) is None:
                cursor.fail("expected `->` after the parameters", f"found {cursor.found()}")
            parse_shape(cursor, self.shapes)
        return self.body(name)

    def body(self, name: str) -> Computation:
        """Parse ``{ instructions }`` as the computation ``name``."""
        cursor, start = self.cursor, self.cursor.pos
        cursor.expect("{", f"to open computation `{name}`")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            cursor.fail("computations are nested too deep", f"over {MAX_DEPTH} levels", at=start)
        scope: dict[str, Instruction] = {}
        root: Instruction | None = None
        while not cursor.take("}"):
            if cursor.pos >= len(cursor.text):
                cursor.fail(f"computation `{name}` has no closing brace", at=start)
            at = cursor.pos
            marked = cursor.word("ROOT")
            instruction = self.instruction(scope)
            if marked and root is not None:
                why = f"`{root.name}` is ROOT already"
                cursor.fail(f"computation `{name}` has two roots", why, at=at)
            root = instruction if marked else root
        self.depth -= 1
        instructions = tuple(scope.values())
        if not instructions:
            cursor.fail(f"computation `{name}` is empty", "it needs a ROOT instruction", at=start)
        parameters = self.parameters(name, instructions, start)
        result = Computation(name, parameters, instructions, root or instructions[-1])
        if cursor.match(_THREAD):  # another comma is the instruction's that calls it
            cursor.raw_value()
        if name in self.computations:
            cursor.fail(f"computation `{name}` is defined twice", at=start)
        self.computations[name] = result
        return result

    def parameters(
        self, name: str, instructions: tuple[Instruction, ...], start: int
    ) -> tuple[Instruction, ...]:
        """Return the parameters in order; ``ParseError`` if their numbers are not 0 to n - 1."""
        found = [i for i in instructions if i.opcode == "parameter"]
        found.sort(key=lambda i: int(i.attrs["number"]))
        numbers = [i.attrs["number"] for i in found]
        if numbers != list(range(len(found))):
            why = f"numbers are {numbers[:20]}, they must be 0 to {len(found) - 1}, each once"
            self.cursor.fail(f"parameters of `{name}` do not count up from 0", why, at=start)
        return tuple(found)

    def instruction(self, scope: dict[str, Instruction]) -> Instruction:
        """Parse ``name = [shape] opcode(operands) [, attribute=value ..]`` into ``scope``."""
        cursor, start = self.cursor, self.cursor.pos
        name = cursor.name("an instruction")
        cursor.expect("=", f"after `{name}`")
        if name in scope:
            cursor.fail(f"instruction `{name}` is defined twice", at=start)
        shape = parse_shape(cursor, self.shapes) if starts_shape(cursor) else None
        opcode, operands, attrs = self.operation(scope, shape)
        whole = definition(opcode.removesuffix("-start"))
        metadata: Metadata | None = None
        while cursor.take(","):
            at = cursor.pos
            key = cursor.attribute_name()
            if key in attrs:
                cursor.fail(f"attribute `{key}` is given twice", at=at)
            if not may_have(opcode, key):
                close = get_close_matches(key, whole.attributes.replace("?", "").split(), 1)
                hint = f"did you mean `{close[0]}`?" if close else "take it out if it has no effect"
                cursor.fail(f"`{opcode}` has no attribute `{key}`", hint=hint, at=at)
            if key == "metadata":
                metadata = self.metadata_value()
            elif key in _OF_ONE and not whole.has_attribute(key):
                attrs[key] = Raw(cursor.raw_value())
            else:
                attrs[key] = parse_attribute(cursor, key, self.called)
        result = self.finish(name, shape, opcode, operands, attrs, metadata, start)
        scope[name] = result
        return result

    def finish(
        self,
        name: str,
        shape: AnyShape | None,
        opcode: str,
        operands: tuple[Instruction, ...],
        attrs: dict[str, Any],
        metadata: Metadata | None,
        start: int,
    ) -> Instruction:
        """Return the instruction, its shape inferred if the text has none."""
        if omitted := definition(opcode).omitted_if_empty:
            attrs.setdefault(omitted, ())
        if shape is None:
            try:
                shape = infer(opcode, tuple(o.shape for o in operands), attrs)
            except NestwrightError as error:
                what = f"`{name}` has no shape and none follows from its operands"
                self.cursor.fail(what, str(error), "write the shape before the opcode", at=start)
            if leaf_count(shape, self.leaves) > LEAVES:
                why = f"it holds more than {LEAVES} arrays"
                self.cursor.fail(f"the shape of `{name}` is too large", why, at=start)
            if isinstance(shape, Shape) and too_large(shape.dims, shape.dtype.bytes):
                self.cursor.fail(f"the shape of `{name}` is too large", show_shape(shape), at=start)
        kept = MappingProxyType(attrs) if attrs else _EMPTY
        return Instruction(name, opcode, shape, operands, kept, metadata)

    def operation(
        self, scope: dict[str, Instruction], shape: AnyShape | None, nested: int = 0
    ) -> tuple[str, tuple[Instruction, ...], dict[str, Any]]:
        """Parse ``opcode(operands)``; parameters and constants have a value there."""
        cursor, start = self.cursor, self.cursor.pos
        opcode = cursor.name("an opcode")
        if not is_known(opcode):
            close = get_close_matches(opcode, OPS, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            cursor.fail(f"unknown opcode `{opcode}`", hint=hint, at=start)
        if not cursor.at("("):
            cursor.fail(f"expected `(` after `{opcode}`", f"found {cursor.found()}")
        if opcode == "parameter":
            cursor.take("(")
            number = cursor.integer("the number of the parameter")
            if number not in _RANGE:
                cursor.fail(f"{number} is not the number of a parameter", at=start)
            cursor.expect(")", "after the parameter's number")
            return opcode, (), {"number": number}
        if opcode == "constant":
            if shape is None:
                cursor.fail("a constant needs its shape", at=start)
            return opcode, (), {"literal": parse_literal(cursor, shape)}
        cursor.take("(")
        operands: list[Instruction] = []
        while not cursor.take(")"):
            if operands:
                cursor.expect(",", f"or `)` between the operands of `{opcode}`")
            operands.append(self.operand(scope, nested))
        return opcode, tuple(operands), {}

    def operand(self, scope: dict[str, Instruction], nested: int) -> Instruction:
        """Parse ``name``, ``shape name`` or, written in place, ``[shape] opcode(operands)``."""
        cursor, start = self.cursor, self.cursor.pos
        shape = parse_shape(cursor, self.shapes) if starts_shape(cursor) else None
        at = cursor.pos
        name = cursor.name("an operand")
        if not cursor.at("("):
            if (known := scope.get(name)) is None:
                close = get_close_matches(name, scope, 1)
                hint = f"did you mean `{close[0]}`?" if close else ""
                why = "no instruction above in this computation has this name"
                cursor.fail(f"operand `{name}` is not defined", why, hint, at=at)
            if shape is not None and shape != known.shape and not same_shape(shape, known.shape):
                why = f"it is {show_shape(known.shape)}, the text says {show_shape(shape)} here"
                cursor.fail(f"the shape of operand `{name}` does not fit", why, at=start)
            return known
        if nested >= MAX_DEPTH:
            cursor.fail("instructions are nested too deep", f"over {MAX_DEPTH} levels", at=start)
        cursor.pos = at
        opcode, operands, attrs = self.operation(scope, shape, nested + 1)
        given, fresh, n = self.names(_INSTRUCTIONS), opcode, 0
        while fresh in scope or fresh in given:
            n += 1
            fresh = f"{opcode}.{n}"
        result = self.finish(fresh, shape, opcode, operands, attrs, None, start)
        scope[fresh] = result
        return result

    def called(self, cursor: Cursor) -> Computation:
        """Parse the name of a computation defined above, or one written in place."""
        if cursor.at("{"):
            given, n = self.names(_COMPUTATIONS), len(self.computations)
            while f"nested.{n}" in given:
                n += 1
            given.add(f"nested.{n}")
            return self.body(f"nested.{n}")
        start = cursor.pos
        name = cursor.name("a computation")
        if (known := self.computations.get(name)) is None:
            close = get_close_matches(name, self.computations, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            why = "it must be defined before its callers"
            cursor.fail(f"computation `{name}` is not defined", why, hint, at=start)
        return known

    def names(self, pattern: re.Pattern[str]) -> set[str]:
        """Return the names that the text gives by ``pattern``, which none made here may repeat."""
        if (known := self.taken.get(pattern)) is None:
            known = self.taken[pattern] = set(pattern.findall(self.cursor.text))
        return known

    def metadata_value(self) -> Metadata:
        """Parse ``{op_name=".." ..}``; equal texts give the same object."""
        if not self.cursor.at("{"):
            self.cursor.fail("metadata is not like `{op_name=..}`", f"found {self.cursor.found()}")
        raw = self.cursor.balanced("metadata")
        if (known := self.metadata.get(raw)) is None:
            fields = dict(_METADATA.findall(raw))
            line = fields.get("source_line", "0")
            known = self.metadata[raw] = Metadata(
                op_type=fields.get("op_type", "").strip('"'),
                op_name=fields.get("op_name", "").strip('"'),
                source_file=fields.get("source_file", "").strip('"'),
                source_line=int(line) if line.isdecimal() and len(line) < 10 else 0,
                raw=raw,
            )
        return known


_EMPTY: MappingProxyType[str, Any] = MappingProxyType({})
_OF_ONE = ("padding", "slice", "slice_sizes")
"""Attributes with a syntax of their own in one operation; kept as text in others."""


def _other_format(text: str) -> str:
    """Return what a text seems to be that is not HLO, as a sentence for an error; "" if unknown."""
    head = text[:4000]
    if not text.strip():
        return "the text is empty"
    if head.startswith("ML\ufeffR") or head.startswith("MLïR"):
        return "it looks like MLIR bytecode (a StableHLO portable artifact)"
    if "\x00" in head or any(ord(c) < 9 for c in head):
        return "it is binary, perhaps a protobuf (ONNX or a serialized HLO module)"
    if re.search(r"stablehlo\.|mhlo\.|func\.func|^\s*module\b", head, re.M):
        return "it looks like MLIR text (StableHLO), which is another language"
    if re.search(r"^\s*\{?\s*lambda\b.*\blet\b", head):
        return "it looks like a jaxpr"
    if head.lstrip().startswith(("{", "[")):
        return "it looks like JSON"
    if re.search(r"^\s*(; ModuleID|define |target triple)", head, re.M):
        return "it looks like LLVM IR"
    return ""
