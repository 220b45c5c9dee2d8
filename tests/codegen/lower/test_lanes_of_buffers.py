"""Blocks of one nest that pass values to each other by lane: one loop, vectors all through."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.parser import parse as loops
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

SPEC = "cpu -mcpu=skylake-avx512 -threads=2"
MIXED = """HloModule mixed
ENTRY e {{
  x = u32[{dims}] parameter(0)
  y = u32[{dims}] parameter(1)
  a = u32[{dims}] add(x, y)
  b = u32[{dims}] xor(a, y)
  c = u32[{dims}] multiply(b, a)
  d = u32[{dims}] xor(c, b)
  f = u32[{dims}] add(d, c)
  ROOT r = (u32[{dims}], u32[{dims}], u32[{dims}]) tuple(d, f, c)
}}
"""


@pytest.mark.parametrize("dims", ["64,64", "30,300", "300,301", "5,7,11", "3,1000003"])
def test_values_of_several_results_are_computed_in_one_loop_of_vectors(dims: str) -> None:
    """Also where a row is no multiple of the lanes, so that some vectors are of two rows."""
    module = parse(MIXED.format(dims=dims))
    flat = nw.lower(module, target=SPEC).as_text("flat")
    assert flat.count(" in vectorize(") <= 2, "the nests of all results are one, and its rest"
    assert set(re.findall(r"alloc\(u32\[(\d+)\]\)", flat)) <= {"16", "32", "64"}, "lanes"
    sizes = tuple(map(int, dims.split(",")))
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 1 << 32, (2, *sizes), np.uint32)
    for got, want in zip(nw.build(module)(x, y), evaluate(module, [x, y]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_buffers_between_lanes_are_vectors() -> None:
    text = nw.lower(parse(MIXED.format(dims="64,64")), target=SPEC).as_text("llvm")
    multiplied = [line for line in text.splitlines() if " mul " in line and "i64" not in line]
    assert multiplied and all("x i32>" in line for line in multiplied)


SHIFTED = """
@func(outputs=1)
def shifted(x: f32[30, 300], out: f32[30, 300]):
    y = alloc(f32[30, 300])
    for i in range(30):
        for j in range(300):
            with block("first"):
                a, b = spatial(30, i), spatial(300, j)
                reads(x[a, b])
                writes(y[a, b])
                y[a, b] = x[a, b] + f32(1.0)
            with block("second"):
                c, d = spatial(30, i), spatial(300, j)
                reads(y[c, AT])
                writes(out[c, d])
                out[c, d] = y[c, AT] * f32(2.0)
"""


def fused(at: str) -> Schedule:
    """Both blocks in vectors of 16 that may begin in one row and end in the next."""
    sch = Schedule(loops(SHIFTED.replace("AT", at)), Target.parse(SPEC))
    sch.split(sch.fuse(*sch.get_loops("first")), [None, 16])
    return sch


def test_iterations_with_an_element_of_their_own_run_at_once() -> None:
    sch = fused("d")
    tile, lane = sch.get_loops("first")
    sch.parallel(tile)
    sch.vectorize(lane)


def test_iterations_that_read_what_others_write_do_not() -> None:
    sch = fused("d // 2")
    with pytest.raises(ScheduleError, match="may access the same element of `y`"):
        sch.parallel(sch.get_loops("first")[0])
