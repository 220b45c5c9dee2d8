"""Constants go into the loops and branches that are given them, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.hlo.passes.simplify.dce import dce
from nestwright.ir.hlo.passes.simplify.sink_constants import sink_constants
from nestwright.ir.hlo.passes.simplify.tuples import simplify_tuples

STATE = "(s32[], f32[2,3], f32[3,3], f32[3])"
TEST = """
{name} {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}}
"""
STEP = """
{name} {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,3] get-tuple-element(s), index=1
  w = f32[3,3] get-tuple-element(s), index=2
  b = f32[3] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[2,3] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  bs = f32[2,3] broadcast(b), dimensions={{1}}
  y = f32[2,3] add(p, bs)
  {then}
  ROOT r = {state} tuple(j, y, {handed})
}}
"""
SUNK_STEP = """
body {
  s = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,3] get-tuple-element(s), index=1
  w = f32[3,3] constant({{1,0,.5},{0,1,0},{.25,0,1}})
  b = f32[3] constant({1,2,3})
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[2,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[2,3] broadcast(b), dimensions={1}
  y = f32[2,3] add(p, bs)
  ROOT r = (s32[], f32[2,3]) tuple(j, y)
}
"""
CONSTANTS = """
  zero = s32[] constant(0)
  w = f32[3,3] constant({{1,0,.5},{0,1,0},{.25,0,1}})
  b = f32[3] constant({1,2,3})
"""


def step(name: str = "body", then: str = "", handed: str = "w, b") -> str:
    return STEP.format(name=name, state=STATE, then=then, handed=handed)


def check(name: str = "test", state: str = STATE) -> str:
    return TEST.format(name=name, state=state)


def loop(index: int, start: str, name: str = "l") -> str:
    """Return a loop over ``x`` and the constants, and an element of its result."""
    shape = ("s32[]", "f32[2,3]", "f32[3,3]", "f32[3]")[index]
    return (
        f"  s_{name} = {STATE} tuple({start})\n"
        f"  {name} = {STATE} while(s_{name}), condition=test, body=body\n"
        f"  e_{name} = {shape} get-tuple-element({name}), index={index}\n"
    )


@pytest.fixture
def sunk(same_meaning) -> Callable[[str], HloModule]:
    """Return a text's module after the pass, checked: well formed, and with the same results."""

    def run(text: str) -> HloModule:
        module = parse(f"HloModule test\n{text}")
        after = dce(simplify_tuples(sink_constants(module)))
        verify(after)
        same_meaning(module, after)
        return after

    return run


def states(module: HloModule) -> list[int]:
    """Return the number of elements of each loop's state, inner loops first."""
    loops = [i for c in module.computations for i in c.instructions if i.opcode == "while"]
    return [len(i.shape.elements) for i in loops]


def test_weights_of_a_loop_are_constants_of_its_body(becomes):
    head = "ENTRY main {\n  x = f32[2,3] parameter(0)\n"
    before = step() + check() + head + CONSTANTS + loop(1, "zero, x, w, b").replace("e_l", "ROOT e")
    after = (
        SUNK_STEP
        + check(state="(s32[], f32[2,3])")
        + head
        + (
            "  zero = s32[] constant(0)\n  s_l = (s32[], f32[2,3]) tuple(zero, x)\n"
            "  l = (s32[], f32[2,3]) while(s_l), condition=test, body=body\n"
            "  ROOT e = f32[2,3] get-tuple-element(l), index=1\n}"
        )
    )
    becomes(lambda m: dce(simplify_tuples(sink_constants(m))), before + "}", after)


@pytest.mark.parametrize("handed, left", [("w2, b", 3), ("w, b2", 3), ("w2, b2", 4), ("w, b", 2)])
def test_what_the_body_changes_stays(handed, left, sunk):
    then = "w2 = f32[3,3] negate(w)  b2 = f32[3] add(b, b)"
    entry = (
        f"ENTRY main {{ x = f32[2,3] parameter(0)\n{CONSTANTS}{loop(1, 'zero, x, w, b')}"
        f" ROOT t = {STATE} tuple(zero, e_l, w, b) }}"
    )
    assert states(sunk(step(then=then, handed=handed) + check() + entry)) == [left]


