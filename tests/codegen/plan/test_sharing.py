"""Which inputs a kernel's result may overwrite: those of which it needs one element for one."""

from __future__ import annotations

import pytest

from nestwright.codegen.plan.sharing import in_place_inputs
from nestwright.ir.hlo import parse

HEAD = """HloModule m
plus { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  v = f32[8] parameter(2)
  zero = f32[] constant(0)
"""
BODIES = {
    "e = f32[8,8] exponential(x)  ROOT r = f32[8,8] add(e, y)": (0, 1),
    "e = f32[8,8] exponential(x)  ROOT r = f32[8,8] transpose(e), dimensions={1,0}": (1,),
    """e = f32[8,8] exponential(x)  t = f32[8,8] transpose(e), dimensions={1,0}
       ROOT r = f32[8,8] add(t, y)""": (1,),
    """e = f32[8,8] exponential(x)  s = f32[8] reduce(e, zero), dimensions={1}, to_apply=plus
       b = f32[8,8] broadcast(s), dimensions={0}  d = f32[8,8] divide(e, b)
       ROOT r = f32[8,8] add(d, y)""": (1,),
    "b = f32[8,8] broadcast(v), dimensions={0}  ROOT r = f32[8,8] add(x, b)": (0, 1),
    """n = f32[8,8] negate(x)  s = f32[8,8] reverse(n), dimensions={0}
       ROOT r = f32[8,8] add(s, n)""": (1,),
}
"""Bodies, and the parameters that may be overwritten: one that is not read may be."""


@pytest.mark.parametrize("body", BODIES)
def test_elements_that_are_read_elsewhere_too_are_not_overwritten(body: str) -> None:
    assert in_place_inputs(parse(f"{HEAD}{body}\n}}").entry) == BODIES[body]
