"""What sketches know of blocks and schedules: who reads whom point by point, lines, own loops."""

from __future__ import annotations

import pytest

import nestwright.te as te
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.space.analyze import LINE, BlockInfo, blocks_of, point_reads
from nestwright.schedule.space.attention import find_attention
from nestwright.schedule.space.lookup import own_loops
from nestwright.te.from_hlo import lower_group


def pair(rows: int, reads: str) -> tuple[BlockInfo, BlockInfo]:
    """A block C of 24 elements, 4 x 6 as a matrix, and one that reads it."""
    flat = reads == "pieces"
    a = te.placeholder((24,) if flat else (4, 6), "f32", "A")
    if flat:
        c = te.compute((24,), lambda i: a[i] * a[i], name="C")
        d = te.compute((rows, 6), lambda i, j: c[i * 6 + j] + 1.0, name="D")
    else:
        c = te.compute((4, 6), lambda i, j: a[i, j] * a[i, j], name="C")
        d = te.compute((rows, 4), lambda j, i: c[i, j] + 1.0, name="D")
    first, second = blocks_of(te.create_func([a, d], name="f"))
    return first, second


@pytest.mark.parametrize(
    ("rows", "reads", "expected"),
    [
        (6, "transposed", [(1, 1), (0, 1)]),
        (5, "transposed", None),
        (4, "pieces", [(0, 6), (0, 1)]),
        (3, "pieces", None),
    ],
)
def test_a_consumer_reads_each_element_once(
    rows: int, reads: str, expected: list[tuple[int, int]] | None
) -> None:
    anchor, consumer = pair(rows, reads)
    found = point_reads(consumer, anchor)
    if expected is None:
        assert found is None
        return
    assert found is not None
    axes = [a.var for a in anchor.spatial]
    assert [(axes.index(v), k) for v, k in (found[a.var] for a in consumer.spatial)] == expected


def test_an_element_without_neighbors_brings_its_line() -> None:
    a = te.placeholder((8, 64), "f32", "A")
    row = te.compute((64,), lambda j: a[3, j] + 1.0, name="Row")
    column = te.compute((8,), lambda i: a[i, 3] + 1.0, name="Column")
    blocks = blocks_of(te.create_func([a, row, column], name="f"))
    sizes = {b.name: n for b in blocks for x, n in b.touched.items() if x.name == "A"}
    assert sizes == {"Row": 64, "Column": 8 * LINE // 4}


def test_a_loop_that_drives_two_axes_is_neithers_own() -> None:
    a = te.placeholder((8, 4), "f32", "A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="B")
    sch = Schedule(te.create_func([a, b], name="f"))
    i, j = sch.get_loops("B")
    rows, columns = (a.var for a in sch.block("B").axes)
    assert own_loops(sch, "B") == {rows: i, columns: j}
    outer, inner = sch.split(i, [None, 4])
    assert own_loops(sch, "B") == {rows: inner, columns: j}
    sch.fuse(inner, j)
    assert own_loops(sch, "B") == {rows: outer}


CAUSAL = """HloModule causal
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(a, b) }
ENTRY main {
  q = f32[1,8,16] parameter(0)
  k = f32[1,4,16] parameter(1)
  v = f32[1,4,16] parameter(2)
  y = f32[1,8,4] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  row = s32[1,8,4] iota(), iota_dimension=1
  column = s32[1,8,4] iota(), iota_dimension=2
  seen = pred[1,8,4] compare(column, row), direction=LE
  low = f32[1,8,4] broadcast(f32[] constant(-inf)), dimensions={}
  x = f32[1,8,4] select(seen, y, low)
  m = f32[1,8] reduce(x, f32[] constant(-inf)), dimensions={2}, to_apply=max
  ms = f32[1,8,4] broadcast(m), dimensions={0,1}
  z = f32[1,8,4] subtract(x, ms)
  e = f32[1,8,4] exponential(z)
  n = f32[1,8] reduce(e, f32[] constant(0)), dimensions={2}, to_apply=sum
  ns = f32[1,8,4] broadcast(n), dimensions={0,1}
  p = f32[1,8,4] divide(e, ns)
  ROOT o = f32[1,8,16] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""


def test_a_causal_mask_shows_no_more_keys_than_there_are() -> None:
    kinds = Target.parse("cuda-sim -arch=sm_80").row.groups
    (group,) = fuse(optimize(parse(CAUSAL)).entry, kinds).groups
    func = lower_group(group.computation, "causal")
    found = find_attention(func, blocks_of(func))
    assert found is not None and found.skips
    assert found.shown == (1 + 2 + 3 + 4 * 5) / 32
