"""Scatters at the places of a slice: updates of it, and what is left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.simplify.raise_slices import raise_slices
from nestwright.ir.hlo.text import parse

ASSIGN = "f { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }\n"
ADD = "f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\n"


def scattered(
    places: str, combine: str = ASSIGN, operand: str = "4,5", updates: str = "2,3"
) -> str:
    """Return a scatter of single elements; ``places`` makes ``i``, a pair for each."""
    rank = operand.count(",") + 1
    every = ",".join(map(str, range(rank)))
    return (
        f"HloModule m\n{combine}ENTRY main {{\n  x = f32[{operand}] parameter(0)\n"
        f"  y = f32[{updates}] parameter(1)\n{places}\n"
        f"  ROOT r = f32[{operand}] scatter(x, i, y), update_window_dims={{}},"
        f" inserted_window_dims={{{every}}}, scatter_dims_to_operand_dims={{{every}}},"
        f" index_vector_dim={updates.count(',') + 1}, to_apply=f\n}}\n"
    )


def pairs(rows: str, columns: str, dims: tuple[int, int] = (0, 1)) -> str:
    """Return places that are ranges along these dimensions of the updates."""
    first, second = dims
    return (
        f"  p = s32[{rows.count(',') + 1}] constant({{{rows}}})"
        f"  q = s32[{columns.count(',') + 1}] constant({{{columns}}})\n"
        f"  pb = s32[2,3,1] broadcast(p), dimensions={{{first}}}"
        f"  qb = s32[2,3,1] broadcast(q), dimensions={{{second}}}\n"
        "  i = s32[2,3,2] concatenate(pb, qb), dimensions={2}"
    )


RAISED = {
    "ranges": scattered(pairs("1,2", "2,3,4")),
    "sums": scattered(pairs("0,1", "1,2,3"), ADD),
    "turned": scattered(pairs("1,2,3", "3,4", (1, 0))),
    "whole": scattered(pairs("0,1", "0,1,2"), operand="2,3"),
    "a literal": scattered("  i = s32[2,3,2] constant({{{1,2},{1,3},{1,4}}, {{2,2},{2,3},{2,4}}})"),
    "a row": scattered(
        "  k = s32[] constant(3)  n = s32[3] iota(), iota_dimension=0\n"
        "  kb = s32[1,3,1] broadcast(k), dimensions={}  nb = s32[1,3,1] reshape(n)\n"
        "  i = s32[1,3,2] concatenate(kb, nb), dimensions={2}",
        updates="1,3",
    ),
    "a conversion": scattered(
        "  n = u8[200,1] iota(), iota_dimension=0  i = s64[200,1] convert(n)",
        operand="400",
        updates="200",
    ),
}

LEFT = {
    "beyond the end": scattered(pairs("3,4", "2,3,4")),
    "before the start": scattered(pairs("-1,0", "2,3,4")),
    "every other": scattered(pairs("0,2", "2,3,4")),
    "the same twice": scattered(pairs("1,1", "2,3,4")),
    "a diagonal": scattered(
        "  p = s32[3] constant({1,2,3})  pb = s32[3,1] reshape(p)\n"
        "  i = s32[3,2] concatenate(pb, pb), dimensions={1}",
        updates="3",
    ),
    "a narrow iota, which wraps": scattered(
        "  i = u8[300,1] iota(), iota_dimension=0", operand="400", updates="300"
    ),
    "places that a conversion wraps": scattered(
        "  n = s32[300,1] iota(), iota_dimension=0  i = s8[300,1] convert(n)",
        operand="400",
        updates="300",
    ),
    "places that were rounded": scattered(
        "  n = bf16[300,1] iota(), iota_dimension=0  i = s32[300,1] convert(n)",
        operand="400",
        updates="300",
    ),
    "places that only u64 has": scattered(
        f"  i = u64[2,1] constant({{{{{2**64 - 1}}},{{0}}}})", operand="4", updates="2"
    ),
    "places that were no numbers": scattered(
        "  n = f32[1,1] constant({{nan}})  i = s32[1,1] convert(n)", operand="4", updates="1"
    ),
}


def both(text: str) -> tuple[str, bool]:
    module = parse(text)
    new = raise_slices(module)
    draw = np.random.default_rng(1)
    args = [draw.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    np.testing.assert_array_equal(evaluate(new, args), evaluate(module, args))
    return new.entry.root.opcode, new is not module


@pytest.mark.parametrize("name", RAISED)
def test_slices_are_updated_at_once(name: str) -> None:
    root, changed = both(RAISED[name])
    assert changed and root != "scatter"


@pytest.mark.parametrize("name", LEFT)
def test_other_places_stay(name: str) -> None:
    assert both(LEFT[name]) == ("scatter", False)


def test_random_places_keep_their_meaning() -> None:
    rng, raised = random.Random(3), 0
    for _ in range(60):
        rows = sorted(rng.sample(range(-1, 6), 2))
        start = rng.randrange(-1, 4)
        columns = [start + n * rng.choice((1, 1, 1, 2)) for n in range(3)]
        text = pairs(",".join(map(str, rows)), ",".join(map(str, columns)))
        raised += both(scattered(text, rng.choice((ASSIGN, ADD))))[1]
    assert 0 < raised < 60


def test_windows_with_a_constant_start() -> None:
    text = (
        f"HloModule m\n{ASSIGN}ENTRY main {{\n  x = f32[4,5,6] parameter(0)\n"
        "  y = f32[5,3,2] parameter(1)\n  p = s32[3,1] constant({{1},{2},{3}})\n"
        "  k = s32[] constant(4)  kb = s32[3,1] broadcast(k), dimensions={}\n"
        "  i = s32[3,2] concatenate(p, kb), dimensions={1}\n"
        "  ROOT r = f32[4,5,6] scatter(x, i, y), update_window_dims={0,2},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0,2}, index_vector_dim=1,"
        " to_apply=f\n}\n"
    )
    assert both(text) == ("dynamic-update-slice", True)
