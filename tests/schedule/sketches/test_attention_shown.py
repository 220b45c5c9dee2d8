"""Decoding with a length: keys and values that the mask hides are not read; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright import te
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_80")
TEXT = """HloModule decode
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
max {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }}
ENTRY main {{
  q = f32[{h},{s},{d}] parameter(0)
  k = f32[{h},{t},{d}] parameter(1)
  v = f32[{h},{t},{d}] parameter(2)
  lengths = s32[{h}] parameter(3)
  y = f32[{h},{s},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  row = s32[{h},{s},{t}] iota(), iota_dimension=1
  col = s32[{h},{s},{t}] iota(), iota_dimension=2
  length = s32[{h},{s},{t}] broadcast(lengths), dimensions={{0}}
  ahead = s32[{h},{s},{t}] subtract(col, row)
  seen = pred[{h},{s},{t}] compare(ahead, length), direction=LT
  fill = f32[] constant({fill})
  low = f32[{h},{s},{t}] broadcast(fill), dimensions={{}}
  x = f32[{h},{s},{t}] select(seen, y, low)
  zero = f32[] constant(0)
  lowest = f32[] constant(-inf)
  m = f32[{h},{s}] reduce(x, lowest), dimensions={{2}}, to_apply=max
  ms = f32[{h},{s},{t}] broadcast(m), dimensions={{0,1}}
  z = f32[{h},{s},{t}] subtract(x, ms)
  e = f32[{h},{s},{t}] exponential(z)
  n = f32[{h},{s}] reduce(e, zero), dimensions={{2}}, to_apply=sum
  ns = f32[{h},{s},{t}] broadcast(n), dimensions={{0,1}}
  p = f32[{h},{s},{t}] divide(e, ns)
  ROOT o = f32[{h},{s},{d}] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""


@pytest.mark.parametrize(
    ("h", "s", "t", "d", "fill", "lengths"),
    [
        (3, 1, 75, 8, "-inf", (1, 33, 75)),
        (2, 3, 70, 12, "-inf", (5, 40)),
        (2, 1, 64, 8, "-1e9", (0, 40)),
    ],
)
def test_hidden_keys_are_not_read(
    h: int,
    s: int,
    t: int,
    d: int,
    fill: str,
    lengths: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be NaN; so may values, unless a row that sees no key takes them all."""
    module = parse(TEXT.format(h=h, s=s, t=t, d=d, fill=fill))
    (group,) = fuse(optimize(module).entry, SIM.row.groups).groups
    func = lower_group(group.computation, "decode")
    sch = Schedule(func)
    sketch = next(x for x in generate(func, SIM) if x.name == "gpu_attention_split@1")
    sketch.apply(sch, {"warps": 1, "keys": 32})
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((h, n, d)).astype(np.float32) for n in (s, t, t))
    many = np.array(lengths, np.int32)
    right = np.asarray(evaluate(module, [q, k, v, many]))
    for head, length in enumerate(lengths):
        k[head, length + s - 1 :] = np.nan
        if fill == "-inf":
            v[head, length + s - 1 :] = np.nan
    kernel = compile_func(sch.func, SIM)
    given = {"q": q, "k": k, "v": v, "lengths": many}
    args = [given[i.name].reshape(p.shape) for i, p in zip(group.inputs, func.params, strict=False)]
    for seed in ("0", "4"):
        monkeypatch.setenv(SEED, seed)
        found = np.asarray(kernel(*args)).reshape(right.shape)
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-5)


def scores(shown: object, also: bool = False) -> Schedule:
    """Scores of four rows and sixteen keys with a mask; a result of their own ``also``."""
    q, k = te.placeholder((4, 8), name="Q"), te.placeholder((16, 8), name="K")
    d = te.reduce_axis(8, "d")
    y = te.compute((4, 16), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="Y")
    x = te.compute((4, 16), lambda i, j: te.select(shown(i, j), y[i, j], -9.0), name="X")
    z = [te.compute((4, 16), lambda i, j: y[i, j] + 1.0, name="Z")] if also else []
    return Schedule(te.create_func([q, k, x, *z], name="scores"))


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (lambda i, j: i >= j, "vj < 4"),
        (lambda i, j: i + 2 <= j, "vj >= 2"),
        (lambda i, j: (j < 9) & (j > 3 - i), "vj >= 1 and vj < 9"),
    ],
)
def test_bounds_of_all_rows(shown: object, wanted: str) -> None:
    sch = scores(shown)
    q, k = (np.random.default_rng(n).integers(-3, 4, (m, 8)) for n, m in ((0, 4), (1, 16)))
    args = [q.astype(np.float32), k.astype(np.float32)]
    (right,) = run(sch.func, args)
    copy = sch.cache_read("Y", 2)
    sch.copy_shown(copy)
    assert f"select({wanted}, K[vj, vd], f32(0.0))" in sch.show()
    np.testing.assert_array_equal(run(sch.func, args)[0], right)


@pytest.mark.parametrize(
    ("sch", "read", "why"),
    [
        (scores(lambda i, j: i >= j), 1, "no mask that hides"),  # queries
        (scores(lambda i, j: i + 12 >= j), 2, "no mask that hides"),  # the last row sees all
        (scores(lambda i, j: te.not_equal(i, j)), 2, "no mask that hides"),
        (scores(lambda i, j: i >= j, also=True), 2, "not a copy of keys"),
    ],
)
def test_refused(sch: Schedule, read: int, why: str) -> None:
    copy = sch.cache_read("Y", read)
    with pytest.raises(ScheduleError, match=why):
        sch.copy_shown(copy)
    with pytest.raises(ScheduleError, match="not a copy of keys"):
        sch.copy_shown("X")
