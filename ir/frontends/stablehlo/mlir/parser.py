"""MLIR text -> ``MlirModule``: modules, functions, regions and the generic form of operations.

What an operation prints in a form of its own is read by ``pretty``; either way the same ``MlirOp``
comes out, under the attribute names of the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .attributes import Attributes, symbol_name
from .lexer import Tokens, unquoted
from .locations import parse_location
from .syntax import FunctionType, Location, MlirFunction, MlirModule, MlirOp, MlirRegion, Type
from .types import Cache, parse_function_type, parse_group, parse_type, parse_types

_RESULT = re.compile(r"(%[^#:]+)(?::(\d{1,6}))?")
_WORD = re.compile(r"[A-Za-z_][\w$.]*")
_BLOB = re.compile(r"(?:[0-9A-Fa-f]{2})*")
MAX_RESULTS = 100_000

Values: TypeAlias = tuple[str, ...]
Pretty: TypeAlias = "Callable[[Parser, str, Values, int], MlirOp]"
"""Reads what follows the name of an operation in its own form: name, results, place."""


class Parser:
    """One run over one text."""

    def __init__(self, text: str, source: str, pretty: Pretty) -> None:
        self.tokens = Tokens(text, source)
        self.pretty = pretty
        self.types: Cache = {}
        self.attributes = Attributes(self.tokens, self.types)
        self.locations: dict[str, Location] = {}
        self.functions: dict[str, MlirFunction] = {}
        self.resources: dict[str, bytes] = {}
        self.meshes: dict[str, str] = {}

    def module(self) -> MlirModule:
        """The whole text: one module, or functions on their own; aliases before and after."""
        tokens = self.tokens
        name = ""
        attrs: Mapping[str, Any] = {}
        seen = False
        while tokens.next:
            token, place = tokens.next, tokens.place
            if token[0] in "#!" and tokens.ahead() == "=":
                self.alias()
            elif token == "{-#":
                self.metadata_section()
            elif token in ("module", "builtin.module", '"builtin.module"'):
                if seen:
                    tokens.fail("a second module in the same text", " ", "one module per file")
                seen = True
                name, attrs = self.one_module()
            else:
                self.member(self.operation(), place)
        if not self.functions:
            tokens.fail("the module has no function")
        attrs = {**attrs, "xla.sdy.meshes": self.meshes} if self.meshes else attrs
        return MlirModule(name, attrs, self.functions, self.resources, self.locations)

    def alias(self) -> None:
        """``#name = attribute``, ``#loc1 = loc(..)`` or ``!name = type``"""
        tokens = self.tokens
        name = tokens.advance()
        tokens.expect("=", "after an alias")
        if name[0] == "!":
            self.types[name] = parse_type(tokens, self.types)
        elif tokens.next == "loc":
            self.locations[name] = parse_location(tokens)
        else:
            self.attributes.aliases[name] = self.attributes.value()

    def metadata_section(self) -> None:
        """``{-# dialect_resources: {builtin: {name: "0x..", ..}} #-}``"""
        tokens = self.tokens
        tokens.advance()
        path: list[str] = []
        while not tokens.take("#-}"):
            token = tokens.advance()
            key = unquoted(token) if token.startswith('"') else token
            if token == "}":
                path = path[:-1]
            elif token != ",":
                tokens.expect(":", "after a name of the metadata section")
                if tokens.take("{"):
                    path.append(key)
                elif path[:1] == ["dialect_resources"]:
                    self.blob(key)
                else:
                    self.attributes.value()

    def blob(self, name: str) -> None:
        """``"0x0400000001020304"``: the alignment in four bytes, then the data."""
        tokens = self.tokens
        token = tokens.next
        if not _BLOB.fullmatch(token[3:-1]) or not token.startswith('"0x') or len(token) < 12:
            tokens.fail(f"the blob `{name}` is not readable")
        tokens.advance()
        self.resources[name] = bytes.fromhex(token[11:-1])

    def one_module(self) -> tuple[str, Mapping[str, Any]]:
        """Read a module in either form; return its name and attributes."""
        tokens, place = self.tokens, self.tokens.place
        if tokens.next.startswith('"'):
            module = self.operation()
            for op in module.regions[0].ops if module.regions else ():
                self.member(op, op.place)
            name = module.attrs.get("sym_name", "")
            return name if isinstance(name, str) else "", module.attrs
        tokens.advance()
        name = self.symbol() if tokens.next.startswith("@") else ""
        attrs: Mapping[str, Any] = {}
        if tokens.take("attributes"):
            attrs = self.attributes.dictionary()
        tokens.expect("{", "to open the module")
        while not tokens.take("}"):
            if tokens.next in ("module", "builtin.module"):
                tokens.refuse_at(place, "a module inside a module", "its functions have no names")
            self.member(self.operation(), tokens.place)
        self.location()
        return name, attrs

    def member(self, op: MlirOp | MlirFunction, place: int) -> None:
        """Take a member of a module: a function, or a mesh of Shardy, whose text is kept."""
        if isinstance(op, MlirOp) and op.name == "func.func":
            op = self.generic_function(op)
        if isinstance(op, MlirOp):
            if op.name != "sdy.mesh":
                self.tokens.refuse_at(place, f"`{op.name}` outside a function", "it has no meaning")
            if isinstance(text := op.attrs.get("mesh"), str):
                self.meshes[str(op.attrs["name"])] = text
            return
        if op.name in self.functions:
            self.tokens.fail_at(op.place, f"function `{op.name}` is defined twice")
        self.functions[op.name] = op

    def generic_function(self, op: MlirOp) -> MlirFunction:
        """A function from ``"func.func"() <{..}> ({ .. })``."""
        name, kind = op.attrs.get("sym_name"), op.attrs.get("function_type")
        if not isinstance(name, str) or not isinstance(kind, FunctionType) or not op.regions:
            self.tokens.fail_at(op.place, "a function lacks its name, type or body")
        own = [op.attrs.get(n, ()) for n in ("arg_attrs", "res_attrs")]
        if not all(isinstance(a, tuple) and all(isinstance(d, dict) for d in a) for a in own):
            self.tokens.fail_at(
                op.place, f"the attributes of `{name}`'s arguments are not readable"
            )
        public = op.attrs.get("sym_visibility", "public") == "public"
        body = op.regions[0]
        if tuple(t for _, t in body.arguments) != kind.inputs:
            self.tokens.fail_at(op.place, f"the arguments of `{name}` do not fit its type")
        return MlirFunction(name, body, kind, public, own[0], own[1], op.place)

    def function(self) -> MlirFunction:
        """``func.func public @name(%arg: type {attrs}, ..) -> (type {attrs}, ..) { .. }``"""
        tokens, place = self.tokens, self.tokens.place
        tokens.advance()
        public = not tokens.take("private")
        tokens.take("public")
        tokens.take("nested")
        name = self.symbol()
        tokens.expect("(", f"before the arguments of `{name}`")
        arguments: list[tuple[str, Type]] = []
        argument_attrs: list[Mapping[str, Any]] = []
        while not tokens.take(")"):
            if arguments:
                tokens.expect(",", "or `)` between arguments")
            if not tokens.next.startswith("%"):
                why = f"`{name}` is declared, its body is not in this text"
                tokens.refuse_at(place, "a function without a body", why)
            arguments.append(self.argument())
            argument_attrs.append(self.optional_attributes())
            self.location()
        results, result_attrs = self.function_results()
        if tokens.take("attributes"):
            self.attributes.dictionary()
        if tokens.next != "{":
            why = f"`{name}` is declared, its body is not in this text"
            tokens.refuse_at(place, "a function without a body", why)
        body = self.region(tuple(arguments))
        self.location()
        kind = FunctionType(tuple(t for _, t in arguments), results)
        return MlirFunction(name, body, kind, public, tuple(argument_attrs), result_attrs, place)

    def function_results(self) -> tuple[tuple[Type, ...], tuple[Mapping[str, Any], ...]]:
        """``-> type`` or ``-> (type {attributes}, ..)`` or nothing"""
        tokens = self.tokens
        if not tokens.take("->"):
            return (), ()
        if tokens.next != "(":
            return (parse_type(tokens, self.types),), ({},)
        tokens.advance()
        types: list[Type] = []
        attrs: list[Mapping[str, Any]] = []
        while not tokens.take(")"):
            if types:
                tokens.expect(",", "or `)` between results")
            types.append(parse_type(tokens, self.types))
            attrs.append(self.optional_attributes())
        return tuple(types), tuple(attrs)

    def argument(self) -> tuple[str, Type]:
        """``%name: type``"""
        tokens = self.tokens
        name = self.value()
        tokens.expect(":", f"after `{name}`")
        return name, parse_type(tokens, self.types)

    def symbol(self) -> str:
        """``@name``"""
        if not self.tokens.next.startswith("@"):
            self.tokens.fail("expected a name such as `@main`")
        return symbol_name(self.tokens.advance())

    def value(self) -> str:
        """``%name`` or ``%name#1``"""
        tokens = self.tokens
        token = tokens.next
        if not token.startswith("%") or ":" in token:
            tokens.fail("expected a value such as `%0`")
        tokens.at += 1
        return token

    def values(self) -> Values:
        """``%a, %b, ..``, or nothing"""
        found: list[str] = []
        if self.tokens.next.startswith("%"):
            found.append(self.value())
            while self.tokens.take(","):
                found.append(self.value())
        return tuple(found)

    def optional_attributes(self) -> Mapping[str, Any]:
        """Read ``{name = value, ..}`` if it follows; an empty mapping otherwise."""
        return self.attributes.dictionary() if self.tokens.next == "{" else {}

    def location(self) -> Location | None:
        """``loc(..)`` where it follows."""
        if self.tokens.next == "loc" and self.tokens.ahead() == "(":
            return parse_location(self.tokens)
        return None

    def region(self, arguments: tuple[tuple[str, Type], ...] = ()) -> MlirRegion:
        """``{ operations }``, with the arguments of its one block unless they are given."""
        tokens, place = self.tokens, self.tokens.place
        tokens.expect("{", "to open a region")
        tokens.enter("region")
        if tokens.next.startswith("^"):
            tokens.advance()
            if tokens.take("("):
                arguments = self.block_arguments()
            tokens.expect(":", "after the label of a block")
        ops: list[MlirOp] = []
        while not tokens.take("}"):
            if tokens.next.startswith("^"):
                tokens.refuse_at(tokens.place, "a region of several blocks", "HLO has no jumps")
            op = self.operation()
            if not isinstance(op, MlirOp):
                tokens.fail_at(op.place, "a function inside a function")
            ops.append(op)
        tokens.leave()
        return MlirRegion(arguments, tuple(ops), place)

    def block_arguments(self) -> tuple[tuple[str, Type], ...]:
        """Read ``%name: type, ..)``, after the opening parenthesis."""
        found: list[tuple[str, Type]] = []
        while not self.tokens.take(")"):
            if found:
                self.tokens.expect(",", "or `)` between arguments")
            found.append(self.argument())
            self.location()
        return tuple(found)

    def operation(self) -> Any:
        """One operation: an ``MlirOp``, or a ``MlirFunction``."""
        tokens = self.tokens
        results = self.results()
        name, place = tokens.next, tokens.place
        if name in ("func.func", "func"):
            return self.function()
        if name.startswith('"'):
            tokens.advance()
            return self.generic(unquoted(name), results, place)
        if not _WORD.fullmatch(name):
            tokens.fail("expected an operation")
        tokens.advance()
        return self.pretty(self, name, results, place)

    def results(self) -> Values:
        """``%0 =`` or ``%0:2 =`` or ``%a, %b =``, as the names of single values"""
        tokens = self.tokens
        if not tokens.next.startswith("%"):
            return ()
        found: list[str] = []
        while True:
            parts = _RESULT.fullmatch(tokens.next)
            if parts is None:
                tokens.fail("expected the name of a result")
            tokens.advance()
            if parts.group(2) is None:
                found.append(parts.group(1))
            else:
                count = int(parts.group(2))
                if count > MAX_RESULTS:
                    tokens.fail(f"{count} results are too many", " ")
                found += [f"{parts.group(1)}#{n}" for n in range(count)]
            if not tokens.take(","):
                break
        tokens.expect("=", "after the names of results")
        return tuple(found)

    def generic(self, name: str, results: Values, place: int) -> MlirOp:
        """``"name"(%a) <{properties}> ({regions}) {attributes} : (types) -> types``"""
        tokens = self.tokens
        tokens.expect("(", f"after `{name}`")
        operands = self.values()
        tokens.expect(")", "after operands")
        if tokens.next == "[":
            tokens.refuse_at(place, f"`{name}` jumps to other blocks", "HLO has no jumps")
        attrs: dict[str, Any] = {}
        if tokens.next == "<" and tokens.ahead() == "{":
            tokens.advance()
            attrs.update(self.attributes.dictionary())
            tokens.expect(">", "after properties")
        regions: list[MlirRegion] = []
        if tokens.next == "(" and tokens.ahead() in ("{", ")"):
            tokens.advance()
            while not tokens.take(")"):
                if regions:
                    tokens.expect(",", "or `)` between regions")
                regions.append(self.region())
        if tokens.next == "{":
            attrs.update(self.attributes.dictionary())
        tokens.expect(":", f"before the type of `{name}`")
        kind = parse_function_type(tokens, self.types)
        return self.op(name, operands, attrs, tuple(regions), kind, results, place)

    def op(
        self,
        name: str,
        operands: Values,
        attrs: Mapping[str, Any],
        regions: tuple[MlirRegion, ...],
        kind: FunctionType | tuple[Type, ...],
        results: Values,
        place: int,
    ) -> MlirOp:
        """An operation of a type, or of types: those of its results, or where it has none, those of
        its operands."""
        if isinstance(kind, FunctionType):
            inputs: tuple[Type, ...] | None = kind.inputs
            types = kind.results
            if len(kind.inputs) != len(operands):
                why = f"{len(operands)} operands, {len(kind.inputs)} types of operands"
                self.tokens.fail_at(place, f"the type of `{name}` does not fit", why)
        else:
            inputs = None if results else kind
            types = kind[max(0, len(kind) - len(results)) :] if results else ()
            if inputs and len(inputs) != len(operands):
                why = f"{len(operands)} operands, {len(inputs)} types"
                self.tokens.fail_at(place, f"the type of `{name}` does not fit", why)
        if len(types) != len(results) and results:
            why = f"{len(results)} results are named, the type has {len(types)}"
            self.tokens.fail_at(place, f"the type of `{name}` does not fit", why)
        location = self.location()
        return MlirOp(
            name=name,
            operands=operands,
            attrs=attrs,
            regions=regions,
            operand_types=inputs,
            result_types=types,
            results=results,
            place=place,
            location=location,
        )

    def signature(self) -> FunctionType | tuple[Type, ...]:
        """``: (types) -> types`` or ``: types -> types`` or ``: types`` or nothing"""
        tokens = self.tokens
        if not tokens.take(":"):
            return ()
        if tokens.next == "(":
            return parse_function_type(tokens, self.types)
        inputs = parse_types(tokens, self.types)
        if not tokens.take("->"):
            return inputs
        if tokens.next != "(":
            return FunctionType(inputs, (parse_type(tokens, self.types),))
        return FunctionType(inputs, parse_group(tokens, self.types))
