"""HloModule -> ``HloModuleProto``, as XLA reads it.

What is left out are the shardings and statistics of instructions; and, as in XLA's own protos, what
belongs to the configuration of a run: numbers of replicas and of partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from ...hlo.attributes import KINDS
from ...hlo.lexer import Cursor
from ...hlo.nodes import (
    AnyShape,
    Computation,
    ConvLabels,
    HloModule,
    Instruction,
    Metadata,
    Raw,
    TupleShape,
)
from ...hlo.ops.registry import definition
from ...hlo.rewrite import called
from ...hlo.shape_text import parse_shape
from .encode import WireWriter, write_literal, write_shape
from .schema import (
    API_VERSION,
    CALLED,
    COMPUTATION_FUSED,
    COMPUTATION_ID,
    COMPUTATION_INSTRUCTIONS,
    COMPUTATION_PROGRAM,
    COMPUTATION_ROOT,
    CONTROL,
    DOT,
    ENUMS,
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
    PLACES,
    PLACES_OF,
    PRECISION,
    SHAPE,
    TRISTATE,
)
from .writer_texts import (
    aliases,
    donors,
    frontend_attributes,
    precisions,
    unescaped,
    write_texts,
)

Inner: TypeAlias = dict[tuple[int, ...], WireWriter]
"""The messages inside an instruction, by their path; a message stands once in what holds it."""

_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"{}]+)')


def to_proto(module: HloModule) -> bytes:
    """The bytes of an ``HloModuleProto``.

    Instructions whose names stand in other computations too get other names there: XLA wants each
    name once.
    """
    out = WireWriter()
    out.text(1, module.name)
    out.text(MODULE_ENTRY, module.entry.name)
    numbers = {c: n for n, c in enumerate(module.computations, 1)}
    instructions = (i for m in module.computations for i in m.instructions)
    fused = {c for i in instructions if i.opcode == "fusion" for c in called(i)}
    names: set[str] = set()
    schedule = WireWriter()
    for computation, number in numbers.items():
        out.message(
            MODULE_COMPUTATIONS, _computation(computation, numbers, computation in fused, names)
        )
        if computation not in fused:
            schedule.message(1, _sequence(computation, number))
    header = {k: v.text for k, v in module.attrs.items() if isinstance(v, Raw)}
    out.message(MODULE_PROGRAM, _entry_layout(module, header.get("entry_computation_layout")))
    out.integer(MODULE_ENTRY_ID, numbers[module.entry])
    if header.get("is_scheduled") == "true":
        out.message(MODULE_SCHEDULE, schedule.data)
    out.raw(MODULE_ALIASES, aliases(header.get("input_output_alias", "")))
    out.raw(MODULE_DONORS, donors(header.get("buffer_donor", "")))
    out.raw(MODULE_ATTRIBUTES, frontend_attributes(header.get("frontend_attributes", "{}")))
    out.raw(MODULE_FRAMES, _tables(module.tables))
    return bytes(out.data)


def _program(params: tuple[AnyShape, ...], result: AnyShape, names: list[str]) -> bytes:
    out = WireWriter()
    for shape in params:
        out.message(1, write_shape(shape))
    out.message(2, write_shape(result))
    for name in names:
        out.message(3, name.encode())
    return bytes(out.data)


def _entry_layout(module: HloModule, text: str | None) -> bytes:
    """``ProgramShapeProto`` of the entry: the header's layouts where it gives them."""
    params = tuple(p.shape for p in module.entry.parameters)
    result = module.entry.root.shape
    if text is not None:
        cursor = Cursor(text[1:-1], "entry_computation_layout")
        given = parse_shape(cursor, {})
        cursor.expect("->", "after the parameters")
        result = parse_shape(cursor, {})
        params = given.elements if isinstance(given, TupleShape) else params
    return _program(params, result, [p.name for p in module.entry.parameters])


def _sequence(computation: Computation, number: int) -> bytes:
    """One computation's entry in a schedule."""
    ids, out = WireWriter(), WireWriter()
    ids.integers(1, [_id(number, n) for n in range(len(computation.instructions))])
    out.integer(1, number)
    out.message(2, ids.data)
    return bytes(out.data)


def _id(computation: int, place: int) -> int:
    return computation << 32 | place


def _computation(
    computation: Computation, numbers: Mapping[Computation, int], fused: bool, names: set[str]
) -> bytes:
    out, number = WireWriter(), numbers[computation]
    places = {i: _id(number, n) for n, i in enumerate(computation.instructions)}
    out.text(1, computation.name)
    for i in computation.instructions:
        name, n = i.name, 0
        while name in names:
            n += 1
            name = f"{i.name}.{n}"
        names.add(name)
        out.message(COMPUTATION_INSTRUCTIONS, _instruction(i, name, places, numbers))
    params = computation.parameters
    shapes = tuple(p.shape for p in params)
    out.message(
        COMPUTATION_PROGRAM, _program(shapes, computation.root.shape, [p.name for p in params])
    )
    out.integer(COMPUTATION_ID, number)
    out.integer(COMPUTATION_ROOT, places[computation.root])
    out.integer(COMPUTATION_FUSED, int(fused))
    return bytes(out.data)


