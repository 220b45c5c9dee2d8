"""Ranges of integers: every element lies in its range, and decided comparisons are so."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.patterns.ranges import decide, interval, limits
from nestwright.ir.hlo.text import parse

OPERATIONS = ("add", "subtract", "multiply", "maximum", "minimum", "remainder", "clamp")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
ROWS = 16


def drawn(seed: int, dtype: str) -> str:
    """Return a module of random arithmetic on an iota, constants and data."""
    rng = random.Random(seed)
    least = 0 if dtype == "u8" else -3
    given = [f"{rng.randint(least, 9)}" for _ in range(4)]
    rows = [
        f"v0 = {dtype}[{ROWS}] iota(), iota_dimension=0",
        f"v1 = {dtype}[{ROWS}] parameter(0)",
        f"t = {dtype}[4] constant({{{', '.join(given)}}})",
        f"v2 = {dtype}[{ROWS}] pad(t, k), padding=0_12",
        "p = pred[16] compare(v0, v1), direction=LT",
    ]
    rows.insert(2, f"k = {dtype}[] constant({rng.randint(least, 9)})")
    count = 3
    for _ in range(8):
        a, b, c = (f"v{rng.randrange(count)}" for _ in range(3))
        op = rng.choice((*OPERATIONS, "select", "splat", "reverse"))
        match op:
            case "splat":
                rows.append(f"k{count} = {dtype}[] constant({rng.randint(least, 9)})")
                row = f"broadcast(k{count}), dimensions={{}}"
            case "select":
                row = f"select(p, {a}, {b})"
            case "clamp":
                row = f"clamp({a}, {b}, {c})"
            case "reverse":
                row = f"reverse({a}), dimensions={{0}}"
            case _:
                row = f"{op}({a}, {b})"
        rows.append(f"v{count} = {dtype}[{ROWS}] {row}")
        count += 1
    for n, direction in enumerate(DIRECTIONS):
        a, b = (f"v{rng.randrange(count)}" for _ in range(2))
        rows.append(f"c{n} = pred[{ROWS}] compare({a}, {b}), direction={direction}")
    names = [*(f"v{n}" for n in range(count)), *(f"c{n}" for n in range(len(DIRECTIONS)))]
    shapes = [f"{dtype}[{ROWS}]"] * count + [f"pred[{ROWS}]"] * len(DIRECTIONS)
    rows.append(f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})")
    return "ENTRY main {\n" + "\n".join(rows) + "\n}"


@pytest.mark.parametrize("dtype", ["s32", "s8", "u8"])
def test_values_lie_in_their_ranges(dtype: str) -> None:
    narrowed = decided = 0
    for seed in range(60):
        module = parse(drawn(seed, dtype))
        own = BY_NAME[dtype]
        rng = np.random.default_rng(seed)
        low, high = limits(own)
        data = rng.integers(low, high, ROWS, endpoint=True).astype(to_numpy(own))
        values = evaluate(module, [data])
        for x, value in zip(module.entry.root.operands, values, strict=True):
            found = interval(x)
            assert found is not None
            least, most = found
            assert least <= int(value.min()) and int(value.max()) <= most, f"{seed}: {x.name}"
            narrowed += found != limits(x.array.dtype)
            if x.opcode == "compare" and (answer := decide(x)) is not None:
                assert (value == answer).all(), f"{seed}: {x.name}"
                decided += 1
    assert narrowed > 100 and decided > 20


def test_ranges_of_arithmetic_are_as_narrow_as_they_can_be() -> None:
    """Of an iota of 8 and constants."""
    rows = {
        "add(i, c)": (3, 10),
        "subtract(i, c)": (-3, 4),
        "subtract(c, i)": (-4, 3),
        "multiply(i, m)": (-14, 0),
        "maximum(i, c)": (3, 7),
        "minimum(i, c)": (0, 3),
        "remainder(i, c)": (0, 2),
        "remainder(c, c)": (0, 2),
        "clamp(m, i, c)": (0, 3),
    }
    for row, wanted in rows.items():
        module = parse(
            "ENTRY main { i = s32[8] iota(), iota_dimension=0 k = s32[] constant(3)"
            " c = s32[8] broadcast(k), dimensions={} l = s32[] constant(-2)"
            f" m = s32[8] broadcast(l), dimensions={{}} ROOT r = s32[8] {row} }}"
        )
        assert interval(module.entry.root) == wanted, row
