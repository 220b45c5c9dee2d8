"""Neighboring reductions across lanes: the right totals, none besides them, and few shuffles."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import compile_flat, compile_func
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.cpu.toolchain import assembly
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import Buffer, Const, Expr, For, Func, Kind, Load, Op, Store, Var
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule

SPECS = ("cpu", "cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell", "cpu -mcpu=x86-64-v2")
TARGETS = [t for t in map(Target.parse, SPECS) if t.is_host]
GAP = 16  # elements around the results of a shape that must stay
FILL = 3
SHAPES = [(2, 16), (3, 5), (4, 64), (7, 21), (16, 2), (16, 16), (17, 40), (5, 33), (33, 8)]
OPERATIONS = {"add": np.add, "maximum": np.maximum, "xor": np.bitwise_xor, "or": np.bitwise_or}


def rows(x: Buffer, out: Buffer, shape: tuple[int, int], place: int, name: str) -> For:
    """Return ``for i: for l: out[place + i] = out[place + i] op x[i, l]``."""
    i, lane = Var("i"), Var("l")
    at: Expr = add(i, place)
    term = Load(x, (add(mul(i, shape[1]), lane),))
    body = Store(out, (at,), Op(name, (Load(out, (at,)), term), x.dtype))
    inner = For(lane, Const(shape[1]), body, Kind.VECTOR)
    return For(i, Const(shape[0]), inner, Kind.UNROLLED)


def kernel(dtype: str, name: str, shapes: list[tuple[int, int]]) -> tuple[Func, list[int]]:
    """Return a function that reduces rows of each shape, and the places of its results."""
    kind = BY_NAME[dtype]
    ends = np.cumsum([n + GAP for n, _ in shapes]).tolist()
    places = [GAP, *(GAP + n for n in ends)]
    x, out = Buffer("x", (max(n * k for n, k in shapes),), kind), Buffer("out", (places[-1],), kind)
    nests = (rows(x, out, s, place, name) for s, place in zip(shapes, places, strict=False))
    return Func("rows", (x, out), 1, seq(*nests)), places[:-1]


def numbers(count: int, dtype: str) -> Array:
    return np.random.default_rng(0).integers(-4, 5, count).astype(to_numpy(BY_NAME[dtype]))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    ("dtype", "name"),
    [("f32", "add"), ("f64", "maximum"), ("s8", "add"), ("s16", "xor"), ("u64", "or")],
)
def test_every_row_is_reduced_and_nothing_else(dtype: str, name: str, target: Target) -> None:
    func, places = kernel(dtype, name, SHAPES)
    x = numbers(func.params[0].shape[0], dtype)
    found = np.full(func.params[1].shape, FILL, x.dtype)
    wanted = found.copy()
    for (n, k), place in zip(SHAPES, places, strict=True):
        own = wanted[place : place + n]
        own[:] = OPERATIONS[name](own, OPERATIONS[name].reduce(x[: n * k].reshape(n, k), axis=1))
    NativeFunc.load(compile_flat(func, target)).run_at([a.ctypes.data for a in (x, found)])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("cpu", "dtype", "side"),
    [("skylake-avx512", "f32", 16), ("skylake-avx512", "f64", 8), ("haswell", "f32", 8)],
)
def test_a_square_takes_two_shuffles_and_an_addition_for_each_pair(
    cpu: str, dtype: str, side: int
) -> None:
    target = Target.parse(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    func, _ = kernel(dtype, "add", [(side, side)])
    asm = assembly(emit(func, target), target)
    counts = Counter(re.findall(r"\sv(shuf|unpck|insert|perm|extract|hadd|add)[a-z0-9]", asm))
    adds, hadds = counts.pop("add"), counts.pop("hadd", 0)  # a `vhaddps` is all three
    assert adds + hadds == side
    assert counts.total() + 2 * hadds == 2 * (side - 1)
    assert not re.search(r"\sv(?:perm[ti]|extract)|\sv\w+s[sd]\s", asm)


def test_many_terms_stay_loops() -> None:
    target = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    loads = [
        emit(kernel("f32", "add", [(4, k)])[0], target).count("load <16 x float>")
        for k in (256, 1024)
    ]
    assert loads[0] == 4 * 16
    assert loads[1] <= 4 * 4  # a term, and the partial sums


@pytest.mark.parametrize(("columns", "width"), [(17, 2), (300, 40)])
def test_lanes_whose_element_has_a_name_are_not_added_up(columns: int, width: int) -> None:
    a, k = te.placeholder((2, columns, 8), name="A"), te.reduce_axis(8, "k")
    c = te.compute((2, columns), lambda i, j: te.sum(a[i, j, k], axis=k), name="C")
    sch = Schedule(te.create_func([a, c], name="f"))
    _, column, term = sch.get_loops("C")
    part, inside = sch.split(column, [None, width])
    sch.reorder(term, inside, part)
    sch.vectorize(sch.fuse(inside, part))
    assert "let(" in show(lower(sch.func, TARGETS[0]))
    x = np.random.default_rng(0).integers(-4, 5, (2, columns, 8)).astype(np.float32)
    np.testing.assert_array_equal(compile_func(sch.func, TARGETS[0])(x), x.sum(2))
