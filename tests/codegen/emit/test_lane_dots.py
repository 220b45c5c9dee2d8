"""Products of bytes, several to a lane: their sums wrap whatever the width of the vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.nodes import HloModule
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
    asm = build(product(64, wide), VNNI).as_text("asm")
    found = {m[1]: m[2] for m in re.finditer(r"\s(vpdpbusds?)\s.*%([xyz])mm", asm)}
    assert found == {"vpdpbusd": WIDTHS[wide]}


@pytest.mark.parametrize("wide", WIDTHS)
def test_sums_beyond_32_bits_wrap(wide: int) -> None:
    target = "cpu" if Target.parse(VNNI).missing else VNNI
    x, w = np.full((8, DEEP), 255, np.uint8), np.full((DEEP, wide), 127, np.int8)
    expected = np.full((8, wide), 255 * 127 * DEEP, np.int64).astype(np.int32)
    assert (expected < 0).all()
    assert np.array_equal(build(product(DEEP, wide), target)(x, w), expected)
