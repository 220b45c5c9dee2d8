"""Programs for tests of primitives, and schedules of them that are checked after each test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal
from nestwright.schedule.language.schedule import Schedule, Trace

MATMUL = """\
@func(outputs=1)
def matmul(A: f32[6, 4], B: f32[4, 8], D: f32[6, 8]):
    C = alloc(f32[6, 8])
    for i in range(6):
        for j in range(8):
            for k in range(4):
                with block("C"):
                    vi, vj, vk = spatial(6, i), spatial(8, j), reduce(4, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i_1 in range(6):
        for j_1 in range(8):
            with block("D"):
                vi_1, vj_1 = spatial(6, i_1), spatial(8, j_1)
                reads(C[vi_1, vj_1])
                writes(D[vi_1, vj_1])
                D[vi_1, vj_1] = max(C[vi_1, vj_1], f32(0.0))
"""

STENCIL = """\
@func(outputs=1)
def stencil(A: f32[10], C: f32[8]):
    B = alloc(f32[10])
    for i in range(10):
        with block("B"):
            vi = spatial(10, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] * f32(2.0)
    for i_1 in range(8):
        with block("C"):
            vi_1 = spatial(8, i_1)
            reads(B[vi_1], B[vi_1 + 2])
            writes(C[vi_1])
            C[vi_1] = B[vi_1] + B[vi_1 + 2]
"""

CHAIN = """\
@func(outputs=1)
def chain(A: f32[6], C: f32[6]):
    B = alloc(f32[6])
    for i in range(6):
        with block("B"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] + f32(1.0)
    for i_1 in range(6):
        with block("C"):
            vi_1 = spatial(6, i_1)
            reads(B[vi_1])
            writes(C[vi_1])
            C[vi_1] = B[vi_1] * B[vi_1]
"""


SIBLINGS = """\
@func(outputs=3)
def siblings(A: f32[6, 4], C: f32[6, 4], D: f32[6], E: f32[6, 4]):
    for i in range(6):
        for j in range(4):
            with block("C"):
                vi, vj = spatial(6, i), spatial(4, j)
                reads(A[vi, vj])
                writes(C[vi, vj])
                C[vi, vj] = A[vi, vj] + f32(1.0)
    for i_1 in range(6):
        for k in range(4):
            with block("D"):
                vi_1, vk = spatial(6, i_1), reduce(4, k)
                reads(D[vi_1], A[vi_1, vk])
                writes(D[vi_1])
                with init():
                    D[vi_1] = f32(0.0)
                D[vi_1] = D[vi_1] + A[vi_1, vk]
    for i_2 in range(6):
        for j_2 in range(4):
            with block("E"):
                vi_2, vj_2 = spatial(6, i_2), spatial(4, j_2)
                reads(A[vi_2, vj_2], D[vi_2], C[vi_2, vj_2])
                writes(E[vi_2, vj_2])
                E[vi_2, vj_2] = A[vi_2, vj_2] * D[vi_2] + C[vi_2, vj_2]
"""

PROGRAMS = {"matmul": MATMUL, "stencil": STENCIL, "chain": CHAIN, "siblings": SIBLINGS}


@pytest.fixture
def programs() -> dict[str, str]:
    """Texts of programs, to be edited."""
    return PROGRAMS


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


def same_meaning(before: Func, after: Func) -> None:
    args = inputs(before)
    for want, got in zip(run(before, args), run(after, args, seed=1), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.fixture
def schedule() -> Iterator[Callable[[str], Schedule]]:
    """Makes schedules of programs, by name or text; each is verified, run, and replayed from JSON
    after the test.
    """
    made: list[tuple[Func, Schedule]] = []

    def make(text: str) -> Schedule:
        func = parse(PROGRAMS.get(text, text))
        sch = Schedule(func)
        made.append((func, sch))
        return sch

    yield make
    for func, sch in made:
        verify(sch.func)
        same_meaning(func, sch.func)
        plain = json.loads(json.dumps(sch.trace.to_json()))
        again = Trace.from_json(plain).replay(parse(show(func)))
        assert equal(again.func, sch.func)
        assert again.trace.show() == sch.trace.show()
