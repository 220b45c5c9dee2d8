"""Rows that fit neither registers nor shared memory: threads of a block share each of them."""

from __future__ import annotations

import math

import numpy as np

import nestwright as nw
from nestwright.codegen.plan.code.device import DeviceCode

ROWS = """HloModule rows
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[COUNT,WIDTH] parameter(0)
  m = f32[COUNT] parameter(1)
  zero = f32[] constant(0)
  ms = f32[COUNT,WIDTH] broadcast(m), dimensions={0}
  d = f32[COUNT,WIDTH] subtract(x, ms)
  e = f32[COUNT,WIDTH] exponential(d)
  s = f32[COUNT] reduce(e, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[COUNT,WIDTH], f32[COUNT]) tuple(e, s)
}
"""


def rows(count: int, width: int) -> str:
    return ROWS.replace("COUNT", str(count)).replace("WIDTH", str(width))


def test_what_is_also_a_result_takes_no_shared_memory() -> None:
    exe = nw.build(nw.parse(rows(256, 131072)), "cuda -arch=sm_90a", cache=False)
    codes = [c for c in exe.bundle.kernels.values() if isinstance(c, DeviceCode)]
    for launch in (x for c in codes for x in c.launches):
        assert math.prod(launch.grid) * math.prod(launch.block) >= 256 * 128


def test_they_are_right() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((2, 70001)).astype(np.float32), np.float32([0.5, 3])
    e, s = nw.build(nw.parse(rows(2, 70001)), "cuda-sim -arch=sm_80", cache=False)(x, m)
    wanted = np.exp(x.astype(np.float64) - m[:, None])
    np.testing.assert_allclose(e, wanted, rtol=5e-7)
    np.testing.assert_allclose(s, wanted.sum(1), rtol=1e-5)
