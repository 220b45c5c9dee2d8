"""Boxes that statements touch, against what they really touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir.dtypes import f32
from nestwright.ir.elementwise import TABLE
from nestwright.ir.loop.affine import Interval
from nestwright.ir.loop.build import as_int
from nestwright.ir.loop.interp.races import private_buffers
from nestwright.ir.loop.nodes import Buffer, Expr, For, Func, Kind, Op, Region, Store, Var
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.regions import accesses, touched
from nestwright.ir.loop.visit import walk

Nests: TypeAlias = Callable[[int, Kind], Func]

IN_TILES = """\
@func(outputs=1)
def f(A: f32[61, 61], C: f32[61, 64]):
    for i in range(8):
        for j in range(8):
            for u in range(8):
                for v in range(8):
                    for k in range(3):
                        with block("b"):
                            x, y, z = spatial(61, i * 8 + u), spatial(61, j * 8 + v), reduce(3, k)
                            where(i * 8 + u < 61 and j * 8 + v < 61)
                            reads(A[x + z - 1, y // 2])
                            writes(C[x, y])
                            C[x, y] = A[x + z - 1, y // 2]
"""


def region(r: Region | None) -> str:
    assert r is not None
    ranges = [f"{show(x.start)} : + {show(x.extent)}" for x in r.ranges]
    return f"{r.buffer.name}[{', '.join(ranges)}]"


def loops(func: Func) -> list[For]:
    return [s for s in walk(func.body) if isinstance(s, For)]


@pytest.mark.parametrize(
    ("level", "reads", "writes"),
    [
        (0, "A[0 : + 61, 0 : + 32]", "C[0 : + 61, 0 : + 64]"),
        (1, "A[i * 8 - 1 : + 10, 0 : + 32]", "C[i * 8 : + 8, 0 : + 64]"),
        (2, "A[i * 8 - 1 : + 10, j * 4 : + 4]", "C[i * 8 : + 8, j * 8 : + 8]"),
        (3, "A[i * 8 + u - 1 : + 3, j * 4 : + 4]", "C[i * 8 + u : + 1, j * 8 : + 8]"),
        (4, "A[i * 8 + u - 1 : + 3, j * 4 + v // 2 : + 1]", "C[i * 8 + u : + 1, j * 8 + v : + 1]"),
    ],
)
def test_boxes_of_a_tiled_nest(level: int, reads: str, writes: str) -> None:
    func = parse(IN_TILES)
    nest = loops(func)
    outer: dict[Var, Interval] = {s.var: (0, 7) for s in nest[:level]}
    a, c = func.params
    assert region(touched(nest[level], a, outer)) == reads
    assert region(touched(nest[level], c, outer)) == writes
    assert touched(nest[level], Buffer("B", (61,), f32), outer) is None


@pytest.mark.parametrize(
    ("body", "box"),
    [
        ("C[i + j] = A[i] + A[i + 2]", "A[i : + 3]"),
        ("C[i + j] = A[i + j] + A[i + 7 - j]", "A[i : + 8]"),
        ("C[i + j] = A[i] + A[0]", "A[0 : + 8]"),
        ("C[i + j] = A[(i + j) // 4]", "A[i // 4 : + 3]"),
        ("C[i + j] = A[(i * 4 + j) // 4]", "A[i : + 2]"),
        ("C[i + j] = A[(i + j) % 4]", "A[0 : + 4]"),
        ("C[i + j] = A[min(i + j, i + 3)]", "A[i : + 4]"),
        ("C[i + j] = select(j > 0, A[i + j - 1], f32(0.0))", "A[i - 1 : + 8]"),
        ("C[i + j] = A[i * j]", "A[0 : + 50]"),
        ("C[i + j] = A[cast(s64, A[j])]", "A[0 : + 100]"),
        ("C[i + j] = A[j * 8] + A[i * 40]", "A[0 : + 100]"),
    ],
)
def test_boxes_of_index_expressions(body: str, box: str) -> None:
    func = parse(f"""\
@func(outputs=1)
def f(A: f32[100], C: f32[100]):
    for i in range(8):
        for j in range(8):
            {body}
""")
    outer, inner = loops(func)
    assert region(touched(inner, func.params[0], {outer.var: (0, 7)})) == box


def test_boxes_of_intrinsics_and_reductions() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[100], C: f32[100]):
    R = alloc(f32[4], scope="register")
    for i in range(8):
        x = let(s64, i * 2)
        intrinsic("copy_async", writes(C[x : x + 4]), reads(A[x + 8 : x + 12]), args(16))
        all_reduce(8, R, lambda a, b: a + b)
""")
    a, c = func.params
    (loop,) = loops(func)
    assert [(x.region.buffer.name, x.write) for x in accesses(func.body)] == [
        ("A", False),
        ("C", True),
        ("R", False),
        ("R", True),
    ]
    assert region(touched(loop.body, a, {loop.var: (0, 7)})) == "A[i * 2 + 8 : + 4]"
    assert region(touched(loop.body, c, {loop.var: (0, 7)})) == "C[i * 2 : + 4]"
    assert region(touched(loop, c)) == "C[0 : + 18]"
    assert region(touched(loop, func.allocs[0])) == "R[0 : + 1]"
    assert private_buffers(func)[id(loop)] == {func.allocs[0]}


def test_a_let_is_seen_through_and_a_nested_block_counts_as_declared() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[100], C: f32[100]):
    for i in range(8):
        x = let(s64, i * 10)
        with block("b"):
            v = spatial(100, x + 1)
            reads(A[v : v + 3])
            writes(C[v])
            C[v] = A[v]
""")
    a, c = func.params
    assert region(touched(loops(func)[0].body, a)) == "A[i * 10 + 1 : + 3]"
    assert region(touched(loops(func)[0].body, c)) == "C[i * 10 + 1 : + 1]"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_boxes_hold_every_access(random_nest: Nests, seed: int) -> None:
    func = random_nest(seed, Kind.SERIAL)
    first, second, third = loops(func)
    (store,) = (s for s in walk(func.body) if isinstance(s, Store))
    x, y, z = (as_int(s.extent) or 0 for s in (first, second, third))
    outer = {first.var: (0, x - 1)}
    box = touched(second, func.params[1], outer)
    assert box is not None
    for i in range(x):
        corner = [(at(r.start, {first.var: i}), at(r.extent, {})) for r in box.ranges]
        for j in range(y):
            for k in range(z):
                env = {first.var: i, second.var: j, third.var: k}
                for e, (start, extent) in zip(store.index, corner, strict=True):
                    assert start <= at(e, env) < start + extent, show(func)


def at(e: Expr, env: dict[Var, int]) -> int:
    """The value of an index expression, straight from the table of operations."""
    if isinstance(e, Op):
        return int(TABLE[e.name].numpy(*(np.int64(at(a, env)) for a in e.args)))
    return env[e] if isinstance(e, Var) else as_int(e) or 0


def test_intermediate_buffers_of_one_loop_are_its_own() -> None:
    func = parse("""\
@func(outputs=1)
def f(A: f32[8], C: f32[8]):
    T = alloc(f32[8])
    U = alloc(f32[8])
    for i in range(8):
        U[i] = A[i]
    for j in range(8):
        T[0] = U[j]
        C[j] = T[0]
""")
    i, j = loops(func)
    t = func.allocs[0]
    assert private_buffers(func) == {id(i): frozenset(), id(j): frozenset({t})}
