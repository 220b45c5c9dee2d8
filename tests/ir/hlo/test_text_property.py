"""Random modules print and read back the same; random damage to a text is never a crash."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir.dtypes import ALL, BY_NAME, DType, is_numpy_dtype, to_numpy
from nestwright.ir.errors import NestwrightError
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import HloModule, Instruction, Metadata, Shape, TupleShape
from nestwright.ir.hlo.rewrite import assemble, constant, make, parameter
from nestwright.ir.hlo.text.canonical import key

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}", fullmatch=True)
DIMS = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    dims = draw(DIMS)
    layout = tuple(draw(st.permutations(range(len(dims))))) or None
    return Shape(draw(st.sampled_from(ALL)), dims, draw(st.sampled_from([None, layout])))


@st.composite
def arrays(draw: st.DrawFn, dtype: DType) -> np.ndarray:
    dims = draw(DIMS)
    bits = draw(st.binary(min_size=1, max_size=8))
    rng = np.random.default_rng(list(bits))
    raw = rng.bytes(int(np.prod(dims, dtype=int)) * dtype.bytes)
    if dtype.kind == "pred" or dtype.bits < 8:
        small = rng.integers(0, 2, dims).astype(to_numpy(dtype))
        return small
    return np.frombuffer(raw, to_numpy(dtype)).reshape(dims)


@st.composite
def modules(draw: st.DrawFn) -> HloModule:
    values: list[Instruction] = []
    parameters = [parameter(n, draw(shapes()), draw(NAMES)) for n in range(draw(st.integers(0, 3)))]
    values += parameters
    for _ in range(draw(st.integers(1, 6))):
        match draw(st.sampled_from(["constant", "negate", "add", "transpose", "tuple"])):
            case "constant":
                values.append(constant(draw(arrays(draw(st.sampled_from(ALL)))), draw(NAMES)))
            case "tuple" if values:
                parts = draw(st.lists(st.sampled_from(values), max_size=3))
                values.append(make("tuple", TupleShape(tuple(p.shape for p in parts)), parts))
            case "transpose" if flat := [v for v in values if isinstance(v.shape, Shape)]:
                a = draw(st.sampled_from(flat))
                order = tuple(draw(st.permutations(range(a.array.rank))))
                shape = Shape(a.array.dtype, tuple(a.array.dims[d] for d in order))
                values.append(make("transpose", shape, [a], dimensions=order))
            case opcode if flat := [v for v in values if _numeric(v)]:
                a = draw(st.sampled_from(flat))
                note = Metadata(op_name="x") if draw(st.booleans()) else None
                operands = [a] if opcode == "negate" else [a, a]
                opcode = opcode if opcode in ("negate", "add") else "add"
                operands = [a] if opcode == "negate" else [a, a]
                values.append(make(opcode, a.shape, operands, name=draw(NAMES), metadata=note))
            case _:
                values.append(constant(np.float32(1)))
    entry = assemble(draw(NAMES), parameters, values[-1])
    return HloModule(draw(NAMES), (entry,), entry)


def _numeric(v: Instruction) -> bool:
    return isinstance(v.shape, Shape) and v.shape.dtype.kind in ("signed", "float")


@settings(max_examples=100, deadline=None)
@given(modules())
def test_show_then_parse(module: HloModule) -> None:
    verify(module)
    text = show(module)
    again = parse(text)
    verify(again)
    assert show(again) == text
    assert key(again.entry) == key(module.entry)
    for a, b in zip(module.entry.instructions, again.entry.instructions, strict=True):
        assert a.name == b.name and a.opcode == b.opcode
        if a.opcode == "constant":
            x, y = a.attrs["literal"], b.attrs["literal"]
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(_readable(x), _readable(y))


def _readable(a: np.ndarray) -> np.ndarray:
    return a if is_numpy_dtype(a.dtype) else a.astype(np.float64)


TEXT = """HloModule m, entry_computation_layout={(f32[4,6]{1,0})->f32[4]{0}}
r {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[4,6]{1,0} parameter(0), metadata={op_name="x" source_line=3}
  c = f32[4,6]{1,0} broadcast(f32[] constant(2.5)), dimensions={}
  t = (f32[4,6]{1,0}, s32[2]{0}) tuple(x, s32[2]{0} constant({1, 2}))
  y = f32[4,6]{1,0} get-tuple-element(t), index=0
  p = f32[6,8]{1,0} pad(y, f32[] constant(0)), padding=1_1x0_1_0
  d = f32[4,4]{1,0} dot(y, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT z = f32[4]{0} reduce(d, f32[] constant(0)), dimensions={1}, to_apply=r
}
"""
PIECES = st.one_of(
    st.sampled_from([*"(){}[],=%\"'<>?-", "ROOT ", "->", "/*", "//", "...", "f32[", "constant("]),
    st.integers(-(10**30), 10**30).map(str),
    st.text(max_size=3),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 20), PIECES), max_size=3))
def test_damaged_text_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = TEXT
    for at, length, piece in edits:
        text = text[:at] + piece + text[at + length :]
    try:
        module = parse(text)
        assert show(parse(show(module))) == show(module)
        verify(module)
    except NestwrightError as error:
        assert error.what


def test_every_element_type_has_a_literal() -> None:
    for name, dtype in BY_NAME.items():
        value = np.array([1, 0]).astype(to_numpy(dtype))
        module = _of(constant(value, "c"))
        again = parse(show(module)).entry.root.attrs["literal"]
        assert again.dtype == value.dtype, name
        np.testing.assert_array_equal(again.view(np.uint8), value.view(np.uint8))


def _of(root: Instruction) -> HloModule:
    entry = assemble("e", (), root)
    return HloModule("m", (entry,), entry)
