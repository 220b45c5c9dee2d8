"""Groups rewritten to keep narrow floats as f32: before and after, rule by rule."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nestwright.codegen.driver.oracle import reference
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.fuse.excess_precision import keep_wide, widened
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate, evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text.canonical import canonical_text

ADD = "add_% { a = %[] parameter(0) b = %[] parameter(1) ROOT s = %[] add(a, b) }\n"
MAX = "max_% { a = %[] parameter(0) b = %[] parameter(1) ROOT s = %[] maximum(a, b) }\n"
XY = "x = bf16[4,6] parameter(0)  y = bf16[4,6] parameter(1)"
XF, YF = "xf = f32[4,6] convert(x)", "yf = f32[4,6] convert(y)"
SQUARE = f"{XY}  m = bf16[4,6] multiply(x, y)"
SQUARE_F = f"{XY}  {XF}  {YF}  m = f32[4,6] multiply(xf, yf)"
ROUNDED = f"{SQUARE_F}  r = bf16[4,6] convert(m)"
AGAIN = f"{ROUNDED}  w = f32[4,6] convert(r)"

RULES = {
    "a chain": (
        f"{SQUARE}  ROOT a = bf16[4,6] add(m, x)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  ROOT r = bf16[4,6] convert(a)",
    ),
    "exact work at the end": (
        f"{SQUARE}  ROOT a = bf16[4,6] maximum(m, x)",
        f"{SQUARE_F}  a = f32[4,6] maximum(m, xf)  ROOT r = bf16[4,6] convert(a)",
    ),
    "exact work at the start": (
        f"{XY}  n = bf16[4,6] negate(x)  m = bf16[4,6] multiply(n, y)"
        "  ROOT a = bf16[4,6] add(m, n)",
        f"{XY}  {XF}  n = f32[4,6] negate(xf)  {YF}  m = f32[4,6] multiply(n, yf)"
        "  a = f32[4,6] add(m, n)  ROOT r = bf16[4,6] convert(a)",
    ),
    "values on the move": (
        f"{SQUARE}  t = bf16[6,4] transpose(m), dimensions={{1,0}}"
        "  ROOT a = bf16[6,4] exponential(t)",
        f"{SQUARE_F}  t = f32[6,4] transpose(m), dimensions={{1,0}}"
        "  a = f32[6,4] exponential(t)  ROOT r = bf16[6,4] convert(a)",
    ),
    "constants": (
        f"{SQUARE}  k = bf16[] constant(0.1)  c = bf16[4,6] broadcast(k), dimensions={{}}"
        "  ROOT a = bf16[4,6] add(m, c)",
        f"{SQUARE_F}  k = f32[] constant(0.10009765625)"
        "  c = f32[4,6] broadcast(k), dimensions={}  a = f32[4,6] add(m, c)"
        "  ROOT r = bf16[4,6] convert(a)",
    ),
    "a conversion there and back": (
        "x = f32[4] parameter(0)  h = bf16[4] convert(x)  w = f32[4] convert(h)"
        "  ROOT n = f32[4] negate(w)",
        "x = f32[4] parameter(0)  ROOT n = f32[4] negate(x)",
    ),
    "from f64 by way of bf16": (
        "x = f64[4] parameter(0)  h = bf16[4] convert(x)  ROOT w = f32[4] convert(h)",
        "x = f64[4] parameter(0)  ROOT w = f32[4] convert(x)",
    ),
    "from bf16 to f16": (
        f"{SQUARE}  h = f16[4,6] convert(m)  ROOT n = f16[4,6] negate(h)",
        f"{SQUARE_F}  n = f32[4,6] negate(m)  ROOT h = f16[4,6] convert(n)",
    ),
    "to integers": (
        f"{SQUARE}  ROOT i = s32[4,6] convert(m)",
        f"{SQUARE_F}  ROOT i = s32[4,6] convert(m)",
    ),
    "order": (
        f"{SQUARE}  ROOT c = pred[4,6] compare(m, x), direction=LT",
        f"{SQUARE_F}  ROOT c = pred[4,6] compare(m, xf), direction=LT",
    ),
    "a look for NaN": (
        f"{SQUARE}  ROOT c = pred[4,6] compare(m, m), direction=NE",
        f"{SQUARE_F}  ROOT c = pred[4,6] compare(m, m), direction=NE",
    ),
    "equality is that of the type": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT c = pred[4,6] compare(a, y), direction=EQ",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  ROOT c = pred[4,6] compare(r, y), direction=EQ",
    ),
    "so is being finite": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT c = pred[4,6] is-finite(a)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  ROOT c = pred[4,6] is-finite(r)",
    ),
    "and being zero": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT c = pred[4,6] convert(a)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  ROOT c = pred[4,6] convert(r)",
    ),
    "bits": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT c = u16[4,6] bitcast-convert(a)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  ROOT c = u16[4,6] bitcast-convert(r)",
    ),
    "a rounding that is asked for": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)"
        "  p = bf16[4,6] reduce-precision(a), exponent_bits=8, mantissa_bits=7"
        "  ROOT e = bf16[4,6] exponential(p)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  p = bf16[4,6] reduce-precision(r), exponent_bits=8, mantissa_bits=7"
        "  ROOT e = bf16[4,6] exponential(p)",
    ),
    "parts of an array": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  c = bf16[8,6] concatenate(a, y), dimensions={{0}}"
        "  ROOT e = bf16[8,6] exponential(c)",
        f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
        "  c = bf16[8,6] concatenate(r, y), dimensions={0}  ROOT e = bf16[8,6] exponential(c)",
    ),
    "a sum": (
        f"{ADD.replace('%', 'bf16')} ENTRY main {{ {XY}  z = bf16[] constant(0)"
        "  s = bf16[4] reduce(x, z), dimensions={1}, to_apply=add_bf16"
        "  ROOT e = bf16[4] exponential(s) }",
        f"{ADD.replace('%', 'f32')} ENTRY main {{ {XY}  {XF}  z = f32[] constant(0)"
        "  s = f32[4] reduce(xf, z), dimensions={1}, to_apply=add_f32"
        "  e = f32[4] exponential(s)  ROOT r = bf16[4] convert(e) }",
    ),
    "a maximum of wide values": (
        f"{MAX.replace('%', 'bf16')} ENTRY main {{ {SQUARE}  z = bf16[] constant(-inf)"
        "  ROOT s = bf16[4] reduce(m, z), dimensions={1}, to_apply=max_bf16 }",
        f"{MAX.replace('%', 'f32')} ENTRY main {{ {SQUARE_F}  z = f32[] constant(-inf)"
        "  s = f32[4] reduce(m, z), dimensions={1}, to_apply=max_f32"
        "  ROOT r = bf16[4] convert(s) }",
    ),
    "a reducer that rounds, of two values": (
        "f { a = bf16[] parameter(0) i = s32[] parameter(1) b = bf16[] parameter(2)"
        "  j = s32[] parameter(3)  g = pred[] compare(a, b), direction=EQ"
        "  h = bf16[] add(a, b)  k = s32[] select(g, i, j)  "
        "ROOT t = (bf16[], s32[]) tuple(h, k) }\n"
        f"ENTRY main {{ {SQUARE}  n = s32[4,6] iota(), iota_dimension=1  z = bf16[] constant(0)"
        "  o = s32[] constant(0)  s = (bf16[4], s32[4]) reduce(m, n, z, o), dimensions={1},"
        "  to_apply=f  v = bf16[4] get-tuple-element(s), index=0"
        "  p = s32[4] get-tuple-element(s), index=1  ROOT t = (bf16[4], s32[4]) tuple(v, p) }",
        "f { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2)"
        "  j = s32[] parameter(3)  g = pred[] compare(a, b), direction=EQ"
        "  h = f32[] add(a, b)  k = s32[] select(g, i, j)  ROOT t = (f32[], s32[]) tuple(h, k) }\n"
        f"ENTRY main {{ {SQUARE_F}  n = s32[4,6] iota(), iota_dimension=1  z = f32[] constant(0)"
        "  o = s32[] constant(0)  s = (f32[4], s32[4]) reduce(m, n, z, o), dimensions={1},"
        "  to_apply=f  v = f32[4] get-tuple-element(s), index=0  r = bf16[4] convert(v)"
        "  p = s32[4] get-tuple-element(s), index=1  ROOT t = (bf16[4], s32[4]) tuple(r, p) }",
    ),
    "a product": (
        "x = bf16[4,6] parameter(0)  w = bf16[6,8] parameter(1)  b = bf16[4,8] parameter(2)"
        "  d = bf16[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  ROOT a = bf16[4,8] add(d, b)",
        "x = bf16[4,6] parameter(0)  w = bf16[6,8] parameter(1)  b = bf16[4,8] parameter(2)"
        "  d = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  bf = f32[4,8] convert(b)  a = f32[4,8] add(d, bf)  ROOT r = bf16[4,8] convert(a)",
    ),
    "two results": (
        f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT t = (bf16[4,6], bf16[4,6]) tuple(m, a)",
        f"{ROUNDED}  a = f32[4,6] add(m, xf)  s = bf16[4,6] convert(a)"
        "  ROOT t = (bf16[4,6], bf16[4,6]) tuple(r, s)",
    ),
    "arithmetic on f8, as it is computed": (
        "x = f8e5m2[4] parameter(0)  a = f32[4] convert(x)  b = f32[4] add(a, a)"
        "  c = f8e5m2[4] convert(b)  d = f32[4] convert(c)  e = f32[4] multiply(d, a)"
        "  ROOT f = f8e5m2[4] convert(e)",
        "x = f8e5m2[4] parameter(0)  a = f32[4] convert(x)  b = f32[4] add(a, a)"
        "  e = f32[4] multiply(b, a)  ROOT f = f8e5m2[4] convert(e)",
    ),
}

UNCHANGED = {
    "one operation": f"{XY}  ROOT m = bf16[4,6] multiply(x, y)",
    "exact work": f"{XY}  m = bf16[4,6] maximum(x, y)  ROOT n = bf16[4,6] negate(m)",
    "one operation on what was moved": f"{XY}  n = bf16[4,6] negate(x)"
    "  ROOT m = bf16[4,6] multiply(n, y)",
    "a sum alone": f"{ADD.replace('%', 'bf16')} ENTRY main {{ {XY}  z = bf16[] constant(0)"
    "  ROOT s = bf16[4] reduce(x, z), dimensions={1}, to_apply=add_bf16 }",
    "quantization": "x = f32[4] parameter(0)  h = f8e4m3fn[4] convert(x)"
    "  w = f32[4] convert(h)  ROOT n = f32[4] exponential(w)",
    "f32": "x = f32[4] parameter(0)  a = f32[4] add(x, x)  ROOT n = f32[4] exponential(a)",
}


def module(text: str) -> str:
    return f"HloModule m\n{text if 'ENTRY' in text else f'ENTRY main {{ {text} }}'}"


@pytest.mark.parametrize("name", RULES)
def test_what_is_computed_wide(name: str) -> None:
    before, after = (parse(module(text)) for text in RULES[name])
    made = widened(before.entry)
    assert canonical_text(made) == canonical_text(after.entry)
    verify(after)
    assert [p.shape for p in made.parameters] == [p.shape for p in before.entry.parameters]
    assert made.root.shape == before.entry.root.shape


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_has_nothing_to_gain_is_the_same_object(name: str) -> None:
    entry = parse(module(UNCHANGED[name])).entry
    assert widened(entry) is entry


def test_named_operations_round_from_rounded_operands() -> None:
    text = f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT e = bf16[4,6] exponential(a)"
    entry = parse(module(text)).entry
    assert widened(entry, {"m", "a", "e"}) is entry
    made = canonical_text(widened(entry, {"m"}))
    after = parse(
        module(
            f"{SQUARE}  w = f32[4,6] convert(m)  {XF}  a = f32[4,6] add(w, xf)"
            "  e = f32[4,6] exponential(a)  ROOT r = bf16[4,6] convert(e)"
        )
    )
    assert made == canonical_text(after.entry)


@pytest.mark.parametrize("opcode", ["convert", "tanh"])
def test_a_named_value_is_the_same_rounded_one_for_all_that_read_it(opcode: str) -> None:
    """A conversion as well as arithmetic, whatever is computed from it."""
    given = "bf16" if opcode == "tanh" else "f32"
    old = parse(f"""HloModule m
