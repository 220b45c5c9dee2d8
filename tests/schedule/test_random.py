"""No sequence of primitives makes a wrong program: each is refused readably, or means the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nestwright.te as te
from nestwright.ir.loop.interp import run
from nestwright.ir.loop.nodes import AxisKind, Block, For, Func, Kind
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal, walk
from nestwright.ir.target import Target
from nestwright.schedule.cursor import LoopRef, nest
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.legality import bound_vars
from nestwright.schedule.limits import check_limits
from nestwright.schedule.schedule import Schedule, Trace


def matmul() -> Func:
    a, b = te.placeholder((5, 3), name="A"), te.placeholder((3, 7), name="B")
    k = te.reduce_axis(3, "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((5, 7), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_func([a, b, d], name="matmul")


def two_products() -> Func:
    a, b, e = (te.placeholder(s, name=n) for s, n in (((4, 3), "A"), ((3, 5), "B"), ((5, 2), "E")))
    k, m = te.reduce_axis(3, "k"), te.reduce_axis(5, "m")
    c = te.compute((4, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((4, 2), lambda i, j: te.sum(c[i, m] * e[m, j], axis=m), name="D")
    return te.create_func([a, b, e, d], name="two_products")


def convolution() -> Func:
    x, w = te.placeholder((2, 8), name="X"), te.placeholder((3, 2, 3), name="W")
    c, r = te.reduce_axis(2, "c"), te.reduce_axis(3, "r")
    p = te.compute(
        (2, 10),
        lambda i, j: te.select((j >= 1) & (j < 9), x[i, te.minimum(te.maximum(j - 1, 0), 7)], 0.0),
        name="P",
    )
    y = te.compute((3, 8), lambda f, j: te.sum(p[c, j + r] * w[f, c, r], axis=[c, r]), name="Y")
    z = te.compute((3, 8), lambda f, j: y[f, j] + 1.0, name="Z")
    return te.create_func([x, w, z], name="convolution")


def normalised_rows() -> Func:
    """Two reductions and a broadcast, as softmax has; exact in floats."""
    a = te.placeholder((4, 6), name="A")
    k, m = te.reduce_axis(6, "k"), te.reduce_axis(6, "m")
    top = te.compute((4,), lambda i: te.max(a[i, k], axis=k), name="Top")
    e = te.compute((4, 6), lambda i, j: top[i] - a[i, j], name="E")
    s = te.compute((4,), lambda i: te.sum(e[i, m] * e[i, m], axis=m), name="S")
    r = te.compute((4, 6), lambda i, j: e[i, j] * 2.0 + s[i], name="R")
    return te.create_func([a, r], name="normalised_rows")


def chain() -> Func:
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5,), name="B")
    p = te.compute((6, 5), lambda i, j: a[i, j] * 2.0, name="P")
    q = te.compute((6, 5), lambda i, j: p[i, j] + b[j], name="Q")
    r = te.compute((5, 6), lambda i, j: q[j, i] - p[j, 4 - i], name="R")
    s = te.compute((30,), lambda i: te.maximum(r[i // 6, i % 6], 1.0), name="S")
    return te.create_func([a, b, s], name="chain")


def two_outputs() -> Func:
    a = te.placeholder((7, 4), name="A")
    k = te.reduce_axis(4, "k")
    p = te.compute((7, 4), lambda i, j: a[i, j] + 1.0, name="P")
    s = te.compute((7,), lambda i: te.sum(p[i, k], axis=k), name="S")
    t = te.compute((7, 4), lambda i, j: p[i, j] * s[i], name="T")
    return te.create_func([a, p, t], name="two_outputs")


def stencil() -> Func:
    a = te.placeholder((14,), name="A")
    p = te.compute((14,), lambda i: a[i] * 3.0, name="P")
    q = te.compute((12,), lambda i: p[i] + p[i + 1] + p[i + 2], name="Q")
    r = te.compute((5,), lambda i: q[i * 2] - q[i * 2 + 3], name="R")
    return te.create_func([a, r], name="stencil")


def largest() -> Func:
    """A reduction of pairs, whose updates must stay in order, and a gather."""
    a = te.placeholder((3, 7), name="A")
    k = te.reduce_axis(7, "k")
    first = te.reduce(
        lambda p, q: (te.maximum(p[0], q[0]), te.select(p[0] >= q[0], p[1], q[1])),
        (float("-inf"), 0),
    )
    v, w = te.compute_many((3,), lambda i: first((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    g = te.compute((3,), lambda i: a[i, te.cast(w[i], "s64")] + v[i], name="G")
    return te.create_func([a, g], name="largest")


def batched() -> Func:
    """Unit and batch dimensions, a shared subexpression in a reduction."""
    a, b = te.placeholder((2, 1, 5), name="A"), te.placeholder((2, 5, 3), name="B")
    k, m = te.reduce_axis(5, "k"), te.reduce_axis(3, "m")
    c = te.compute((2, 1, 3), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="C")
    s = te.compute(
        (2, 1), lambda n, i: te.sum((c[n, i, m] - 1.0) * (c[n, i, m] - 1.0), axis=m), name="S"
    )
    d = te.compute((2, 1, 3), lambda n, i, j: c[n, i, j] * 2.0 - s[n, i], name="D")
    return te.create_func([a, b, d], name="batched")


PROGRAMS = (
    matmul, two_products, convolution, normalised_rows, chain, two_outputs, stencil, largest,
    batched,
)  # fmt: skip


GPU = Target.parse("cuda-sim -arch=sm_80").gpu
Machine = Callable[[Func, list[np.ndarray[Any, Any]], int], list[np.ndarray[Any, Any]]]


class Draw:
    """Random requests to a schedule, sensible often enough to go deep."""

    def __init__(self, sch: Schedule, rng: random.Random) -> None:
        self.sch = sch
        self.rng = rng

    def block(self) -> str:
        return self.rng.choice(list(nest(self.sch.func).blocks))

    def reductions(self) -> list[str]:
        index = nest(self.sch.func)
        return [n for n in index.blocks if index.block(n).init is not None]

    def loops(self) -> list[LoopRef]:
        return self.sch.get_loops(self.block())

    def loop(self) -> LoopRef:
        for _ in range(5):
            if found := self.loops():
                return self.rng.choice(found)
        return LoopRef(next(iter(nest(self.sch.func).loops)))

    def split(self) -> None:
        n = self.rng.choice((2, 2, 3))
        factors: list[int | None] = [self.rng.choice((1, 2, 3, 4)) for _ in range(n)]
        factors[self.rng.randrange(n)] = None
        self.sch.split(self.loop(), factors)

    def fuse(self) -> None:
        found = self.loops()
        start = self.rng.randrange(len(found)) if found else 0
        self.sch.fuse(*found[start : start + self.rng.choice((2, 2, 3))])

    def reorder(self) -> None:
        found = self.loops()
        some = self.rng.sample(found, min(len(found), self.rng.choice((2, 2, 3, 4))))
        self.sch.reorder(*some)

    def tile(self) -> None:
        found = self.loops()
        if len(found) > 1:
            start = self.rng.randrange(len(found) - 1)
            self.sch.tile(*found[start : start + 2], 2, self.rng.choice((2, 3)))

    def parallel(self) -> None:
        self.sch.parallel(self.loop())

    def vectorize(self) -> None:
        self.sch.vectorize(self.loop())

    def unroll(self) -> None:
        self.sch.unroll(self.loop())

    def compute_at(self) -> None:
        block = self.block()
        users = self.sch.get_consumers(block)
        near = self.sch.get_loops(self.rng.choice(users)) if users else []
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.compute_at(block, at, self.rng.random() < 0.3)

    def reverse_compute_at(self) -> None:
        block = self.block()
        users = self.sch.get_producers(block)
        near = self.sch.get_loops(self.rng.choice(users)) if users else []
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.reverse_compute_at(block, at, self.rng.random() < 0.3)

    def compute_inline(self) -> None:
        self.sch.compute_inline(self.block())

    def reverse_compute_inline(self) -> None:
        self.sch.reverse_compute_inline(self.block())

    def cache_read(self) -> None:
        self.sch.cache_read(self.block(), self.rng.randrange(3))

    def cache_write(self) -> None:
        self.sch.cache_write(self.block(), 0, self.rng.choice(("global", "register")))

    def set_scope(self) -> None:
        self.sch.set_scope(self.block(), 0, self.rng.choice(("global", "register")))

    def transform_layout(self) -> None:
        block = self.block()
        rank = len(self.sch.block(block).writes[0].ranges)
        pack = [(self.rng.randrange(rank), self.rng.choice((2, 3, 4)))] if rank else []
        order = list(range(rank + len(pack)))
        self.rng.shuffle(order)
        self.sch.transform_layout(block, 0, order, pack)

    def decompose_reduction(self) -> None:
        some = self.reductions()
        block = self.rng.choice(some) if some and self.rng.random() < 0.9 else self.block()
        found = self.sch.get_loops(block)
        self.sch.decompose_reduction(block, self.rng.choice(found) if found else self.loop())

    def rfactor(self) -> None:
        over = {
            v for b in self.reductions() for v in bound_vars(self.sch.block(b), AxisKind.REDUCE)
        }
        near = [LoopRef(v) for v in nest(self.sch.func).loops if v in over]
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.rfactor(at, self.rng.choice((0, 0, 1, -1, 5)))

    def merge(self) -> None:
        """The outer loops of two blocks, the earlier one first."""
        names = list(nest(self.sch.func).blocks)
        both = sorted(self.rng.sample(range(len(names)), min(2, len(names))))
        outer = [x[0] for x in (self.sch.get_loops(names[n]) for n in both) if x]
        if len(outer) == 2:
            self.sch.merge(*outer)

    def add_unit_loop(self) -> None:
        self.sch.add_unit_loop(self.block())

    def annotate(self) -> None:
        self.sch.annotate(self.loop(), "hint", self.rng.randrange(3))

    # What GPUs have. Several steps are tried one after the other: each may be refused.

    def index(self, *more: str) -> str:
        return self.rng.choice(("threadIdx.x", "threadIdx.x", "threadIdx.y", *more))

    def bind(self) -> None:
        self.sch.bind(self.loop(), self.index("blockIdx.x", "blockIdx.y"))

    def launch(self) -> None:
        """The outer loops of a block over a grid, the next ones over threads."""
        block, sch = self.block(), self.sch
        for index in ("blockIdx.x", self.index(), self.index()):
            free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
            if free and self.rng.random() < 0.8:
                sizes = [None, self.rng.choice((1, 2, 3, 4))]
                attempt(sch, lambda at=free[0], n=sizes: self.sch.split(at, n))
                free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
                attempt(sch, lambda at=free[0], to=index: self.sch.bind(at, to))

    def cooperate(self) -> None:
        """The inner loops of a block over threads."""
        block, sch = self.block(), self.sch
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        count = self.rng.choice((1, 1, 2, 3))
        if len(free) >= count > 1:
            attempt(sch, lambda: sch.fuse(*free[-count:]))
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        if free and self.rng.random() < 0.6:
            attempt(sch, lambda: sch.split(free[-1], [None, self.rng.choice((2, 3, 4))]))
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        if free:
            attempt(sch, lambda: sch.bind(free[-1], self.index()))

    def stage(self) -> None:
        """A copy for all threads of a block."""
        block, sch = self.block(), self.sch
        read, scope = self.rng.random() < 0.7, self.rng.choice(("shared", "shared", "register"))
        before = set(nest(sch.func).blocks)
        if read:
            attempt(sch, lambda: sch.cache_read(block, self.rng.randrange(2), scope))
        else:
            attempt(sch, lambda: sch.cache_write(block, 0, scope))
        near = sch.get_loops(block)
        for copy in set(nest(sch.func).blocks) - before:
            move = sch.compute_at if read else sch.reverse_compute_at
            if near:
                attempt(sch, lambda move=move, c=copy: move(c, self.rng.choice(near)))

    def rescope(self) -> None:
        scopes = ("global", "register", "shared", "shared", "warp")
        self.sch.set_scope(self.block(), 0, self.rng.choice(scopes))

    def storage_align(self) -> None:
        self.sch.storage_align(self.block(), 0, self.rng.randrange(2), 8, self.rng.randrange(8))

    def swizzle(self) -> None:
        self.sch.swizzle(self.block(), 0, self.rng.choice((2, 4, 8, 3)))

    def hint(self) -> None:
        key = self.rng.choice(("pipeline", "min_blocks", "async"))
        at = self.block() if key == "async" else self.loop()
        self.sch.annotate(at, key, self.rng.choice((1, 2, 3)))


WEIGHTS: dict[str, int] = {
    "split": 6, "fuse": 4, "reorder": 6, "tile": 2, "parallel": 2, "vectorize": 2, "unroll": 1,
    "compute_at": 6, "reverse_compute_at": 5, "compute_inline": 1, "reverse_compute_inline": 1,
    "cache_read": 2, "cache_write": 3, "set_scope": 1, "transform_layout": 1,
    "decompose_reduction": 3, "rfactor": 3, "annotate": 1, "merge": 2, "add_unit_loop": 1,
}  # fmt: skip


ON_THREADS: dict[str, int] = {
    "launch": 5, "bind": 4, "cooperate": 8, "stage": 4, "rescope": 4, "split": 3, "fuse": 2,
    "reorder": 4, "compute_at": 8, "reverse_compute_at": 6, "compute_inline": 1,
    "reverse_compute_inline": 1, "cache_read": 1, "cache_write": 1, "transform_layout": 1,
    "decompose_reduction": 2, "rfactor": 2, "vectorize": 1, "unroll": 1, "parallel": 1,
    "storage_align": 1, "swizzle": 1, "hint": 1, "merge": 2, "add_unit_loop": 1,
}  # fmt: skip


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    """Small integers in floats: sums in any order are exact."""
    rng = np.random.default_rng(7)
    shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


def reduces_by_lanes(func: Func) -> bool:
    """Whether a reduction runs as lanes: they meet in one element on purpose."""
    lanes = {s.var for s in walk(func.body) if isinstance(s, For) and s.kind is Kind.VECTOR}
    blocks = [s for s in walk(func.body) if isinstance(s, Block)]
    return any(lanes & bound_vars(b, AxisKind.REDUCE) for b in blocks)


def attempt(sch: Schedule, request: Callable[[], None]) -> bool:
    """Whether a request was taken; one that is refused changes nothing and says why."""
    before, steps = sch.func, len(sch.trace.steps)
    try:
        request()
    except ScheduleError as e:
        text = str(e)
        assert e.what and e.why and text.startswith(f"cannot {e.what}: {e.why}")
        assert sch.func is before
        looked = [s for s in sch.trace.steps[steps:] if s.name != "get_loops"]
        assert not looked
        return False
    verify(sch.func)
    return True


def campaign(
    make: Callable[[], Func],
    seeds: range,
    most: int = 10,
    weights: dict[str, int] = WEIGHTS,
    run_threads: Machine | None = None,
) -> dict[str, list[int]]:
    """Random sequences on one program; how often each primitive was taken and refused."""
    counts = {name: [0, 0] for name in weights}
    names = [n for n, w in weights.items() for _ in range(w)]
    func = make()
    args = inputs(func)
    expected = run(func, args)
    for seed in seeds:
        rng = random.Random(seed)
        sch = Schedule(func)
        draw = Draw(sch, rng)
        if run_threads is not None:
            draw.launch()
        for _ in range(rng.randrange(2, most)):
            name = rng.choice(names)
            taken = attempt(sch, getattr(draw, name))
            counts[name][not taken] += 1
        try:
            missing = check_limits(sch.func, GPU)
            whole = not reduces_by_lanes(sch.func) and not missing
            results = run(sch.func, args, seed=seed, check_races=whole)
            if run_threads is not None and not any("writes a" in r.why for r in missing):
                results += run_threads(sch.func, args, seed)
            for want, got in zip(expected * (len(results) // len(expected)), results, strict=True):
                np.testing.assert_array_equal(got, want)
            plain = json.loads(json.dumps(sch.trace.to_json()))
            assert equal(Trace.from_json(plain).replay(func).func, sch.func)
        except BaseException:
            print(f"{make.__name__} seed {seed}\n{sch.trace.show()}\n{show(sch.func)}")
            raise
    return counts


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_random_sequences(make: Callable[[], Func]) -> None:
    counts = campaign(make, range(250))
    assert sum(taken for taken, _ in counts.values()) > 400
    assert sum(refused for _, refused in counts.values()) > 50


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_random_sequences_on_threads(make: Callable[[], Func], run_threads: Machine) -> None:
    counts = campaign(make, range(50), 12, ON_THREADS, run_threads)
    assert sum(taken for taken, _ in counts.values()) > 100
    assert sum(refused for _, refused in counts.values()) > 50
