"""Features: one row per point, the same for one point as for thousands, telling what they say."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.autotune.cost.features import NAMES, Encoder, occupancy, roof
from nestwright.autotune.search.space import Space
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TARGET = Target.parse("cpu -mcpu=skylake-avx512 -threads=2")
DOT = """HloModule dot
ENTRY main {
  a = f32[48,64] parameter(0)
  b = f32[64,160] parameter(1)
  ROOT c = f32[48,160] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SUM = """HloModule sum
ENTRY main {
  a = f32[48,64] parameter(0)
  b = f32[48,64] parameter(1)
  ROOT c = f32[48,64] add(a, b)
}
"""


def encoder(text: str, flops: float = 1e6, size: float = 1e5) -> Encoder:
    func = lower_group(parse(text).entry, "kernel")
    return Encoder(func, Space(generate(func, TARGET)), TARGET, flops, size)


def column(rows: np.ndarray, name: str) -> np.ndarray:
    return rows[:, NAMES.index(name)]


@pytest.mark.parametrize("text", [DOT, SUM], ids=["dot", "sum"])
def test_many_points_at_once_equal_one_at_a_time(text: str) -> None:
    e = encoder(text)
    points = e.space.sample(np.random.default_rng(0), 40)
    together = e.encode(points)
    assert together.shape == (len(points), len(NAMES)) and together.dtype == np.float32
    single = np.concatenate([e.encode([p]) for p in points])
    assert np.array_equal(together, single, equal_nan=True)


def test_a_dot_is_described_by_its_extents() -> None:
    e = encoder(DOT)
    rows = e.encode(e.space.sample(np.random.default_rng(0), 30))
    assert 2 ** column(rows, "column")[0] == pytest.approx(160)
    assert 2 ** column(rows, "row")[0] == pytest.approx(48)
    assert 2 ** column(rows, "depth")[0] == pytest.approx(64)
    assert column(rows, "threads")[0] == 2


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
@pytest.mark.parametrize("target", [TARGET, Target.parse("cuda -arch=sm_90a")], ids=["cpu", "gpu"])
def test_products_without_elements_have_features(target: Target, m: int, k: int, n: int) -> None:
    dot = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = f"""HloModule dot
ENTRY main {{
  a = f32[{m},{k}] parameter(0)
  b = f32[{k},{n}] parameter(1)
  c = f32[{m},{n}] {dot}
  ROOT d = f32[{m},{n}] exponential(c)
}}"""
    func = lower_group(parse(text).entry, "kernel")
    e = Encoder(func, Space(generate(func, target)), target, 0.0, 0.0)
    assert not np.isinf(e.encode(e.space.sample(np.random.default_rng(0), 4))).any()


def test_derived_columns_follow_the_decisions() -> None:
    e = encoder(DOT)
    sketch = e.space.sketches[0]
    assert {"rows", "vectors", "lanes"} <= set(sketch.decisions)
    points = [p for p in e.space.sample(np.random.default_rng(0), 60) if p.sketch == 0]
    rows = e.encode(points)
    for row, point in zip(rows, points, strict=True):
        c = e.space.choices(point)
        tile = c["rows"] * c["vectors"]
        assert 2 ** row[NAMES.index("tile")] == pytest.approx(tile)
        waste = -(-48 // c["rows"]) * c["rows"] / 48
        assert row[NAMES.index("row_waste")] == pytest.approx(waste)


def test_every_decision_of_a_sketch_reaches_the_row() -> None:
    e = encoder(DOT)
    for point in e.space.sample(np.random.default_rng(1), 10):
        for near in e.space.neighbors(point):
            a, b = e.encode([point, near])
            assert not np.array_equal(a[:-2], b[:-2], equal_nan=True)


def test_roof_is_compute_or_memory() -> None:
    assert roof(1e12, 1.0, TARGET) == pytest.approx(10 * roof(1e11, 1.0, TARGET))
    assert roof(1.0, 1e12, TARGET) == pytest.approx(10 * roof(1.0, 1e11, TARGET))


def test_what_a_compiler_says_becomes_features() -> None:
    target = Target.parse("cuda -arch=sm_80")
    func = lower_group(parse(SUM).entry, "kernel")
    space = Space(generate(func, target))
    points = space.defaults()[:1] * 2
    facts = {"registers": [32, 128], "spills": [0, 16], "shared": [0, 0], "threads": [256, 256]}
    known, unknown = Encoder(func, space, target, 1e6, 1e5).encode(points, [facts, {}])
    at = [NAMES.index(n) for n in ("registers", "spills", "occupancy")]
    assert known[at].tolist() == [128, 16, 0.25], "of 64 warps 16: two blocks with 128 registers"
    assert np.isnan(unknown[at]).all()
    others = [n for n in range(len(NAMES)) if n not in at]
    np.testing.assert_array_equal(known[others], unknown[others])


def test_occupancy_is_what_the_scarcest_resource_leaves() -> None:
    gpu = Target.parse("cuda -arch=sm_80").gpu
    assert occupancy(gpu, 32, 0, 256) == 1.0
    assert occupancy(gpu, 255, 0, 256) == 0.125
    assert occupancy(gpu, 32, 100 << 10, 256) == 0.125
    assert occupancy(gpu, 16, 0, 32) == 0.5, "at most 32 blocks"
    assert occupancy(gpu, 32, 82 << 10, 256) == 0.125, "a KiB of each block is the system's"
    assert Target.parse("cuda -arch=sm_75").gpu.blocks_at_once(256, 32, 32 << 10) == 2
