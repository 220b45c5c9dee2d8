"""Reductions: what combines two results of one, and inits that stay on their axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import nestwright.te as te
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Block
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.combiner import Combiner, combiner_of
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.cpu.nests.contraction import INLINE
from nestwright.schedule.sketches.generate import generate

Pair = Sequence[te.Value]
Rule = Callable[[Pair, Pair], tuple[te.Value, te.Value]]


def pairs(rule: Rule, start: tuple[float, int]) -> Block:
    """A block that reduces pairs of an element and its index."""
    a, k = te.placeholder((3, 7), name="A"), te.reduce_axis(7, "k")
    how = te.reduce(rule, start)
    t = te.compute_many((3,), lambda i: how((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    return Schedule(te.create_func([a, *t], name="pairs")).block("V")


def single(rule: Callable[[te.Value, te.Value], te.Value], start: float) -> Block:
    a, k = te.placeholder((3, 7), name="A"), te.reduce_axis(7, "k")
    how = te.reduce(lambda p, q: (rule(p[0], q[0]),), (start,))
    (t,) = te.compute_many((3,), lambda i: how((a[i, k],), axis=k), ("V",))
    return Schedule(te.create_func([a, t], name="single")).block("V")


def shown(c: Combiner) -> list[str]:
    return [show(e) for e in (*c.combined, *c.terms)]


def first(p: Pair, q: Pair) -> tuple[te.Value, te.Value]:
    return te.maximum(p[0], q[0]), te.select(p[0] >= q[0], p[1], q[1])


def smallest_index(p: Pair, q: Pair) -> tuple[te.Value, te.Value]:
    """As JAX has it: of equals the smaller index, and a NaN before anything."""
    wins = (p[0] > q[0]) | te.not_equal(p[0], p[0])
    ahead = wins | (te.equal(p[0], q[0]) & (p[1] < q[1]))
    return te.select(wins, p[0], q[0]), te.select(ahead, p[1], q[1])


def test_a_sum() -> None:
    a, b, k = te.placeholder((3, 4)), te.placeholder((4, 5)), te.reduce_axis(4, "k")
    c = te.compute((3, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    how = combiner_of(Schedule(te.create_func([a, b, c])).block("C"))
    assert how is not None and how.commutes
    assert [show(e) for e in (*how.combined, *how.neutral)] == ["left + right", "f32(0.0)"]


def test_the_first_of_the_largest() -> None:
    how = combiner_of(pairs(first, (float("-inf"), 0)))
    assert how is not None and not how.commutes
    assert shown(how) == [
        "max(left0, right0)",
        "select(left0 >= right0, left1, right1)",
        "A[vi, vk]",
        "cast(s32, vk)",
    ]


def test_the_smallest_index_of_the_largest() -> None:
    how = combiner_of(pairs(smallest_index, (float("-inf"), 0)))
    assert how is not None and not how.commutes  # of several NaN it keeps the first
    assert shown(how)[0] == "select(left0 > right0 or left0 != left0, left0, right0)"


def test_a_constant_term() -> None:
    """The number of elements, beside their sum."""
    how = combiner_of(pairs(lambda p, q: (p[0] + q[0], p[1] + 1), (0.0, 0)))
    assert how is not None and how.commutes
    assert shown(how) == ["left0 + right0", "left1 + right1", "A[vi, vk]", "s32(1)"]


def test_two_sums() -> None:
    how = combiner_of(pairs(lambda p, q: (p[0] + q[0], p[1] + q[1]), (0.0, 0)))
    assert how is not None and how.commutes


@pytest.mark.parametrize(
    ("rule", "start"),
    [
        (lambda p, q: (p[0] - q[0], p[1] + q[1]), (0.0, 0)),  # not associative
        (lambda p, q: (p[0] * 0.5 + q[0], p[1] + q[1]), (0.0, 0)),
        (lambda p, q: (p[0] + q[0], p[1] + q[1]), (1.0, 0)),  # not neutral
        (lambda p, q: (p[0] + q[0], p[1] * 2 + 1), (0.0, 0)),  # the term does not show
    ],
)
def test_what_is_no_combination(rule: Rule, start: tuple[float, int]) -> None:
    assert combiner_of(pairs(rule, start)) is None


def test_single_values_by_trial() -> None:
    farther = single(lambda p, q: te.select(p * p >= q * q, p, q), 0.0)
    how = combiner_of(farther)
    assert how is not None and not how.commutes
    assert combiner_of(single(lambda p, q: q - p, 0.0)) is None


def test_an_init_stays_on_its_axes() -> None:
    """Fused with the reduction, a loop that runs once could lead the init off its axis."""
    func = parse("""\
