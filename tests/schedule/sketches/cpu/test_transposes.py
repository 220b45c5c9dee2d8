"""Transposes whose squares turn in registers: right elements, and neither gathers nor scatters."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

WIDE = Target.parse("cpu -mcpu=skylake-avx512 -threads=1")


def text(dtype: str, shape: tuple[int, ...], order: tuple[int, ...], bias: bool = False) -> str:
    def listed(values: tuple[int, ...]) -> str:
        return ",".join(map(str, values))

    turned = f"{dtype}[{listed(tuple(shape[n] for n in order))}]"
    body = f"  t = {turned} transpose(x), dimensions={{{listed(order)}}}\n"
    if bias:
        body += f"  b = {turned} parameter(1)\n  ROOT r = {turned} add(t, b)\n"
    else:
        body += f"  ROOT r = {turned} negate(t)\n"
    return f"HloModule m\nENTRY e {{\n  x = {dtype}[{listed(shape)}] parameter(0)\n{body}}}\n"


DTYPES = ("f32", "s32", "f64", "s8", "bf16")
SHAPES = {
    (64, 48): (1, 0),
    (33, 17): (1, 0),
    (16, 16): (1, 0),
    (15, 40): (1, 0),
    (1, 40): (1, 0),
    (0, 40): (1, 0),
    (3, 19, 35): (0, 2, 1),
    (19, 3, 35): (2, 0, 1),
    (18, 3, 35): (2, 1, 0),
    (2, 18, 20, 33): (0, 3, 1, 2),
    (130, 200): (1, 0),
    (2, 40): (1, 0),
    (8, 99): (1, 0),
    (2, 3, 9, 35): (0, 2, 3, 1),
    (5, 3, 64): (1, 2, 0),
}


@pytest.mark.parametrize(
    ("dtype", "shape", "threads"),
    [(t, s, 1 + (i + j) % 2) for i, t in enumerate(DTYPES) for j, s in enumerate(SHAPES)],
)
def test_every_element_is_in_its_place(dtype: str, shape: tuple[int, ...], threads: int) -> None:
    """Every type in every shape, on one thread and on two in turn."""
    order = SHAPES[shape]
    module = parse(text(dtype, shape, order))
    exe = nw.build(module, f"cpu -threads={threads}")
    kind = to_numpy(module.entry.root.array.dtype)
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(kind)
    np.testing.assert_array_equal(exe(x), -x.transpose(order))


def stage(dtype: str, name: str, bias: bool = False, shape: tuple[int, ...] = (64, 48)) -> str:
    return stage_text(parse(text(dtype, shape, (1, 0), bias)), WIDE, name)


@pytest.mark.parametrize("dtype", ["f32", "s32", "f64"])
def test_a_transpose_neither_gathers_nor_scatters(dtype: str) -> None:
    code = stage(dtype, "llvm")
    assert "gather" not in code and "scatter" not in code


@pytest.mark.parametrize("planes", [2, 3, 7])
@pytest.mark.parametrize("pixels", [64, 75])
def test_planes_are_interleaved_in_whole_vectors(planes: int, pixels: int) -> None:
    code = stage("f32", "llvm", shape=(planes, pixels))
    assert "gather" not in code and "scatter" not in code
    assert "x float>, ptr" in code


def test_lanes_stay_where_another_operand_is_read_straight() -> None:
    assert "gather" in stage("f32", "llvm", bias=True)


POWER = """HloModule m
ENTRY e {
  z = c64[64,48] parameter(0)
  a = f32[64,48] real(z)
  b = f32[64,48] imag(z)
  c = f32[64,48] multiply(a, a)
  d = f32[64,48] multiply(b, b)
  p = f32[64,48] add(c, d)
  ROOT t = f32[48,64] transpose(p), dimensions={1,0}
}
"""


def test_parts_of_complex_numbers_are_turned_in_registers() -> None:
    module = parse(POWER)
    code = stage_text(module, WIDE, "llvm")
    assert "gather" not in code and "scatter" not in code
    parts = np.random.default_rng(0).standard_normal((2, 64, 48), np.float32)
    found = nw.build(module, "cpu")(parts[0] + 1j * parts[1])
    np.testing.assert_allclose(found, (parts**2).sum(0).T, rtol=1e-6)
