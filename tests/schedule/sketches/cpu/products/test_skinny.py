"""Products of few rows: which take the sketch, and what its loop prefetches in the code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.products.skinny import FAR, FETCHES, NEAR
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

TARGET = Target.parse("cpu -mcpu=x86-64-v4 -threads=2")
TEXT = """HloModule skinny
ENTRY main {
  x = f32[ROWS,200] parameter(0)
  w = TYPE[200,330] parameter(1)
  c = f32[200,330] convert(w)
  ROOT y = f32[ROWS,330] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def prepared(rows: int, dtype: str = "s8", frozen: bool = True) -> PreparedModule:
    text = TEXT.replace("ROWS", str(rows)).replace("TYPE", dtype)
    w = np.random.default_rng(0).integers(-9, 9, (200, 330))
    stored = w.astype({"s8": np.int8, "f32": np.float32}[dtype])
    return PreparedModule(parse(text), TARGET, {1: stored} if frozen else None)


def dot_of(made: PreparedModule) -> tuple[str, Func]:
    """Return the key and the function of the group with the product."""
    (found,) = ((k, g) for k, g in made.groups.distinct.items() if "dot" in g.name)
    return found[0], lower_group(found[1].computation, found[1].name)


def sketches(made: PreparedModule) -> tuple[Sketch, ...]:
    return generate(dot_of(made)[1], TARGET)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_few_rows_of_frozen_weights_are_a_stream(rows: int) -> None:
    first = sketches(prepared(rows))[0]
    assert first.name.startswith("skinny@" if rows < 9 else "tiling@")
    assert not sketches(prepared(rows, "f32", frozen=False))[0].name.startswith("skinny@")


@pytest.mark.parametrize("dtype", ["s8", "f32"])
def test_one_prefetch_for_each_line_of_the_weights(dtype: str) -> None:
    made = prepared(1, dtype)
    text = stage_text(made.module, TARGET, "asm", constants=made.constants)
    size = 1 if dtype == "s8" else 4
    loop = max(re.split(r"(?m)^(?=\.L\w+:)", text), key=lambda b: b.count("vfmadd"))
    fetched = [int(x or 0) for x in re.findall(r"prefetcht0\s+(-?\d*)\(", loop)]
    products = loop.count("vfmadd")
    assert len(fetched) == products * 16 * size // 64
    assert sorted(fetched) == list(range(min(fetched), max(fetched) + 64, 64))


@pytest.mark.parametrize(
    ("rows", "dtype", "fetch"), [(1, "f32", FAR), (4, "f32", NEAR), (1, "s8", NEAR), (4, "s8", FAR)]
)
def test_the_distance_is_a_few_lines_where_the_hardware_keeps_pace(
    rows: int, dtype: str, fetch: int
) -> None:
    target = Target.parse("cpu -mcpu=znver4 -threads=2")
    func = dot_of(prepared(rows, dtype))[1]
    assert generate(func, target)[0].default["fetch"] == fetch


@pytest.mark.parametrize("fetch", FETCHES)
def test_results_do_not_depend_on_the_distance(fetch: int) -> None:
    made = prepared(3)
    key, func = dot_of(made)
    sketch, schedule = generate(func, TARGET)[0], Schedule(func)
    sketch.apply(schedule, {**sketch.default, "fetch": fetch})
    assert ("fetch=" in schedule.show()) == bool(fetch)
    x = np.arange(600, dtype=np.float32).reshape(3, 200) % 7
    w = np.random.default_rng(0).integers(-9, 9, (200, 330)).astype(np.float32)
    host = PreparedModule(made.module, "cpu -threads=2", made.constants)
    assert np.array_equal(host.build({key: schedule.trace})(x), x @ w)


def test_note_is_for_serial_loops() -> None:
    schedule = Schedule(dot_of(prepared(1))[1])
    loop = schedule.get_loops("dot")[1]
    schedule.vectorize(loop)
    with pytest.raises(ScheduleError, match="in order"):
        schedule.annotate(loop, "fetch", 4096)
    with pytest.raises(ScheduleError, match="64 to 65536"):
        schedule.annotate(schedule.get_loops("dot")[0], "fetch", 8)


@pytest.mark.parametrize(("rows", "least"), [(1, 16), (2, 8), (4, 6)])
def test_rows_of_weights_in_place_are_read_in_long_pieces(rows: int, least: int) -> None:
    text = TEXT.replace("ROWS", str(rows)).replace("TYPE", "f32")
    text = text.replace("200", "2048").replace("330", "1536")
    target = Target.parse("cpu -mcpu=znver5 -threads=2")
    made = PreparedModule(parse(text), target)
    sketch = generate(dot_of(made)[1], target)[0]
    assert sketch.name.startswith("tiling@")
    assert (sketch.default["pack"], sketch.default["rows"]) == (0, rows)
    assert int(sketch.default["vectors"]) >= least
    asm = stage_text(made.module, target, "asm")
    loop = max(re.split(r"(?m)^(?=\.L\w+:)", asm), key=lambda b: b.count("vfmadd"))
    assert loop.count("vfmadd") >= rows * least
    assert "(%rsp" not in loop[: loop.rindex("vfmadd")]


@pytest.mark.parametrize("vectors", [8, 12, 16])
def test_results_of_wide_tiles(vectors: int) -> None:
    made = prepared(1, "f32", frozen=False)
    key, func = dot_of(made)
    sketch, schedule = generate(func, TARGET)[0], Schedule(func)
    choices = {**sketch.default, "rows": 1, "vectors": vectors, "panels": 1, "unroll": 1}
    assert sketch.valid(choices)
    sketch.apply(schedule, choices)
    x = np.arange(200, dtype=np.float32).reshape(1, 200) % 7
    w = np.random.default_rng(0).integers(-9, 9, (200, 330)).astype(np.float32)
    host = PreparedModule(made.module, "cpu -threads=2")
    assert np.array_equal(host.build({key: schedule.trace})(x, w), x @ w)
