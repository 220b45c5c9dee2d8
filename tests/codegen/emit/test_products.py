"""Which nests of sums are products of tiles, and what surrounds them: loops written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.codegen.emit.statements.products import TileProduct, tile_product
from nestwright.codegen.targets.registry import lower
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.loop.interp.evaluate import run as interpret
from nestwright.ir.loop.nodes import For, Func
from nestwright.ir.loop.notes import IN_TILES
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target

TARGET = Target.parse("cpu -mcpu=emeraldrapids -threads=1")
NEST = """
@func(outputs=1)
def nest(A: u8[5, 64], B: s8[16, 20, 4], C: s32[5, 20]):
    for i in range(5):
        for j in vectorize(20):
            C[i, j] = s32(0)
    for k in range(16, in_tiles=1):
        for i in range(5):
            for j in vectorize(20):
                for q in range(4):
                    C[i, j] = C[i, j] + cast(s32, A[i, k * 4 + q]) * cast(s32, B[k, j, q])
"""
START, TERM = "C[i, j] = s32(0)", "cast(s32, A[i, k * 4 + q]) * cast(s32, B[k, j, q])"


def edited(*edits: tuple[str, str]) -> Func:
    text = NEST
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def drawn(func: Func) -> list[Array]:
    rng, found = np.random.default_rng(0), []
    for b in func.params[: -func.outputs]:
        x = rng.integers(0, 100, b.shape) - (50 if b.dtype.kind == "signed" else 0)
        found.append(x.astype(to_numpy(b.dtype)))
    return found


def product_of(func: Func, target: Target = TARGET) -> TileProduct | None:
    (nest,) = (s for s in walk(lower(func, target).body) if isinstance(s, For) and IN_TILES.of(s))
    return tile_product(nest, target)


def run(func: Func, tiles: Any, target: Target | None = None) -> Any:
    """Return the calls of instructions, after a comparison with the interpreter."""
    arguments = drawn(func)
    (wanted,) = interpret(func, arguments)
    found, machine = tiles.run_in_tiles(func, arguments, target or tiles.TILES)
    assert np.array_equal(found, wanted)
    return machine.calls


def test_a_nest_as_matrices() -> None:
    found = product_of(edited())
    assert found is not None
    assert (found.rows, found.columns, found.groups) == (5, 20, 16)
    assert (found.sums.pitch, found.left.pitch, found.right.pitch) == (20, 64, 80)
    assert not found.around and found.starts == ((0, 0),)


REFUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "operands of other types": (("A: u8", "A: s16"),),
    "a type of operands and sums that no instruction has": (
        *(("A: u8", "A: bf16"), ("B: s8", "B: bf16"), ("cast(s32", "cast(f32")),
        *(("C: s32", "C: f32"), ("s32(0)", "f32(0.0)")),
    ),
    "sums of another type": (("C: s32", "C: f32"), ("s32", "f32"), ("f32(0)", "f32(0.0)")),
    "one operand for both": (("B[k, j, q]", "B[k, j, 0]"),),
    "rows of rows": (("k * 4 + q]", "k * 4 + 3 - q]"),),
    "groups that are not together": (("B: s8[16, 20, 4]", "B: s8[16, 4, 20]"), ("j, q]", "q, j]")),
    "indices that are not linear": (("B[k, j", "B[k * k // 16, j"),),
    "columns in a circle": (("C[i, j", "C[i, (j + 7) % 20"),),
    "indices that are read": (
        ("A: u8[5, 64],", "X: s64[16], A: u8[5, 64],"),
        ("B[k, j", "B[clamp(0, X[k], 15), j"),
    ),
    "too many rows": (("5", "81"),),
    "too many columns": (("20", "97"),),
    "a tile of too many registers": (("5", "48"), ("20", "33")),
    "rows of sums that overlap": (("C: s32[5, 20]", "C: s32[32]"), ("C[i, j]", "C[i * 3 + j]")),
    "sums along the diagonal": (("C[i, j]", "C[i, (j + i) % 20]"),),
    "products of each column's own": (("A[i, k * 4 + q]", "A[i, j + k + q]"),),
    "columns from the right": (("C[i, j]", "C[i, 19 - j]"),),
    "weights for each row": (("B: s8[16,", "B: s8[20,"), ("B[k, j", "B[k + i, j")),
    "another term": ((TERM, f"{TERM} + C[i, j]"),),
    "a part of a byte": (
        ("A: u8", "A: s8"),
        ("B: s8", "B: u8"),
        ("B[k, j, q]", "(B[k, j, q] & u8(15))"),
    ),
}


@pytest.mark.parametrize("why", list(REFUSED))
def test_other_nests_stay_loops(why: str, tiles: Any) -> None:
    func = edited(*REFUSED[why])
    assert product_of(func) is None
    assert not run(func, tiles)


def test_nor_do_processors_without_such_registers_have_them() -> None:
    found = {
        spec: product_of(edited(), Target.parse(f"cpu {spec}")) is not None
        for spec in ("-mcpu=sapphirerapids", "-mcpu=znver5", "-mcpu=emeraldrapids -mattr=-amx-int8")
    }
    assert list(found.values()) == [True, False, False]


TAKEN: dict[str, tuple[tuple[str, str], ...]] = {
    "rows from below": (("A[i", "A[4 - i"), ("C[i", "C[4 - i")),
    "terms from the end": (("A[i, k * 4", "A[i, (15 - k) * 4"),),
    "the same weights for all groups": (("B[k, j", "B[0, j"),),
    "rows that overlap": (("A[i, k * 4 + q]", "A[0, i * 4 + k * 2 + q]"),),
    "groups between others": (("A: u8[5, 64]", "A: u8[5, 128]"), ("k * 4", "k * 8")),
    "two factors that the sums do not have": (
        (
            "for k in range(16, in_tiles=1)",
            "for t in range(3, in_tiles=1):\n     for k in range(16)",
        ),
        ("A: u8[5, 64]", "A: u8[3, 5, 64]"),
        ("A[i", "A[t, i"),
        ("B[k, j", "B[15 - k, j"),
    ),
}


@pytest.mark.parametrize("why", list(TAKEN))
def test_nests_in_any_order(why: str, tiles: Any) -> None:
    assert run(edited(*TAKEN[why]), tiles)["tdpbusd"]


FILL = "C[i, j] = s32(3)"
CLEAR = """{fill}
    for i in range({rows}):
        for j in vectorize({columns}):
            {start}"""
BEFORE = {
    "all sums": (START, True),
    "all sums, from below": ("C[4 - i, j] = s32(0)", False),
    "another number": ("C[i, j] = s32(7)", False),
    "only some columns": (CLEAR.format(fill=FILL, rows=5, columns=16, start=START), False),
    "only some rows": (CLEAR.format(fill=FILL, rows=4, columns=20, start=START), False),
    "the first rows twice": (
        CLEAR.format(fill=FILL, rows=5, columns=20, start="C[i // 2, j] = s32(0)"),
        False,
    ),
}
"""What stands before the nest, and whether the sums need no loads, since they begin with 0."""


@pytest.mark.parametrize("before", list(BEFORE))
def test_sums_begin_with_what_is_there(before: str, tiles: Any) -> None:
    start, fresh = BEFORE[before]
    calls = run(edited((START, start)), tiles)
    assert (calls["tilezero"], calls["tileloadd64"]) == ((2, 3) if fresh else (0, 5))


@pytest.mark.parametrize(("zero", "fresh"), [("0.0", True), ("-0.0", False)])
def test_zeros_with_a_sign_are_loaded(zero: str, fresh: bool, tiles: Any) -> None:
    """A sum of negative zeros keeps their sign only if it begins with it."""
    func = edited(
        ("A: u8[5, 64], B: s8[16, 20, 4], C: s32", "A: bf16[5, 32], B: bf16[16, 20, 2], C: f32"),
        ("s32(0)", f"f32({zero})"),
        ("cast(s32", "cast(f32"),
        ("k * 4", "k * 2"),
        ("q in range(4)", "q in range(2)"),
    )
    assert bool(run(func, tiles)["tilezero"]) == fresh


def test_sums_without_gaps_are_cleared_in_one_loop(tiles: Any) -> None:
    flat = ("C: s32[5, 20]", "C: s32[100]"), ("C[i, j]", "C[i * 20 + j]")
    loops = (
        "for i in range(5):\n        for j in vectorize(20):\n            C[i * 20 + j] = s32(0)"
    )
    func = edited(*flat, (loops, "for n in range(100):\n        C[n] = s32(0)"))
    assert run(func, tiles)["tilezero"] == 2
    func = edited(
        *flat, (loops, "for n in range(99):\n        C[n + 1] = s32(0)\n    C[0] = s32(5)")
    )
    assert not run(func, tiles)["tilezero"]


BETWEEN = """
@func(outputs=1)
def f(A: u8[5, 64], B: s8[16, 20, 4], C: s32[3, 4, 5, 20]):
    for b in range(3):
        for i in range(5):
            for j in vectorize(20):
                C[b, 0, i, j] = s32(0)
        for k in range(16, in_tiles=1):
            for i in range(5):
                for j in vectorize(20):
                    for q in range(4):
                        C[b, 0, i, j] = C[b, 0, i, j] + TERM
        for p in parallel(3):
            for i in range(5):
                for j in vectorize(20):
                    C[b, 1 + p, i, j] = s32(0)
            for k in range(16, in_tiles=1):
                for i in range(5):
                    for j in vectorize(20):
                        for q in range(4):
                            C[b, 1 + p, i, j] = C[b, 1 + p, i, j] + TERM
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_parallel_loop_between_nests_leaves_other_shapes(threads: int, tiles: Any) -> None:
    """It runs on this thread, too, and leaves the registers unused."""
    target = Target.parse(f"cpu {tiles.FEATURES} -threads={threads}")
    func = parse(BETWEEN.replace("TERM", TERM))
    calls = run(func, tiles, target)
    assert calls["tdpbusd"] == 3 * 4 * 2


GATHERED = """
@func(outputs=1)
def f(A: u8[5, 64], B: s8[3, 16, 20, 4], X: s64[3], C: s32[3, 5, 20]):
    for b in range(3):
        for i in range(5):
            for j in vectorize(20):
                C[b, i, j] = s32(0)
        for k in range(16, in_tiles=1):
            for i in range(5):
                for j in vectorize(20):
                    for q in range(4):
                        C[b, i, j] = C[b, i, j] + FACTOR * cast(s32, B[clamp(0, X[b], 2), k, j, q])
"""


def test_matrices_may_be_anywhere(tiles: Any) -> None:
    """What is not linear may be in an index if it is the same in all of the nest."""
    func = parse(GATHERED.replace("FACTOR", TERM.split(" * cast")[0]))
    assert run(func, tiles)["tdpbusd"] == 3 * 2
