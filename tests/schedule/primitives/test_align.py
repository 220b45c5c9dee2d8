"""storage_align in memory: strides that keep neighbors out of each other's cache sets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nestwright.autotune.cost.nest import nest_blocks
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.targets.registry import lower
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Alloc, Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.visit import walk
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

TARGET = Target.parse("cpu -threads=2")
CHAIN = """
@func(outputs=1)
def chain(x: f32[7, 5, 33], out: f32[7, 5, 33]):
    y = alloc(f32[7, 5, 33])
    for a in range(7):
        for b in range(5):
            for c in range(33):
                with block("y"):
                    i, j, k = spatial(7, a), spatial(5, b), spatial(33, c)
                    reads(x[i, j, k])
                    writes(y[i, j, k])
                    y[i, j, k] = x[i, j, k] * x[i, j, k]
    for a in range(7):
        for b in range(5):
            for c in range(33):
                with block("out"):
                    i, j, k = spatial(7, a), spatial(5, b), spatial(33, c)
                    reads(y[i, j, k], y[6 - i, 4 - j, 32 - k])
                    writes(out[i, j, k])
                    out[i, j, k] = y[i, j, k] + y[6 - i, 4 - j, 32 - k]
"""


def allocated(func: Func) -> list[int]:
    """Return the elements of the buffers that a lowered function allocates."""
    return [
        math.prod(s.buffer.shape) for s in walk(lower(func, TARGET).body) if isinstance(s, Alloc)
    ]


@pytest.mark.parametrize(
    ("dim", "factor", "offset", "elements"),
    [
        (0, 32, 16, 7 * 176),
        (1, 32, 16, 7 * 5 * 48),
        (0, 1, 0, 7 * 165),
        (-2, 1024, 1023, 35 * 1023),
    ],
)
@pytest.mark.parametrize("vectors", [False, True])
def test_an_aligned_buffer_in_memory(
    dim: int, factor: int, offset: int, elements: int, vectors: bool
) -> None:
    sch = Schedule(parse(CHAIN))
    sch.storage_align("y", 0, dim, factor, offset)
    if vectors:
        for name in ("y", "out"):
            *_, c = sch.get_loops(name)
            sch.vectorize(sch.split(c, [None, 16])[1])
    sch.parallel(sch.get_loops("y")[0])
    assert allocated(sch.func) == [elements]
    x = np.random.default_rng(0).standard_normal((7, 5, 33), np.float32)
    (want,) = run(sch.func, [x])
    np.testing.assert_array_equal(compile_func(sch.func, TARGET)(x), want)
    np.testing.assert_array_equal(want, x**2 + (x**2)[::-1, ::-1, ::-1])


def test_costs_know_the_strides() -> None:
    sch = Schedule(parse(CHAIN))
    sch.storage_align("y", 0, 0, 32, 16)
    a = next(x for x in nest_blocks(sch.func)[0].accesses if x.buffer.name == "y")
    assert sorted(a.steps.values()) == [1, 33, 176]


def test_lanes_of_their_own_are_not_aligned() -> None:
    """A buffer that only lanes of one vector use becomes a vector."""
    sch = Schedule(parse(CHAIN.replace("y[6 - i, 4 - j, 32 - k]", "y[i, j, k]")))
    sch.storage_align("y", 0, 0, 32, 16)
    _, _, c = sch.get_loops("out")
    lane = sch.split(c, [None, 16])[1]
    sch.vectorize(lane)
    sch.compute_at("y", lane)
    assert all(n <= 32 for n in allocated(sch.func))
    x = np.random.default_rng(0).standard_normal((7, 5, 33), np.float32)
    np.testing.assert_array_equal(compile_func(sch.func, TARGET)(x), 2 * x**2)


def test_registers_and_parameters_are_refused() -> None:
    sch = Schedule(parse(CHAIN))
    with pytest.raises(ScheduleError, match="`out` is a parameter of the function"):
        sch.storage_align("out", 0, 0, 32, 16)
    sch.set_scope("y", 0, "register")
    with pytest.raises(ScheduleError, match="register memory, which has no strides"):
        sch.storage_align("y", 0, 0, 32, 16)
