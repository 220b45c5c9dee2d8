"""HLO text is read in all of XLA's styles, and what cannot be read is refused with its place."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ParseError
from nestwright.ir.frontends.hlo_proto.reader import parse as from_proto
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import (
    Computation,
    ConvLabels,
    HloModule,
    Instruction,
    PadDim,
    Raw,
    Shape,
    SliceDim,
    TupleShape,
    WindowDim,
)

CORPUS = Path(__file__).parents[3].parent / "shared/corpus"


def module(body: str, head: str = "") -> HloModule:
    return parse(f"HloModule m\n{head}\nENTRY e {{\n{body}\n}}\n")


def last(body: str, head: str = "") -> Instruction:
    return module(body, head).entry.root


def refused(text: str) -> str:
    with pytest.raises(ParseError) as error:
        parse(text, "f.hlo")
    return str(error.value)


def refused_in(body: str, head: str = "") -> str:
    return refused(f"HloModule m\n{head}\nENTRY e {{\n{body}\n}}\n")


def test_three_styles_are_one_module() -> None:
    short = """HloModule m
r { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[4]{0} parameter(0)
  z = f32[] constant(0)
  ROOT t = f32[] reduce(x, z), dimensions={0}, to_apply=r
}"""
    full = """HloModule m
%r (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
ENTRY %e (x: f32[4]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %z = f32[] constant(0) // zero
  ROOT %t = f32[] reduce(%x, /*index=1*/%z), dimensions={0}, to_apply=%r
}"""
    tensorflow = full.replace("add(%a, %b)", "add(f32[] %a, f32[] %b)").replace(
        "reduce(%x, /*index=1*/%z)", "reduce(f32[4]{0} %x, f32[] %z)"
    )
    assert show(parse(short)) == show(parse(full)) == show(parse(tensorflow))


def test_metadata_and_tables_are_kept() -> None:
    text = """HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }

