"""Products whose rows end as parts of an axis: batches of tokens, stored head by head."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

TARGETS = (
    "cpu -mcpu=x86-64-v4 -threads=2",
    "cpu -mcpu=haswell -threads=1",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -threads=4",
)
TEXT = """HloModule heads
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  w = f32[{k},{c}] parameter(1)
  d = f32[{m},{c}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r = f32[{n},{s},{h},{e}] reshape(d)
  ROOT out = f32[{n},{h},{s},{e}] transpose(r), dimensions={{0,2,1,3}}
}}
"""


@cache
def heads(n: int, s: int, k: int, h: int, e: int) -> Func:
    """A product of ``n`` sequences of ``s`` tokens with ``h`` heads of ``e`` columns."""
    sizes = {"n": n, "s": s, "k": k, "h": h, "e": e, "m": n * s, "c": h * e}
    (group,) = fuse(parse(TEXT.format(**sizes)).entry).groups
    return lower_group(group.computation, "heads")


def tiling(func: Func, spec: str) -> Sketch:
    return next(s for s in generate(func, Target.parse(spec)) if s.name == "tiling@2")


@pytest.mark.parametrize("spec", TARGETS)
def test_rows_are_taken_in_whole_tiles(spec: str) -> None:
    """A tile that reaches into the next part would be computed element by element."""
    sketch = tiling(heads(3, 20, 7, 2, 16), spec)
    for rows in sketch.decisions["rows"]:
        assert 20 % int(rows) == 0 or not sketch.valid({**sketch.default, "rows": rows})


@pytest.mark.parametrize("spec", TARGETS)
@pytest.mark.parametrize("length", [17, 37, 197, 257])
def test_rows_without_whole_tiles_end_in_another_one(length: int, spec: str) -> None:
    """Tiles of one row would be all that a batch of 197 tokens has."""
    assert int(tiling(heads(3, length, 64, 4, 16), spec).default["rows"]) >= 4


@pytest.mark.parametrize("sizes", [(3, 17, 7, 2, 16), (2, 37, 5, 1, 32), (4, 19, 9, 3, 16)])
def test_rows_beyond_a_part_change_nothing(sizes: tuple[int, int, int, int, int]) -> None:
    func, rng = heads(*sizes), np.random.default_rng(1)
    args = [rng.integers(-4, 5, p.shape).astype(np.float32) for p in func.params[:-1]]
    (expected,) = run(func, args)
    sketch, draw, known = tiling(func, TARGETS[0]), random.Random(5), 0
    while known < 4:
        c = {n: draw.choice(values) for n, values in sketch.decisions.items()}
        if not sketch.valid(c) or int(c["rows"]) == 1:
            continue
        known += 1
        sch = Schedule(func)
        sketch.apply(sch, c)
        verify(sch.func)
        np.testing.assert_array_equal(run(sch.func, args)[0], expected)
        code = compile_func(sch.func, Target.parse("cpu -threads=2"))
        np.testing.assert_array_equal(code(*args), expected)
