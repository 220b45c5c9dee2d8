"""HLO protos: what XLA serialized reads as its text does, goes back unchanged, and breaks politely.

The protos and the texts beside them were made by XLA (jaxlib 0.10.2) from one module each.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import NestwrightError, ParseError, UnsupportedError
from nestwright.ir.frontends.hlo_proto.encode import WireWriter, varint, write_shape
from nestwright.ir.frontends.hlo_proto.reader import parse
from nestwright.ir.frontends.hlo_proto.wire import Message
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.frontends.signatures import is_hlo_proto
from nestwright.ir.hlo import text
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.attributes import FREE_TEXT, show_attribute
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction, Raw, Shape, TupleShape
from nestwright.ir.hlo.shape_text import show_shape
from nestwright.ir.hlo.sources import Sources

FIXTURES = Path(__file__).parent / "hlo_proto"
NAMES = ("control", "operations", "types")
CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus"
MODULES = sorted(CORPUS.glob("models/*.hlo")) + sorted(CORPUS.glob("*/hlo/*.hlo"))


def both(name: str) -> tuple[HloModule, HloModule]:
    """A module from its proto and from its text."""
    proto = (FIXTURES / f"{name}.pb").read_bytes()
    return parse(proto, name), text.parse((FIXTURES / f"{name}.hlo").read_text())


def facts(i: Instruction) -> tuple[Any, ...]:
    """All that text and proto both say of an instruction."""
    attrs = {
        (k, v.text.replace("%", "")) if isinstance(v, Raw) else show_attribute(k, v)
        for k, v in i.attrs.items()
        if k not in FREE_TEXT and k != "literal"
    }
    metadata = i.metadata.raw if i.metadata else ""
    return i.opcode, show_shape(i.shape), [o.name for o in i.operands], attrs, metadata


def same_bits(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(same_bits(x, y) for x, y in zip(a, b, strict=True))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    bits = a.tobytes() == b.tobytes() or np.array_equal(
        a.astype(wide), b.astype(wide), equal_nan=True
    )
    return a.shape == b.shape and a.dtype == b.dtype and bits


@pytest.mark.parametrize("name", NAMES)
def test_proto_reads_as_its_text(name: str) -> None:
    proto, read = both(name)
    assert (proto.name, proto.entry.name) == (read.name, read.entry.name)
    assert {k: v.text for k, v in proto.attrs.items()} == {k: v.text for k, v in read.attrs.items()}
    named = {c.name: c for c in read.computations}
    assert {c.name for c in proto.computations} == set(named)
    for a in proto.computations:
        b = named[a.name]
        assert a.root.name == b.root.name
        for i, j in zip(a.instructions, b.instructions, strict=True):
            assert (i.name, facts(i)) == (j.name, facts(j))
            if i.opcode == "constant":
                assert same_bits(i.attrs["literal"], j.attrs["literal"]), i.name
    assert text.show(text.parse(text.show(proto))) == text.show(proto)


def test_what_was_read_computes() -> None:
    proto, read = both("control")
    verify(proto)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for choice, flag in ((0, True), (1, False), (7, True)):
        args = [x, np.int32(choice), np.bool_(flag)]
        assert all(map(np.array_equal, evaluate(proto, args), evaluate(read, args)))


def test_metadata_says_file_and_line() -> None:
    proto, _ = both("control")
    found = [i.metadata for c in proto.computations for i in c.instructions if i.metadata]
    assert [(m.source_file, m.source_line) for m in found] == [("model.py", 12)]


def test_stack_frames_give_file_and_line() -> None:
    source = """HloModule m

