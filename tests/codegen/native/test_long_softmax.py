"""Softmax of a few long rows on GPUs: largest elements and sums of exponentials in one launch."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import ptxas
from nestwright.codegen.targets.registry import lower
from nestwright.ir.hlo import optimize_narrow, parse
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group

CUDA = Target.parse("cuda -arch=sm_90")

TEXT = """HloModule rows
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }}
max {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }}
ENTRY main {{
  x = f32[{m},{n}] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[{m}] reduce(x, low), dimensions={{1}}, to_apply=max
  finite = pred[{m}] is-finite(top)
  zeros = f32[{m}] broadcast(zero), dimensions={{}}
  guarded = f32[{m}] select(finite, top, zeros)
  shifts = f32[{m},{n}] broadcast({shift}), dimensions={{0}}
  less = f32[{m},{n}] subtract(x, shifts)
  e = f32[{m},{n}] exponential(less)
  sum = f32[{m}] reduce(e, zero), dimensions={{1}}, to_apply=add
  {tail}
}}"""
SOFTMAX = """sums = f32[{m},{n}] broadcast(sum), dimensions={{0}}
  ROOT out = f32[{m},{n}] divide(e, sums)"""
LOG = """log = f32[{m}] log(sum)
  logs = f32[{m},{n}] broadcast(log), dimensions={{0}}
  ROOT out = f32[{m},{n}] subtract(less, logs)"""
LOG_SUM = """log = f32[{m}] log(sum)
  ROOT out = f32[{m}] add(log, guarded)"""
MIXED = """w = f32[{n},8] parameter(1)
  some = f32[{m},8] dot(e, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sums = f32[{m},8] broadcast(sum), dimensions={{0}}
  ROOT out = f32[{m},8] divide(some, sums)"""


def source(m: int, n: int, tail: str, shift: str = "top") -> str:
    return TEXT.format(m=m, n=n, shift=shift, tail=tail.format(m=m, n=n))


def is_online(text: str, spec: str = "cuda -arch=sm_80") -> bool:
    return "online" in nw.show(optimize_narrow(parse(text), None, Target.parse(spec))[0])


@pytest.mark.parametrize(
    ("tail", "shift"), [(SOFTMAX, "top"), (LOG_SUM, "top"), (LOG_SUM, "guarded")]
)
def test_infinities_and_nan(tail: str, shift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of numbers, of some -inf, of -inf alone, with inf, with NaN."""
    text = source(5, 16387, tail, shift)
    assert is_online(text)
    x = np.random.default_rng(0).standard_normal((5, 16387)).astype(np.float32) * 3
    x[1, ::3], x[2], x[3, 7777], x[4, 9999] = -np.inf, -np.inf, np.inf, np.nan
    kernel = nw.build(parse(text), "cuda-sim -arch=sm_90")
    with np.errstate(all="ignore"):
        right = evaluate(parse(text), [x])
    for seed in ("0", "3"):
        monkeypatch.setenv(SEED, seed)
        np.testing.assert_allclose(kernel(x), right, rtol=2e-6)


@pytest.mark.parametrize(
    ("rows", "tail", "count"),
    [(1, SOFTMAX, 2), (8, SOFTMAX, 2), (8, LOG, 2), (1, LOG_SUM, 1), (4, LOG_SUM, 1)],
)
def test_launches(rows: int, tail: str, count: int) -> None:
    module, _ = optimize_narrow(parse(source(rows, 50257, tail)), None, CUDA)
    found = [
        x
        for g in fuse(module.entry).groups
        for x in launches(
            lower(default_schedule(lower_group(g.computation, "main"), CUDA).func, CUDA)
        )
    ]
    assert len(found) == count
    assert all(np.prod(x.grid) >= 32 for x in found)


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_no_spills(arch: str) -> None:
    exe = nw.build(parse(source(1, 1 << 20, LOG_SUM)), f"cuda -arch={arch}", cache=False)
    (code,) = exe.bundle.kernels.values()
    assert code.spills == (0,)


def test_what_stays() -> None:
    assert not is_online(source(32, 20000, SOFTMAX))  # a block of threads a row
    assert not is_online(source(4, 16384, SOFTMAX))  # short rows
    assert not is_online(source(4, 20000, MIXED))  # an attention
    assert not is_online(source(4, 20000, SOFTMAX), "cpu")
    assert is_online(source(4, 20000, SOFTMAX))