@pytest.mark.parametrize("order, left", [("v, u", 2), ("u, v", 4), ("v, v", 4)])
def test_what_is_handed_on_unread_leaves_and_what_changes_places_stays(order, left, sunk):
    state = "(s32[], f32[2,3], f32[3], f32[3])"
    entry = (
        f"body {{ s = {state} parameter(0) i = s32[] get-tuple-element(s), index=0\n"
        f"x = f32[2,3] get-tuple-element(s), index=1 v = f32[3] get-tuple-element(s), index=2\n"
        f"u = f32[3] get-tuple-element(s), index=3 one = s32[] constant(1) j = s32[] add(i, one)\n"
        f"y = f32[2,3] negate(x) ROOT r = {state} tuple(j, y, {order}) }}\n"
        f"ENTRY main {{ x = f32[2,3] parameter(0) v = f32[3] parameter(1) u = f32[3] parameter(2)\n"
        f"z = s32[] constant(0) s = {state} tuple(z, x, v, u)\n"
        f"ROOT l = {state} while(s), condition=test, body=body }}"
    )
    assert states(sunk(check(state=state) + entry)) == [left]


def test_what_is_no_constant_stays(sunk):
    entry = (
        f"ENTRY main {{ x = f32[2,3] parameter(0) v = f32[3,3] parameter(1)\n{CONSTANTS}"
        f"{loop(1, 'zero, x, v, b')} ROOT n = f32[2,3] negate(e_l) }}"
    )
    assert states(sunk(step() + check() + entry)) == [3]


def test_exchanged_constants_stay(sunk):
    state = "(s32[], f32[3], f32[3])"
    body = (
        f"body {{ s = {state} parameter(0)  i = s32[] get-tuple-element(s), index=0"
        "  a = f32[3] get-tuple-element(s), index=1  b = f32[3] get-tuple-element(s), index=2"
        f"  one = s32[] constant(1)  j = s32[] add(i, one)  ROOT r = {state} tuple(j, b, a) }}\n"
    )
    entry = (
        "ENTRY main { z = s32[] constant(1)  a = f32[3] constant({1,2,3})"
        f"  b = f32[3] constant({{4,5,6}})  s = {state} tuple(z, a, b)"
        f"  ROOT l = {state} while(s), condition=test, body=body }}"
    )
    assert states(sunk(body + check(state=state) + entry)) == [3]


def test_the_results_elements_of_constants_are_the_constants(sunk):
    entry = (
        f"ENTRY main {{ x = f32[2,3] parameter(0)\n{CONSTANTS}{loop(2, 'zero, x, w, b')}"
        f" ROOT t = ({STATE}, f32[3,3]) tuple(l, e_l) }}"
    )
    assert states(sunk(step() + check() + entry)) == [2]


def test_loops_that_share_a_body_have_constants_of_their_own(sunk):
    other = "  v = f32[3,3] constant({{0,1,0},{1,0,0},{0,0,2}})\n"
    entry = (
        f"ENTRY main {{ x = f32[2,3] parameter(0)\n{CONSTANTS}{other}{loop(1, 'zero, x, w, b')}"
        f"{loop(1, 'zero, e_l, v, b', 'k')} ROOT n = f32[2,3] negate(e_k) }}"
    )
    after = sunk(step() + check() + entry)
    assert states(after) == [2, 2]
    names = [c.name for c in after.computations]
    assert len(set(names)) == len(names) == 5


