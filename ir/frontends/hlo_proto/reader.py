"""HLO protos -> HloModule: ``HloModuleProto``, alone or inside an ``HloProto`` or a snapshot."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

from ...errors import ParseError
from ...hlo.nodes import AnyShape, Computation, HloModule, Instruction, Metadata, Raw, TupleShape
from ...hlo.ops.registry import is_known
from ...hlo.shape_text import show_shape
from .attributes import read_attributes
from .schema import (
    CALLED,
    COMPUTATION_ID,
    COMPUTATION_INSTRUCTIONS,
    COMPUTATION_ROOT,
    CONTROL,
    ID,
    LITERAL,
    LOCATION,
    METADATA,
    METADATA_NUMBERS,
    METADATA_TEXTS,
    MODULE_ALIASES,
    MODULE_ATTRIBUTES,
    MODULE_COMPUTATIONS,
    MODULE_DONORS,
    MODULE_ENTRY,
    MODULE_ENTRY_ID,
    MODULE_FRAMES,
    MODULE_PROGRAM,
    MODULE_SCHEDULE,
    OPERANDS,
    SHAPE,
)
from .text_attributes import escaped, frontend_attributes
from .values import read_literal, read_shape
from .wire import Message

_LOCAL = (1 << 32) - 1
_NOT_A_NAME = re.compile(r"[^\w.\-]", re.ASCII)


def parse(data: bytes, source: str = "<proto>") -> HloModule:
    """Read a module. ``ParseError`` says at which byte it cannot be read (``source:byte n``)."""
    return _ModuleReader(_module(Message(data, source))).module()


def _module(message: Message) -> Message:
    """The module's message: this one, or one that stands first in it."""
    outer = message
    for _ in range(3):
        if _is_module(outer):
            return outer
        inner = outer.fields.get(1, [0])[0]
        if not isinstance(inner, tuple):
            break
        try:
            outer = Message(outer.data, outer.source, inner[0], inner[1], outer.depth + 1)
        except ParseError:  # a name, say
            break
    message.fail("not an HLO proto", "no module is in it", _HINT)


def _is_module(message: Message) -> bool:
    """A module names its entry; messages around it have other things in these fields."""
    entry = message.fields.get(MODULE_ENTRY, [0])[-1]
    if not isinstance(entry, tuple) or not message.has(MODULE_COMPUTATIONS):
        return False
    name = message.data[entry[0] : entry[1]]
    return any(name == c.raw(1) for c in message.messages(MODULE_COMPUTATIONS))


_HINT = (
    "XLA's are read; TensorFlow gives one by "
    "f.experimental_get_compiler_ir(*args)(stage='hlo_serialized')"
)