FileNames
1 "model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=2 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e { ROOT x = f32[] parameter(0), metadata={op_name="x" stack_frame_id=1} }
"""
    module = parse(to_proto(text.parse(source)))
    assert Sources(module).of(module.entry.root) == "model.py:7"
    assert module.tables.split() == text.parse(source).tables.split()


@pytest.mark.parametrize("name", NAMES)
def test_written_protos_read_back_the_same(name: str) -> None:
    for module in both(name):
        again = parse(to_proto(module))
        without = {k: v for k, v in module.attrs.items() if k != "entry_computation_layout"}
        assert {k: again.attrs[k] for k in without} == without
        for a, b in zip(module.computations, again.computations, strict=True):
            assert list(map(facts, a.instructions)) == list(map(facts, b.instructions))


@pytest.mark.corpus
@pytest.mark.skipif(not MODULES, reason="the corpus is not beside this checkout")
def test_corpus_goes_through_protos_unchanged() -> None:
    small = [p for p in MODULES if p.stat().st_size < 100_000]
    for path in small[::12]:
        module = text.parse(path.read_text(), str(path))
        assert text.show(parse(to_proto(module), str(path))) == text.show(module)


def test_xla_accepts_what_is_written() -> None:
    _hlo = pytest.importorskip("jaxlib._hlo")
    for name in NAMES:
        _, module = both(name)
        read = _hlo.HloModule.from_serialized_hlo_module_proto(to_proto(module))
        given = parse(read.as_serialized_hlo_module_proto())
        assert list(map(facts, given.entry.instructions)) == list(
            map(facts, module.entry.instructions)
        )


WRITTEN = {
    "ragged rows": """
  a = f32[8,4] parameter(0)
  b = f32[2,4,3] parameter(1)
  n = s32[2] parameter(2)
  ROOT r = f32[8,3] ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1},
  lhs_ragged_dims={0}, rhs_group_dims={0}""",
    "ragged sums": """
  a = f32[2,4,8] parameter(0)
  b = f32[2,8,3] parameter(1)
  n = s32[5] parameter(2)
  ROOT r = f32[5,2,4,3] ragged-dot(a, b, n), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={2},
  operand_precision={high,high}""",
    "an algorithm and precisions": """
  a = f32[8,4] parameter(0)
  b = f32[4,3] parameter(1)
  ROOT r = f32[8,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
  operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32""",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_messages_inside_an_instruction_stand_once(name: str) -> None:
    module = text.parse(f"HloModule m\nENTRY e {{{WRITTEN[name]}\n}}\n")
    again = parse(to_proto(module))
    assert list(map(facts, again.entry.instructions)) == list(map(facts, module.entry.instructions))


def test_a_done_needs_no_computation() -> None:
    source = """HloModule m
f { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }
ENTRY e {
  x = f32[2] parameter(0)
  a = ((f32[2]), f32[2], s32[]) async-start(x), calls=f
  b = ((f32[2]), f32[2], s32[]) async-update(a)
  ROOT c = f32[2] async-done(b)
}
"""
    module = parse(to_proto(text.parse(source)))
    found = evaluate(module, [np.array([1, 2], np.float32)])
    np.testing.assert_array_equal(found, [-1, -2])


def test_names_stand_once_in_a_written_module() -> None:
    source = """HloModule m
f { x = f32[] parameter(0)  ROOT y = f32[] negate(x) }
ENTRY e { x = f32[] parameter(0)  ROOT y = f32[] call(x), to_apply=f }
"""
    module = parse(to_proto(text.parse(source)))
    names = [i.name for c in module.computations for i in c.instructions]
    assert names == ["x", "y", "x.1", "y.1"]


@pytest.mark.parametrize("wrap", [1, 2])
def test_module_inside_other_messages(wrap: int) -> None:
    """An ``HloProto`` has the module as its field 1, a snapshot the ``HloProto`` as its own."""
    module, data = both("control")[0], (FIXTURES / "control.pb").read_bytes()
    for _ in range(wrap):
        outer = WireWriter()
        outer.message(1, data)
        outer.message(3, write_shape(Shape(module.entry.root.operands[0].array.dtype)))
        data = bytes(outer.data)
    assert is_hlo_proto(data)
    assert text.show(parse(data)) == text.show(module)


def test_unpacked_numbers_read_as_packed_ones() -> None:
    out = WireWriter()
    for number in (3, -1, 1 << 40):
        out.integer(4, number)
    out.integers(4, (5, -(1 << 63)))
    message = Message(bytes(out.data), "m")
    assert message.integers(4) == (3, -1, 1 << 40, 5, -(1 << 63))
    assert message.varints(4).astype(np.int64).tolist() == list(message.integers(4))


def module_with(**changes: Any) -> bytes:
    """A module of one instruction, some of its fields other than they should be."""
    instruction = WireWriter()
    fields = {"name": "x", "opcode": "parameter", "operands": (), "called": (), "shape": None}
    fields |= changes
    instruction.text(1, fields["name"])
    instruction.text(2, fields["opcode"])
    shape = Shape(both("types")[0].entry.instructions[0].array.dtype, (2,))
    instruction.message(3, fields["shape"] if fields["shape"] is not None else write_shape(shape))
    instruction.integer(35, 1)
    instruction.integers(36, fields["operands"])
    instruction.integers(38, fields["called"])
    instruction.data += fields.get("more", b"")
    computation, module = WireWriter(), WireWriter()
    computation.text(1, "main")
    for _ in range(fields.get("copies", 1)):
        computation.message(2, instruction.data)
    computation.integer(5, 1)
    computation.integer(6, fields.get("root", 1))
    module.text(1, "m")
    module.text(2, "main")
    module.message(3, computation.data)
    module.integer(6, fields.get("entry", 1))
    return bytes(module.data)


def shape_of(kind: int, *dims: int, layout: tuple[int, ...] = ()) -> bytes:
    out, inner = WireWriter(), WireWriter()
    out.integer(2, kind)
    out.integers(3, dims)
    inner.integers(1, layout)
    out.raw(5, inner.data)
    return bytes(out.data)


def deep_shape(levels: int) -> bytes:
    data = shape_of(11)
    for _ in range(levels):
        out = WireWriter()
        out.integer(2, 13)
        out.message(4, data)
        data = bytes(out.data)
    return data


@pytest.mark.parametrize(
    ("layout", "value"),
    [((1, 0), [[1, 2, 3], [4, 5, 6]]), ((0, 1), [[1, 3, 5], [2, 4, 6]])],
)
def test_constants_stand_in_the_order_of_their_layout(layout: Any, value: Any) -> None:
    literal, more = WireWriter(), WireWriter()
    literal.message(1, shape_of(11, 2, 3, layout=layout))
    literal.message(8, np.arange(1, 7, dtype="<f4").tobytes())
    more.message(8, literal.data)
    data = module_with(opcode="constant", shape=shape_of(11, 2, 3), more=bytes(more.data))
    assert parse(data).entry.root.attrs["literal"].tolist() == value


def test_the_plain_module_reads() -> None:
    module = parse(module_with(name="%a/b:0", shape=deep_shape(3)))
    assert (module.name, module.entry.root.name) == ("m", "_a_b_0")
    assert isinstance(module.entry.root.shape, TupleShape)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no module is in it"),
        (b"\x0a", "a number has no end"),
        (b"\x0a\x05ab", "goes 3 bytes beyond its message"),
        (b"\x0b\x01", "wire type 3 is unknown"),
        (b"\x02\x00", "number 0"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x0a\x02ab\x12\x02cd", "no module is in it"),
        (module_with(opcode="paramter"), "unknown opcode `paramter`"),
        (module_with(root=2), "computation `main` has no root"),
        (module_with(entry=2), "module has no entry"),
        (module_with(copies=2), "two have id 1"),
        (module_with(operands=(7,)), "no instruction above it in its computation has id 7"),
        (module_with(opcode="negate", operands=(1,)), "no instruction above it"),
        (module_with(opcode="call", called=(1,)), "no computation above it has id 1"),
        (module_with(opcode="call"), "takes 1 computations and has 0"),
        (module_with(opcode="constant"), "has no value"),
        (module_with(opcode="convolution"), "has no `dim_labels` that is known"),
        (module_with(opcode="rng"), "has no `distribution` that is known"),
        (module_with(more=b"\x48\x01"), "do not count up from 0"),
        (module_with(shape=b""), "unknown element type: type number 0"),
        (module_with(shape=shape_of(99)), "unknown element type: type number 99"),
        (module_with(shape=shape_of(11, 1 << 62)), "shape is too large"),
        (module_with(shape=shape_of(11, -1)), "shape is too large"),
        (module_with(shape=shape_of(11, 2, 3, layout=(0, 0))), "layout does not fit"),
        (module_with(shape=deep_shape(80)), "messages are nested too deep"),
        (module_with(more=b"\x0a\x01\xff"), "is not UTF-8"),
    ],
)
def test_bad_protos(data: bytes, why: str) -> None:
    with pytest.raises(ParseError, match=why) as caught:
        parse(data, "bad.pb")
    assert caught.value.where.startswith("bad.pb:byte ")


@pytest.mark.parametrize(
    ("kind", "dims", "field", "data", "why"),
    [
        (11, (3,), 8, b"\0" * 8, "2 values for f32"),
        (11, (3,), 8, b"\0" * 7, "field 8 is of another kind"),
        (11, (1 << 40,), 8, b"\0" * 8, "2 values for f32"),
        (4, (3,), 4, b"\x01\x02", "2 values for s32"),
        (2, (3,), 15, b"ab", "2 bytes for 3 values of s8"),
        (15, (1,), 12, b"\0" * 4, "no second part"),
        (11, (), 4, b"\0", "a constant has no value"),
    ],
)
def test_constants_that_do_not_fit(kind: int, dims: Any, field: int, data: bytes, why: str) -> None:
    literal, more = WireWriter(), WireWriter()
    literal.message(1, shape_of(kind, *dims))
    literal.message(field, data)
    more.message(8, literal.data)
    changed = module_with(opcode="constant", shape=shape_of(kind, *dims), more=bytes(more.data))
    with pytest.raises(ParseError, match=why):
        parse(changed)


def test_cut_and_edited_protos_are_refused_or_read() -> None:
    data = (FIXTURES / "control.pb").read_bytes()
    for end in range(0, data.rindex(b"main"), 37):
        with pytest.raises(ParseError):
            parse(data[:end])
    read = 0
    for number in range(400):
        random, edited = Random(number), bytearray(data)
        edited[random.randrange(len(data))] = random.randrange(256)
        try:
            module = parse(bytes(edited))
        except NestwrightError:
            continue
        read += 1
        assert text.show(text.parse(text.show(module))) == text.show(module), number
        assert text.show(parse(to_proto(module))), number
    assert 40 < read < 360


def test_values_left_out_are_not_written() -> None:
    module = text.parse("HloModule m\nENTRY e { ROOT c = f32[9] constant({...}) }")
    with pytest.raises(UnsupportedError, match="left its value out"):
        to_proto(module)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 63) - 1, -1, -(1 << 63)])
def test_varints(value: int) -> None:
    message = Message(varint(5 << 3) + varint(value), "m")
    assert message.integer(5) == value
