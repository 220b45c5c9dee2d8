"""Maxima and minima of rows: NaN wherever one is, and -0 below +0, whatever lane they are in."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.target import Target

SPECS = ("cpu", "cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell", "cpu -mcpu=x86-64")
TARGETS = [t for t in map(Target.parse, SPECS) if t.is_host]
START = {"maximum": "-inf", "minimum": "inf"}
COLUMNS = (1, 3, 16, 33, 64, 150, 256, 1031)
HALF = [
    (opcode, dtype, columns, target)
    for (i, opcode), (j, dtype), (k, columns), (n, target) in product(
        *map(enumerate, (START, ("f32", "f64"), COLUMNS, TARGETS))
    )
    if (i + j + k + n) % 2 == 0
]
"""Every pair of an operation, a type, a width and a machine."""


def rows_of(opcode: str, dtype: str, rows: int, columns: int) -> str:
    return f"""
    HloModule extremes
    best {{
      a = {dtype}[] parameter(0)
      b = {dtype}[] parameter(1)
      ROOT c = {dtype}[] {opcode}(a, b)
    }}
    ENTRY main {{
      x = {dtype}[{rows},{columns}] parameter(0)
      start = {dtype}[] constant({START[opcode]})
      ROOT r = {dtype}[{rows}] reduce(x, start), dimensions={{1}}, to_apply=best
    }}"""


def expected(x: np.ndarray[Any, Any], opcode: str) -> np.ndarray[Any, Any]:
    """Return the extremes of rows by IEEE 754-2019, 9.6."""
    sign = 1 if opcode == "maximum" else -1
    best = sign * np.max(sign * x, axis=1)
    zeros = np.where(x == 0, np.signbit(x), opcode == "maximum")
    negative = zeros.all(axis=1) if opcode == "maximum" else zeros.any(axis=1)
    return np.where(best == 0, np.where(negative, -0.0, 0.0), best).astype(x.dtype)


@pytest.mark.parametrize(
    ("opcode", "dtype", "columns", "target"),
    HALF,
    ids=lambda x: x.spec if isinstance(x, Target) else str(x),
)
def test_rows(opcode: str, dtype: str, columns: int, target: Target) -> None:
    rng = np.random.default_rng(columns)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    x = np.concatenate(
        [
            rng.standard_normal((8, columns)),
            rng.choice([0.0, -0.0], (24, columns)),
            rng.choice([-1.0, -0.0] if opcode == "maximum" else [1.0, 0.0], (8, columns)),
            np.full((2, columns), -np.inf),
            np.full((2, columns), np.inf),
            np.full((columns, columns), -1.0),
            np.full((columns, columns), 0.0 if opcode == "minimum" else -0.0),
        ]
    ).astype(kind)
    one = np.arange(columns)
    x[44 + one, one] = np.nan  # one NaN in every place of a row
    x[44 + columns + one, one] *= -1  # one zero of the other sign
    exe = nw.build(nw.parse(rows_of(opcode, dtype, len(x), columns)), target=target)
    found, wanted = exe(x), expected(x, opcode)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    real = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[real], wanted[real])
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))
