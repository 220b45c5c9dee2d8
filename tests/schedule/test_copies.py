"""Functions, schedules and kernels as Python objects: copied, pickled and shown."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import nestwright as nw
from nestwright import te
from nestwright.ir.loop.nodes import Func


def doubled() -> Func:
    a = te.placeholder((8, 16), name="A")
    return te.create_func([a, te.compute((8, 16), lambda i, j: a[i, j] * 2, name="C")], "doubled")


def halfway() -> nw.Schedule:
    sch = nw.Schedule(doubled())
    _, j = sch.get_loops("C")
    sch.split(j, [None, 8])
    return sch


def test_a_copied_schedule_is_independent() -> None:
    for again in (copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))):
        sch = halfway()
        other = again(sch)
        other.vectorize(other.get_loops("C")[-1])
        assert len(other.trace.steps) == len(sch.trace.steps) + 1
        assert "vectorize" in other.show() and "vectorize" not in sch.show()
        replayed = nw.Schedule(doubled())
        other.trace.onto(replayed)
        assert replayed.show() == other.show()
    assert repr(halfway()) == "<Schedule of doubled, steps: 2>"


def test_a_kernel_is_pickled_without_what_is_loaded() -> None:
    kernel, x = nw.build(halfway()), np.ones((8, 16), np.float32)
    kernel(x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(x), x * 2)
    assert repr(kernel) == "<Kernel doubled for cpu>"
