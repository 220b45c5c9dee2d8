"""The order of a loop's body: what reads the state runs before what writes over it."""

from __future__ import annotations

import pytest

from nestwright.ir.hlo.fuse.order import in_order, readers_first
from nestwright.ir.hlo.nodes import Computation, Instruction
from nestwright.ir.hlo.text import parse

STATE = "(f32[4], f32[4], f32[8,4])"
LOOP = """HloModule m
always {{ s = {state} parameter(0)
  ROOT r = pred[] constant(true) }}
step {{ s = {state} parameter(0)
  a = f32[4] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  rows = f32[8,4] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  {steps}
  ROOT r = {state} tuple({after}) }}
ENTRY main {{ s = {state} parameter(0)
  ROOT w = {state} while(s), condition=always, body=step
}}
"""
ROW = """row = f32[1,4] reshape(a)
  kept = f32[8,4] dynamic-update-slice(rows, row, zero, zero)"""


def body(steps: str, after: str) -> Computation:
    module = parse(LOOP.format(state=STATE, steps=steps, after=after))
    return next(c for c in module.computations if c.name == "step")


def names(c: Computation) -> list[str]:
    made = tuple(in_order(c.root, {}))
    found = list(readers_first(made, c))
    assert sorted(u.name for u in found) == sorted(u.name for u in made)
    seen: set[Instruction] = set()
    for unit in found:
        assert isinstance(unit, Instruction)
        assert seen.issuperset(unit.operands)
        seen.add(unit)
    return [u.name for u in found if u.opcode not in ("get-tuple-element", "constant")]


def before(found: list[str], first: str, second: str) -> bool:
    return found.index(first) < found.index(second)


def test_the_next_value_waits_for_readers_of_the_present_one() -> None:
    c = body(f"next = f32[4] add(a, b)\n  {ROW}", "next, b, kept")
    assert before([u.name for u in in_order(c.root, {})], "next", "kept")  # in the order given
    assert before(names(c), "kept", "next")


def test_views_are_read_by_what_reads_them() -> None:
    c = body(f"next = f32[4] add(a, b)\n  {ROW}\n  sum = f32[4] negate(b)", "next, sum, kept")
    found = names(c)
    assert before(found, "row", "kept")
    assert before(found, "kept", "next")
    assert before(found, "next", "sum")


def test_what_needs_the_next_value_runs_after_it() -> None:
    steps = "next = f32[4] negate(a)\n  sum = f32[4] add(a, next)"
    assert before(names(body(steps, "next, sum, rows")), "next", "sum")


def test_two_that_wait_for_each_other_run_as_given() -> None:
    c = body("x = f32[4] add(a, b)\n  y = f32[4] subtract(a, b)", "x, y, rows")
    assert before(names(c), "x", "y")


@pytest.mark.parametrize("after", ["a, b, rows", "b, a, rows"])
def test_a_state_that_is_handed_on_changes_nothing(after: str) -> None:
    assert names(body("", after)) == ["s", "r"]
