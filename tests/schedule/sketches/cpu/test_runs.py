"""Stages that follow each other over the same elements run in one loop, in reductions as well."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.build import PreparedModule
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.nodes import Kind
from nestwright.ir.target import Target
from nestwright.schedule.cursor import nest
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule
from nestwright.te.from_hlo import lower_group

TARGET = "cpu -mcpu=x86-64-v4 -threads=2"


def hashed(rows: int, columns: int, rounds: int) -> str:
    """Return rounds of which each reads both values of the last, and a sum of the rows."""
    t = f"u32[{rows},{columns}]"
    lines = [f"x0 = {t} add(a, b)", f"y0 = {t} xor(b, seven)"]
    for n in range(rounds):
        lines += [f"s{n} = {t} multiply(x{n}, y{n})", f"x{n + 1} = {t} xor(s{n}, y{n})"]
        lines += [f"y{n + 1} = {t} add(x{n}, s{n})"]
    body = "\n  ".join(lines)
    return f"""HloModule hashed
plus {{ p = u32[] parameter(0)
  q = u32[] parameter(1)
  ROOT r = u32[] add(p, q) }}
ENTRY main {{ a = {t} parameter(0)
  b = {t} parameter(1)
  one = u32[] constant(7)
  seven = {t} broadcast(one), dimensions={{}}
  {body}
  both = {t} multiply(x{rounds}, y{rounds})
  zero = u32[] constant(0)
  ROOT r = u32[{rows}] reduce(both, zero), dimensions={{1}}, to_apply=plus }}
"""


def scheduled(text: str, target: str = TARGET) -> Schedule:
    made = PreparedModule(parse(text), target)
    ((_, group),) = made.groups.distinct.items()
    return default_schedule(lower_group(group.computation, "f"), Target.parse(target))


@pytest.mark.parametrize(("rows", "columns"), [(64, 1000), (200, 96), (1, 4000)])
def test_stages_before_a_sum_share_a_loop(rows: int, columns: int) -> None:
    text = hashed(rows, columns, 32)
    sch = scheduled(text)
    stages = [b for b in sch.blocks() if not b.name.startswith("sum")]
    assert len(stages) > 4
    assert len({sch.get_loops(b)[-1] for b in stages}) == 1
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(0, 1 << 32, (rows, columns), np.uint32) for _ in "ab")
    module = parse(text)
    np.testing.assert_array_equal(nw.build(module)(a, b), evaluate(module, [a, b]))


def test_the_loops_of_a_run_are_merged_in_one_step() -> None:
    """The time to schedule many pieces grows as their number does: each step looks at them all."""
    rows = range(96)
    pieces = "\n".join(f"s{n} = f32[1,16] slice(x), slice={{[{n}:{n + 1}], [0:16]}}" for n in rows)
    sch = scheduled(f"""HloModule pieces
ENTRY main {{ x = f32[96,16] parameter(0)
  {pieces}
  ROOT r = f32[96,16] concatenate({", ".join(f"s{95 - n}" for n in rows)}), dimensions={{0}} }}""")
    merged = [len(step.results) for step in sch.trace.steps if step.name == "merge"]
    assert len(sch.blocks()) == 96 and 0 < len(merged) <= 8


ROW = """HloModule row
ENTRY main { x = f32[4096,1024] parameter(0)
  i = s32[] parameter(1)
  y = f32[1,1024] parameter(2)
  zero = s32[] constant(0)
  cut = f32[1,1024] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,1024}
  ROOT r = f32[1,1024] add(cut, y) }"""
PUT = """HloModule put
ENTRY main { x = f32[4096,1024] parameter(0)
  i = s32[] parameter(1)
  y = f32[1,1024] parameter(2)
  zero = s32[] constant(0)
  ROOT r = f32[4096,1024] dynamic-update-slice(x, y, i, zero) }"""
WHOLE = """HloModule whole
ENTRY main { x = f32[4096,1024] parameter(0)
  y = f32[4096,1024] parameter(1)
  ROOT r = f32[4096,1024] add(x, y) }"""


@pytest.mark.parametrize(
    ("text", "block", "shared"), [(ROW, "out", False), (PUT, "update", False), (WHOLE, "out", True)]
)
def test_a_row_of_a_table_is_little_work(text: str, block: str, shared: bool) -> None:
    """What is read counts, not what it is read from: 4 KB are not shared by two threads."""
    sch = scheduled(text)
    kinds = {nest(sch.func).loops[x.var][-1].kind for x in sch.get_loops(block)}
    assert (Kind.PARALLEL in kinds) is shared


SHORT = """HloModule short
ENTRY main {{ x = f32[{n},3] parameter(0)
  m = f32[3] parameter(1)
  spread = f32[{n},3] broadcast(m), dimensions={{1}}
  y = f32[{n},3] multiply(x, spread)
  ROOT r = f32[{n},3] {op}(y) }}"""


@pytest.mark.parametrize(
    ("n", "op", "lanes"),
    [(1024, "tanh", 128), (1000, "tanh", 16), (1024, "negate", 3), (2, "tanh", 3)],
)
def test_short_rows_of_much_work_share_vectors(n: int, op: str, lanes: int) -> None:
    text = SHORT.format(n=n, op=op)
    sch = scheduled(text)
    (*_, last) = sch.get_loops("out")
    assert (sch.loop(last).kind, sch.extent(last)) == (Kind.VECTOR, lanes)
    rng = np.random.default_rng(n)
    x, m = rng.standard_normal((n, 3), np.float32), rng.standard_normal(3, np.float32)
    module = parse(text)
    np.testing.assert_allclose(nw.build(module)(x, m), evaluate(module, [x, m]), rtol=1e-6)
