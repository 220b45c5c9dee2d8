"""Vectors of floats as integers: truncated, saturated to the type's range, NaN as 0."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.conversion import convert
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.target import Target

TARGETS = [
    t for t in map(Target.parse, ("cpu", "cpu -mcpu=haswell", "cpu -mcpu=x86-64")) if t.is_host
]
ENDS = [s * 2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
NEAR = [e * (1 + d * 2.0**-b) for e in ENDS for d in (-1, 0, 1) for b in (8, 11, 24, 53)]
NUMBERS = [0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, 1e-40, 1e30, -1e30, np.inf, -np.inf, np.nan]
NUMBERS += [*NEAR, *(x + d for x in ENDS for d in (-1.5, -0.1, 0.1, 1.5))]


SOURCES = ("bf16", "f16", "f32", "f64")
INTEGERS = ("s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
PAIRS = [
    (source, to, target)
    for (i, source), (j, to), (k, target) in product(*map(enumerate, (SOURCES, INTEGERS, TARGETS)))
    if k == 0 or (i + j // 2 + k) % 2 == 0
]
"""All on this machine as it is; with lesser instructions, each signed and unsigned."""


@pytest.mark.parametrize(
    ("source", "to", "target"), PAIRS, ids=lambda x: x.spec if isinstance(x, Target) else str(x)
)
def test_saturated(source: str, to: str, target: Target) -> None:
    with np.errstate(over="ignore"):
        x = convert(np.array(NUMBERS), to_numpy(BY_NAME[source]))
    body = f"x = {source}[{len(x)}] parameter(0)\n ROOT r = {to}[{len(x)}] convert(x)"
    found = nw.build(nw.parse(f"HloModule m\nENTRY main {{\n {body}\n}}"), target)(x)
    np.testing.assert_array_equal(found, convert(x, to_numpy(BY_NAME[to])))
