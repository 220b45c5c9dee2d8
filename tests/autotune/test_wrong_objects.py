"""Objects of a wrong type at the public face: one error of ours says what was asked and why not."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import nestwright as nw
from nestwright import te
from nestwright.ir.errors import NestwrightError

MODEL = """HloModule double
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] add(x, x)
}"""
ARRAY = np.ones(3)


def scheduled() -> nw.Schedule:
    a = te.placeholder((8, 16), name="A")
    return nw.Schedule(te.create_func([a, te.compute((8, 16), lambda i, j: a[i, j], name="C")]))


WRONG: dict[str, Callable[[Any], object]] = {
    "show": nw.show,
    "a stage": lambda w: nw.lower(nw.parse(MODEL)).as_text(w),
    "a first stage": lambda w: nw.build_from(w, MODEL, "cpu"),
    "a text": lambda w: nw.build_from("hlo", w, "cpu"),
    "a rule": nw.schedule_rule,
    "a schedule": nw.Schedule,
    "a jitted function": nw.jit,
    "a maker of models": nw.Specialized,
    "a library's name": lambda w: nw.register_library("dot", np.matmul, name=w),
    "freeze=": lambda w: nw.lower(nw.parse(MODEL), freeze=w),
    "checks=": lambda w: nw.lower(nw.parse(MODEL), checks=w),
    "excess_precision=": lambda w: nw.lower(nw.parse(MODEL), excess_precision=w),
    "fallback=": lambda w: nw.lower(nw.parse(MODEL), fallback=w),
    "weights=": lambda w: nw.lower(nw.parse(MODEL), weights=w),
    "accuracy=": lambda w: nw.lower(nw.parse(MODEL), accuracy=w),
    "denormals=": lambda w: nw.lower(nw.parse(MODEL), denormals=w),
    "log=": lambda w: nw.build(nw.parse(MODEL), log=w),
    "group=": lambda w: nw.lower(nw.parse(MODEL)).as_text("te", group=w),
    "progress=": lambda w: nw.tune(nw.parse(MODEL), progress=w, trials=1),
    "a C library's name": lambda w: nw.build(nw.parse(MODEL)).export_c("unused", name=w),
    "weights of a C library": lambda w: nw.build(nw.parse(MODEL)).export_c("unused", weights=w),
    "a block": lambda w: scheduled().get_block(w),
    "a loop": lambda w: scheduled().find_loop(w),
    "extents": lambda w: te.placeholder(w),
    "an element type": lambda w: te.placeholder((3,), w),
    "a tensor's name": lambda w: te.placeholder((3,), name=w),
    "a shape": lambda w: te.compute(w, lambda i: i),
    "a rule of a tensor": lambda w: te.compute((3,), w),
    "tensors": te.create_func,
    "a tensor": lambda w: te.create_func([w]),
    "rule=": lambda w: nw.build(nw.parse(MODEL), rule=w, shapes={"x": (None,)}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_object_is_refused_by_an_error_of_ours(what: str) -> None:
    for wrong in (object(), 1.5j, ARRAY):
        with pytest.raises(NestwrightError):
            WRONG[what](wrong)


def test_numpys_integers_are_extents() -> None:
    a = te.placeholder((np.int64(3), 4), name="A")
    assert te.compute(a.shape, lambda i, j: a[i, j]).shape == (3, 4)


def test_numpys_booleans_are_switches() -> None:
    lowered = nw.lower(nw.parse(MODEL), excess_precision=cast(bool, np.False_))
    assert lowered.compile(cache=False)(np.ones(4, np.float32)).tolist() == [2, 2, 2, 2]
