"""Channels that do not fill a lane become taps of the kernel: which do, and the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo import freeze, optimize_narrow, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.target import Target

VNNI, BF16, PLAIN = "cpu -mcpu=icelake-server", "cpu -mcpu=znver4", "cpu -mcpu=haswell -mattr=-avx2"

TEXT = """HloModule first
ENTRY main {
  x = CODE[2,9,11,CI] parameter(0)
  v = CODE[] constant(7)
  p = CODE[2,PH,PW,CI] pad(x, v), padding=0_0xPADSx0_0
  w = WEIGHT[KH,KW,IN,6] parameter(1)
  ROOT y = SUM[2,OH,OW,6] convolution(p, w), window={size=KHxKW WINDOW},
    dim_labels=b01f_01io->b01fREST
}
"""
PLAIN_FACTS: dict[str, Any] = {
    "CODE": "u8",
    "WEIGHT": "s8",
    "SUM": "s32",
    "CI": 3,
    "IN": 3,
    "KH": 3,
    "KW": 5,
    "PADS": "1_1x2_1",
    "PH": 11,
    "PW": 14,
    "OH": 9,
    "OW": 10,
    "WINDOW": "",
    "REST": "",
}


def module(corner: float | None = None, **facts: Any) -> tuple[HloModule, Array]:
    """A convolution with constant weights, those of the first tap given, and an input."""
    text = TEXT
    for name, value in sorted({**PLAIN_FACTS, **facts}.items(), key=lambda f: -len(f[0])):
        text = text.replace(name, str(value))
    m, rng = parse(text), np.random.default_rng(0)
    x, w = (p.array for p in m.entry.parameters)
    given = rng.integers(0, 100, x.dims).astype(to_numpy(x.dtype))
    weights = rng.integers(-100, 100, w.dims).astype(to_numpy(w.dtype))
    if corner is not None:
        weights[0, 0] = corner
    return freeze(m, {1: weights}), given


def convolutions(m: HloModule, target: str) -> list[Instruction]:
    optimized, _ = optimize_narrow(m, None, Target.parse(target))
    return [i for i in optimized.entry.instructions if i.opcode == "convolution"]


def check(m: HloModule, x: Array, target: str) -> None:
    optimized, _ = optimize_narrow(m, None, Target.parse(target))
    np.testing.assert_array_equal(evaluate(optimized, [x]), evaluate(m, [x]))


STRIDED = {"WINDOW": "stride=2x3", "OH": 5, "OW": 4}
OF_WINDOW = {
    "PADS": "0_0x0_0",
    "PH": 9,
    "PW": 11,
    "WINDOW": "stride=2x2 pad=1_0x2_3",
    "OH": 4,
    "OW": 6,
}
ONE_TAP = {"KW": 1, "OW": 14}
FIVE = {"CI": 5, "IN": 5}


@pytest.mark.parametrize("facts", [{}, STRIDED, OF_WINDOW, ONE_TAP, FIVE], ids=str)
def test_bytes(facts: dict[str, Any]) -> None:
    m, x = module(**facts)
    (i,) = convolutions(m, VNNI)
    taps = i.attrs["window"][-1].size
    assert i.operands[0].array.dims[-1] == 1 and taps % 4 == 0
    assert i.operands[1].opcode == "constant"
    check(m, x, VNNI)
    if Target.parse("cpu").machine == "x86_64":
        np.testing.assert_array_equal(nw.build(m)(x), evaluate(m, [x]))


OF_BF16 = {"CODE": "bf16", "WEIGHT": "bf16", "SUM": "f32"}


def test_bf16_takes_two_terms_where_errors_are_allowed() -> None:
    m, x = module(**OF_BF16)
    (i,) = convolutions(m, f"{BF16} -accuracy=0.01")
    assert i.attrs["window"][-1].size == 16 and i.operands[0].array.dims[-1] == 1
    check(m, x, f"{BF16} -accuracy=0.01")


@pytest.mark.parametrize(
    ("facts", "channels", "taps"),
    [
        ({}, 4, 5),
        ({"KW": 4, "OW": 11}, 1, 12),
        ({**OF_WINDOW, "KW": 6, "WINDOW": "stride=2x2 pad=1_0x3_3"}, 1, 18),
    ],
    ids=["channels", "taps", "padded"],
)
def test_other_pixels_and_holes_do_not_count_in_bf16(
    facts: dict[str, Any], channels: int, taps: int
) -> None:
    m, x = module(corner=np.inf, **OF_BF16, **facts)
    (i,) = convolutions(m, BF16)
    assert (i.operands[0].array.dims[-1], i.attrs["window"][-1].size) == (channels, taps)
    x[:, 4, ::5] = np.inf
    check(m, x, BF16)


@pytest.mark.parametrize(
    ("facts", "target"),
    [
        ({}, PLAIN),
        ({"CI": 4, "IN": 4}, VNNI),
        ({"CI": 6, "IN": 3, "REST": ", feature_group_count=2"}, VNNI),
        ({"WINDOW": "rhs_dilate=1x2", "OW": 6}, VNNI),
        ({"CODE": "f32", "WEIGHT": "f32", "SUM": "f32"}, VNNI),
    ],
    ids=["no instruction", "whole lanes", "groups", "dilated", "f32"],
)
def test_others_stay(facts: dict[str, Any], target: str) -> None:
    m, x = module(**facts)
    (i,) = convolutions(m, target)
    assert i.operands[0].array.dims[-1] == x.shape[-1]
    check(m, x, target)
