"""FuseOps: attention is one group, what keeps it from being one, and it computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.fuse.fusion import Fusion, fuse, show_fusion
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text.printer import show_computation
from nestwright.ir.target import Target

SPELLINGS = Path(__file__).parents[3] / "codegen" / "native" / "attention"
REDUCERS = """
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
"""
PRODUCT = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
HEAD = f"""
ENTRY main {{
  q = f32[3,9,8] parameter(0)
  k = f32[3,8,33] parameter(1)
  v = f32[3,33,5] parameter(2)
  raw = f32[3,9,33] dot(q, k), {PRODUCT}, rhs_contracting_dims={{1}}
  c = f32[] constant(0.25)
  cs = f32[3,9,33] broadcast(c), dimensions={{}}
  scores = f32[3,9,33] multiply(raw, cs)
"""
SOFTMAX = """
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[3,9] reduce(masked, lowest), dimensions={2}, to_apply=max
  ms = f32[3,9,33] broadcast(m), dimensions={0,1}
  d = f32[3,9,33] subtract(masked, ms)
  e = f32[3,9,33] exponential(d)
  n = f32[3,9] reduce(e, zero), dimensions={2}, to_apply=sum
"""
EARLY = f"""
  ns = f32[3,9,33] broadcast(n), dimensions={{0,1}}
  p = f32[3,9,33] divide(e, ns)
  o = f32[3,9,5] dot(p, v), {PRODUCT}, rhs_contracting_dims={{1}}
"""
LATE = f"""
  u = f32[3,9,5] dot(e, v), {PRODUCT}, rhs_contracting_dims={{1}}
  ns = f32[3,9,5] broadcast(n), dimensions={{0,1}}
  o = f32[3,9,5] divide(u, ns)
"""
PLAIN = "  masked = f32[3,9,33] copy(scores)\n"
ADDED = """  keys = f32[33] parameter(3)
  bias = f32[3,9,33] broadcast(keys), dimensions={2}
  masked = f32[3,9,33] add(scores, bias)
"""
CAUSAL = """  i = s32[9,33] iota(), iota_dimension=0
  j = s32[9,33] iota(), iota_dimension=1
  seen = pred[9,33] compare(i, j), direction=GE
  all = pred[3,9,33] broadcast(seen), dimensions={1,2}
  low = f32[] constant(-1e30)
  lows = f32[3,9,33] broadcast(low), dimensions={}
  masked = f32[3,9,33] select(all, scores, lows)
"""
SOFTCAP = """  t = f32[3,9,33] tanh(scores)
  cap = f32[] constant(30)
  caps = f32[3,9,33] broadcast(cap), dimensions={}
  masked = f32[3,9,33] multiply(t, caps)
"""
END = "  ROOT r = f32[3,9,5] negate(o)\n}\n"
HEADS = "  ROOT r = f32[9,3,5] transpose(o), dimensions={1,0,2}\n}\n"


def module(*parts: str) -> str:
    return "HloModule m\n" + REDUCERS + HEAD + "".join(parts)


def fused(text: str, kinds: frozenset[str] = frozenset({"attention"})) -> Fusion:
    return fuse(optimize(parse(text)).entry, kinds)


def attentions(fusion: Fusion) -> list[str]:
    return [g.name for g in fusion.groups if g.kind == "attention"]


@pytest.mark.parametrize("mask", [PLAIN, ADDED, CAUSAL, SOFTCAP], ids=list("pacs"))
@pytest.mark.parametrize("scaled", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize("end", [END, HEADS], ids=["end", "heads"])
def test_one_group_that_computes_the_same(mask: str, scaled: str, end: str) -> None:
    text = module(mask, SOFTMAX, scaled, end)
    fusion = fused(text)
    (group,) = fusion.groups
    assert group.kind == "attention"
    assert "divide(" not in show_fusion(fusion).replace("divide(broadcast", "")
    arguments = random_arguments(fusion.computation)
    given = dict(zip(fusion.computation.parameters, arguments, strict=True))
    inputs = [given[i] if i in given else i.attrs["literal"] for i in group.inputs]
    found = evaluate_computation(group.computation, inputs)
    expected = evaluate_computation(fusion.computation, arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", [-99.0, 84.0])
def test_exponentials_that_are_not_shifted_are_divided(score: float) -> None:
    """Their sum may have no reciprocal, and their product with values may be infinite."""
    text = module(PLAIN + SOFTMAX.replace("exponential(d)", "exponential(masked)"), EARLY, END)
    (group,) = fused(text).groups
    assert group.kind == "attention"
    shapes = ((3, 9, 8), (3, 8, 33), (3, 33, 5))
    filled = (0.5, score / 0.5 / 8 / 0.25, 30.0)
    q, k, v = (np.full(d, x, np.float32) for d, x in zip(shapes, filled, strict=True))
    assert [p.array.dims for p in group.computation.parameters] == [*shapes]
    found = evaluate_computation(group.computation, [q, k, v])
    np.testing.assert_allclose(found, -v[:, :9], rtol=0.3)


def test_the_text_of_an_attention(golden: Any) -> None:
    golden.check(show_fusion(fused(module(ADDED, SOFTMAX, EARLY, HEADS))))


def test_only_targets_with_a_sketch_take_it() -> None:
    text = module(PLAIN, SOFTMAX, EARLY, END)
    assert not attentions(fused(text, frozenset()))
    for spec in ("cpu -mcpu=haswell", "cuda -arch=sm_75", "cuda -arch=sm_90a", "cuda-sim"):
        assert attentions(fused(text, Target.parse(spec).row.groups))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            module(PLAIN, SOFTMAX, EARLY, "  ROOT r = (f32[3,9,5], f32[3,9,33]) tuple(o, p)\n}\n"),
            "is used elsewhere",
        ),
        (
            module(PLAIN, SOFTMAX, EARLY, "  ROOT r = (f32[3,9,5], f32[3,9]) tuple(o, n)\n}\n"),
            "`n` is used elsewhere",
        ),
        (
            module(
                PLAIN,
                SOFTMAX.replace("dimensions={2}, to_apply=max", "dimensions={1}, to_apply=max")
                .replace("m = f32[3,9]", "m = f32[3,33]")
                .replace("broadcast(m), dimensions={0,1}", "broadcast(m), dimensions={0,2}"),
                EARLY,
                END,
            ),
            "`scores` is used elsewhere",
        ),
        (
            module(PLAIN, SOFTMAX, EARLY, END).replace(",5]", ",1]"),
            "its result has no columns to be lanes",
        ),
    ],
    ids=["weights", "sums", "columns", "narrow"],
)
def test_what_keeps_it_from_being_one_group(text: str, why: str) -> None:
    fusion = fused(text)
    assert not attentions(fusion)
    reasons = [e.reason for e in fusion.edges if "one group with the scores" in e.reason]
    assert len(reasons) == 1
    assert why in reasons[0]


@pytest.mark.parametrize(("queries", "inside"), [(1, True), (5, True), (17, False)])
def test_few_queries_read_keys_as_they_lie(queries: int, inside: bool) -> None:
    text = module(PLAIN, SOFTMAX, EARLY, END).replace("[3,9", f"[3,{queries}")
    text = text.replace("k = f32[3,8,33]", "k = f32[3,33,8]")
    text = text.replace("rhs_contracting_dims={1}\n  c =", "rhs_contracting_dims={2}\n  c =")
    fusion = fused(text)
    (group,) = (g for g in fusion.groups if g.kind == "attention")
    assert len(fusion.groups) == (1 if inside else 2)
    assert ("transpose(" in show_computation(group.computation)) == inside
    if inside:
        computes(text)


def test_computed_keys_stay_in_a_group() -> None:
    """Keys that are scaled on their way are not among those that are read as they lie."""
    text = module(PLAIN, SOFTMAX, EARLY, END)
    text = text.replace(
        "k = f32[3,8,33] parameter(1)",
        """raw_k = f32[3,33,8] parameter(1)
  half = f32[] constant(0.5)
  halves = f32[3,33,8] broadcast(half), dimensions={}
  k = f32[3,33,8] multiply(raw_k, halves)""",
    )
    text = text.replace("rhs_contracting_dims={1}\n  c =", "rhs_contracting_dims={2}\n  c =")
    fusion = fused(text)
    grouped = {i for g in fusion.groups for i in g.inputs}
    made = {i for g in fusion.groups for i in g.outputs}
    assert all(i in made or i.opcode in ("parameter", "reshape") for i in grouped)


def test_products_without_a_softmax_keep_their_reasons() -> None:
    plain = f"  o = f32[3,9,5] dot(scores, v), {PRODUCT}, rhs_contracting_dims={{1}}\n"
    fusion = fused(module(plain, END))
    assert not attentions(fusion)
    assert not [e for e in fusion.edges if "one group with the scores" in e.reason]


def computes(text: str) -> tuple[Fusion, str]:
    """The fusion, and the text of its attention, which must give what the graph gives."""
    fusion = fused(text)
    (group,) = (g for g in fusion.groups if g.kind == "attention")
    arguments = random_arguments(fusion.computation)
    given = dict(zip(fusion.computation.parameters, arguments, strict=True))
    inputs = [given[i] if i in given else i.attrs["literal"] for i in group.inputs]
    found = evaluate_computation(group.computation, inputs)
    expected = evaluate_computation(fusion.computation, arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return fusion, show_computation(group.computation)


def constant_mask(mask: Any) -> str:
    rows = ", ".join("{" + ", ".join(map(str, row.astype(int))) + "}" for row in mask)
    return f"""  seen = pred[9,33] constant({{{rows}}})
  all = pred[3,9,33] broadcast(seen), dimensions={{1,2}}
  low = f32[] constant(-1e30)
  lows = f32[3,9,33] broadcast(low), dimensions={{}}
  masked = f32[3,9,33] select(all, scores, lows)
"""


@pytest.mark.parametrize("offset", [-4, 0, 20])
@pytest.mark.parametrize("negated", [False, True])
def test_a_constant_triangle_is_computed(offset: int, negated: bool) -> None:
    mask = np.tril(np.ones((9, 33), bool), offset)
    fusion, text = computes(module(constant_mask(mask ^ negated), SOFTMAX, EARLY, END))
    assert "iota" in text and "pred[9,33]{1,0} parameter" not in text
    assert all(i.opcode != "constant" for g in fusion.groups for i in g.inputs)


def test_other_constant_masks_are_read() -> None:
    mask = np.tril(np.ones((9, 33), bool))
    mask[4, 20] = True
    _, text = computes(module(constant_mask(mask), SOFTMAX, EARLY, END))
    assert "pred[9,33]{1,0} parameter" in text


def test_constant_positions_are_computed() -> None:
    shifted = CAUSAL.replace("iota(), iota_dimension=0", "broadcast(at), dimensions={0}")
    positions = ",".join(str(20 - 2 * n) for n in range(9))
    at = f"  at = s32[9] constant({{{positions}}})\n"
    long = module(at, shifted, SOFTMAX, EARLY, END).replace("33", "512")  # not folded with the mask
    _, text = computes(long)
    assert "s32[9]{0} parameter" not in text and "iota" in text


@pytest.mark.parametrize(("name", "apart"), [("jax_grouped_causal_f32", 5), ("jax_mask_bf16", 4)])
def test_operands_and_results_through_views(name: str, apart: int) -> None:
    text = (SPELLINGS / f"{name}.hlo").read_text()
    assert len(fused(text).groups) == apart
    (group,) = fused(text, frozenset({"attention", "strided"})).groups
    assert group.kind == "attention"


def test_views_that_take_contiguous_terms_apart_stay_outside() -> None:
    keys = "  k = f32[3,8,33] parameter(1)\n"
    assert keys in HEAD
    head = HEAD.replace(
        keys,
        "  kt = f32[3,4,33,2] parameter(1)\n"
        "  kp = f32[3,4,2,33] transpose(kt), dimensions={0,1,3,2}\n"
        "  k = f32[3,8,33] reshape(kp)\n",
    )
    text = "HloModule m\n" + REDUCERS + head + PLAIN + SOFTMAX + LATE + END
    fusion = fused(text, frozenset({"attention", "strided"}))
    assert [g.kind for g in fusion.groups] == ["injective", "attention"]
