"""Programs that tests give to threads, and a schedule that leaves them half done."""

from __future__ import annotations

import nestwright.te as te
from nestwright.ir.loop.nodes import Func
from nestwright.schedule.language.schedule import Schedule


def chain(n: int = 64) -> Func:
    """P, then Q from one element of it, then R from three."""
    a = te.placeholder((n,), name="A")
    p = te.compute((n,), lambda i: a[i] + 1.0, name="P")
    q = te.compute((n,), lambda i: p[i] * 2.0, name="Q")
    r = te.compute((n - 2,), lambda i: q[i] + q[i + 1] + q[i + 2], name="R")
    return te.create_func([a, r], name="chain")


def product() -> Func:
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis(8, "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_func([a, b, c], name="product")


def largest() -> Func:
    """An argmax by which the first of several comes out on the left."""
    a = te.placeholder((3, 12), name="A")
    k = te.reduce_axis(12, "k")
    first = te.reduce(
        lambda p, q: (te.maximum(p[0], q[0]), te.select(p[0] >= q[0], p[1], q[1])),
        (float("-inf"), 0),
    )
    v = te.compute_many((3,), lambda i: first((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    return te.create_func([a, *v], name="largest")


def large(n: int = 100_000) -> Func:
    a = te.placeholder((n, 4), name="A")
    return te.create_func([a, te.compute((n, 4), lambda i, j: -a[i, j], name="B")], name="large")


def together(sch: Schedule, scope: str, at: int = 0) -> None:
    """Q in a nest with R, one thread per element of R."""
    o, i = sch.split(sch.get_loops("R")[0], [None, 16])
    sch.compute_at("Q", (o, i)[at])
    sch.set_scope("Q", 0, scope)
    sch.bind(o, "blockIdx.x")
    sch.bind(i, "threadIdx.x")
