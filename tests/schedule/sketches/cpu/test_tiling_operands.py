"""Operands of products: both in one buffer, or transposed: by default, and packed alone."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.nests.contraction import (
    PANEL,
    chunk_axis,
    contraction_of,
)
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.analyze import blocks_of
from nestwright.schedule.space.space import Choices
from nestwright.te.from_hlo import lower_group

TARGET = Target.parse("cpu -mcpu=x86-64-v4 -threads=2")
HOST = Target.parse("cpu -threads=2")


def square(n: int, batch: int = 0) -> Func:
    """The product of a matrix, or of each of a batch, and itself."""
    b, first = (f"{batch},", "lhs_batch_dims={0}, rhs_batch_dims={0}, ") if batch else ("", "")
    left, right = (2, 1) if batch else (1, 0)
    dims = f"{first}lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}"
    text = f"""HloModule m
ENTRY e {{ x = f32[{b}{n},{n}] parameter(0)
 ROOT d = f32[{b}{n},{n}] dot(x, x), {dims} }}"""
    return lower_group(parse(text).entry, "f")


@pytest.mark.parametrize("n", [1040, 2064])
def test_default_of_a_square_packs_its_panels(n: int) -> None:
    func = square(n)
    sketch = generate(func, TARGET)[0]
    assert sketch.name.startswith("tiling@") and sketch.default["pack"] == PANEL
    schedule = Schedule(func)
    sketch.apply(schedule, sketch.default)
    text = schedule.show()
    assert "p0[vi0, vk0] * p0_cache[vk0, vi1]" in text


@pytest.mark.parametrize("batch", [0, 3])
def test_results_of_a_square_with_packed_panels(batch: int) -> None:
    func = square(45, batch)
    x = np.random.default_rng(0).integers(-3, 4, func.params[0].shape).astype(np.float32)
    sketch, schedule = generate(func, HOST)[0], Schedule(func)
    modest: Choices = {
        "rows": 7,
        "vectors": 2,
        "order": "column",
        "chunks": 1,
        "panels": 1,
        "pack": PANEL,
    }
    choices: Choices = {**sketch.default, **modest, "unroll": 1}
    assert sketch.valid(choices)
    sketch.apply(schedule, choices)
    verify(schedule.func)
    assert np.array_equal(run(schedule.func, [x])[0], x @ x)
    assert np.array_equal(compile_func(schedule.func, HOST)(x), x @ x)


@pytest.mark.parametrize(("rows", "columns", "unroll"), [(64, 1024, 1), (64, 768, 2), (64, 300, 2)])
def test_transpositions_of_rows_that_share_cache_sets(rows: int, columns: int, unroll: int) -> None:
    text = f"""HloModule m
ENTRY e {{ x = f32[{rows},{columns}] parameter(0)
 ROOT t = f32[{columns},{rows}] transpose(x), dimensions={{1,0}} }}"""
    target = Target.parse("cpu -mcpu=znver5 -threads=2")
    sketch = generate(lower_group(parse(text).entry, "f"), target)[0]
    assert sketch.name.startswith("alone@") and sketch.default["unroll"] == unroll


def test_cache_read_of_one_of_two_reads() -> None:
    schedule = Schedule(square(6))
    assert schedule.cache_read("dot", 2, alone=True).name == "p0_cache"
    assert "reads(out[vi0, vi1], p0[vi0, vk0], p0_cache[vk0, vi1])" in schedule.show()
    x = np.arange(36, dtype=np.float32).reshape(6, 6)
    assert np.array_equal(run(schedule.func, [x])[0], x @ x)
    with pytest.raises(ScheduleError, match="reads `p0` with others"):
        Schedule(square(6)).cache_read("dot", 2, "global", ["dot"], alone=True)


def test_cache_read_of_what_a_reduction_begins_with() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4,5] parameter(0)
 start = f32[] parameter(1)
 ROOT s = f32[4] reduce(x, start), dimensions={1}, to_apply=add }"""
    schedule = Schedule(lower_group(parse(text).entry, "f"))
    reads = [r.buffer.name for r in schedule.block("sum").reads]
    assert schedule.cache_read("sum", reads.index("p1"), alone=True).name == "p1_cache"
    verify(schedule.func)
    x, start = np.arange(20, dtype=np.float32).reshape(4, 5), np.float32(3)
    assert np.array_equal(run(schedule.func, [x, np.array(start)])[0], x.sum(1) + start)


def weight_gradient(images: int, features: int) -> Func:
    """The gradient of 3 x 3 weights: windows of whole images slide over the padding."""
    text = f"""HloModule m
ENTRY e {{ x = f32[{images},6,5,2] parameter(0)  g = f32[6,5,2,{features}] parameter(1)
 ROOT c = f32[{images},3,3,{features}] convolution(x, g), window={{size=6x5 pad=1_1x1_1}},
  dim_labels=b01f_01io->b01f }}"""
    return lower_group(parse(text).entry, "f")


def test_rows_of_a_tile_are_images_where_the_image_is_small() -> None:
    func = weight_gradient(21, 32)
    k = contraction_of(func, blocks_of(func))
    assert k is not None and k.row is not None
    assert (k.row.extent, [a.extent for a in k.sweep]) == (21, [3, 3])
    assert chunk_axis(k) is k.row
    few = weight_gradient(6, 32)
    k = contraction_of(few, blocks_of(few))
    assert k is not None and k.row is not None and k.row.extent == 3


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_gradient_of_weights_is_the_same_in_chunks_of_images(chunks: int) -> None:
    func = weight_gradient(21, 32)
    sketch = next(s for s in generate(func, HOST) if s.name.startswith("tiling@"))
    schedule = Schedule(func)
    sketch.apply(schedule, {**sketch.default, "chunks": chunks})
    verify(schedule.func)
    rng = np.random.default_rng(chunks)
    given = [rng.integers(-4, 5, b.shape).astype(np.float32) for b in func.params[:-1]]
    found = np.asarray(compile_func(schedule.func, HOST)(*given))
    np.testing.assert_array_equal(found, run(func, given)[0])
