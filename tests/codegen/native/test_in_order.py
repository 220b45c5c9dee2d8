"""Blocks whose terms stay in order, on a CPU: their results may run as lanes and on threads."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir import hlo
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

SCAN = """\
HloModule scan
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{m},{n}] parameter(0)
  z = f32[] constant(0)
  ROOT y = f32[{m},{n}] reduce-window(x, z), window={{size={m}x1 pad={pad}_0x0_0}}, to_apply=sum
}}
"""
TOPK = """\
HloModule best
ENTRY e {{
  x = f32[{m},{n}] parameter(0)
  ROOT y = (f32[{m},{k}], s32[{m},{k}]) topk(x), k={k}, largest=true
}}
"""
SHARED = """\
@func(outputs=1)
def keep(A: f32[4], S: f32[1]):
    for i in range(4):
        with block("S", opaque=1):
            vi = spatial(4, i)
            reads(A[vi])
            writes(S[0])
            S[0] = A[vi]
"""


@pytest.mark.parametrize(("m", "n"), [(300, 200), (7, 33), (1, 5), (64, 1)])
def test_scan_along_the_first_axis(m: int, n: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (m, n)).astype(np.float32)
    exe = nw.build(hlo.parse(SCAN.format(m=m, n=n, pad=m - 1)))
    assert np.array_equal(exe(x), np.cumsum(x, 0))


def test_points_that_write_one_element_stay_in_order() -> None:
    sch = Schedule(parse(SHARED))
    (loop,) = sch.get_loops("S")
    for ask in (sch.parallel, sch.vectorize):
        with pytest.raises(ScheduleError, match="may access the same element of `S`"):
            ask(loop)


ARGMAX = """\
HloModule greatest
first {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(b, a), direction=GT
  c = f32[] select(more, b, a)
  k = s32[] select(more, j, i)
  ROOT t = (f32[], s32[]) tuple(c, k)
}}
ENTRY e {{
  x = f32[{m},{n}] parameter(0)
  at = s32[{m},{n}] iota(), iota_dimension=0
  least = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT y = (f32[{n}], s32[{n}]) reduce(x, at, least, none), dimensions={{0}}, to_apply=first
}}
"""


@pytest.mark.parametrize(("m", "n"), [(300, 200), (7, 33), (5, 1), (1, 64)])
def test_argmax_along_the_first_axis(m: int, n: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (m, n)).astype(np.float32)
    values, places = nw.build(hlo.parse(ARGMAX.format(m=m, n=n)))(x)
    assert np.array_equal(values, x.max(0)) and np.array_equal(places, x.argmax(0))


@pytest.mark.parametrize("k", [1, 3, 64, 200])
def test_topk_is_stable_and_in_total_order(k: int) -> None:
    x = np.random.default_rng(1).integers(-50, 50, (40, 400)).astype(np.float32)
    x[3, 5:9], x[4, ::7], x[5, :], x[6, 1] = np.nan, -0.0, 2.0, -np.nan
    x[7] = np.sort(x[7])
    exe = nw.build(hlo.parse(TOPK.format(m=40, n=400, k=k)), target=Target.parse("cpu"))
    values, places = exe(x)
    bits = x.view(np.int32)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    order = np.argsort(-keys.astype(np.int64), axis=1, kind="stable")[:, :k]
    assert np.array_equal(places, order)
    assert np.array_equal(values.view(np.int32), np.take_along_axis(bits, order, 1))
