"""Attributes that this IR keeps as text, as the messages of a proto that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...hlo.lexer import Cursor
from ...hlo.shape_text import parse_shape
from ...hlo.text.literals import parse_literal
from .encode import WireWriter, write_literal, write_shape
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
    PRECISIONS,
    PREFETCH_INDEX,
    REPLICA_GROUPS,
    REPLICATION,
    SOURCE_TARGETS,
    THREAD,
)

_INTS = re.compile(r"\{([\d,\s]*)\}")
_ALIAS = re.compile(
    r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*(?:,\s*\{([\d,\s]*)\})?\s*(?:,\s*([\w\-]+)\s*)?\)"
)
_DONOR = re.compile(r"\(\s*(\d+)\s*(?:,\s*\{([\d,\s]*)\})?\s*\)")
_KEY = re.compile(r"\s*([^={},\s]+)\s*=\s*")
_IOTA = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'(?:=(\d+)|:\((\d+)\)(\d+))?")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.S)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r"}


def unescaped(text: str) -> bytes:
    """The bytes of a string from what stands between its quotes."""
    out, at = bytearray(), 0
    for found in _ESCAPE.finditer(text):
        out += text[at : found.start()].encode()
        word = found.group(1)
        if word[0].isdigit():
            out.append(int(word, 8) & 255)
        elif word[0] == "x" and len(word) > 1:
            out.append(int(word[1:], 16))
        else:
            out += _LETTERS.get(word, word.encode())
        at = found.end()
    return bytes(out + text[at:].encode())


def _bytes(text: str) -> bytes:
    """A value that is quoted, or stands as it is."""
    return unescaped(text[1:-1]) if text[:1] in ("'", '"') else text.encode()


def _numbers(text: str | None) -> list[int]:
    return [int(n) for n in (text or "").split(",") if n.strip()]


def write_texts(out: WireWriter, attrs: Mapping[str, str]) -> None:
    """Every attribute that has a place in the proto; ``attrs`` gives them as text."""
    for name, text in attrs.items():
        if (write := _WRITERS.get(name)) is not None:
            write(out, text)


def precisions(text: str) -> list[int]:
    """Numbers of the words of ``operand_precision``."""
    words = {word: number for number, word in PRECISIONS.items()}
    return [words.get(w.strip(), 0) for w in text.strip("{}").split(",")]


def _replica_groups(out: WireWriter, text: str) -> None:
    if iota := _IOTA.fullmatch(text):
        part = WireWriter()
        part.integer(1, int(iota.group(1)))
        part.integer(2, int(iota.group(2)))
        part.integers(3, _numbers(iota.group(3)))
        order = _numbers(iota.group(4)) or range(len(_numbers(iota.group(3))))
        part.integers(4, order)
        out.message(IOTA_GROUPS, part.data)
    elif mesh := _MESH.fullmatch(text):
        out.message(MESH_GROUPS, _mesh(mesh.group(1), mesh.group(2)))
    else:
        for group in _INTS.findall(text[1:-1]):
            part = WireWriter()
            part.integers(1, _numbers(group))
            out.message(REPLICA_GROUPS, part.data)


def _mesh(axes: str, used: str) -> bytes:
    mesh, out, names = WireWriter(), WireWriter(), []
    for name, size, _, _ in _AXIS.findall(axes):
        axis = WireWriter()
        axis.text(1, name)
        axis.integer(2, int(size))
        mesh.message(1, axis.data)
        names.append(name)
    out.message(1, mesh.data)
    for name, _, before, size in _AXIS.findall(used):
        axis = WireWriter()
        axis.integer(1, names.index(name))
        if size:
            cut = WireWriter()
            cut.integer(1, int(before))
            cut.integer(2, int(size))
            axis.message(2, cut.data)
        out.message(2, axis.data)
    return bytes(out.data)


def _pairs(out: WireWriter, text: str) -> None:
    for pair in _INTS.findall(text[1:-1]):
        part = WireWriter()
        for field, value in enumerate(_numbers(pair), 1):
            part.integer(field, value)
        out.message(SOURCE_TARGETS, part.data)


def _constraints(out: WireWriter, text: str) -> None:
    out.integer(CONSTRAINED, 1)
    cursor = Cursor(text, "operand_layout_constraints")
    cursor.expect("{", "first")
    while not cursor.take("}"):
        out.message(OPERAND_SHAPES, write_shape(parse_shape(cursor, {})))
        cursor.take(",")


def _operand_aliases(out: WireWriter, text: str) -> None:
    for index, operand, inner, _ in _ALIAS.findall(text):
        part = WireWriter()
        part.integers(1, _numbers(index))
        part.integer(2, int(operand))
        part.integers(3, _numbers(inner))
        out.message(ALIASING, part.data)


def _literal(out: WireWriter, text: str) -> None:
    cursor = Cursor(text, "literal")
    shape = parse_shape(cursor, {})
    value = parse_literal(Cursor(f"({cursor.text[cursor.pos :]})", "literal"), shape)
    out.message(LITERAL, write_literal(value, shape))


def _replication(out: WireWriter, text: str) -> None:
    part = WireWriter()
    part.integers(1, [int(w.strip() == "true") for w in text.strip("{}").split(",") if w.strip()])
    out.message(REPLICATION, part.data)


def frontend_attributes(text: str) -> bytes:
    """``FrontendAttributes`` of ``{key="value",..}``."""
    out, cursor = WireWriter(), Cursor(text, "frontend_attributes")
    cursor.expect("{", "first")
    while (key := cursor.match(_KEY)) is not None:
        part = WireWriter()
        part.text(1, key.group(1))
        part.raw(2, _bytes(cursor.raw_value()))
        out.message(1, part.data)
        cursor.take(",")
    return bytes(out.data)


def aliases(text: str) -> bytes:
    """``HloInputOutputAliasProto`` of ``{ {0}: (1, {}, may-alias) }``."""
    out = WireWriter()
    for index, parameter, inner, kind in _ALIAS.findall(text):
        part = WireWriter()
        part.integers(1, _numbers(index))
        part.integer(2, int(parameter))
        part.integers(3, _numbers(inner))
        part.integer(4, 2 if kind == "must-alias" else 1)
        out.message(1, part.data)
    return bytes(out.data)


def donors(text: str) -> bytes:
    """``HloBufferDonorProto`` of ``{ (0, {}) }``."""
    out = WireWriter()
    for parameter, inner in _DONOR.findall(text):
        part = WireWriter()
        part.integer(1, int(parameter))
        part.integers(2, _numbers(inner))
        out.message(1, part.data)
    return bytes(out.data)


_WRITERS: Mapping[str, Callable[[WireWriter, str], None]] = {
    "replica_groups": _replica_groups,
    "source_target_pairs": _pairs,
    "operand_layout_constraints": _constraints,
    "output_to_operand_aliasing": _operand_aliases,
    "literal": _literal,
    "parameter_replication": _replication,
    "infeed_config": lambda out, text: out.raw(INFEED_CONFIG, _bytes(text)),
    "outfeed_config": lambda out, text: out.raw(OUTFEED_CONFIG, _bytes(text)),
    "outfeed_shape": lambda out, text: out.message(
        OUTFEED_SHAPE, write_shape(parse_shape(Cursor(text, "outfeed_shape"), {}))
    ),
    "cross_program_prefetch_index": lambda out, text: out.integer(PREFETCH_INDEX, int(text)),
    "async_execution_thread": lambda out, text: out.raw(THREAD, _bytes(text)),
    "frontend_attributes": lambda out, text: out.message(
        FRONTEND_ATTRIBUTES, frontend_attributes(text)
    ),
    "backend_config": lambda out, text: out.raw(BACKEND_CONFIG, _bytes(text)),
}
