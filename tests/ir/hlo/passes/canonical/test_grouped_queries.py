"""Grouped queries: heads that share keys and values are one attention, which reads those once."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize

REDUCERS = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
"""
SOFTMAX = """  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{rows}] reduce(x, low), dimensions={{{last}}}, to_apply=max
  ms = f32[{rows},33] broadcast(m), dimensions={{{kept}}}
  y = f32[{rows},33] subtract(x, ms)
  e = f32[{rows},33] exponential(y)
  n = f32[{rows}] reduce(e, zero), dimensions={{{last}}}, to_apply=sum
  ns = f32[{rows},33] broadcast(n), dimensions={{{kept}}}
  p = f32[{rows},33] divide(e, ns)
"""
# Two heads of keys with three of queries each, as JAX groups them: queries [1, s, 2, 3, d].
GROUPED = (
    REDUCERS
    + """ENTRY main {
  q = f32[1,9,2,3,8] parameter(0)
  k = f32[1,33,2,8] parameter(1)
  v = f32[1,33,2,5] parameter(2)
  raw = f32[1,2,9,3,33] dot(q, k), lhs_batch_dims={0,2}, lhs_contracting_dims={4},
    rhs_batch_dims={0,2}, rhs_contracting_dims={3}
  i = s32[9,33] iota(), iota_dimension=0
  j = s32[9,33] iota(), iota_dimension=1
  seen = pred[9,33] compare(i, j), direction=GE
  all = pred[3,1,2,9,33] broadcast(seen), dimensions={3,4}
  scores = f32[3,1,2,9,33] transpose(raw), dimensions={3,0,1,2,4}
  lowest = f32[] constant(-1e30)
  lows = f32[3,1,2,9,33] broadcast(lowest), dimensions={}
  x = f32[3,1,2,9,33] select(all, scores, lows)
"""
    + SOFTMAX.format(rows="3,1,2,9", last="4", kept="0,1,2,3")
    + """  o = f32[1,2,5,3,9] dot(v, p), lhs_batch_dims={0,2}, lhs_contracting_dims={1},
    rhs_batch_dims={1,2}, rhs_contracting_dims={4}
  ROOT r = f32[1,9,2,3,5] transpose(o), dimensions={0,4,1,3,2}
}
"""
)
# The same heads, keys and values repeated: what PyTorch and Hugging Face models print.
REPEATED = (
    REDUCERS
    + """ENTRY main {
  q = f32[1,6,9,8] parameter(0)
  k = f32[1,2,33,8] parameter(1)
  v = f32[1,2,33,5] parameter(2)
  ks = f32[1,2,3,33,8] broadcast(k), dimensions={0,1,3,4}
  kk = f32[1,6,33,8] reshape(ks)
  vs = f32[1,2,3,33,5] broadcast(v), dimensions={0,1,3,4}
  vv = f32[1,6,33,5] reshape(vs)
  x = f32[1,6,9,33] dot(q, kk), lhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_batch_dims={0,1}, rhs_contracting_dims={3}
"""
    + SOFTMAX.format(rows="1,6,9", last="3", kept="0,1,2")
    + """  ROOT r = f32[1,6,9,5] dot(p, vv), lhs_batch_dims={0,1}, lhs_contracting_dims={3},
    rhs_batch_dims={0,1}, rhs_contracting_dims={2}
}
"""
)
# Heads behind the positions, as `jnp.repeat` of a cache leaves them.
INNER = (
    REDUCERS
    + """ENTRY main {
  q = f32[1,9,6,8] parameter(0)
  k = f32[1,33,2,8] parameter(1)
  v = f32[1,33,2,5] parameter(2)
  ks = f32[1,33,2,3,8] broadcast(k), dimensions={0,1,2,4}
  kk = f32[1,33,6,8] reshape(ks)
  vs = f32[1,33,2,3,5] broadcast(v), dimensions={0,1,2,4}
  vv = f32[1,33,6,5] reshape(vs)
  x = f32[1,6,9,33] dot(q, kk), lhs_batch_dims={0,2}, lhs_contracting_dims={3},
    rhs_batch_dims={0,2}, rhs_contracting_dims={3}
"""
    + SOFTMAX.format(rows="1,6,9", last="3", kept="0,1,2")
    + """  ROOT r = f32[1,6,5,9] dot(vv, p), lhs_batch_dims={0,2}, lhs_contracting_dims={1},
    rhs_batch_dims={0,1}, rhs_contracting_dims={3}
}
"""
)
FORMS = {"grouped": GROUPED, "repeated": REPEATED, "inner": INNER}


def one_head(text: str) -> str:
    """The same with one head of keys for all six heads of queries."""
    return (
        text.replace("[1,2,33,", "[1,1,33,")
        .replace("[1,2,3,33,", "[1,1,6,33,")
        .replace("[1,33,2,8]", "[1,33,1,8]")
        .replace("[1,33,2,5]", "[1,33,1,5]")
        .replace("[1,33,2,3,", "[1,33,1,6,")
    )


def results(module: HloModule) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """What a module gives for random inputs, and what its optimized form gives."""
    arguments = random_arguments(module.entry)
    after = evaluate_computation(optimize(module).entry, arguments)
    return np.asarray(evaluate_computation(module.entry, arguments)), np.asarray(after)


@pytest.mark.parametrize("heads", ["two", "one"])
@pytest.mark.parametrize("form", list(FORMS))
def test_heads_that_share_keys_are_one_attention(form: str, heads: str) -> None:
    text = one_head(FORMS[form]) if heads == "one" and form != "grouped" else FORMS[form]
    module = parse(text)
    expected, found = results(module)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    fusion = fuse(optimize(module).entry, {"attention"})
    assert [g.kind for g in fusion.groups].count("attention") == 1
    assert not any(g.kind in ("dot", "reduction") for g in fusion.groups)
    most = max(i.array.size for g in fusion.groups for i in g.outputs)
    assert most <= 33 * 2 * 8, "keys and values are never repeated"