class _ModuleReader:
    """One run over one module. ``computations`` are those read so far, by id."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.computations: dict[int, Computation] = {}
        self.names: set[str] = set()
        self.shapes: dict[bytes, AnyShape] = {}

    def module(self) -> HloModule:
        message = self.message
        entry: Computation | None = None
        wanted = message.text(MODULE_ENTRY)
        for part in message.messages(MODULE_COMPUTATIONS):
            computation = self.computation(part)
            by_id = part.integer(COMPUTATION_ID) == message.integer(MODULE_ENTRY_ID)
            if by_id if message.has(MODULE_ENTRY_ID) else part.text(1) == wanted:
                entry = computation
        if entry is None:
            message.fail("module has no entry", f"no computation is `{wanted}`")
        name = _NOT_A_NAME.sub("_", message.text(1)) or "module"
        everything = tuple(self.computations.values())
        attrs = MappingProxyType(_header(message))
        return HloModule(name, everything, entry, attrs, _tables(message.message(MODULE_FRAMES)))

    def computation(self, message: Message) -> Computation:
        name = _fresh(message.text(1), self.names)
        scope: dict[int, Instruction] = {}
        names: set[str] = set()
        for part in message.messages(COMPUTATION_INSTRUCTIONS):
            number = part.integer(ID) & _LOCAL
            if number in scope:
                part.fail(f"computation `{name}` is inconsistent", f"two have id {number}")
            scope[number] = self.instruction(part, scope, names)
        instructions = tuple(scope.values())
        root = scope.get(message.integer(COMPUTATION_ROOT) & _LOCAL)
        if root is None:
            message.fail(
                f"computation `{name}` has no root", f"id {message.integer(COMPUTATION_ROOT)}"
            )
        found = [i for i in instructions if i.opcode == "parameter"]
        found.sort(key=lambda i: int(i.attrs["number"]))
        numbers = [i.attrs["number"] for i in found]
        if numbers != list(range(len(found))):
            why = f"numbers are {numbers[:20]}, they must be 0 to {len(found) - 1}, each once"
            message.fail(f"parameters of `{name}` do not count up from 0", why)
        result = Computation(name, tuple(found), instructions, root)
        if self.computations.setdefault(message.integer(COMPUTATION_ID), result) is not result:
            message.fail(f"computation `{name}` is inconsistent", "another has its id")
        return result

    def instruction(
        self, message: Message, scope: dict[int, Instruction], names: set[str]
    ) -> Instruction:
        opcode = message.text(2)
        name = _fresh(message.text(1) or opcode, names)
        if not is_known(opcode):
            message.fail(f"unknown opcode `{escaped(opcode)[:40]}`", f"of `{name}`")
        operands = tuple(self.operand(message, scope, n, name) for n in message.integers(OPERANDS))
        called = [self.called(message, n, name) for n in message.integers(CALLED)]
        shape = self.shape(message, name)
        attrs = read_attributes(message, opcode, operands, called)
        if opcode == "constant":
            literal = message.message(LITERAL)
            if literal is None:
                message.fail(f"constant `{name}` has no value")
            attrs = {"literal": read_literal(literal, shape)} | attrs
        before = [_operand_name(scope, n) for n in message.integers(CONTROL)]
        if before:
            attrs["control-predecessors"] = Raw("{" + ", ".join(before) + "}")
        kept = MappingProxyType(attrs) if attrs else _EMPTY
        return Instruction(name, opcode, shape, operands, kept, _metadata(message))

    def operand(
        self, message: Message, scope: dict[int, Instruction], number: int, name: str
    ) -> Instruction:
        known = scope.get(number & _LOCAL)
        if known is None:
            why = f"no instruction above it in its computation has id {number}"
            message.fail(f"operand of `{name}` is not defined", why)
        return known

    def called(self, message: Message, number: int, name: str) -> Computation:
        known = self.computations.get(number)
        if known is None:
            why = f"no computation above it has id {number}"
            message.fail(f"a computation that `{name}` calls is not defined", why)
        return known

    def shape(self, message: Message, name: str) -> AnyShape:
        raw = message.raw(SHAPE)
        if (known := self.shapes.get(raw)) is None:
            inner = message.message(SHAPE)
            if inner is None:
                message.fail(f"`{name}` has no shape")
            known = self.shapes[raw] = read_shape(inner)
        return known


_EMPTY: MappingProxyType[str, Any] = MappingProxyType({})


def _operand_name(scope: dict[int, Instruction], number: int) -> str:
    known = scope.get(number & _LOCAL)
    return known.name if known is not None else f"id.{number}"


def _fresh(name: str, taken: set[str]) -> str:
    """A name that text can have and nobody has."""
    name = _NOT_A_NAME.sub("_", name)
    if not name or not (name[0].isalpha() or name[0] == "_"):
        name = f"_{name}"
    fresh, n = name, 0
    while fresh in taken:
        n += 1
        fresh = f"{name}.{n}"
    taken.add(fresh)
    return fresh


def _metadata(message: Message) -> Metadata | None:
    inner = message.message(METADATA)
    if inner is None or not inner.fields:
        return None
    texts = {name: inner.text(n) for name, n in METADATA_TEXTS.items()}
    line = inner.integer(METADATA_NUMBERS["source_line"])
    return Metadata(**texts, source_line=line, raw=_metadata_text(inner))


def _metadata_text(message: Message) -> str:
    """``{op_type=".." op_name=".." ..}`` as XLA prints it."""
    texts = ((name, message.text(n)) for name, n in METADATA_TEXTS.items())
    rows = [f'{name}="{escaped(text)}"' for name, text in texts if text]
    numbers = ((name, message.integer(n)) for name, n in METADATA_NUMBERS.items())
    rows += [f"{name}={number}" for name, number in numbers if number]
    return "{" + " ".join(rows) + "}"


def _tables(index: Message | None) -> str:
    """The file and stack-frame tables as text has them."""
    if index is None or not index.fields:
        return ""
    rows = ["FileNames", *(f'{n} "{escaped(t)}"' for n, t in enumerate(index.texts(1), 1))]
    rows += ["", "FunctionNames"]
    rows += [f'{n} "{escaped(t)}"' for n, t in enumerate(index.texts(2), 1)]
    rows += ["", "FileLocations"]
    for n, m in enumerate(index.messages(3), 1):
        fields = ((name, m.integer(field)) for name, field in LOCATION.items())
        rows.append(f"{n} {{{' '.join(f'{k}={v}' for k, v in fields)}}}")
    rows += ["", "StackFrames"]
    for n, m in enumerate(index.messages(4), 1):
        place, parent = m.integer(1), m.integer(2) + 1  # text counts parents from 1, none being 1
        rows.append(f"{n} {{file_location_id={place} parent_frame_id={parent}}}")
    return "\n".join(rows)


def _header(message: Message) -> dict[str, Raw]:
    """Attributes of the module, as text has them after its name."""
    rows: dict[str, str] = {}
    if message.has(MODULE_SCHEDULE):
        rows["is_scheduled"] = "true"
    aliases = message.message(MODULE_ALIASES)
    if aliases is not None and aliases.has(1):
        rows["input_output_alias"] = _aliases(aliases)
    donors = message.message(MODULE_DONORS)
    if donors is not None and donors.has(1):
        shown = [f"({m.integer(1)}, {_index(m.integers(2))})" for m in donors.messages(1)]
        rows["buffer_donor"] = "{ " + ", ".join(shown) + " }"
    if (program := message.message(MODULE_PROGRAM)) is not None and program.has(2):
        params = show_shape(TupleShape(tuple(read_shape(m) for m in program.messages(1))))
        result = program.message(2)
        shown_result = show_shape(read_shape(result)) if result is not None else ""
        rows["entry_computation_layout"] = f"{{{params}->{shown_result}}}"
    rows["frontend_attributes"] = frontend_attributes(message.message(MODULE_ATTRIBUTES))
    return {name: Raw(text) for name, text in rows.items() if text}


def _aliases(message: Message) -> str:
    kinds = {1: "may-alias", 2: "must-alias"}
    shown = [
        f"{_index(m.integers(1))}: ({m.integer(2)}, {_index(m.integers(3))}, "
        f"{kinds.get(m.integer(4), 'may-alias')})"
        for m in message.messages(1)
    ]
    return "{ " + ", ".join(shown) + " }"


def _index(numbers: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
