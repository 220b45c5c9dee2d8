"""A program is tested once, after its run, where that shows whether its kernels were correct."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.plan.guards.group import without_nan
from nestwright.codegen.plan.guards.program import ProgramGuard
from nestwright.codegen.plan.nodes import ConditionalThunk, walk
from nestwright.codegen.runtime.cuda.steps import Segment, steps
from nestwright.ir.dtypes import f32
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Shape
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.rewrite import parameter, reachable
from nestwright.ir.target import Target

SIM = "cuda-sim -arch=sm_80"

HEAD = """HloModule h
plus { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] add(a, b) }
more { n = f32[] parameter(0)
  five = f32[] constant(5)
  ROOT p = pred[] compare(n, five), direction=LT }
next { l = f32[] parameter(0)
  one = f32[] constant(1)
  ROOT q = f32[] add(l, one) }
ENTRY e {
  x = f32[1,5,7] parameter(0)
  w = f32[3,7,6] parameter(1)
  v = f32[3,6,3] parameter(2)
  zero = f32[] constant(0)
  z = f32[1,5,6] broadcast(zero), dimensions={}
  zs = f32[1,5,3] broadcast(zero), dimensions={}
  c = f32[1,5,6] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
  r = f32[1,5,6] maximum(c, z)
  d = f32[1,5,3] convolution(r, v), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
"""

SHOWN = "s = f32[1,3] reduce(d, zero), dimensions={1}, to_apply=plus\n ROOT t = f32[1,3] tanh(s)"
TWO = "m = f32[1,3] reduce(d, zero), dimensions={1}, to_apply=plus\n" + (
    "ROOT t = (f32[1,3], f32[1,5,6]) tuple(m, r)"
)
HIDDEN = "p = pred[1,5,3] compare(d, zs), direction=LT\n ROOT t = f32[1,5,3] select(p, zs, d)"
LOOP = (
    "m = f32[1,3] reduce(d, zero), dimensions={1}, to_apply=plus\n"
    "o = f32[1,1] slice(m), slice={[0:1],[0:1]}\n f = f32[] reshape(o)\n"
    "ROOT t = f32[] while(f), condition=more, body=next"
)


def guard_of(text: str, spec: str) -> ProgramGuard | None:
    return fuse_module(optimize(parse(text)), target=Target.parse(spec)).whole


@pytest.mark.parametrize(
    ("name", "end", "cpu", "gpu"),
    [
        ("shown", SHOWN, [True], [True]),
        ("two", TWO, [True, True], [True, True]),
        ("hidden", HIDDEN, None, [False, False]),
        ("loop", LOOP, None, None),
    ],
)
def test_what_is_tested(name: str, end: str, cpu: Any, gpu: Any) -> None:
    """Results where they show a NaN; else weights, on GPUs, if the run ends in any case."""
    for spec, wanted in (("cpu", cpu), (SIM, gpu)):
        found = guard_of(f"{HEAD}{end}\n}}", spec)
        assert (found and [t.after for t in found.tests]) == wanted, (name, spec)


@cache
def built(end: str, spec: str) -> Any:
    return nw.build(parse(f"{HEAD}{end}\n}}"), target=spec, cache=False)


@pytest.mark.parametrize(
    ("end", "spec"), [(TWO, "cpu"), (LOOP, "cpu"), (SHOWN, SIM), (HIDDEN, SIM)]
)
def test_results_are_right_for_any_weights(end: str, spec: str) -> None:
    module, exe = parse(f"{HEAD}{end}\n}}"), built(end, spec)
    rng = np.random.default_rng(0)
    x, w, v = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 5, 7), (3, 7, 6), (3, 6, 3)))
    for first, last in ((0, 0), (np.inf, 0), (0, np.nan), (-np.inf, np.inf)):
        w[0, 0, 0], v[2, 1, 2] = first, last
        with np.errstate(all="ignore"):
            wanted = evaluate(module, [x, w, v])
        for a, b in zip(_all(exe(x, w, v)), _all(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("spec", ["cpu", SIM])
def test_results_that_are_infinite_are_right(spec: str) -> None:
    """As masked scores are: no second run on their account."""
    test = without_nan([parameter(0, Shape(f32, (3, 5)), "x")])
    exe = nw.build(HloModule("test", reachable(test), test), target=spec)
    values = np.zeros((3, 5), np.float32)
    values[1, 2], values[2, 0] = np.inf, -np.inf
    assert exe(values)
    values[2, 4] = np.nan
    assert not exe(values)


def _all(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_the_host_waits_once_and_at_the_end() -> None:
    plan = built(SHOWN, SIM).bundle.plan
    first, _ = steps(plan.thunks)
    assert isinstance(first, Segment) and first.decision is not None
    assert isinstance(plan.thunks[-1], ConditionalThunk)
    assert sum(isinstance(t, ConditionalThunk) for t in walk(plan.thunks)) == 1


def test_a_second_run_is_not_counted() -> None:
    """Two products, 5 places each."""
    products = 2 * 5 * 3 * (7 * 6 + 6 * 3)
    assert products * 0.8 < built(SHOWN, SIM).cost_analysis()["flops"] < products * 1.2


def test_library_calls_are_not_repeated() -> None:
    factor = (
        "n = f32[5,5] constant({{2,0,0,0,0},{0,2,0,0,0},{0,0,2,0,0},{0,0,0,2,0},{0,0,0,0,2}})\n"
        "half = f16[5,5] convert(n)\nlow = f16[5,5] cholesky(half)\nk = f32[5,5] convert(low)\n"
        "b = f32[1,3,5] dot(d, k), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n ROOT t = f32[1,3,5] negate(b)"
    )
    assert guard_of(f"{HEAD}{factor}\n}}", SIM) is None