@func(outputs=1)
def rows(A: f32[2, 3], S: f32[2, 1]):
    for n in range(2):
        for i in range(1):
            for k in range(3):
                with block("S"):
                    vn, vi, vk = spatial(2, n), spatial(1, i), reduce(3, k)
                    reads(S[vn, vi], A[vn, vk])
                    writes(S[vn, vi])
                    with init():
                        S[vn, vi] = f32(0.0)
                    S[vn, vi] = S[vn, vi] + A[vn, vk]
""")
    sch = Schedule(func)
    n, i, k = sch.get_loops("S")
    sch.split(sch.fuse(i, k), [None, 2])
    sch.decompose_reduction("S", n)
    args = [np.arange(6, dtype=np.float32).reshape(2, 3)]
    np.testing.assert_array_equal(run(sch.func, args)[0], run(func, args)[0])


LOADED_INIT = """\
@func(outputs=1)
def f(A: f32[4, 6], S: f32[1], B: f32[4]):
    for i in range(4):
        for k in range(6):
            with block("B"):
                vi, vk = spatial(4, i), reduce(6, k)
                reads(S[0], A[0, 0], B[vi], A[vi, vk])
                writes(B[vi])
                with init():
                    B[vi] = S[0] + A[0, 0]
                B[vi] = B[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("primitive", ["rfactor", "decompose_reduction"])
def test_an_init_that_loads_keeps_its_own_reads(primitive: str) -> None:
    func = parse(LOADED_INIT)
    sch = Schedule(func)
    loop, inner = sch.get_loops("B")
    if primitive == "rfactor":
        sch.rfactor(inner)
    else:
        sch.decompose_reduction("B", loop)
    verify(sch.func)
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    start = np.array([5], np.float32)
    np.testing.assert_array_equal(run(sch.func, [a, start]), run(func, [a, start]))


def test_inlined_weights_are_not_packed() -> None:
    x, w = te.placeholder((16, 24), name="X"), te.placeholder((24, 40), name="W")
    k = te.reduce_axis(24, "k")
    made = te.compute((24, 40), lambda i, j: te.select(i < 23, w[i, j], 0.0), name="P")
    y = te.compute((16, 40), lambda i, j: te.sum(x[i, k] * made[k, j], axis=k), name="Y")
    func = te.create_func([x, w, y])
    for sketch in generate(func, Target.parse("cpu -mcpu=haswell")):
        if INLINE not in sketch.decisions.get("inside", ()):
            continue
        names = [name for name in sketch.decisions if name != "inside"]
        points = itertools.product(*(sketch.decisions[name] for name in names))
        for point in itertools.islice(points, 0, None, 31):  # a prime: every value is met
            choices = {**dict(zip(names, point, strict=True)), "inside": INLINE}
            if sketch.valid(choices):
                sketch.apply(Schedule(func), choices)


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_reduction_across_lanes_leaves_alone_what_no_lane_adds_to(decomposed: bool) -> None:
    """A guard turns every lane off for the last rows; their element is not what lane 0 loads."""
    a, b = te.placeholder((5, 3), name="A"), te.placeholder((3, 7), name="B")
    k = te.reduce_axis(3, "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((5, 7), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    func = te.create_func([a, b, d], name="matmul")
    sch = Schedule(func)
    row, _, inner = sch.get_loops("C")
    if decomposed:
        sch.decompose_reduction("C", inner)
    _, lane, _ = sch.split(row, [2, 2, None])
    sch.vectorize(lane)
    args = [np.arange(15, dtype=np.float32).reshape(5, 3) - 7, np.eye(3, 7, dtype=np.float32)]
    kernel = compile_func(sch.func, Target.parse("cpu"))
    np.testing.assert_array_equal(kernel(*args), run(func, args)[0])
