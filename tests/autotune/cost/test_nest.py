"""Features of scheduled nests: what they count, and that they agree with the closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nestwright.autotune.cost.bodies import body_of
from nestwright.autotune.cost.features import NAMES, Encoder
from nestwright.autotune.cost.nest import nest_blocks
from nestwright.autotune.cost.profile import FEATURES, profile
from nestwright.autotune.search.space import Point, Space
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func, Seq
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TARGET = Target.parse("cpu -mcpu=znver4 -threads=2")


def dot(m: int, n: int, k: int) -> str:
    return f"""HloModule dot
ENTRY main {{
  a = f32[{m},{k}] parameter(0)
  b = f32[{k},{n}] parameter(1)
  ROOT c = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


CONVOLUTION = """HloModule convolution
ENTRY main {
  x = f32[1,14,14,32] parameter(0)
  w = f32[3,3,32,64] parameter(1)
  ROOT c = f32[1,14,14,64] convolution(x, w), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
}
"""
DEPTHWISE = """HloModule depthwise
ENTRY main {
  x = f32[1,28,28,48] parameter(0)
  w = f32[3,3,1,48] parameter(1)
  ROOT c = f32[1,28,28,48] convolution(x, w), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f, feature_group_count=48
}
"""
SUMS = """HloModule sums
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[%s] parameter(0)
  z = f32[] constant(0)
  ROOT s = f32[%s] reduce(x, z), dimensions={%s}, to_apply=add
}
"""
GROUPS = {
    "dot": dot(48, 160, 64),
    "ragged dot": dot(37, 53, 129),
    "convolution": CONVOLUTION,
    "depthwise": DEPTHWISE,
    "rows": SUMS % ("96,700", "96", "1"),
    "columns": SUMS % ("700,96", "96", "0"),
    "total": SUMS % ("100000", "", "0"),
}


def func_of(text: str) -> Func:
    return lower_group(parse(text).entry, "kernel")


def scheduled(space: Space, func: Func, point: Point) -> Func | None:
    schedule = Schedule(func)
    try:
        space.sketches[point.sketch].apply(schedule, space.choices(point))
    except ScheduleError:
        return None
    return schedule.func


def samples(text: str, count: int) -> list[tuple[Space, Encoder, Point, Func]]:
    func = func_of(text)
    space = Space(generate(func, TARGET))
    encoder = Encoder(func, space, TARGET, 1e6, 1e5)
    points = space.sample(np.random.default_rng(3), count)
    made = [(p, scheduled(space, func, p)) for p in points]
    return [(space, encoder, p, f) for p, f in made if f is not None]


def value(f: Func, name: str, target: Target = TARGET) -> float:
    return profile(f, target).values[FEATURES.index(name)]


@pytest.mark.parametrize("group", GROUPS)
def test_every_sketch_has_finite_features(group: str) -> None:
    for _, _, _, f in samples(GROUPS[group], 6):
        found = profile(f, TARGET)
        assert len(found.values) == len(FEATURES)
        assert all(math.isfinite(x) for x in found.values)
        assert 1e-9 < found.seconds < 10


@pytest.mark.parametrize("group", ["dot", "ragged dot", "convolution"])
def test_derived_features_agree_with_the_closed_forms(group: str) -> None:
    """The tile, its loads, the balance of the threads."""
    compared = 0
    for space, encoder, point, f in samples(GROUPS[group], 45):
        sketch, c = space.sketches[point.sketch], space.choices(point)
        if sketch.kind != "contraction" or c.get("inside") or c.get("pack"):
            continue
        row = dict(zip(NAMES, encoder.encode([point])[0], strict=True))
        anchor = max(nest_blocks(f), key=lambda b: b.info.flops)
        body = body_of(anchor, TARGET)
        tile, turns = c["rows"] * c["vectors"], c["unroll"]
        assert 2 ** row["tile"] == pytest.approx(tile) and body.tile == pytest.approx(tile)
        assert body.fmas == pytest.approx(tile * turns)
        assert body.loads / body.fmas == pytest.approx(row["loads_per_fma"], rel=1e-5)
        if row["parallel"] and row["pieces"] > 0:  # else the closed form misses a shared loop
            assert value(f, "imbalance_of_threads") == pytest.approx(row["imbalance"], rel=0.35)
        compared += 1
    assert compared >= 3


def test_a_dot_by_hand() -> None:
    func = func_of(dot(28, 64, 1024))
    (sketch, *_) = generate(func, TARGET)
    choices = {name: domain[0] for name, domain in sketch.decisions.items()}
    choices |= {"rows": 14, "vectors": 2, "lanes": 16, "unroll": 1, "order": "row"}
    schedule = Schedule(func)
    sketch.apply(schedule, choices)
    (anchor,) = (b for b in nest_blocks(schedule.func) if b.info.reduce)
    body = body_of(anchor, TARGET)
    assert (body.fmas, body.loads, body.stores, body.scattered) == (28, 16, 0, 0)
    assert body.tile == 28
    # 14 rows 4 KiB apart share one set of 8 ways.
    assert body.conflict == pytest.approx(6 / 14)
    # 28 FMAs of two turns each, on two units of half the width.
    cycles = replace(body, conflict=0.0).cycles(TARGET.core, 512, product=True)
    assert 28 <= cycles < 30
    assert anchor.trips == 2 * 2 * 1024


def test_rows_a_line_further_apart_do_not_conflict() -> None:
    estimates = {}
    for k in (1024, 1040):
        func = func_of(dot(28, 64, k))
        (sketch, *_) = generate(func, TARGET)
        choices = {name: domain[0] for name, domain in sketch.decisions.items()}
        choices |= {"rows": 14, "vectors": 2, "lanes": 16, "unroll": 1}
        schedule = Schedule(func)
        sketch.apply(schedule, choices)
        estimates[k] = profile(schedule.func, TARGET).seconds
    assert estimates[1024] > 1.2 * estimates[1040]


def test_intermediates_that_stay_in_cache_are_not_read_from_the_next() -> None:
    """Stages of a row pass their values on; stages that run one after the other do not."""
    text = """HloModule twice
ENTRY main {
  x = f32[512,2048] parameter(0)
  e = f32[512,2048] exponential(x)
  z = f32[] constant(0)
  s = f32[512] reduce(e, z), dimensions={1}, to_apply=add
  b = f32[512,2048] broadcast(s), dimensions={0}
  ROOT r = f32[512,2048] divide(e, b)
}
"""
    adder = SUMS[SUMS.index("add {") : SUMS.index("ENTRY")]
    func = func_of(text.replace("ENTRY", adder + "ENTRY"))
    made = {}
    for sketch in generate(func, TARGET):
        schedule = Schedule(func)
        sketch.apply(schedule, sketch.default)
        made[sketch.kind] = value(schedule.func, "l2_bytes_per_flop")
    assert made["reduction"] < made["elementwise"] - 0.5


def test_more_threads_and_a_faster_clock_are_faster() -> None:
    func = func_of(dot(256, 256, 256))
    schedule = Schedule(func)
    (sketch, *_) = generate(func, TARGET)
    sketch.apply(schedule, sketch.default)
    two = profile(schedule.func, TARGET).seconds
    quick = replace(TARGET, core=TARGET.core._replace(clock=2 * TARGET.core.clock))
    assert profile(schedule.func, quick).seconds < 0.6 * two
    assert profile(schedule.func, replace(TARGET, threads=1)).seconds > 1.5 * two


def test_a_function_without_blocks_is_unknown() -> None:
    found = profile(replace(func_of(GROUPS["total"]), body=Seq(())), TARGET)
    assert math.isnan(found.seconds) and all(map(math.isnan, found.values))