FileNames
1 "a.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  ROOT x = f32[2]{0} parameter(0), metadata={op_type="t" op_name="a \\"b\\"" source_line=7}
}
"""
    found = parse(text)
    assert found.attrs["is_scheduled"] == Raw("true")
    assert found.tables.startswith('FileNames\n1 "a.py"')
    assert found.entry.root.metadata is not None
    assert found.entry.root.metadata.op_type == "t"
    assert found.entry.root.metadata.source_line == 7
    assert show(found) == text


def test_tables_may_be_indented() -> None:
    text = 'HloModule m\n\n  FileNames\n  1 "a.py"\n\n  ENTRY e { ROOT x = f32[] parameter(0) }\n'
    assert parse(text).tables.startswith('FileNames\n  1 "a.py"')


@pytest.mark.parametrize("start", ["ENTRY %e (x: f32[]) -> f32[] ", "e ", "// a note\n\n  %e "])
def test_a_computation_alone_is_a_module(start: str) -> None:
    found = parse(start + "{ ROOT x = f32[] parameter(0) }")
    assert found.name == found.entry.name == "e"


def test_entry_is_the_last_computation_without_a_mark() -> None:
    text = "HloModule m\na { ROOT x = f32[] parameter(0) }\nb { ROOT y = f32[] parameter(0) }"
    assert parse(text).entry.name == "b"


def test_root_is_the_last_instruction_without_a_mark() -> None:
    assert last("x = f32[] parameter(0)\n y = f32[] negate(x)").name == "y"


def test_shapes() -> None:
    tup = last("ROOT p = ((f32[2,3]{0,1:T(8,128)S(1)}, token[]), s32[<=3], u8[]) parameter(0)")
    match tup.shape:
        case TupleShape(elements=(TupleShape(elements=(Shape() as a, _)), Shape() as b, _)):
            assert a.dims == (2, 3) and a.layout == (0, 1)
            assert b.dims == (3,) and b.dynamic == (True,)
        case other:
            pytest.fail(str(other))


@pytest.mark.parametrize("text", ["f32[2,3] {0,1}", "f32 [2,3]{0, 1}", "f32[2, 3]\t{0,1}"])
def test_blanks_in_a_shape(text: str) -> None:
    assert show(module(f"ROOT p = {text} parameter(0)")).count("p = f32[2,3]{0,1} par") == 1


def test_attributes_have_types() -> None:
    conv = last(
        "x = f32[1,8,8,4] parameter(0)\n w = f32[3,3,4,8] parameter(1)\n"
        "ROOT c = f32[1,4,4,8] convolution(x, w), dim_labels=b01f_01io->b01f, "
        "window={size=3x3 stride=2x2 pad=0_1x0_-1 rhs_reversal=1x0}, feature_group_count=1"
    )
    assert conv.attrs["dim_labels"] == ConvLabels(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    assert conv.attrs["window"][0] == WindowDim(3, 2, 0, 1, reversal=True)
    assert conv.attrs["window"][1] == WindowDim(3, 2, 0, -1)
    pad = last(
        "x = f32[4,4] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT p = f32[5,7] pad(x, z), padding=0_1x-1_1_1"
    )
    assert pad.attrs["padding"] == (PadDim(0, 1), PadDim(-1, 1, 1))
    cut = last("x = f32[4,4] parameter(0)\n ROOT s = f32[2,2] slice(x), slice={[0:2], [0:4:2]}")
    assert cut.attrs["slice"] == (SliceDim(0, 2), SliceDim(0, 4, 2))


def test_attributes_without_a_meaning_are_kept_as_text() -> None:
    text = 'sharding={devices=[2,1]<=[2]}, backend_config={"a": {"b": [1,2]}}, statistics={a=1}'
    body = f"x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x), {text}"
    assert f"{text}\n" in show(module(body))


def test_nested_instructions_become_instructions() -> None:
    m = module("ROOT y = f32[2] add(f32[2] parameter(0), f32[2] negate(f32[2] parameter(1)))")
    opcodes = [i.opcode for i in m.entry.instructions]
    assert opcodes == ["parameter", "parameter", "negate", "add"]


def test_a_missing_shape_is_inferred() -> None:
    dot = last(
        "a = f32[2,3] parameter(0)\n b = f32[3,4] parameter(1)\n"
        "ROOT d = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert dot.array.dims == (2, 4)
    assert "has no shape and none follows" in refused_in("a = f32[2] parameter(0)\n b = reshape(a)")
    huge = "b = pad(a, z), padding=0_999999999999999999x0_999999999999999999"
    assert "the shape of `b` is too large" in refused_in(
        f"a = f32[2,2] parameter(0)\n z = f32[] constant(0)\n {huge}"
    )


def test_computation_written_in_place() -> None:
    text = (
        "x = f32[4] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[] reduce(x, z), "
        "dimensions={0}, to_apply={ a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT s = f32[] maximum(a, b) }"
    )
    reducer = last(text).attrs["to_apply"]
    assert isinstance(reducer, Computation) and reducer.root.opcode == "maximum"


@pytest.mark.parametrize("thread", ["", ', execution_thread="host"'])
def test_attributes_after_a_computation_in_place(thread: str) -> None:
    add = "{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }" + thread
    found = last(
        "x = f32[4] parameter(0)\n z = f32[] constant(0)\n"
        f"ROOT r = f32[] reduce(x, z), to_apply=\n{add}, dimensions={{0}}, origin=kept"
    )
    assert found.attrs["dimensions"] == (0,) and found.attrs["origin"] == Raw("kept")
    branch = "{ x = f32[] parameter(0) ROOT n = f32[] negate(x) }" + thread
    found = last(
        "k = s32[] parameter(0)\n x = f32[] parameter(1)\n"
        f"ROOT c = f32[] conditional(k, x, x), branch_computations={{\n{branch},\n{branch}\n}}"
    )
    assert len(found.attrs["branch_computations"]) == 2


def test_computations_in_place_nest() -> None:
    inner = "{ x = f32[] parameter(0) ROOT n = f32[] negate(x) }"
    outer = f"{{ x = f32[] parameter(0) ROOT c = f32[] call(x), to_apply={inner} }}"
    head = "nested.2 { ROOT x = f32[] parameter(0) }"
    body = f"x = f32[] parameter(0)\n a = f32[] call(x), to_apply={outer}\n"
    text = f"{body} ROOT b = f32[] call(a), to_apply={inner}"
    found = module(text, head)
    assert len({c.name for c in found.computations}) == 5
    assert evaluate(found, [np.float32(3)]) == 3
    assert show(parse(show(found))) == show(found)


def test_names_of_the_text_are_not_given_to_what_has_none() -> None:
    body = "x = s32[] add(s32[] constant(1), s32[] constant(2))\n constant = s32[] constant(5)\n"
    found = module(body + "ROOT r = s32[] multiply(x, constant)")
    assert evaluate(found, []) == 15


def test_an_attribute_of_one_operation_is_kept_as_text_in_others() -> None:
    pairs = "source_target_pairs={{0,0}}, slice_sizes={{1},{2}}"
    found = last(f"x = f32[2] parameter(0)\n ROOT n = f32[2] collective-permute(x), {pairs}")
    assert found.attrs["slice_sizes"] == Raw("{{1},{2}}")


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("f32[]", "1e-07", np.float32(1e-7)),
        ("f32[3]", "{-inf, nan, inf}", np.array([-np.inf, np.nan, np.inf], "f4")),
        ("f32[]", "nan(0x400000)", np.float32(np.nan)),
        ("pred[2]", "{1, false}", np.array([True, False])),
        ("s8[2,2]", "{ { /*i0=0*/ -128, 1 }, { 2, 127 } }", np.array([[-128, 1], [2, 127]], "i1")),
        ("pred[2]", "{-2, 0}", np.array([True, False])),
        ("u64[]", "18446744073709551615", np.uint64(2**64 - 1)),
        ("u64[2]", "{-1, -9223372036854775808}", np.array([2**64 - 1, 2**63], "u8")),
        ("s64[]", "18446744073709551615", np.int64(-1)),
        ("f32[]", "3.40282347e+38", np.finfo(np.float32).max),
        ("c64[2]", "{(1, -2), (0, inf)}", np.array([1 - 2j, complex(0, np.inf)], "c8")),
        ("f32[0]", "{}", np.zeros(0, "f4")),
        ("f32[2,0]", "{ {}, {} }", np.zeros((2, 0), "f4")),
        ("s32[2,2]", "7", np.full((2, 2), 7, "i4")),
        ("s32[1,1]", "7", np.full((1, 1), 7, "i4")),
    ],
)
def test_literals(type_: str, text: str, value: np.ndarray) -> None:
    found = last(f"ROOT c = {type_} constant({text})").attrs["literal"]
    assert found.dtype == value.dtype and found.shape == value.shape
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize(
    ("type_", "text", "bits"),
    [
        ("f32[]", "-nan", 0xFFC00000),
        ("f32[]", "nan(0x1)", 0x7F800001),
        ("f32[]", "-nan(0x7fffff)", 0xFFFFFFFF),
        ("f16[]", "nan(0x2ff)", 0x7EFF),
        ("bf16[]", "-nan(0x2)", 0xFF82),
        ("f64[]", "nan(0xf)", 0x7FF000000000000F),
        ("c64[]", "(nan(0x5), -nan)", 0xFFC000007F800005),
        ("f8e4m3fn[]", "-nan", 0xFF),
        ("f8e4m3fnuz[]", "nan", 0x80),
        ("f8e8m0fnu[]", "nan", 0xFF),
    ],
)
def test_nans_keep_their_bits_in_text(type_: str, text: str, bits: int) -> None:
    one = module(f"ROOT c = {type_} constant({text})")
    assert int.from_bytes(one.entry.root.attrs["literal"].tobytes(), "little") == bits
    assert f"constant({text})" in show(one)


def test_tuple_literal() -> None:
    found = last("ROOT c = (f32[2], (s32[], pred[])) constant(({1, 2}, (3, true)))").attrs[
        "literal"
    ]
    np.testing.assert_array_equal(found[0], [1, 2])
    assert found[1][0] == 3 and found[1][1]


P = "x = f32[4] parameter(0)\n"


@pytest.mark.parametrize(
    ("body", "place", "says"),
    [
        (P + "ROOT y = f32[4] exponentail(x)", "5:17", "did you mean `exponential`?"),
        (P + "ROOT y = f32[4] negate(xx)", "5:24", "operand `xx` is not defined"),
        (P + "ROOT y = f32[4] negate(f32[5] x)", "5:24", "it is f32[4]{0}, the text says f32[5]"),
        (P + "ROOT y = f32[4] negate(s32[4] x)", "5:24", "shape of operand `x` does not fit"),
        (P + "ROOT y = f32[4] negate(x", "6:1", "expected `,` or `)`"),
        (P + "x = f32[4] negate(x)", "5:1", "defined twice"),
        (P + "ROOT y = f33[4] negate(x)", "5:10", "did you mean `f32`?"),
        (P + "ROOT y = f32[4,b] negate(x)", "5:10", "`b` is not a dimension"),
        (P + "ROOT y = f32[4]{1} negate(x)", "5:10", "layout does not fit"),
        (P + "ROOT y = f32[4] reverse(x), dimensions={a}", "5:41", "attribute `dimensions`"),
        (P + "ROOT y = f32[4] negate(x), origin=1, origin=2", "5:38", "given twice"),
        (P + "ROOT y = f32[4] negate(x), dimensions={0}", "5:28", "no attribute `dimensions`"),
        (P + "ROOT y = f32[4] reverse(x), dimension={0}", "5:29", "did you mean `dimensions`"),
        ("ROOT c = f32[4] constant({1, 2, 3})", "4:25", "3 values in 1 braces for f32[4]"),
        ("ROOT c = s8[] constant(128)", "4:23", "out of the range of s8"),
        ("ROOT c = s32[] constant(1.5)", "4:24", "not a constant of type s32"),
        ("ROOT c = u32[] constant(-1)", "4:24", "out of the range of u32"),
        ("ROOT c = s64[] constant(18446744073709551616)", "4:24", "out of the range of s64"),
        ("ROOT c = u64[] constant(-9223372036854775809)", "4:24", "out of the range of u64"),
        ("ROOT c = f32[] constant(1_000)", "4:24", "it has characters that no number has"),
        ("ROOT c = s32[] constant(\u0663)", "4:24", "it has characters that no number has"),
        ("ROOT c = f32[] constant(nan(0x800000))", "4:24", "no payload of a NaN of float32"),
        ("ROOT c = f16[2] constant({nan(0x0), 1})", "4:25", "no payload of a NaN of float16"),
        ("ROOT c = f8e5m2[] constant(nan(0x1))", "4:27", "no payload of a NaN of float8_e5m2"),
        ("ROOT c = f32[] constant(3.5e38)", "4:24", "out of the range of f32"),
        ("ROOT c = f16[2] constant({1, 70000})", "4:25", "out of the range of f16"),
        ("ROOT c = f8e4m3fn[] constant(500)", "4:29", "out of the range of f8e4m3fn"),
        ("ROOT c = c64[] constant((1, -1e40))", "4:24", "out of the range of c64"),
        ("ROOT c = f64[] constant(1e999)", "4:24", "1e999 is out of range"),
        ("ROOT c = f32[1000000000,0] constant({1})", "4:36", "does not fit"),
        ("ROOT p = f32[] parameter(3)", "3:9", "do not count up from 0"),
        ("ROOT p = f32[4294967296,4294967296] parameter(0)", "4:10", "too large"),
        ("ROOT p = f32[99999999999999999999999] parameter(0)", "4:10", "too large"),
        (P + "ROOT a = f32[4] negate(x)\nROOT b = f32[4] negate(x)", "6:1", "two roots"),
        (P + "ROOT y = f32[4] call(x), to_apply=nope", "5:35", "computation `nope` is not defined"),
        ("", "4:1", ""),
    ],
)
def test_refusals_name_the_place(body: str, place: str, says: str) -> None:
    message = refused_in(body)
    if says:
        assert message.startswith(f"f.hlo:{place}: ")
        assert says in message
    else:
        assert "is empty" in message


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("", "empty"),
        ("module @m { func.func @main() { return } }", "MLIR text"),
        ("\x08\x07\x12\x04onnx", "protobuf"),
        ("MLïR\rStableHLO", "bytecode"),
        ('{"a": 1}', "JSON"),
        ("; ModuleID = 'x'\n", "LLVM IR"),
        ("{ lambda ; a:f32[]. let b = neg a in (b,) }", "jaxpr"),
        ("hello", "module header"),
    ],
)
def test_text_that_is_not_hlo(text: str, guess: str) -> None:
    message = refused(text)
    assert message.startswith("f.hlo:1:1: this is not HLO text") and guess in message


def test_depth_is_limited() -> None:
    nested = "negate(" * 5000 + "x" + ")" * 5000
    assert "nested too deep" in refused_in(P + f"ROOT y = f32[4] {nested}")
    shape = "(" * 5000 + "f32[]" + ")" * 5000
    assert "nested too deep" in refused_in(f"ROOT p = {shape} parameter(0)")


def test_unclosed_text() -> None:
    assert "no closing brace" in refused("HloModule m\nENTRY e { x = f32[] parameter(0)")
    assert "comment has no end" in refused("HloModule m /* ENTRY")
    assert "no closing" in refused_in('x = f32[] parameter(0), metadata={op_name="a"')
    assert "string has no end" in refused_in('x = f32[] parameter(0), origin="a')


def test_what_a_layout_and_a_type_say_beyond_arrays_is_kept() -> None:
    text = """HloModule m

