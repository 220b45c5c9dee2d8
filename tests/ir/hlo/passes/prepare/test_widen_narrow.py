"""Narrow types after ``widen_narrow``: moved, converted and taken as bits, and the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import ALL, BY_NAME, DType, to_numpy
from nestwright.ir.formats import is_narrow
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction, Shape
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.prepare.widen_narrow import widen_narrow

STORED = """
parameter constant tuple get-tuple-element while conditional copy broadcast reshape transpose slice
concatenate pad reverse dynamic-slice dynamic-update-slice gather scatter select convert
bitcast-convert sort call
"""
TEXT = """HloModule m
add {
  a = $[] parameter(0)
  b = $[] parameter(1)
  ROOT r = $[] add(a, b)
}
apart {
  a = $[] parameter(0)
  b = $[] parameter(1)
  s = $[] subtract(a, b)
  m = $[] maximum(s, b)
  ROOT r = $[] add(m, a)
}
before {
  a = $[] parameter(0)
  b = $[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=%
}
best {
  a = $[] parameter(0)
  i = s32[] parameter(1)
  b = $[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = $[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT r = ($[], s32[]) tuple(v, k)
}
more {
  s = ($[6,8]) parameter(0)
  x = $[6,8] get-tuple-element(s), index=0
  y = $[1,1] slice(x), slice={[0:1], [0:1]}
  v = $[] reshape(y)
  z = $[] constant(1)
  ROOT r = pred[] compare(v, z), direction=LT
}
round {
  s = ($[6,8]) parameter(0)
  x = $[6,8] get-tuple-element(s), index=0
  o = $[] constant(1)
  w = $[6,8] broadcast(o), dimensions={}
  y = $[6,8] maximum(x, w)
  ROOT r = ($[6,8]) tuple(y)
}
ENTRY e {
  x = $[6,8] parameter(0)
  y = $[6,8] parameter(1)
  z = $[] constant(1)
  i = s32[6,8] iota(), iota_dimension=1
  o = s32[] constant(0)
  r0 = $[6,8] multiply(x, y)
  r1 = $[6] reduce(x, z), dimensions={1}, to_apply=add
  r2 = ($[6], s32[6]) reduce(x, i, z, o), dimensions={1}, to_apply=best
  r3 = $[6,8] sort(y), dimensions={1}, to_apply=before
  r4 = $[6,6] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  r5 = $[6,8] iota(), iota_dimension=0
  s = ($[6,8]) tuple(x)
  w = ($[6,8]) while(s), condition=more, body=round
  r6 = $[6,8] get-tuple-element(w), index=0
  n = $[2,1] constant({{1}, {1}})
  u = $[2,8] slice(y), slice={[0:2], [0:8]}
  r7 = $[6,8] scatter(x, n, u), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=apart
  r8 = $[3,4] reduce-window(x, z), window={size=2x2 stride=2x2}, to_apply=apart
  r9 = ($[6,2], s32[6,2]) topk(x), k=2, largest=true
  ROOT t = ($[6,8], $[6], ($[6], s32[6]), $[6,8], $[6,6], $[6,8], $[6,8], $[6,8], $[3,4], \
($[6,2], s32[6,2])) tuple(r0, r1, r2, r3, r4, r5, r6, r7, r8, r9)
}
"""
NARROW = [d for d in ALL if is_narrow(d)]


def module_of(dtype: DType) -> HloModule:
    index = "s32" if dtype.is_float else str(dtype)
    text = TEXT.replace("n = $[2,1]", f"n = {index}[2,1]").replace("$", str(dtype))
    orders = {"float": "TOTALORDER", "signed": "SIGNED"}
    return parse(text.replace("%", orders.get(dtype.kind, "UNSIGNED")))


def computes(i: Instruction) -> bool:
    """Whether an instruction works on the numbers that narrow types stand for."""
    shapes = [s for s in (i.shape, *(o.shape for o in i.operands)) if isinstance(s, Shape)]
    return any(is_narrow(s.dtype) for s in shapes) and i.opcode not in STORED.split()


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_nothing_computes_with_narrow_types(dtype: DType) -> None:
    module = module_of(dtype)
    assert any(computes(i) for c in module.computations for i in c.instructions)
    for after in (widen_narrow(module), optimize(module)):
        verify(after)
        left = [i for c in after.computations for i in c.instructions if computes(i)]
        assert not left, left


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_values_stay(dtype: DType) -> None:
    module = module_of(dtype)
    rng = np.random.default_rng(1)
    few = rng.integers(0, 1 << min(dtype.bits - 1, 3), (2, 6, 8)).astype(np.float32)
    args = list(np.maximum(few, 1 if dtype.name == "f8e8m0fnu" else 0).astype(to_numpy(dtype)))
    after = evaluate(widen_narrow(module), args)
    for got, want in zip(flat(after), flat(evaluate(module, args)), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_wide_modules_stay_the_same_object() -> None:
    module = parse(TEXT.replace("$", "s32").replace("%", "SIGNED"))
    assert widen_narrow(module) is module


@pytest.mark.parametrize(
    ("kind", "via", "opcode", "values", "best"),
    [
        ("s4", "u4", "maximum", [1, -1, 3, -5, 7], -1),
        ("f8e5m2", "s32", "add", [1.5, 1.75, 2.5], 4),
    ],
)
def test_a_reducer_of_other_types_is_not_one_operation(
    kind: str, via: str, opcode: str, values: list[float], best: float
) -> None:
    dtype = BY_NAME[kind]
    text = f"""
of_others {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  c = {via}[] convert(a)
  d = {via}[] convert(b)
  e = {via}[] {opcode}(c, d)
  ROOT r = {kind}[] convert(e)
}}
ENTRY main {{
  x = {kind}[{len(values)}] parameter(0)
  zero = {kind}[] constant(0)
  ROOT r = {kind}[] reduce(x, zero), dimensions={{0}}, to_apply=of_others
}}"""
    module, x = parse(text), np.array(values).astype(to_numpy(dtype))
    for m in (module, widen_narrow(module)):
        assert float(np.asarray(evaluate(m, [x]))) == best


def test_signed_codes_times_unsigned_ones_keep_their_sign() -> None:
    module = parse("""ENTRY main {
  x = s4[1,3] parameter(0)
  y = u8[3,1] parameter(1)
  ROOT r = s32[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""")
    args = [np.array([[-8, 7, -1]]).astype(to_numpy(BY_NAME["s4"])), np.full((3, 1), 9, np.uint8)]
    for m in (module, widen_narrow(module)):
        assert int(np.asarray(evaluate(m, args))[0, 0]) == -18
