"""Padded windows on a GPU: padding is computed where it is read, by all multiprocessors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.code.device import DeviceCode

POOL = """HloModule pool
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY main {
  x = f32[BATCH,SIZE,SIZE,8] parameter(0)
  low = f32[] constant(-inf)
  ROOT y = f32[BATCH,HALF,HALF,8] reduce-window(x, low), \
window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_1x0_0}, to_apply=max
}
"""


def pool(batch: int, size: int) -> str:
    text = POOL.replace("BATCH", str(batch)).replace("SIZE", str(size))
    return text.replace("HALF", str((size + 1) // 2))


def test_large_images_are_not_rows() -> None:
    exe = nw.build(nw.parse(pool(32, 112)), "cuda -arch=sm_90", cache=False)
    (code,) = (c for c in exe.bundle.kernels.values() if isinstance(c, DeviceCode))
    assert sum(math.prod(x.grid) * math.prod(x.block) for x in code.launches) >= 32 * 56 * 56


@pytest.mark.parametrize("size", [9, 112])
def test_they_are_right(size: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, size, size, 8)).astype(np.float32)
    exe = nw.build(nw.parse(pool(1, size)), "cuda-sim -arch=sm_80", cache=False)
    image = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    last = (size + 1) // 2 * 2
    parts = [image[:, i : i + last : 2, j : j + last : 2] for i in range(3) for j in range(3)]
    half = (size + 1) // 2
    wanted = np.max([p[:, :half, :half] for p in parts], axis=0)
    np.testing.assert_array_equal(exe(x), wanted)
