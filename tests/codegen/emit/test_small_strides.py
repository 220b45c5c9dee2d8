"""Loads and stores a few elements apart: the right elements, by contiguous vectors and shuffles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.nodes import HloModule

STEPS = (2, 3, 5, 8, 16, 17)


def taken(step: int, first: int, size: int) -> HloModule:
    """``-x[:, first::step]`` for 3 rows of ``size`` elements."""
    count = -(-(size - first) // step)
    return parse(f"""HloModule strides
ENTRY e {{
  x = f32[3,{size}] parameter(0)
  s = f32[3,{count}] slice(x), slice={{[0:3], [{first}:{size}:{step}]}}
  ROOT r = f32[3,{count}] negate(s)
}}""")


@pytest.mark.parametrize("step", STEPS)
def test_every_few_elements(step: int) -> None:
    for first, size in ((0, 32 * step), (step - 1, 32 * step), (1, 16 * step + 1)):
        x = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
        np.testing.assert_array_equal(build(taken(step, first, size))(x), -x[:, first::step])


@pytest.mark.parametrize(
    ("step", "size", "gathers"), [(3, 96, False), (3, 97, True), (17, 1, True)]
)
def test_what_is_between_has_to_exist(step: int, size: int, gathers: bool) -> None:
    """Rows that do not begin at a multiple of the step, or are far apart, are gathered."""
    made = PreparedModule(taken(step, 0, max(size, 32 * step)), "cpu -mcpu=skylake-avx512")
    assert bool(re.search(r"\sv?gather", made.build({}).as_text("asm"))) == gathers


@pytest.mark.parametrize("depth", [2, 3, 4, 5, 6, 7, 8])
def test_short_rows_are_stored_whole(depth: int) -> None:
    """``r[i, j] = x[i, j] / sum(x[i])``, with lanes along i."""
    module = parse(f"""HloModule rows
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[64,{depth}] parameter(0)
  z = f32[] constant(0)
  s = f32[64] reduce(x, z), dimensions={{1}}, to_apply=add
  t = f32[64,{depth}] broadcast(s), dimensions={{0}}
  ROOT r = f32[64,{depth}] divide(x, t)
}}""")
    x = np.random.default_rng(0).uniform(1, 2, (64, depth)).astype(np.float32)
    np.testing.assert_allclose(build(module)(x), x / x.sum(1, keepdims=True), rtol=1e-5)
    made = PreparedModule(module, "cpu -mcpu=skylake-avx512")
    assert not re.search(r"\sv?(gather|scatter)", made.build({}).as_text("asm"))