def test_loops_in_loops_have_the_constants_of_the_outer_ones(sunk):
    inner = (
        f"zero = s32[] constant(0)  t = {STATE} tuple(zero, y, w, b)"
        f"  l = {STATE} while(t), condition=test, body=body"
        "  z = f32[2,3] get-tuple-element(l), index=1"
    )
    outer = step("outer", inner).replace("tuple(j, y,", "tuple(j, z,")
    entry = (
        f"ENTRY main {{ x = f32[2,3] parameter(0)\n{CONSTANTS}"
        f" s = {STATE} tuple(zero, x, w, b)"
        f" l = {STATE} while(s), condition=test2, body=outer"
        f" ROOT e = f32[2,3] get-tuple-element(l), index=1 }}"
    )
    assert states(sunk(step() + check() + outer + check("test2") + entry)) == [2, 2]


def test_branches_have_their_constants(sunk):
    given = "(f32[3], f32[3])"
    branch = (
        "{n} {{ s = (f32[3], f32[3]) parameter(0)  a = f32[3] get-tuple-element(s), index=0"
        "  b = f32[3] get-tuple-element(s), index=1  ROOT r = f32[3] {op}(a, b) }}\n"
    )
    entry = (
        f"ENTRY main {{ c = pred[] parameter(0)  x = f32[3] parameter(1)"
        f" w = f32[3] constant({{1,2,3}})  one = {given} tuple(x, w)  two = {given} tuple(w, x)"
        f" ROOT r = f32[3] conditional(c, one, two), true_computation=t, false_computation=f }}"
    )
    text = branch.format(n="t", op="add") + branch.format(n="f", op="divide") + entry
    shown = show(sunk(text))
    assert "(f32[3]{0})" in shown and "(f32[3]{0}, f32[3]{0})" not in shown


def test_a_loop_that_changes_nothing_stays(sunk):
    state = "(s32[], f32[3])"
    body = f"body {{ ROOT s = {state} parameter(0) }}\n"
    entry = (
        f"ENTRY main {{ z = s32[] constant(9)  w = f32[3] constant({{1,2,3}})"
        f"  s = {state} tuple(z, w)  ROOT l = {state} while(s), condition=test, body=body }}"
    )
    assert states(sunk(body + check(state=state) + entry)) == [2]


def test_weights_of_loops_are_stored_once_and_not_copied():
    """The arena has no room for weights, which executables have once for both loops."""
    n = 64
    state = f"(s32[], f32[2,{n}], f32[{n},{n}])"
    body = (
        f"body {{ s = {state} parameter(0)  i = s32[] get-tuple-element(s), index=0"
        f"  x = f32[2,{n}] get-tuple-element(s), index=1"
        f"  w = f32[{n},{n}] get-tuple-element(s), index=2"
        "  one = s32[] constant(1)  j = s32[] add(i, one)"
        f"  y = f32[2,{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"  ROOT r = {state} tuple(j, y, w) }}\n"
    )
    entry = (
        f"ENTRY main {{ x = f32[2,{n}] parameter(0)  w = f32[{n},{n}] parameter(1)"
        f"  zero = s32[] constant(0)  s = {state} tuple(zero, x, w)"
        f"  k = {state} while(s), condition=test, body=body"
        f"  y = f32[2,{n}] get-tuple-element(k), index=1  t = {state} tuple(zero, y, w)"
        f"  l = {state} while(t), condition=test, body=body"
        f"  ROOT z = f32[2,{n}] get-tuple-element(l), index=1 }}"
    )
    rng = np.random.default_rng(0)
    w = (rng.random((n, n)) / n).astype(np.float32)
    x = rng.random((2, n), np.float32)
    module = parse("HloModule test\n" + body + check(state=state) + entry)
    exe = nw.build(freeze(module, {1: w}))
    np.testing.assert_allclose(exe(x), x @ np.linalg.matrix_power(w, 8), rtol=1e-4)
    assert w.nbytes <= exe.plan.constant_bytes < 2 * w.nbytes
    assert exe.plan.arena_bytes < w.nbytes