def _instruction(
    i: Instruction, name: str, places: Mapping[Instruction, int], numbers: Mapping[Computation, int]
) -> bytes:
    out = WireWriter()
    out.text(1, name)
    out.text(2, i.opcode)
    out.message(SHAPE, write_shape(i.shape))
    out.message(METADATA, _metadata(i.metadata))
    out.integer(ID, places[i])
    out.integers(OPERANDS, [places[o] for o in i.operands])
    if i.opcode == "constant":
        out.message(LITERAL, write_literal(i.attrs["literal"], i.shape))
    if i.opcode == "custom-call" and "api_version" not in i.attrs:
        out.integer(API_VERSION, 1)
    order = definition(i.opcode).calls
    callees = [i.attrs[a] for a in order if a in i.attrs] or list(called(i))
    out.integers(CALLED, [numbers[c] for c in callees])
    before = i.attrs.get("control-predecessors")
    if isinstance(before, Raw):
        found = {o.name: n for o, n in places.items()}
        words = re.findall(r"[\w.\-]+", before.text)
        out.integers(CONTROL, [found[w] for w in words if w in found])
    typed: Inner = {(DOT,): WireWriter()} if i.opcode == "dot" else {}
    for attribute, value in i.attrs.items():
        _attribute(out, typed, i.opcode, attribute, value)
    while typed:
        path = max(typed, key=len)
        data = typed.pop(path).data
        holder = typed.setdefault(path[:-1], WireWriter()) if len(path) > 1 else out
        holder.message(path[-1], data)
    write_texts(out, {k: v.text for k, v in i.attrs.items() if isinstance(v, Raw)})
    return bytes(out.data)


def _attribute(out: WireWriter, inner: Inner, opcode: str, name: str, value: Any) -> None:
    """One attribute that has a path of numbers; ``inner`` collects the messages on the way."""
    if name == "operand_precision" and isinstance(value, Raw):
        inner.setdefault((PRECISION,), WireWriter()).integers(1, precisions(value.text))
        return
    path = PLACES_OF.get((opcode, name)) or PLACES.get(name)
    if path is None or isinstance(value, Computation):
        return
    if len(path) > 1:
        out = inner.setdefault(path[:-1], WireWriter())
    field = path[-1]
    match value:
        case Raw(text=word) | str(word) if path in ENUMS:
            out.integer(field, {w: n for n, w in ENUMS[path].items()}.get(word, 0))
        case Raw():
            pass
        case str():
            out.raw(field, unescaped(value))
        case bool() if path == TRISTATE:
            out.integer(field, 1 if value else 2)
        case int() if name == "iota_dimension":
            out.integers(field, (value,))
        case int():
            out.integer(field, value)
        case float():
            out.float32(field, value)
        case ConvLabels():
            out.message(field, _labels(value))
        case tuple() if KINDS[name] == "ints":
            out.integers(field, value)
        case tuple():
            _rows(out, field, name, value)


_ROWS = {
    "window": ("size", "stride", "pad_low", "pad_high", "rhs_dilate", "lhs_dilate", "reversal"),
    "slice": ("start", "limit", "stride"),
    "padding": ("low", "high", "interior"),
}
"""The parts of a row of an attribute, in the order of the fields of its message."""


def _rows(out: WireWriter, field: int, name: str, value: tuple[Any, ...]) -> None:
    """Windows and paddings are messages of messages, slices are repeated themselves."""
    rows = []
    for item in value:
        row = WireWriter()
        for number, part in enumerate(_ROWS[name], 1):
            row.integer(number, int(getattr(item, part)))
        rows.append(row.data)
    if name == "slice":
        for data in rows:
            out.message(field, data)
        return
    whole = WireWriter()
    for data in rows:
        whole.message(1, data)
    out.message(field, whole.data)


def _labels(labels: ConvLabels) -> bytes:
    out = WireWriter()
    out.integer(3, labels.rhs_input)
    out.integer(4, labels.rhs_output)
    out.integers(6, labels.rhs_spatial)
    out.integer(7, labels.lhs_batch)
    out.integer(8, labels.lhs_feature)
    out.integer(9, labels.out_batch)
    out.integer(10, labels.out_feature)
    out.integers(11, labels.lhs_spatial)
    out.integers(12, labels.out_spatial)
    return bytes(out.data)


def _metadata(metadata: Metadata | None) -> bytes:
    if metadata is None:
        return b""
    fields = dict(_FIELD.findall(metadata.raw)) or {
        "op_type": f'"{metadata.op_type}"',
        "op_name": f'"{metadata.op_name}"',
        "source_file": f'"{metadata.source_file}"',
        "source_line": str(metadata.source_line),
    }
    out = WireWriter()
    for name, number in (METADATA_TEXTS | METADATA_NUMBERS).items():
        text = fields.get(name, "0")
        if text.startswith('"'):
            out.raw(number, unescaped(text[1:-1]))
        elif text.isdecimal():
            out.integer(number, int(text))
    return bytes(out.data)


def _tables(text: str) -> bytes:
    """``StackFrameIndexProto`` of the module's tables."""
    out, section = WireWriter(), ""
    for line in text.splitlines():
        _, _, value = line.strip().partition(" ")
        if not value:
            section = line.strip() or section
            continue
        if value.startswith('"'):
            out.message(1 if section == "FileNames" else 2, unescaped(value[1:-1]))
            continue
        part = WireWriter()
        for name, number in re.findall(r"(\w+)=(\d+)", value):
            if section == "FileLocations":
                part.integer(LOCATION[name], int(number))
            elif name == "parent_frame_id":
                part.integer(2, int(number) - 1)
            else:
                part.integer(1, int(number))
        out.message(3 if section == "FileLocations" else 4, part.data)
    return bytes(out.data)
