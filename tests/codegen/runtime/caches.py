"""A model whose arguments are caches, which leave it as results with a row more."""

from __future__ import annotations

from typing import Any

import numpy as np

from nestwright.ir.arrays import Array

TEXT = """HloModule caches
ENTRY main {
  keys = f32[16,8] parameter(0)
  values = f32[16,8] parameter(1)
  row = f32[1,8] parameter(2)
  at = s32[] parameter(3)
  zero = s32[] constant(0)
  k = f32[16,8] dynamic-update-slice(keys, row, at, zero)
  twice = f32[1,8] add(row, row)
  v = f32[16,8] dynamic-update-slice(values, twice, at, zero)
  products = f32[16,8] multiply(k, READ)
  ROOT t = (f32[16,8], f32[16,8], f32[16,8]) tuple(k, v, products)
}
"""


def text(old: bool = False) -> str:
    """The model; with ``old`` it reads the keys as they were when it has written a row."""
    return TEXT.replace("READ", "keys" if old else "v")


def state() -> tuple[Array, Array, Array, Array]:
    """Keys, values, a row, and its place."""
    rng = np.random.default_rng(0)
    keys, values, row = (
        rng.standard_normal(s).astype(np.float32) for s in ((16, 8), (16, 8), (1, 8))
    )
    return keys, values, row, np.array(5, np.int32)


def stepped(keys: Any, values: Any, row: Any, at: Any, old: bool = False) -> list[Any]:
    """What the model returns."""
    k, v = keys.copy(), values.copy()
    k[at], v[at] = row[0], row[0] + row[0]
    return [k, v, k * (keys if old else v)]
