"""A softmax that is put together as its parts come: the primitive, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright.te as te
from nestwright.ir.arrays import Array
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace


def attended(guarded: bool = False) -> Schedule:
    """Sums of exponentials and of their products with values: rows of 21."""
    a, v = te.placeholder((5, 21), name="A"), te.placeholder((21, 3), name="V")
    k, j, t = (te.reduce_axis(21, n) for n in "kjt")
    m = te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="M")

    def shift(i: Any) -> Any:
        return te.select(te.equal(m[i], -np.inf), 0.0, m[i]) if guarded else m[i]

    e = te.compute((5, 21), lambda i, x: te.exp(a[i, x] - shift(i)), name="E")
    s = te.compute((5,), lambda i: te.sum(e[i, j], axis=j), name="S")
    o = te.compute((5, 3), lambda i, w: te.sum(e[i, t] * v[t, w], axis=t), name="O")
    return Schedule(te.create_func([a, v, s, o], name="attended"))


def in_parts(sch: Schedule, size: int, begin: bool = True) -> Any:
    """Take rows in parts of one loop, which is returned; ``begin`` sums of a part before it."""
    for name in ("S", "O"):
        sch.cache_write(name, 0, "register")
    parts = {}
    for name in ("M", "S", "O"):
        *rows, along = sch.get_loops(name)
        part, along = sch.split(along, [None, size])
        sch.reorder(part, *rows, along)
        parts[name] = sch.rfactor(part)
    sch.rescale("E")
    for name in parts:
        *rows, part = sch.get_loops(name)
        sch.reorder(part, *rows)
        sch.decompose_reduction(name, part)
    *rows, along = sch.get_loops("E")
    part, along = sch.split(along, [None, size])
    sch.reorder(part, *rows, along)
    first = sch.get_loops(parts["M"])[0]
    for name in ("E", parts["S"], parts["O"]):
        sch.merge(first, part if name == "E" else sch.get_loops(name)[0])
    if begin:
        sch.decompose_reduction(parts["O"], sch.get_loops(parts["O"])[-1])
    return first


def results(func: Func, args: list[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in run(func, args)]


def extremes() -> list[Array]:
    """Rows of numbers; of -inf in the first parts; of nothing else; with NaN; with infinity."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 21)).astype(np.float32) * 20
    x[1, :17] = -np.inf
    x[2] = -np.inf
    x[3, 20] = np.nan
    x[4, 2] = np.inf
    return [x, rng.standard_normal((21, 3)).astype(np.float32)]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("size", "begin"), [(8, True), (8, False), (7, True), (32, True)])
def test_running_totals_are_those_of_the_graph(size: int, begin: bool, guarded: bool) -> None:
    expected = results(attended(guarded).func, extremes())
    sch = attended(guarded)
    sch.online(in_parts(sch, size, begin))
    verify(sch.func)
    for x, y in zip(results(sch.func, extremes()), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)
    again = Trace.from_json(sch.trace.to_json()).onto(attended(guarded))
    assert again.show() == sch.show()


def test_partial_products_are_not_kept() -> None:
    sch, kept = attended(), attended()
    sch.online(in_parts(sch, 8))
    kept.online(in_parts(kept, 8, begin=False))
    assert "O_rf = alloc" in kept.show() and "O_rf = alloc" not in sch.show()


@pytest.mark.parametrize("size", [1, 8])
def test_sums_that_are_not_begun_before_their_parts_are_refused(size: int) -> None:
    sch = attended()
    first = in_parts(sch, size)
    with pytest.raises(ScheduleError, match="is not followed by nests"):
        sch.online(sch.get_loops("O_rf")[1])
    sch.online(first)
    with pytest.raises(ScheduleError, match="is not followed by nests"):
        sch.online(first)
