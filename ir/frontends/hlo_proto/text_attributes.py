"""Attributes that this IR keeps as text, made of protos in the words of XLA's text."""

from __future__ import annotations

from typing import Any

from ...errors import ParseError
from ...hlo.lexer import Cursor
from ...hlo.literals import show_literal
from ...hlo.shape_text import show_shape
from .schema import PRECISION, PRECISIONS, RAGGED
from .values import literal_shape, read_literal, read_shape
from .wire import Message


def written(message: Message, opcode: str) -> list[tuple[str, str]]:
    """Attributes that this IR keeps as text, in the text that XLA gives them."""
    rows: list[tuple[str, str]] = []
    if opcode == "ragged-dot" and (ragged := message.message(RAGGED)) is not None:
        rows += [
            ("lhs_ragged_dims", _braces(ragged.integers(2))),
            ("rhs_group_dims", _braces(ragged.integers(3))),
        ]
    if (precision := message.message(PRECISION)) is not None:
        words = [PRECISIONS.get(n, "default") for n in precision.integers(1)]
        if any(w != "default" for w in words):
            rows.append(("operand_precision", _braces(words)))
    rows.append(("replica_groups", _replica_groups(message, opcode)))
    pairs = [_braces((m.integer(1), m.integer(2))) for m in message.messages(52)]
    if pairs:
        rows.append(("source_target_pairs", _braces(pairs)))
    if message.boolean(56) and opcode == "custom-call":
        shapes = [show_shape(read_shape(m)) for m in message.messages(57)]
        rows.append(("operand_layout_constraints", _braces(shapes, ", ")))
    aliases = [
        f"{_braces(m.integers(1))}: ({m.integer(2)}, {_braces(m.integers(3))})"
        for m in message.messages(74)
    ]
    if aliases:
        rows.append(("output_to_operand_aliasing", _braces(aliases, ", ")))
    if (literal := message.message(8)) is not None and opcode == "custom-call":
        shape = literal_shape(literal)
        shown = f"{show_shape(shape)} {show_literal(read_literal(literal, shape))}"
        rows.append(("literal", shown))
    config = message.raw(_CONFIGS.get(opcode, 0))
    if config:
        rows.append((f"{opcode}_config", f'"{_printable(config)}"'))
    if (outfeed := message.message(29)) is not None and opcode == "outfeed":
        rows.append(("outfeed_shape", show_shape(read_shape(outfeed))))
    if message.has(80) and opcode == "copy-start":
        rows.append(("cross_program_prefetch_index", str(message.integer(80))))
    if (replication := message.message(61)) is not None:
        marks = ["true" if n else "false" for n in replication.integers(1)]
        rows.append(("parameter_replication", _braces(marks)))
    if thread := message.text(79):
        rows.append(("async_execution_thread", f'"{escaped(thread)}"'))
    rows.append(("frontend_attributes", frontend_attributes(message.message(68))))
    if config := message.raw(43):
        rows.append(("backend_config", _bare_or_quoted(config)))
    return rows


_CONFIGS = {"infeed": 27, "outfeed": 22}


def _braces(items: Any, separator: str = ",") -> str:
    return "{" + separator.join(map(str, items)) + "}"


def _replica_groups(message: Message, opcode: str) -> str:
    groups = message.messages(49)
    if (listed := message.message(87)) is not None:
        groups = listed.messages(1)
    if groups:
        return _braces(_braces(m.integers(1)) for m in groups)
    if (iota := message.message(92)) is not None:
        shape = ",".join(map(str, iota.integers(3)))
        order = iota.integers(4)
        turn = f"T({','.join(map(str, order))})" if order != tuple(range(len(order))) else ""
        return f"[{iota.integer(1)},{iota.integer(2)}]<=[{shape}]{turn}"
    if (mesh := message.message(93)) is not None:
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
    """What stands between the quotes of a string in HLO text."""
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
