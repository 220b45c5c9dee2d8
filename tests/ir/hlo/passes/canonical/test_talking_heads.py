"""Heads that are mixed before and after a softmax: no transposes, and the softmax is one kernel."""

from __future__ import annotations

import numpy as np

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize

MIXED = """HloModule mixed
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
ENTRY main {
  q = f32[1,4,9,8] parameter(0)
  k = f32[1,4,8,33] parameter(1)
  v = f32[1,4,33,5] parameter(2)
  before = f32[4,4] parameter(3)
  after = f32[4,4] parameter(4)
  bias = f32[4] parameter(5)
  raw = f32[1,4,9,33] dot(q, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_batch_dims={0,1}, rhs_contracting_dims={2}
  last = f32[1,9,33,4] transpose(raw), dimensions={0,2,3,1}
  mixed = f32[1,9,33,4] dot(last, before), lhs_contracting_dims={3}, rhs_contracting_dims={1}
  biases = f32[1,9,33,4] broadcast(bias), dimensions={3}
  moved = f32[1,9,33,4] add(mixed, biases)
  x = f32[1,4,9,33] transpose(moved), dimensions={0,3,1,2}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[1,4,9] reduce(x, low), dimensions={3}, to_apply=max
  ms = f32[1,4,9,33] broadcast(m), dimensions={0,1,2}
  y = f32[1,4,9,33] subtract(x, ms)
  e = f32[1,4,9,33] exponential(y)
  n = f32[1,4,9] reduce(e, zero), dimensions={3}, to_apply=sum
  ns = f32[1,4,9,33] broadcast(n), dimensions={0,1,2}
  p = f32[1,4,9,33] divide(e, ns)
  again = f32[1,9,33,4] transpose(p), dimensions={0,2,3,1}
  other = f32[1,9,33,4] dot(again, after), lhs_contracting_dims={3}, rhs_contracting_dims={1}
  shifted = f32[1,9,33,4] add(other, biases)
  weights = f32[1,4,9,33] transpose(shifted), dimensions={0,3,1,2}
  ROOT r = f32[1,4,9,5] dot(weights, v), lhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_batch_dims={0,1}, rhs_contracting_dims={2}
}
"""


def test_mixed_heads_stay_in_their_order() -> None:
    module = parse(MIXED)
    arguments = random_arguments(module.entry)
    expected = np.asarray(evaluate_computation(module.entry, arguments))
    entry = optimize(module).entry
    found = np.asarray(evaluate_computation(entry, arguments))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    kinds = [g.kind for g in fuse(entry, {"attention"}).groups]
    assert kinds == ["dot", "dot", "reduction", "dot", "dot"]
