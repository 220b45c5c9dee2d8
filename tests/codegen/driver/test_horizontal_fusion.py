"""Kernels side by side, from HLO on: which of a model's become one launch, and that it is right."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from nestwright.codegen.driver import build as driver
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.plan.facts import from_json
from nestwright.codegen.plan.nodes import KernelThunk, walk
from nestwright.codegen.plan.notes import FACTS
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SIM = "cuda-sim -arch=sm_80"


def model(body: str, root: str, m: int = 24, k: int = 48, n: int = 48, kind: str = "f32") -> str:
    """``x [m, k]``, ``y [m, k]`` and weights ``a``, ``b``, ``c`` of ``[k, n]``, then ``body``."""
    weights = "\n".join(
        f"  {w} = {kind}[{k},{n}] parameter({p})" for p, w in enumerate("abc", start=2)
    )
    body = body.replace("DOT", DOT).replace("MN", f"{kind}[{m},{n}]")
    return f"""HloModule fused
ENTRY main {{
  x = {kind}[{m},{k}] parameter(0)
  y = {kind}[{m},{k}] parameter(1)
{weights}
{body}
  ROOT result = {root}
}}
"""


THREE = """
  q = MN dot(x, a), DOT
  k = MN dot(x, b), DOT
  v = MN dot(x, c), DOT"""
QKV = partial(model, THREE)
APART = model(
    """
  q = MN dot(x, a), DOT
  bias = f32[48] parameter(5)
  rows = MN broadcast(bias), dimensions={1}
  p = MN add(q, rows)
  s = f32[24,4,12] reshape(p)
  t = f32[4,24,12] transpose(s), dimensions={1,0,2}
  k = MN dot(x, b), DOT
  u = MN tanh(k)
  v = MN dot(y, c), DOT""",
    "(f32[4,24,12], f32[24,48], f32[24,48]) tuple(t, u, v)",
)
CHAIN = model(
    """
  q = MN dot(x, a), DOT
  k = MN dot(q, b), DOT
  v = MN dot(k, c), DOT""",
    "MN add(v, q)".replace("MN", "f32[24,48]"),
)
LOOP = """HloModule loop
body {
  s = (s32[], f32[8,16], f32[8,16], f32[16,16], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[8,16] get-tuple-element(s), index=1
  y = f32[8,16] get-tuple-element(s), index=2
  a = f32[16,16] get-tuple-element(s), index=3
  b = f32[16,16] get-tuple-element(s), index=4
  one = s32[] constant(1)
  next = s32[] add(n, one)
  p = f32[8,16] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[8,16] dot(y, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,16], f32[8,16], f32[16,16], f32[16,16]) tuple(next, q, p, a, b)
}
more {
  s = (s32[], f32[8,16], f32[8,16], f32[16,16], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(n, five), direction=LT
}
ENTRY main {
  x = f32[8,16] parameter(0)
  y = f32[8,16] parameter(1)
  a = f32[16,16] parameter(2)
  b = f32[16,16] parameter(3)
  zero = s32[] constant(0)
  s = (s32[], f32[8,16], f32[8,16], f32[16,16], f32[16,16]) tuple(zero, x, y, a, b)
  w = (s32[], f32[8,16], f32[8,16], f32[16,16], f32[16,16]) while(s), condition=more, body=body
  p = f32[8,16] get-tuple-element(w), index=1
  q = f32[8,16] get-tuple-element(w), index=2
  ROOT t = (f32[8,16], f32[8,16]) tuple(p, q)
}
"""


def kernels(exe: Executable) -> list[str]:
    return [t.name for t in walk(exe.plan.thunks) if isinstance(t, KernelThunk)]


def three(m: int, k: int, n: int, kind: str) -> str:
    shape = f"{kind}[{m},{n}]"
    return QKV(f"({shape}, {shape}, {shape}) tuple(q, k, v)", m=m, k=k, n=n, kind=kind)


CASES = {
    "plain": three(24, 48, 48, "f32"),
    "odd": three(7, 33, 29, "f32"),
    "f16": three(24, 48, 40, "f16"),
    "bf16, one row": three(1, 65, 40, "bf16"),
    "integers": three(5, 12, 9, "s32"),
    "epilogues and inputs differ": APART,
    "in a loop": LOOP,
    "a chain": CHAIN,
}
COUNTS = {"plain": 1, "odd": 1, "f16": 1, "bf16, one row": 1, "integers": 1} | {
    "epilogues and inputs differ": 1,
    "in a loop": 6,
    "a chain": 3,
}
"""Kernels of each; those of a loop's counter and of its five turns among them."""


@pytest.mark.parametrize("case", CASES)
def test_fused_kernels_are_right(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(CASES[case])
    exe = build(module, SIM)
    assert len(kernels(exe)) == COUNTS[case]
    assert any(", " in name for name in kernels(exe)) is (case != "a chain")
    args = random_arguments(module.entry, 0)
    expected = evaluate(module, args)
    for seed in ("0", "5"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        got = exe(*args)
        both = zip(expected, got, strict=True) if isinstance(got, tuple) else [(expected, got)]
        for a, b in both:
            wide = np.asarray(a, np.float64), np.asarray(b, np.float64)
            np.testing.assert_allclose(wide[1], wide[0], rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_fused_kernels_assemble_without_spills(arch: str) -> None:
    exe = build(parse(CASES["epilogues and inputs differ"]), f"cuda -arch={arch}")
    (code,) = exe.bundle.kernels.values()
    assert isinstance(code, DeviceCode) and len(code.launches) == 1
    assert not any(code.spills) and ".local" not in code.ptx


def test_a_saved_model_has_the_fused_kernels_alone(tmp_path: object) -> None:
    exe = build(parse(CASES["plain"]), "cuda -arch=sm_90")
    assert len(exe.bundle.kernels) == 1
    path = f"{tmp_path}/joint.nw"
    exe.save(path)
    again = load(path)
    assert again.plan == exe.plan and again.bundle.kernels == exe.bundle.kernels
    (facts,) = [f for f in from_json(exe.bundle.notes[FACTS]) if len(f.members) == 3]
    assert facts.flops == exe.cost_analysis()["flops"] == 3 * 2 * 24 * 48 * 48
    assert stage_text(parse(CASES["plain"]), "cuda -arch=sm_90", "plan") == exe.as_text("plan")


def test_schedules_of_the_parts_are_those_of_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is joined is what would have run alone: launch by launch, all blocks."""
    alone = monkeypatch.context()
    with alone as patch:
        patch.setattr(driver, "fused_kernels", lambda *args: None)
        before = build(parse(CASES["plain"]), "cuda -arch=sm_90")
    after = build(parse(CASES["plain"]), "cuda -arch=sm_90")
    (one,) = before.bundle.kernels.values()
    (fused,) = after.bundle.kernels.values()
    assert isinstance(one, DeviceCode) and isinstance(fused, DeviceCode)
    for a, b in zip(one.launches, fused.launches, strict=True):
        assert 3 * np.prod(a.grid) == np.prod(b.grid)
        assert (a.block, a.shared_bytes) == (b.block, b.shared_bytes)
