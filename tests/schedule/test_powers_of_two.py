"""Exponentials as powers of two: the same results within 16 bits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright import te
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.schedule.errors import ScheduleError


def weighted() -> nw.Schedule:
    """Weights of 16 bits that are exponentials, and their sums in f32."""
    a, v = te.placeholder((3, 7), name="A"), te.placeholder((7, 5), "bf16", name="V")
    k, m = te.reduce_axis(7, "k"), te.reduce_axis(7, "m")
    w = te.compute((3, 7), lambda i, j: te.exp(a[i, j]), name="W")
    p = te.compute((3, 7), lambda i, j: te.cast(w[i, j], "bf16"), name="P")
    s = te.compute((3,), lambda i: te.sum(w[i, m], axis=m), name="S")
    c = te.compute((3, 5), lambda i, j: te.sum(p[i, k] * v[k, j], axis=k), name="C")
    return nw.Schedule(te.create_func([a, v, s, c], name="weighted"))


@pytest.mark.parametrize("target", ["cpu", "cuda-sim -arch=sm_80"])
def test_results_are_the_same_within_sixteen_bits(target: str) -> None:
    a = np.array([[0, -1, 1, -80, 80, -np.inf, 0.5]] * 3, np.float32)
    a[1, 3], a[2, 4] = np.nan, np.inf
    v = np.ones((7, 5), to_numpy(bf16))
    plain, sch = weighted(), weighted()
    sch.powers_of_two("W")
    assert "exp2(" in sch.show()
    for got, wanted in zip(
        nw.build(sch, target=target)(a, v), nw.build(plain, target=target)(a, v), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=2e-5)


def test_exact_results_and_other_blocks_are_refused() -> None:
    a = te.placeholder((4,), name="A")
    e = te.compute((4,), lambda i: te.exp(a[i]), name="E")
    b = te.compute((4,), lambda i: e[i] + 1.0, name="B")
    sch = nw.Schedule(te.create_func([a, b], name="f"))
    with pytest.raises(ScheduleError, match="is not rounded to 16 bits"):
        sch.powers_of_two("E")
    with pytest.raises(ScheduleError, match="no exponentials in f32"):
        sch.powers_of_two("B")
