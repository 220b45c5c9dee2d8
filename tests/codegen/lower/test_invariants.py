"""Lowering establishes invariants pass by pass; one that is broken names the pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestwright.codegen.lower.invariants import FLAT, NO_BLOCKS, PLACED
from nestwright.codegen.lower.pipeline import GPU_PASSES, PASSES, Lowering, LoweringPass
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.passes import BrokenPassError, Timing
from nestwright.ir.target import Target

CPU = Target.parse("cpu -mcpu=haswell -threads=2")
GPU = Target.parse("cuda -arch=sm_80")
TEXT = """
@func(outputs=1)
def double(A: f32[4, 6], B: f32[4, 6]):
    T = alloc(f32[4, 6])
    for i in range(4):
        for j in range(6):
            with block("T"):
                vi, vj = spatial(4, i), spatial(6, j)
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj] + A[vi, vj]
    for i in range(4):
        for j in range(6):
            with block("B"):
                vi, vj = spatial(4, i), spatial(6, j)
                reads(T[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = T[vi, vj]
"""


def test_a_function_breaks_what_lowering_has_yet_to_establish() -> None:
    func = parse(TEXT)
    assert PLACED.broken(func) == "T"
    assert NO_BLOCKS.broken(func) == "T"
    assert FLAT.broken(func) == "A"
    flat = lower(func, CPU)
    assert not any(i.broken(flat) for i in (PLACED, NO_BLOCKS, FLAT))


@pytest.mark.parametrize("later", ["simplify", "flatten", "simplify_flat"])
def test_a_pass_that_undoes_another_is_named(later: str) -> None:
    func = parse(TEXT)
    broken = tuple(
        replace(row, run=lambda f, t: replace(f, body=func.body)) if row.name == later else row
        for row in PASSES
    )
    with pytest.raises(
        BrokenPassError, match=rf"lowering double: after pass \d+, {later}, T breaks"
    ):
        Lowering(broken).lower(func, CPU)


def test_checks_are_only_made_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    func = parse(TEXT)
    last = replace(PASSES[-1], run=lambda f, t: func)
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "0")
    assert Lowering((*PASSES[:-1], last)).lower(func, CPU).body is func.body


def test_instruments_see_every_pass() -> None:
    timing: Timing[Func] = Timing(lambda func: len(func.params))
    lower(parse(TEXT), CPU, (timing,))
    assert [r.name for r in timing.rows] == ["input", *(row.name for row in PASSES)]


@pytest.mark.parametrize(
    "row", {r.name: r for r in (*PASSES, *GPU_PASSES)}.values(), ids=lambda r: r.name
)
def test_every_row_says_what_holds_after_it(row: LoweringPass) -> None:
    assert row.then.endswith(".") and len(row.then) < 100


def test_names_of_passes_are_unique() -> None:
    for target in (CPU, GPU):
        names = [row.name for row in backend(target).lowering.rows]
        assert len(names) == len(set(names))
