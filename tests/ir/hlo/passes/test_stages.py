"""Stages between graph passes have rules; a pass that breaks one is named with its stage."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from nestwright.ir.dtypes import f32
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.nodes import HloModule, Instruction, Shape
from nestwright.ir.hlo.passes import pipeline
from nestwright.ir.hlo.passes.invariants import STAGES, WRITTEN
from nestwright.ir.hlo.passes.pipeline import PIPELINE, optimize
from nestwright.ir.passes import BrokenPassError, LegalIR, Pipeline

pytestmark = pytest.mark.usefixtures("every_pass")

PLAIN = "HloModule plain\nENTRY e { ROOT x = f32[4] parameter(0) }"
SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
PAIR = "p = (f32[4], f32[4]) parameter(0)\n"


def module(body: str, before: str = "") -> HloModule:
    """Return a module with this entry."""
    return parse(f"HloModule bad\n{before}ENTRY e {{ {body} }}")


BAD: dict[str, tuple[HloModule, ...]] = {
    "whole": (
        module(
            "x = f32[4] parameter(0)\n"
            "s = (f32[4], f32[4], u32[]) copy-start(x)\n"
            "ROOT d = f32[4] copy-done(s)"
        ),
    ),
    "plain": (module("ROOT x = f32[4,2]{0,1} parameter(0)"),),
    "inlined": (
        module(
            "x = f32[4] parameter(0)\nROOT c = f32[4] call(x), to_apply=f",
            "f { ROOT y = f32[4] parameter(0) }\n",
        ),
    ),
    "flat": (
        module(
            "x = f32[4] parameter(0)\n"
            "ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add",
            SUM,
        ),
    ),
    "padded": (module("x = f32[<=4] parameter(0)\nROOT y = f32[<=4] negate(x)"),),
    "expanded": (
        module(
            "a = f32[] parameter(0)\nb = f32[] parameter(1)\n"
            "ROOT r = f32[4] rng(a, b), distribution=rng_uniform"
        ),
    ),
    "real": (module("x = c64[4] parameter(0)\nROOT y = c64[4] negate(x)"),),
    "widened": (module("x = f8e4m3fn[4] parameter(0)\nROOT y = f8e4m3fn[4] add(x, x)"),),
    "canonical": (
        module(
            "x = f32[1,2,8] parameter(0)\nw = f32[4,2,3] parameter(1)\n"
            "ROOT y = f32[1,4,6] convolution(x, w), window={size=3}, dim_labels=bf0_oi0->bf0"
        ),
        module(
            "x = f32[4,2] parameter(0)\nw = f32[4,3] parameter(1)\n"
            "ROOT y = f32[2,3] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
        ),
    ),
    "by element": (module(f"{PAIR}ROOT b = (f32[4], f32[4]) opt-barrier(p)"),),
    "optimized": (module("x = f32[4] parameter(0)\ny = f32[4] negate(x)\nROOT z = f32[4] abs(x)"),),
}
"""Modules that break the rules that a stage has beside those of the stage before it, in order."""


@pytest.mark.parametrize(
    ("before", "stage"), list(itertools.pairwise(STAGES)), ids=lambda s: s.name
)
def test_a_broken_rule_is_told_with_pass_and_stage(
    before: LegalIR[HloModule], stage: LegalIR[HloModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = stage.rules[len(before.rules) :]
    at = next(n for n, step in enumerate(PIPELINE.passes) if step.reaches is stage)
    for rule, bad in zip(own, BAD[stage.name], strict=True):
        assert not any(r.broken(bad) for r in before.rules)
        step = replace(PIPELINE.passes[at], run=lambda _, bad=bad: bad)
        passes = (*PIPELINE.passes[:at], step, *PIPELINE.passes[at + 1 :])
        monkeypatch.setattr(pipeline, "PIPELINE", Pipeline(passes))
        with pytest.raises(BrokenPassError) as told:
            optimize(parse(PLAIN))
        assert f"optimizing plain: after pass {at + 1}, {step.name}, " in str(told.value)
        assert f"breaks a rule of stage {stage.name}: {rule.says}" in str(told.value)


@pytest.mark.parametrize("stage", STAGES[1:-1], ids=lambda s: s.name)
def test_rules_hold_after_every_later_pass(
    stage: LegalIR[HloModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [r for r in stage.rules if r not in STAGES[STAGES.index(stage) - 1].rules]
    for rule, bad in zip(own, BAD[stage.name], strict=True):
        step = replace(PIPELINE.passes[-2], run=lambda _, bad=bad: bad)
        passes = (*PIPELINE.passes[:-2], step, PIPELINE.passes[-1])
        monkeypatch.setattr(pipeline, "PIPELINE", Pipeline(passes))
        with pytest.raises(BrokenPassError) as told:
            optimize(parse(PLAIN))
        assert f"after pass {len(passes) - 1}, {step.name}, " in str(told.value)
        assert rule.says in str(told.value)


def test_new_nodes_and_new_places_of_old_ones_are_looked_at() -> None:
    (rule,) = WRITTEN.rules
    before = module("x = f32[4] parameter(0)\ny = f32[4] abs(x)\nROOT z = f32[4] negate(y)")
    x, y, z = before.entry.instructions

    def changed(*instructions: Instruction) -> HloModule:
        entry = replace(before.entry, instructions=instructions, root=instructions[-1])
        return replace(before, computations=(entry,), entry=entry)

    short = replace(z, shape=Shape(f32, (3,)))
    assert rule.since is not None
    for good in (changed(x, y, z), changed(x, y), changed(x, y, replace(z, opcode="abs"))):
        assert not rule.since(good, before) and not rule.broken(good)
    for bad in (changed(x, z, y), changed(x, z), changed(x, y, short), changed(x, y, y)):
        assert rule.since(bad, before) == rule.broken(bad) != ""


def test_a_module_that_is_not_well_formed_breaks_every_stage() -> None:
    good = parse(PLAIN)
    bad = replace(good, entry=replace(good.entry, parameters=()))
    bad = replace(bad, computations=(bad.entry,))
    (rule,) = WRITTEN.rules
    assert rule.broken(bad) and all(rule in stage.rules for stage in STAGES)


def test_rules_are_only_checked_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = BAD["optimized"][0]
    step = replace(PIPELINE.passes[-1], run=lambda _: bad)
    monkeypatch.setattr(pipeline, "PIPELINE", Pipeline((*PIPELINE.passes[:-1], step)))
    monkeypatch.setenv("NESTWRIGHT_VERIFY", "0")
    assert optimize(parse(PLAIN)) is bad


def test_every_pass_says_what_holds_after_it() -> None:
    for step in PIPELINE.named().values():
        assert step.then.endswith(".") and len(step.then) < 100, step.name
