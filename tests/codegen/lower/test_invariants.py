"""Each stage of lowering has rules; a pass that breaks one is named with its stage."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from nestwright.codegen.lower.gpu.pipeline import GPU_PASSES
from nestwright.codegen.lower.invariants import (
    ASSIGNED,
    DENSE,
    FLAT_IR,
    GPU_FLAT_IR,
    GPU_STAGES,
    LAUNCHES,
    NO_ALLOCS,
    NO_BLOCKS,
    NO_EXCHANGE,
    NO_FRAGMENTS,
    ONE_DIMENSION,
    PLACED,
    STAGES,
    THREADS_WELL_FORMED,
    WELL_FORMED,
    Rule,
)
from nestwright.codegen.lower.pipeline import PASSES, Lowering, LoweringPass
from nestwright.codegen.targets.registry import backend, lower
from nestwright.ir.errors import ArgumentError
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.passes import BrokenPassError, Invariant, LegalIR, Pass, Pipeline, Timing
from nestwright.ir.target import Target

pytestmark = pytest.mark.usefixtures("every_pass")

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


HEAD = "@func(outputs=1)\ndef bad(A: f32[4], B: f32[4]):\n    "
BAD: dict[str, tuple[tuple[Rule, ...], str]] = {
    "index": ((WELL_FORMED, THREADS_WELL_FORMED), HEAD + "B[4] = A[0]"),
    "alloc": (
        (NO_ALLOCS,),
        HEAD + "with alloc(f32[1]) as T:\n        T[0] = A[0]\n        B[0] = T[0]",
    ),
    "exchange": (
        (NO_EXCHANGE,),
        HEAD + 'with alloc(f32[1], scope="register") as T:\n        T[0] = A[0]\n'
        "        all_reduce(1, T, lambda a, b: a + b)\n        B[0] = T[0]",
    ),
    "unplaced": ((PLACED,), HEAD + "T = alloc(f32[4])\n    T[0] = A[0]\n    B[0] = T[0]"),
    "chain": (
        (LAUNCHES,),
        HEAD + 'for t in thread("threadIdx.x", 4):\n        for b in thread("blockIdx.x", 1):\n'
        "            B[t] = A[t]",
    ),
    "twice": (
        (LAUNCHES,),
        HEAD + 'for t in thread("threadIdx.x", 4):\n        B[t] = A[t]\n'
        '        for u in thread("threadIdx.y", 2):\n            B[t] = A[t]',
    ),
    "block": (
        (NO_BLOCKS,),
        HEAD + 'with block("B"):\n        reads(A[0])\n        writes(B[0])\n        B[0] = A[0]',
    ),
    "unassigned": (
        (ASSIGNED,),
        HEAD.replace("outputs=1", 'outputs=1, unplaced="T"') + "B[0] = A[0]",
    ),
    "fragment": (
        (NO_FRAGMENTS,),
        HEAD + 'with alloc(f32[256], scope="warp") as T:\n        B[0] = A[0]',
    ),
    "dimensions": ((ONE_DIMENSION,), HEAD.replace("A: f32[4]", "A: f32[4, 1]") + "B[0] = A[0, 0]"),
    "layout": (
        (DENSE,),
        HEAD + 'with alloc(f32[8], scope="shared", align=(0, 4, 1)) as T:\n        B[0] = A[0]',
    ),
}
"""Functions that break one rule of every stage that has it."""


@pytest.mark.parametrize(
    ("passes", "stage"),
    [
        *((PASSES, stage) for stage in STAGES[1:]),
        *((GPU_PASSES, stage) for stage in GPU_STAGES[1:]),
    ],
    ids=lambda x: x.name if isinstance(x, LegalIR) else "gpu" if x is GPU_PASSES else "cpu",
)
def test_a_broken_rule_is_told_with_pass_and_stage(
    passes: tuple[LoweringPass, ...], stage: LegalIR[Func]
) -> None:
    target = GPU if passes is GPU_PASSES else CPU
    first = next(n for n, row in enumerate(passes) if row.reaches is stage)
    assert all(any(rule in rules for rules, _ in BAD.values()) for rule in stage.rules)
    for rules, text in BAD.values():
        for rule in stage.rules:
            if rule in rules:
                bad = replace(passes[first], run=lambda f, t, text=text: parse(text))
                lowering = Lowering((*passes[:first], bad, *passes[first + 1 :]))
                with pytest.raises(BrokenPassError) as told:
                    lowering.lower(parse(TEXT), target)
                found = str(told.value)
                assert f"after pass {first + 1}, {bad.name}, " in found
                assert f"breaks a rule of stage {stage.name}: {rule.says}" in found


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (WELL_FORMED, BAD["index"][1]),
        (NO_ALLOCS, BAD["alloc"][1]),
        (
            NO_EXCHANGE,
            HEAD + 'T = alloc(f32[1], scope="register")\n'
            "    all_reduce(1, T, lambda a, b: a + b)\n    B[0] = T[0]",
        ),
    ],
    ids=["index", "alloc", "exchange"],
)
def test_the_input_keeps_the_rules_of_scheduled_functions(rule: Rule, text: str) -> None:
    with pytest.raises(BrokenPassError, match=f"0, input.* stage scheduled: {rule.says}"):
        lower(parse(text), CPU)


def test_flat_functions_keep_the_rules_of_the_last_stage() -> None:
    for target, stage in ((CPU, FLAT_IR), (GPU, GPU_FLAT_IR)):
        func = parse(TEXT)
        assert any(rule.broken(func) for rule in stage.rules)
        if target is CPU:
            assert not any(rule.broken(lower(func, target)) for rule in stage.rules)


@pytest.mark.parametrize("asked", ["1", "stages"])
@pytest.mark.parametrize("later", ["simplify", "flatten", "simplify_flat"])
def test_a_pass_that_undoes_another_is_named(
    later: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESTWRIGHT_VERIFY", asked)
    func = parse(TEXT)
    broken = tuple(
        replace(row, run=lambda f, t: func) if row.name == later else row for row in PASSES
    )
    with pytest.raises(
        BrokenPassError,
        match=rf"lowering double: after pass \d+, {later}, T breaks a rule of stage",
    ):
        Lowering(broken).lower(func, CPU)


def test_what_a_pass_cannot_take_is_laid_to_the_one_that_made_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "stages")
    bad = parse(BAD["index"][1])
    first = next(n for n, row in enumerate(PASSES) if row.name == "simplify")
    rows = (*PASSES[:first], replace(PASSES[first], run=lambda f, t: bad))

    def fail(func: Func, target: Target) -> Func:
        raise IndexError(func.name)

    with pytest.raises(BrokenPassError, match="simplify, bad: index 4 of B") as told:
        Lowering((*rows, replace(PASSES[first + 1], run=fail))).lower(parse(TEXT), CPU)
    assert isinstance(told.value.__context__, IndexError)
    with pytest.raises(IndexError):
        Lowering((replace(PASSES[0], run=fail),)).lower(parse(TEXT), CPU)


def test_each_pass_or_each_stage_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Func] = []
    rule: Rule = Invariant("it is looked at", lambda func: looked.append(func) or "")
    legal = LegalIR("first", (rule,))
    rows = tuple(
        Pass(f"pass{n}", partial(replace, name=f"f{n}"), reaches=reached)
        for n, reached in enumerate((None, None, legal, None), 1)
    )
    for asked, names in (("1", ["f0", "f1", "f2", "f3", "f4"]), ("stages", ["f2", "f4"])):
        monkeypatch.setenv("NESTWRIGHT_VERIFY", asked)
        looked.clear()
        Pipeline(rows).checked(replace(parse(TEXT), name="f0"), legal, "a test")
        assert [func.name for func in looked] == names


def test_checks_are_only_made_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    func = parse(TEXT)
    last = replace(PASSES[-1], run=lambda f, t: func)
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "0")
    assert Lowering((*PASSES[:-1], last)).lower(func, CPU).body is func.body
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "yes")
    with pytest.raises(ArgumentError, match="NESTWRIGHT_VERIFY='yes': it must be 0, 1 or stages"):
        Lowering(PASSES).lower(func, CPU)


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
