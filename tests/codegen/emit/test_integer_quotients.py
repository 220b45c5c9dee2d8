"""Quotients and remainders of vectors of integers by values, which x86 divides as floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.text import parse

TEXT = """HloModule m
ENTRY main {{
  x = {0}[{1}] parameter(0)
  y = {0}[{1}] parameter(1)
  q = {0}[{1}] divide(x, y)
  r = {0}[{1}] remainder(x, y)
  ROOT both = ({0}[{1}], {0}[{1}]) tuple(q, r)
}}
"""
NAMES = {"s": "int", "u": "uint"}
DTYPES = {f"{k}{n}": np.dtype(f"{NAMES[k]}{n}") for k in NAMES for n in (8, 16, 32)}


def pairs(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return dividends and divisors: all bytes; or any, dividends beside multiples, and limits."""
    info, rng = np.iinfo(dtype), np.random.default_rng(7)
    if dtype.itemsize == 1:
        every = np.arange(info.min, info.max + 1).astype(dtype)
        return np.repeat(every, every.size), np.tile(every, every.size)
    edges = [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
    edges = np.array([*edges, *(-1, -2) * (info.min < 0)]).astype(dtype)
    size, bits = 30_000, 8 * dtype.itemsize
    mine = rng.integers(info.min, info.max, size, dtype)
    y = rng.integers(info.min, info.max, size, dtype) >> rng.integers(0, bits, size, dtype)
    with np.errstate(all="ignore"):
        x = mine // np.where(y == 0, 1, y).astype(dtype) * y
        x += rng.integers(0, 3, size, dtype) - dtype.type(1)
    return (
        np.concatenate([x, mine, np.repeat(edges, edges.size)]),
        np.concatenate([y, y, np.tile(edges, edges.size)]),
    )


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("target", ["cpu -threads=1", "cpu -mcpu=x86-64 -threads=1"])
def test_vectors_of_integers_divide_as_the_interpreter_does(name: str, target: str) -> None:
    x, y = pairs(DTYPES[name])
    module = parse(TEXT.format(name, x.size))
    found = nw.build(module, target=target)(x, y)
    for got, expected in zip(found, evaluate_computation(module.entry, [x, y]), strict=True):
        np.testing.assert_array_equal(got, expected)
