"""Attributes that this IR keeps as text, made of protos in the words of XLA's text."""

from __future__ import annotations

from typing import Any

from ...errors import ParseError
from ...hlo.lexer import Cursor
from ...hlo.shape_text import show_shape
from ...hlo.text.literals import show_literal
from .schema import (
    ALIASING,
    BACKEND_CONFIG,
    CONSTRAINED,
    FRONTEND_ATTRIBUTES,
    INFEED_CONFIG,
    IOTA_GROUPS,
    LITERAL,
    MESH_GROUPS,
    OPERAND_SHAPES,
    OUTFEED_CONFIG,
    OUTFEED_SHAPE,
    PRECISION,
    PRECISIONS,
    PREFETCH_INDEX,
    REPLICA_GROUPS,
    REPLICA_LIST,
    REPLICATION,
    SOURCE_TARGETS,
    THREAD,
)
from .values import literal_shape, read_literal, read_shape
from .wire import Message


def written(message: Message, opcode: str) -> list[tuple[str, str]]:
    """Attributes that this IR keeps as text, in the text that XLA gives them."""
    rows = _of_products(message) + _of_devices(message, opcode)
    if opcode == "custom-call":
        rows += _of_custom_calls(message)
    if message.has(ALIASING):
        rows.append(("output_to_operand_aliasing", _aliases(message.messages(ALIASING))))
    if (replication := message.message(REPLICATION)) is not None:
        marks = ["true" if n else "false" for n in replication.integers(1)]
        rows.append(("parameter_replication", _braces(marks)))
    if thread := message.text(THREAD):
        rows.append(("async_execution_thread", f'"{escaped(thread)}"'))
    rows.append(("frontend_attributes", frontend_attributes(message.message(FRONTEND_ATTRIBUTES))))
    if config := message.raw(BACKEND_CONFIG):
        rows.append(("backend_config", _bare_or_quoted(config)))
    return rows


def _of_products(message: Message) -> list[tuple[str, str]]:
    """Of dots and convolutions."""
    rows: list[tuple[str, str]] = []
    if (precision := message.message(PRECISION)) is not None:
        words = [PRECISIONS.get(n, "default") for n in precision.integers(1)]
        if any(w != "default" for w in words):
            rows.append(("operand_precision", _braces(words)))
    return rows


def _of_devices(message: Message, opcode: str) -> list[tuple[str, str]]:
    """Of collectives, and of what goes to and from the host."""
    rows = [("replica_groups", _replica_groups(message, opcode))]
    pairs = [_braces((m.integer(1), m.integer(2))) for m in message.messages(SOURCE_TARGETS)]
    if pairs:
        rows.append(("source_target_pairs", _braces(pairs)))
    if config := message.raw(_CONFIGS.get(opcode, 0)):
        rows.append((f"{opcode}_config", f'"{_printable(config)}"'))
    if opcode == "outfeed" and (outfeed := message.message(OUTFEED_SHAPE)) is not None:
        rows.append(("outfeed_shape", show_shape(read_shape(outfeed))))
    if opcode == "copy-start" and message.has(PREFETCH_INDEX):
        rows.append(("cross_program_prefetch_index", str(message.integer(PREFETCH_INDEX))))
    return rows


def _of_custom_calls(message: Message) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if message.boolean(CONSTRAINED):
        shapes = [show_shape(read_shape(m)) for m in message.messages(OPERAND_SHAPES)]
        rows.append(("operand_layout_constraints", _braces(shapes, ", ")))
    if (literal := message.message(LITERAL)) is not None:
        shape = literal_shape(literal)
        shown = f"{show_shape(shape)} {show_literal(read_literal(literal, shape))}"
        rows.append(("literal", shown))
    return rows


def _aliases(messages: list[Message]) -> str:
    shown = [
        f"{_braces(m.integers(1))}: ({m.integer(2)}, {_braces(m.integers(3))})" for m in messages
    ]
    return _braces(shown, ", ")


_CONFIGS = {"infeed": INFEED_CONFIG, "outfeed": OUTFEED_CONFIG}


def _braces(items: Any, separator: str = ",") -> str:
    return "{" + separator.join(map(str, items)) + "}"


def _replica_groups(message: Message, opcode: str) -> str:
    groups = message.messages(REPLICA_GROUPS)
    if (listed := message.message(REPLICA_LIST)) is not None:
        groups = listed.messages(1)
    if groups:
        return _braces(_braces(m.integers(1)) for m in groups)
    if (iota := message.message(IOTA_GROUPS)) is not None:
        shape = ",".join(map(str, iota.integers(3)))
        order = iota.integers(4)
        turn = f"T({','.join(map(str, order))})" if order != tuple(range(len(order))) else ""
        return f"[{iota.integer(1)},{iota.integer(2)}]<=[{shape}]{turn}"
    if (mesh := message.message(MESH_GROUPS)) is not None:
        return _mesh_groups(mesh)
    grouped = opcode.startswith(("all-", "reduce-scatter", "collective-broadcast"))
    return "{}" if grouped and not opcode.endswith("-done") else ""


def _mesh_groups(message: Message) -> str:
    """``mesh['a'=2,'b'=4] {'b'}``; the part of an axis is ``'a':(before)size``."""
    mesh = message.message(1)
    if mesh is None or mesh.has(2) or mesh.has(3):
        message.fail("cannot read replica groups", "the devices of their mesh are in an own order")
    axes = [(escaped(m.text(1)), m.integer(2)) for m in mesh.messages(1)]
    used: list[str] = []
    for axis in message.messages(2):
        number = axis.integer(1)
        if not 0 <= number < len(axes):
            message.fail("cannot read replica groups", f"their mesh has no axis {number}")
        part = axis.message(2)
        cut = f":({part.integer(1)}){part.integer(2)}" if part is not None else ""
        used.append(f"'{axes[number][0]}'{cut}")
    shown = ",".join(f"'{n}'={size}" for n, size in axes)
    return f"mesh[{shown}] {_braces(used)}"


def frontend_attributes(message: Message | None) -> str:
    """``{key="value",..}`` in the order of keys; nothing where there are none."""
    if message is None:
        return ""
    pairs = sorted((m.text(1), m.text(2)) for m in message.messages(1))
    shown = [f"{k}={_bare_or_quoted(v.encode())}" for k, v in pairs]
    return _braces(shown) if shown else ""


def _bare_or_quoted(data: bytes) -> str:
    """As text has it: what reads as one pair of braces stands as it is, the rest in quotes."""
    if data.startswith(b"{") and data.endswith(b"}") and data.isascii():
        cursor = Cursor(data.decode(), "")
        try:
            cursor.balanced("value")
        except ParseError:
            pass
        else:
            if cursor.pos == len(data):
                return data.decode()
    return f'"{_printable(data)}"'


def escaped(text: str) -> str:
    """Return a string as HLO text has it between quotes."""
    return _printable(text.encode()) if not text.isascii() or _SPECIAL & set(text) else text


_SPECIAL = frozenset("\"\\'\n\r\t") | {chr(c) for c in range(32)}


def _printable(data: bytes) -> str:
    shown: list[str] = []
    for byte in data:
        char = chr(byte)
        if char in _ESCAPES:
            shown.append(_ESCAPES[char])
        elif 32 <= byte < 127:
            shown.append(char)
        else:
            shown.append(f"\\{byte:03o}")
    return "".join(shown)


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
