"""The interpreter where denormals count as 0: of which types, in which calls, how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.interp import flushing as module
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.interp.flushing import flushing, flushing_as
from nestwright.ir.hlo.passes.pipeline import optimize_narrow
from nestwright.ir.hlo.text.parser import parse
from nestwright.ir.library.call import LibraryCall
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call
from nestwright.ir.target import Target

BOTH = """HloModule both
ENTRY main {
  x = f32[2] parameter(0)
  y = f64[2] parameter(1)
  a = f32[2] add(x, x)
  b = f64[2] add(y, y)
  c = f32[2] custom-call(x), custom_call_target="see"
  d = f64[2] convert(x)
  ROOT t = (f32[2], f64[2], f32[2], f64[2]) tuple(a, b, c, d)
}
"""
X, Y = np.full(2, 1e-40, np.float32), np.full(2, 1e-310)


@pytest.fixture(autouse=True)
def seen() -> Iterator[None]:
    """A function of the host that doubles, as the program does."""

    def see(call: LibraryCall, x: Array) -> Array:
        return x + x

    register_custom_call("see", see)
    yield
    unregister_custom_call("see")


def zeros(values: Any) -> list[bool]:
    """Which arrays are zero by their bits: arithmetic would take denormals for 0 as well."""
    return [not any(np.asarray(v).tobytes()) for v in values]


def test_operations_flush_and_calls_of_the_host_do_not() -> None:
    module = parse(BOTH)
    assert zeros(evaluate(module, [X, Y])) == [False] * 4
    with flushing():
        assert zeros(evaluate(module, [X, Y])) == [True, True, False, True]
        assert zeros([X + X, Y + Y]) == [False, False]
    assert zeros(evaluate(module, [X, Y])) == [False] * 4


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("cpu", [False, False, False, False]),
        ("cpu -denormals=flush", [True, True, False, True]),
        ("cuda -arch=sm_90 -denormals=flush", [True, False, False, True]),
    ],
)
def test_a_target_says_of_which_types(spec: str, wanted: list[bool]) -> None:
    with flushing_as(Target.parse(spec)):
        assert zeros(evaluate(parse(BOTH), [X, Y])) == wanted
    assert zeros(evaluate(parse(BOTH), [X, Y])) == [False] * 4


def test_it_ends_with_what_is_raised_and_with_the_inner_one() -> None:
    module = parse(BOTH)
    with pytest.raises(ZeroDivisionError), flushing():
        raise ZeroDivisionError
    assert zeros(evaluate(module, [X, Y])) == [False] * 4
    with flushing():
        with flushing(doubles=False), flushing_as(Target.parse("cpu")):
            assert zeros(evaluate(module, [X, Y])) == [True, False, False, True]
        assert zeros(evaluate(module, [X, Y])) == [True, True, False, True]


def test_a_failure_inside_leaves_the_callers_mode() -> None:
    def see(call: LibraryCall, x: Array) -> Array:
        raise ZeroDivisionError

    register_custom_call("see", see)
    with flushing(), pytest.raises(ZeroDivisionError):
        evaluate(parse(BOTH), [X, Y])
    assert zeros([X + X]) == [False]


SUMS = """HloModule sums, replica_count=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] add(x, x)
  ROOT z = f32[2] all-reduce(y), replica_groups={{0,1}}, to_apply=add
}
"""


def test_devices_on_threads_of_their_own_flush() -> None:
    module, args = parse(SUMS), [[X], [X]]
    assert zeros(evaluate_devices(module, args)) == [False, False]
    with flushing():
        assert zeros(evaluate_devices(module, args)) == [True, True]


def test_constants_that_are_not_computed_on_stay_apart() -> None:
    """All of these are equal to arithmetic that flushes, and small integers to whoever reads the
    bits.
    """
    text = """HloModule bits
ENTRY main {
  a = f32[4] constant({0, 1e-45, 3e-45, 4e-45})
  b = s32[4] bitcast-convert(a)
  ROOT t = (f32[4], s32[4]) tuple(a, b)
}"""
    folded = optimize_narrow(parse(text), None, Target.parse("cpu -denormals=flush"))[0]
    a, b = evaluate(folded, [])
    assert np.asarray(a).view(np.int32).tolist() == np.asarray(b).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("spec", ["cpu", "cuda -arch=sm_90"])
def test_what_is_folded_is_what_the_code_would_compute(t: str, spec: str) -> None:
    small, large = {"f32": ("1e-30", "1e10"), "f64": ("1e-300", "1e20")}[t]
    text = f"""HloModule folded
ENTRY main {{
  a = {t}[3] constant({{{small}, {small}, {small}}})
  b = {t}[3] constant({{{"1e-10, " * 2}1e-11}})
  c = {t}[3] multiply(a, b)
  e = {t}[3] constant({{{", ".join([large] * 3)}}})
  ROOT f = {t}[3] multiply(c, e)
}}"""
    for option, flushes in (("keep", False), ("flush", t == "f32" or spec == "cpu")):
        target = Target.parse(f"{spec} -denormals={option}")
        folded = optimize_narrow(parse(text), None, target)[0]
        assert {i.opcode for i in folded.entry.instructions} <= {"constant", "broadcast"}
        found = np.asarray(evaluate(folded, []))
        with flushing_as(target):
            assert found.tobytes() == np.asarray(evaluate(parse(text), [])).tobytes()
        assert zeros([found]) == [flushes]


def test_a_machine_without_a_known_mode_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORDS", {})
    with pytest.raises(UnsupportedError, match="cannot flush denormals"), flushing():
        raise AssertionError("it went in")
