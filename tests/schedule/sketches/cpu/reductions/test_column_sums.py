"""Sums by columns of what lies below L2: tiles are as wide as their readings say."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.build import PreparedModule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

TEXT = """HloModule sums
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY main {{
  x = f32[{rows},{columns}] parameter(0)
  z = f32[] constant(0)
  s = f32[{columns}] reduce(x, z), dimensions={{0}}, to_apply=add
  ROOT n = f32[{columns}] negate(s)
}}
"""
MEASURED = {
    (4096, 512): {1: 212, 2: 132, 4: 82, 8: 74, 16: 76},
    (1024, 4096): {1: 749, 2: 509, 4: 339, 8: 219, 16: 192},
    (2048, 1024): {1: 241, 2: 182, 4: 105, 8: 80, 16: 77},
    (512, 512): {2: 9, 4: 9, 8: 9, 16: 9},
}
"""Microseconds on two cores of a Zen 4 by rows and columns, then by vectors of a tile."""


def tiling(rows: int, columns: int) -> Sketch:
    text = TEXT.format(rows=rows, columns=columns)
    made = PreparedModule(nw.parse(text), "cpu -mcpu=znver4 -threads=2")
    ((_, group),) = made.groups.distinct.items()
    sketches = generate(lower_group(group.computation, "sums"), made.target)
    return next(s for s in sketches if s.name == "tiling@2")


@pytest.mark.parametrize("shape", list(MEASURED))
def test_the_default_is_nearly_the_fastest_tile(shape: tuple[int, int]) -> None:
    measured, sketch = MEASURED[shape], tiling(*shape)
    assert measured[sketch.default["vectors"]] <= 1.15 * min(measured.values())


@pytest.mark.parametrize("shape", [s for s in MEASURED if s != (512, 512)])
def test_narrower_tiles_are_estimated_to_be_slower(shape: tuple[int, int]) -> None:
    sketch = tiling(*shape)
    one, two, eight = (
        sketch.cost({**sketch.default, "vectors": v, "panels": 1}) for v in (1, 2, 8)
    )
    assert one > 1.1 * two and two > 1.1 * eight


@pytest.mark.parametrize("shape", [(300, 333), (64, 17), (40, 1040), (9, 5)])
def test_means_before_a_sum_of_columns_take_several_vectors(shape: tuple[int, int]) -> None:
    """The mean of a variance is no anchor: its rows are read line after line all the same."""
    rows, columns = shape
    module = nw.parse(f"""HloModule variance
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY main {{
  x = f32[{rows},{columns}] parameter(0)
  z = f32[] constant(0)
  s = f32[{columns}] reduce(x, z), dimensions={{0}}, to_apply=add
  n = f32[] constant({1 / rows})
  nb = f32[{columns}] broadcast(n), dimensions={{}}
  m = f32[{columns}] multiply(s, nb)
  mb = f32[{rows},{columns}] broadcast(m), dimensions={{1}}
  d = f32[{rows},{columns}] subtract(x, mb)
  q = f32[{rows},{columns}] multiply(d, d)
  v = f32[{columns}] reduce(q, z), dimensions={{0}}, to_apply=add
  ROOT r = f32[{columns}] multiply(v, nb)
}}
""")
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    np.testing.assert_allclose(nw.build(module, cache=False)(x), x.var(0), rtol=2e-5)
    if columns == 1040:
        nest = nw.lower(module, target="cpu -mcpu=znver4 -threads=2").as_text("scheduled")
        assert nest.index("in unroll(8)") < nest.index('block("sum')
