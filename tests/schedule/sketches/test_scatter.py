"""Updates of a scatter: in order, each on a row of neighbors as lanes.

Threads share the row, or batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.build import PreparedModule
from nestwright.ir.loop.nodes import Kind
from nestwright.ir.target import Target
from nestwright.schedule.cursor import nest
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group

TEXT = """HloModule rows
combine {{ a = {t}[] parameter(0) b = {t}[] parameter(1) ROOT r = {t}[] {op}(a, b) }}
ENTRY main {{
  x = {t}[{n},{w}] parameter(0)
  i = {s}[{m},1] parameter(1)
  u = {t}[{m},{w}] parameter(2)
  ROOT out = {t}[{n},{w}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=combine
}}
"""


def text(n: int, m: int, w: int, t: str = "f32", s: str = "s32", op: str = "add") -> str:
    return TEXT.format(n=n, m=m, w=w, t=t, s=s, op=op)


def scheduled(source: str, spec: str = "cpu -mcpu=x86-64-v4 -threads=2") -> Schedule:
    made = PreparedModule(nw.parse(source), spec)
    ((_, group),) = made.groups.distinct.items()
    return default_schedule(lower_group(group.computation, "rows"), Target.parse(spec))


@pytest.mark.parametrize(("rows", "width"), [(100_000, 96), (1000, 4096)])
def test_rows_are_lanes_and_shared(rows: int, width: int) -> None:
    """Lanes go by the elements that are written, not by the wider indices."""
    sch = scheduled(text(rows, 5000, width, s="s64"))
    name = next(b.name for b in sch.blocks() if "scatter" in b.name)
    loops = [nest(sch.func).loops[x.var][-1] for x in sch.get_loops(name)]
    assert [x.kind for x in loops] == [Kind.PARALLEL, Kind.SERIAL, Kind.SERIAL, Kind.VECTOR]
    assert sch.extent(sch.get_loops(name)[-1]) == 16


@pytest.mark.parametrize("width", [3, 512])
def test_short_rows_in_cache_are_one_threads(width: int) -> None:
    """Each thread would run all updates, and take lines from the other."""
    sch = scheduled(text(1000, 5000, width))
    name = next(b.name for b in sch.blocks() if "scatter" in b.name)
    kinds = [nest(sch.func).loops[x.var][-1].kind for x in sch.get_loops(name)]
    assert kinds == [Kind.SERIAL, Kind.SERIAL, Kind.VECTOR][: len(kinds)]


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 64])
@pytest.mark.parametrize(("dtype", "op"), [("f32", "add"), ("s8", "maximum"), ("f64", "subtract")])
def test_updates_of_one_place_stay_in_order(width: int, dtype: str, op: str) -> None:
    """Many updates fall on few rows; some indices lie outside, and count nothing."""
    rng = np.random.default_rng(width)
    made = {"f32": np.float32, "s8": np.int8, "f64": np.float64}[dtype]
    x, u = (rng.integers(-9, 9, (n, width)).astype(made) for n in (5, 400))
    at = rng.integers(-2, 7, (400, 1)).astype(np.int32)
    want = x.copy()
    apply: Any = {"add": np.add, "maximum": np.maximum, "subtract": np.subtract}[op]
    for row, update in zip(at[:, 0], u, strict=True):
        if 0 <= row < 5:
            want[row] = apply(want[row], update)
    module = nw.parse(text(5, 400, width, dtype, op=op))
    np.testing.assert_array_equal(nw.build(module, target="cpu -threads=2")(x, at, u), want)


BATCHES = """HloModule batches
keep { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }
combine { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] subtract(b, a) }
ENTRY main {
  x = f32[B,9,W] parameter(0)
  i = s32[M,B,1] parameter(1)
  u = f32[M,B,W] parameter(2)
  ROOT out = f32[B,9,W] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=BY,
    input_batching_dims={0}, scatter_indices_batching_dims={1}
}
"""


def batches(b: int, m: int, w: int, by: str = "combine") -> str:
    return (
        BATCHES.replace("B,", f"{b},")
        .replace("M,", f"{m},")
        .replace("W]", f"{w}]")
        .replace("BY", by)
    )


@pytest.mark.parametrize("width", [1, 64])
def test_threads_share_batches(width: int) -> None:
    sch = scheduled(batches(640, 5000, width))
    name = next(b.name for b in sch.blocks() if "scatter" in b.name)
    first, *_, last = (nest(sch.func).loops[x.var][-1].kind for x in sch.get_loops(name))
    assert first == Kind.PARALLEL
    assert last == (Kind.VECTOR if width > 1 else Kind.SERIAL)


@pytest.mark.parametrize("spec", ["cpu -threads=2", "cuda-sim -arch=sm_90"])
@pytest.mark.parametrize("by", ["combine", "keep"])
@pytest.mark.parametrize(("count", "width"), [(1, 1), (7, 1), (7, 17), (64, 3)])
def test_updates_of_a_batch_stay_in_order(count: int, width: int, by: str, spec: str) -> None:
    rng = np.random.default_rng(width)
    x = rng.integers(-9, 9, (count, 9, width)).astype(np.float32)
    u = rng.integers(-9, 9, (300, count, width)).astype(np.float32)
    at = rng.integers(-2, 11, (300, count, 1)).astype(np.int32)
    want = x.copy()
    for n in range(300):
        for b in range(count):
            if 0 <= (place := at[n, b, 0]) < 9:
                want[b, place] = u[n, b] - want[b, place] if by == "combine" else u[n, b]
    module = nw.parse(batches(count, 300, width, by))
    np.testing.assert_array_equal(nw.build(module, target=spec)(x, at, u), want)


def test_reduction_loops_of_an_opaque_block_keep_their_order() -> None:
    source = """HloModule pairs
combine { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[9,32] parameter(0)
  i = s32[7,6,1] parameter(1)
  u = f32[7,6,32] parameter(2)
  ROOT out = f32[9,32] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=combine
}
"""
    made = PreparedModule(nw.parse(source), "cpu")
    ((_, group),) = made.groups.distinct.items()
    sch = Schedule(lower_group(group.computation, "pairs"))
    name = next(b.name for b in sch.blocks() if "scatter" in b.name)
    row, first, second = sch.get_loops(name)
    with pytest.raises(ScheduleError, match="is opaque: its updates must stay in order"):
        sch.reorder(second, first)
    sch.reorder(first, second, row)
    assert [sch.extent(x) for x in sch.get_loops(name)] == [7, 6, 32]
