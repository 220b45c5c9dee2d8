"""Small terms of epilogues on GPUs: computed where they are read, not in a launch of their own."""

from __future__ import annotations

import pytest

from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.registry import lower
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group

NORMED = """HloModule normed
ENTRY main {
  x = f32[3136,64] parameter(0)
  w = f32[64,256] parameter(1)
  mean = f32[256] parameter(2)
  var = f32[256] parameter(3)
  gain = f32[256] parameter(4)
  bias = f32[256] parameter(5)
  y = f32[3136,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  means = f32[3136,256] broadcast(mean), dimensions={1}
  more = f32[3136,256] add(y, means)
  tiny = f32[] constant(0.001)
  tinies = f32[256] broadcast(tiny), dimensions={}
  safe = f32[256] add(var, tinies)
  root = f32[256] rsqrt(safe)
  scale = f32[256] multiply(root, gain)
  scales = f32[3136,256] broadcast(scale), dimensions={1}
  scaled = f32[3136,256] multiply(more, scales)
  back = f32[256] multiply(mean, scale)
  shift = f32[256] add(back, bias)
  shifts = f32[3136,256] broadcast(shift), dimensions={1}
  ROOT out = f32[3136,256] add(scaled, shifts)
}"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_factors_of_columns_are_computed_behind_the_product(arch: str) -> None:
    """They are read again and again, out of the cache of a multiprocessor."""
    target = Target.parse(f"cuda -arch={arch}")
    (group,) = fuse(optimize(parse(NORMED)).entry).groups
    scheduled = default_schedule(lower_group(group.computation, "main"), target).func
    assert len(launches(lower(scheduled, target))) == 1
