"""Whatever depends on a NaN is NaN, for the operations that say so."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.nan import carries_nan, shown
from nestwright.ir.hlo.interp.evaluate import evaluate

HEAD = """HloModule m
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
either { c = f32[] parameter(0)
  d = f32[] parameter(1)
  p = pred[] compare(c, d), direction=GT
  ROOT s = f32[] select(p, c, d) }
ENTRY e {
  x = f32[3,4] parameter(0)
  y = f32[3,4] parameter(1)
  i = s32[] parameter(2)
  q = pred[3,4] parameter(3)
  z = f32[] constant(0)
  ROOT r = """

CARRIES = {
    "reverse": ("f32[3,4] reverse(x), dimensions={1}", (0,)),
    "slice": ("f32[2,2] slice(x), slice={[0:2],[1:4:2]}", (0,)),
    "pad": ("f32[4,7] pad(x, z), padding=0_1x0_0_1", (0, 1)),
    "concatenate": ("f32[3,8] concatenate(x, y), dimensions={1}", (0, 1)),
    "dot": ("f32[3,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}", (0, 1)),
    "reduce": ("f32[3] reduce(x, z), dimensions={1}, to_apply=most", (0, 1)),
    "window": ("f32[3,2] reduce-window(x, z), window={size=1x3}, to_apply=most", (0, 1)),
    "chosen": ("f32[3,4] select(q, x, y)", (1, 2)),
    "clamp": ("f32[3,4] clamp(z, x, y)", (0, 1, 2)),
    "dynamic-slice": ("f32[1,4] dynamic-slice(x, i, i), dynamic_slice_sizes={1,4}", (0,)),
    "by comparing": ("f32[3] reduce(x, z), dimensions={1}, to_apply=either", ()),
    "compare": ("pred[3,4] compare(x, y), direction=LT", ()),
    "sort": ("f32[3,4] sign(x)", ()),
}


@pytest.mark.parametrize("name", CARRIES)
def test_what_depends_on_a_nan_is_nan(name: str) -> None:
    text, carried = CARRIES[name]
    module = parse(f"{HEAD}{text}\n}}")
    root = module.entry.root
    assert tuple(n for n in range(len(root.operands)) if carries_nan(root, n)) == carried
    rng = np.random.default_rng(0)
    args = [*rng.normal(size=(2, 3, 4)).astype(np.float32), np.int32(1), rng.random((3, 4)) < 0.5]
    for n in (n for n in carried if root.operands[n].opcode == "parameter"):
        number = root.operands[n].attrs["number"]
        for at in np.ndindex(args[number].shape):
            found = []
            for value in (-1000, 1000, np.nan):
                given = [np.array(a) for a in args]
                given[number][at] = value
                found.append(np.asarray(evaluate(module, given)))
            depends = found[0] != found[1]
            hit = np.isnan(found[2])
            assert hit[depends].all()
            np.testing.assert_array_equal(found[2][~hit], found[0][~hit])


def test_where_a_nan_shows() -> None:
    module = parse("""HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] add(x, y)
  s = f32[2] slice(a), slice={[0:2]}
  b = f32[4] multiply(y, y)
  c = pred[4] compare(b, y), direction=LT
  ROOT t = (f32[4], f32[2], f32[4], pred[4]) tuple(a, s, b, c)
}""")
    x, y = module.entry.parameters
    assert shown(module.entry, [x]) == (0, 1)
    assert shown(module.entry, [y]) is None
    assert shown(module.entry, []) == ()