ENTRY e {{
  x = {given}[64] parameter(0)
  c = bf16[64] {opcode}(x)
  s = bf16[64] multiply(c, c)
  ROOT r = f32[64] convert(s)
}}""").entry
    x = np.linspace(0.1, 3, 64).astype(np.float32 if given == "f32" else ml_dtypes.bfloat16)
    wide = x.astype(np.float32)
    once = (np.tanh(wide) if opcode == "tanh" else wide).astype(ml_dtypes.bfloat16)
    found = np.asarray(evaluate_computation(widened(old, ["c"]), [x]))
    np.testing.assert_allclose(found, once.astype(np.float32) ** 2, rtol=1e-6)


def test_stored_results_are_computed_wide_and_read_back_rounded() -> None:
    text = f"{SQUARE}  a = bf16[4,6] add(m, x)  ROOT e = bf16[4,6] exponential(a)"
    after = parse(
        module(
            f"{SQUARE_F}  a = f32[4,6] add(m, xf)  r = bf16[4,6] convert(a)"
            "  ROOT e = bf16[4,6] exponential(r)"
        )
    )
    made = widened(parse(module(text)).entry, (), {"a"})
    assert canonical_text(made) == canonical_text(after.entry)


CLONE = """
HloModule clone
less { a = bf16[] parameter(0) b = bf16[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT }
ENTRY main {
  x = bf16[500] parameter(0)
  t = bf16[] constant(0.7)
  k = bf16[500] broadcast(t), dimensions={}
  u = bf16[500] multiply(x, k)
  v = bf16[500] add(u, k)
  s = bf16[500] sort(v), dimensions={0}, to_apply=less
  h = bf16[1] slice(s), slice={[3:4]}
  r = bf16[] reshape(h)
  b = bf16[500] broadcast(r), dimensions={}
  c = pred[500] compare(v, b), direction=GE
  e = bf16[500] exponential(v)
  z = bf16[500] broadcast(t), dimensions={}
  ROOT m = bf16[500] select(c, e, z)
}"""


def test_what_several_groups_compute_has_one_value() -> None:
    """A threshold out of the sorted values holds for the values as another group has them."""
    m = parse(CLONE)
    fusion = keep_wide(fuse(optimize(m).entry))
    last = fusion.groups[-1]
    assert "v" in {i.name for i in fusion.groups[0].members} & {i.name for i in last.members}
    types = {i.name: i.array.dtype.name for i in last.computation.instructions}
    assert types["u"] == types["v"] == "bf16"
    x = np.random.default_rng(0).standard_normal(500).astype(ml_dtypes.bfloat16)
    strict, wide = (
        answer != ml_dtypes.bfloat16(0.7) for answer in (evaluate(m, [x]), reference(m, [x]))
    )
    assert np.array_equal(strict, wide) and 4 <= np.count_nonzero(wide) < 50


def test_the_same_object_comes_back_where_no_group_changes() -> None:
    fusion = fuse(optimize(parse(module(UNCHANGED["f32"]))).entry)
    assert keep_wide(fusion) is fusion
