"""Products of bytes, several to a lane: their sums wrap whatever the width of the vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import emit
from nestwright.ir.dtypes import s8, s32, u8
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.loop.build import add, cast, mul, op
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.target import Target

VNNI = "cpu -mcpu=cooperlake -threads=1"
DEEP = 66_400  # products of the largest bytes, whose sum is beyond 32 bits
WIDTHS = {16: "z", 8: "y", 4: "x"}
"""Columns, and the registers in which they are summed."""


def product(deep: int, wide: int) -> HloModule:
    return parse(f"""HloModule bytes
ENTRY main {{
  x = u8[8,{deep}] parameter(0)
  w = s8[{deep},{wide}] parameter(1)
  ROOT d = s32[8,{wide}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}""")


@pytest.mark.parametrize("wide", WIDTHS)
def test_no_width_saturates(wide: int) -> None:
    built = build(product(64, wide), VNNI)
    text, asm = built.as_text("llvm"), built.as_text("asm")
    (types,) = set(re.findall(r"^declare .*vpdpbusd\.\d+\((.*)\)", text, re.MULTILINE))
    assert types == ", ".join([f"<{wide} x i32>"] * 3), "as LLVM 20 takes it, too"
    found = {m[1]: m[2] for m in re.finditer(r"\s(vpdpbusds?)\s.*%([xyz])mm", asm)}
    assert found == {"vpdpbusd": WIDTHS[wide]}


@pytest.mark.parametrize("wide", WIDTHS)
def test_sums_beyond_32_bits_wrap(wide: int) -> None:
    target = "cpu" if Target.parse(VNNI).missing else VNNI
    x, w = np.full((8, DEEP), 255, np.uint8), np.full((DEEP, wide), 127, np.int8)
    expected = np.full((8, wide), 255 * 127 * DEEP, np.int64).astype(np.int32)
    assert (expected < 0).all()
    assert np.array_equal(build(product(DEEP, wide), target)(x, w), expected)


LANES = 16


def parts_of_bytes(shift: int, mask: int) -> Func:
    """``for i, q: sums[i] += x[q] * (w[4 i + q] >> shift & mask)``"""
    x, w, sums = Buffer("x", (4,), s8), Buffer("w", (4 * LANES,), u8), Buffer("sums", (LANES,), s32)
    i, q = Var("i"), Var("q")
    code = Load(w, (add(mul(i, 4), q),))
    part = op("and", op("shift-right-logical", code, Const(shift, u8)), Const(mask, u8))
    term = op("multiply", cast(Load(x, (q,)), s32), cast(part, s32))
    terms = For(q, Const(4), Store(sums, (i,), op("add", Load(sums, (i,)), term)), Kind.SERIAL)
    return Func("parts", (x, w, sums), 1, For(i, Const(LANES), terms, Kind.VECTOR))


@pytest.mark.parametrize(
    ("shift", "mask", "together"),
    [(4, 15, True), (0, 15, True), (2, 63, True), (4, 31, False), (4, 255, False), (7, 1, True)],
)
def test_bytes_are_shifted_together_where_none_takes_bits_of_another(
    shift: int, mask: int, together: bool
) -> None:
    func = parts_of_bytes(shift, mask)
    assert ("vpdpbusd" in emit(func, Target.parse(VNNI))) == together
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, 4).astype(np.int8), rng.integers(0, 256, 64).astype(np.uint8)
    sums = np.zeros(LANES, np.int32)
    target = Target.parse("cpu" if Target.parse(VNNI).missing else VNNI)
    code = compile_flat(func, target)
    NativeFunc.load(code).run_at([a.ctypes.data for a in (x, w, sums)])
    wanted = (w >> shift & mask).reshape(LANES, 4).astype(np.int32) @ x.astype(np.int32)
    np.testing.assert_array_equal(sums, wanted)
