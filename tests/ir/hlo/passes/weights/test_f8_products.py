"""Scaled products of 8-bit floats: what is multiplied, and the same values."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.accuracy import relative_error
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import optimize_narrow, parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.target import Target

TEXT = """HloModule scaled
ENTRY main {
  x = LEFT[40,DEPTH] parameter(0)
  w = RIGHT[DEPTH,24] parameter(1)
  s = WIDE[] parameter(2)
  t = WIDE[] constant(0.75)
  u = WIDE[] parameter(3)
  xc = WIDE[40,DEPTH] convert(x)
  wc = WIDE[DEPTH,24] convert(w)
  xs = WIDE[40,DEPTH] broadcast(s), dimensions={}
  ws = WIDE[DEPTH,24] broadcast(t), dimensions={}
  xm = WIDE[40,DEPTH] multiply(xs, xc)
  wm = WIDE[DEPTH,24] divide(wc, ws)
  wt = WIDE[24,DEPTH] transpose(wm), dimensions={1,0}
  d = WIDE[40,24] dot(xm, wt), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  us = WIDE[40,24] broadcast(u), dimensions={}
  ROOT y = WIDE[40,24] multiply(d, us)
}
"""
E4M3, E5M2 = "f8e4m3fn", "f8e5m2"


def text(wide: str = "f32", left: str = E4M3, right: str = E4M3, depth: int = 96) -> str:
    names = {"WIDE": wide, "LEFT": left, "RIGHT": right, "DEPTH": str(depth)}
    found = TEXT
    for name, value in names.items():
        found = found.replace(name, value)
    return found


def arguments(module: HloModule) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [p.array for p in module.entry.parameters]
    return [(rng.uniform(-1, 1, s.dims) + 0.25).astype(to_numpy(s.dtype)) for s in shapes]


def optimized(source: str, spec: str, **options: bool) -> tuple[HloModule, Instruction]:
    """The module for a GPU, which has the same values, and its dot."""
    module = parse(source)
    found, _ = optimize_narrow(module, None, Target.parse(spec), **options)
    verify(found)
    args = arguments(module)
    got, want = (np.asarray(evaluate(m, args)).astype(np.float64) for m in (found, module))
    bits = module.entry.root.array.dtype.bits
    assert relative_error(got, want) < (1e-5 if bits == 32 else 0.1)
    (dot,) = [i for i in found.entry.instructions if i.opcode == "dot"]
    return found, dot


def types(dot: Instruction) -> set[str]:
    return {str(o.array.dtype) for o in dot.operands}


@pytest.mark.parametrize(
    ("source", "arch", "want"),
    [
        (text(), "sm_89", {E4M3}),
        (text("bf16"), "sm_90a", {E4M3}),
        (text("f16", E5M2, E5M2), "sm_100a", {E5M2}),
        (text("bf16"), "sm_80", {"f16"}),
        (text("bf16", E5M2), "sm_90a", {E4M3, E5M2}),
        (text("bf16", "f8e4m3fnuz", "f8e4m3fnuz"), "sm_90a", {"f16"}),
        (text(depth=512), "sm_90a", {"f16"}),  # 16 steps of 14 bits: too coarse for f32
        (text("bf16", depth=512), "sm_90a", {E4M3}),
        (text(depth=512), "sm_100a", {E4M3}),
        (
            text().replace("s={1}\n", "s={1}, operand_precision={highest,highest}\n"),
            "sm_89",
            {"f16"},
        ),
        (text().replace("40", "4"), "sm_80", {E4M3}),  # no tensor core takes four rows
    ],
)
def test_the_codes_are_multiplied(source: str, arch: str, want: set[str]) -> None:
    found, dot = optimized(source, f"cuda -arch={arch}")
    assert types(dot) == want
    assert str(dot.array.dtype) == "f32"
    arrays = [i for i in found.entry.instructions if i.opcode == "multiply" and i.array.rank]
    assert len(arrays) == 2, "one for the scales of the operands, one of the model"
    assert all(o.array.dims == dot.array.dims for i in arrays for o in i.operands)


def test_the_depth_that_f32_allows_depends_on_what_is_kept_of_it() -> None:
    deep = text(depth=512)
    narrow = deep.replace("ROOT y", "y").replace(
        "multiply(d, us)\n", "multiply(d, us)\n  ROOT z = bf16[40,24] convert(y)\n"
    )
    assert types(optimized(narrow, "cuda -arch=sm_90a")[1]) == {E4M3}


def test_strict_rounding_keeps_scales_that_round() -> None:
    for wide, want in (("bf16", {"bf16"}), ("f32", {E4M3})):
        _, dot = optimized(text(wide), "cuda -arch=sm_90a", excess_precision=False)
        assert types(dot) == want


PER_INDEX = """HloModule per_index
ENTRY main {
  x = f8e4m3fn[3,40,96] parameter(0)
  w = f8e4m3fn[3,24,96] parameter(1)
  s = f32[3,40] parameter(2)
  t = f32[24] parameter(3)
  u = f32[3] parameter(4)
  xc = f32[3,40,96] convert(x)
  us = f32[3,40,96] broadcast(u), dimensions={0}
  xm = f32[3,40,96] multiply(xc, us)
  wc = f32[3,24,96] convert(w)
  ts = f32[3,24,96] broadcast(t), dimensions={1}
  wm = f32[3,24,96] divide(wc, ts)
  ROOT y = f32[3,40,24] dot(xm, wm), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={2}
}
"""


def test_scales_per_row_column_and_matrix_follow_the_sums() -> None:
    source = PER_INDEX.replace("\\\n", "")
    assert types(optimized(source, "cuda -arch=sm_90a")[1]) == {E4M3}
    summed = source.replace("t = f32[24]", "t = f32[96]").replace(
        "(t), dimensions={1}", "(t), dimensions={2}"
    )
    assert types(optimized(summed, "cuda -arch=sm_90a")[1]) == {"f32"}
    two = source.replace("u = f32[3]", "u = f32[3,40]").replace(
        "(u), dimensions={0}", "(u), dimensions={0,1}"
    )
    assert types(optimized(two, "cuda -arch=sm_90a")[1]) == {"f32"}


@pytest.mark.parametrize(
    "change",
    [
        ("xs = f32[40,96] broadcast(s), dimensions={}", "xs = f32[40,96] iota(), iota_dimension=1"),
        ("xm = f32[40,96] multiply(xs, xc)", "xm = f32[40,96] add(xs, xc)"),
        ("xm = f32[40,96] multiply(xs, xc)", "xm = f32[40,96] divide(xs, xc)"),
    ],
)
def test_what_is_no_scaled_array_stays(change: tuple[str, str]) -> None:
    assert change[0] in text()
    source = text().replace(*change)
    module = parse(source)
    found, _ = optimize_narrow(module, None, Target.parse("cuda -arch=sm_90a"))
    (dot,) = [i for i in found.entry.instructions if i.opcode == "dot"]
    assert types(dot) == {"f32"}


def test_processors_are_left_alone() -> None:
    assert types(optimized(text(), "cpu")[1]) == {"f32"}


def test_products_of_codes_alone() -> None:
    """A dot of 8-bit floats, whose result is one too, is rounded once."""
    source = """HloModule plain
ENTRY main {
  x = f8e4m3fn[20,64] parameter(0)
  w = f8e4m3fn[64,32] parameter(1)
  ROOT d = f8e4m3fn[20,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    found, dot = optimized(source, "cuda -arch=sm_89")
    assert types(dot) == {E4M3}
    assert found.entry.root.array.dtype == BY_NAME[E4M3]
