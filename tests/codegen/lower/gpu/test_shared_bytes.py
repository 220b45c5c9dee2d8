"""What the schedule counts as shared memory is what lowering takes."""

from __future__ import annotations

import pytest

import nestwright.te as te
from nestwright.codegen.lower.gpu.limits import memory
from nestwright.codegen.targets.registry import lower
from nestwright.ir.loop.nodes import For, Func, Kind, Scope, Stmt
from nestwright.ir.loop.visit import children
from nestwright.ir.target import Target
from nestwright.schedule.cursor import nest
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.launches import launch_of, top_of
from nestwright.schedule.limits import SHARED_ALIGN, shared_bytes
from nestwright.schedule.sketches.generate import generate

TARGET = Target.parse("cuda-sim -arch=sm_80")


def product(dtype: str) -> Func:
    a, b = (te.placeholder(s, name=n, dtype=dtype) for s, n in (((96, 64), "A"), ((64, 80), "B")))
    k = te.reduce_axis(64, "k")
    c = te.compute(
        (96, 80),
        lambda i, j: te.sum(te.cast(a[i, k], "f32") * te.cast(b[k, j], "f32"), axis=k),
        name="C",
    )
    d = te.compute((96, 80), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_func([a, b, d], name="product")


def rows() -> Func:
    a, k = te.placeholder((8, 300), name="A"), te.reduce_axis(300, "k")
    top = te.compute((8,), lambda i: te.max(a[i, k], axis=k), name="Top")
    e = te.compute((8, 300), lambda i, j: a[i, j] - top[i], name="E")
    s = te.compute((8,), lambda i: te.sum(e[i, k] * e[i, k], axis=k), name="S")
    r = te.compute((8, 300), lambda i, j: e[i, j] + s[i], name="R")
    return te.create_func([a, r], name="rows")


def counted(func: Func) -> list[int]:
    tops = {id(top_of(p)[-1]): top_of(p) for p in nest(func).blocks.values()}
    launches = [(launch_of(func, top), top[-1]) for top in tops.values()]
    return [shared_bytes(launch, top) for launch, top in launches if launch is not None]


def taken(s: Stmt) -> list[int]:
    if isinstance(s, For) and s.kind is Kind.THREAD:
        return [memory(s, (Scope.SHARED,), SHARED_ALIGN)]
    return [n for c in children(s) for n in taken(c)]


@pytest.mark.parametrize(
    "func", [product("f16"), product("f32"), rows()], ids=lambda f: f.params[0].dtype.name + f.name
)
def test_shared_bytes(func: Func) -> None:
    for sketch in generate(func, TARGET):
        sch = Schedule(func)
        sketch.apply(sch, sketch.default)
        assert counted(sch.func) == taken(lower(sch.func, TARGET).body), sketch.name