ENTRY e {
  x = f32[8,128]{0,1:T(8,128)S(1)} parameter(0)
  n = s4[4]{0:E(4)} parameter(1)
  b = b(f32[2,4]{1,0}) custom-call(x), custom_call_target="CreateBuffer"
  o = opaque[] custom-call(b), custom_call_target="Hold"
  c = (f32[4]{0}, s32[]) constant(({...}, 1))
  ROOT t = (s4[4]{0:E(4)}, opaque[]) tuple(n, o)
}
"""
    assert show(parse(text)) == text


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["models", "xla_hlo"])
def test_corpus_prints_stably(folder: str) -> None:
    """Every module of up to 60 kB."""
    paths = [p for p in sorted((CORPUS / folder).glob("*.hlo")) if p.stat().st_size < 60_000]
    if not paths:
        pytest.skip("the corpus is not beside this checkout")
    for path in paths:
        once = show(parse(path.read_text(), path.name))
        assert show(parse(once)) == once, path.name


EMPTY = [
    ((0,), "{}"),
    ((0, 3), "{  }"),
    ((0, 0), "{  }"),
    ((3, 0), "{ {}, {}, {} }"),
    ((1, 0, 7), "{ {  } }"),
    ((2, 0, 3), "{ {  }, {  } }"),
    ((1, 1, 1, 0), "{ { /*i0=0*/ { /*i1=0*/ {} } } }"),
    ((2, 2, 0, 0), "{ { /*i0=0*/ { /*i1=0*/ }, { /*i1=1*/ } }, { /*i0=1*/ { /*i1=0*/ }, { } } }"),
    ((1, 0, 7, 6, 6), "{ { /*i0=0*/ } }"),
]
"""As XLA (jax 0.10.2) prints them."""


@pytest.mark.parametrize(("dims", "text"), EMPTY)
@pytest.mark.parametrize("dtype", ["f32", "pred", "c64", "u64"])
def test_empty_constants(dims: tuple[int, ...], text: str, dtype: str) -> None:
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    for written in (text, "{}"):
        one = module(f"ROOT c = {shape} constant({written})")
        value = one.entry.root.attrs["literal"]
        assert value.shape == dims
        assert show(parse(show(one))) == show(one)
        spaces = show(one).partition("constant(")[2].partition(")")[0].replace(" ", "")
        assert spaces == re.sub(r"\s|/\*.*?\*/", "", text)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("f32[1,0,7]", "{{},{}}"),
        ("f32[1,0,7]", "{{{}}}"),
        ("f32[0,3]", "{{}}"),
        ("f32[2,0]", "{{}}"),
        ("f32[1000000000,0]", "{{}}"),
        ("f32[1000000000,1000000000,0]", "{{}}"),
    ],
)
def test_empty_constants_with_the_wrong_braces_are_refused(shape: str, text: str) -> None:
    message = refused(f"HloModule m\nENTRY e {{\nROOT c = {shape} constant({text})\n}}\n")
    assert "constant does not fit its shape" in message


def test_an_empty_constant_of_many_rows_is_short() -> None:
    one = module("ROOT c = f32[1000000000,0] constant({})")
    assert show(one).count("{}") == 1
    assert show(parse(show(one))) == show(one)


def test_constants_of_one_number_have_a_budget() -> None:
    rows = "\n".join(f"c{n} = f64[16777216] constant({n})" for n in range(3))
    message = refused(f"HloModule m\nENTRY e {{\n{rows}\n}}\n")
    assert "402653184 bytes, over 268435456" in message
    assert message.startswith("f.hlo:5:28")


def test_windows_of_scalars_are_left_out() -> None:
    head = (
        "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ge { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT s = pred[] compare(a, b), direction=GE }\n"
    )
    rows = (
        "x = f32[] parameter(0)\ny = f32[] parameter(1)\nm = f32[3,4] parameter(2)\n"
        "n = f32[4,5] parameter(3)\n"
        "r = f32[] reduce-window(x, y){}, to_apply=sum\n"
        "q = f32[] select-and-scatter(x, y, y){}, select=ge, scatter=sum\n"
        "c = f32[3,5] convolution(m, n){}, dim_labels=bf_io->bf\n"
        "ROOT t = (f32[], f32[], f32[3,5]) tuple(r, q, c)"
    )
    left_out, empty = (module(rows.replace("{}", w), head) for w in ("", ", window={}"))
    assert show(left_out) == show(empty)
    assert "window=" not in show(left_out)
    assert show(parse(show(left_out))) == show(left_out)
    verify(left_out)
    args = [np.float32(2), np.float32(5), np.ones((3, 4), "f4"), np.ones((4, 5), "f4")]
    given = [np.asarray(a) for a in args]
    native = nw.build(left_out, cache=False)(*given)
    for found in (evaluate(left_out, given), native):
        assert [np.ravel(v)[0] for v in found] == [7, 10, 4]
    again = from_proto(to_proto(left_out), "m")
    assert "window=" not in show(again)
    assert [np.ravel(v)[0] for v in evaluate(again, given)] == [7, 10, 4]
