"""Library calls between the runs of a GPU, over a stand-in for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.arrays import Array
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.library.call import LibraryCall
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call

if TYPE_CHECKING:
    from ...conftest import FakeApi


BETWEEN = """HloModule between
ENTRY main {
  x = f32[4,8] parameter(0)
  a = f32[4,8] add(x, x)
  c = (f32[8,4], s32[]) custom-call(a), custom_call_target="turn"
  t = f32[8,4] get-tuple-element(c), index=0
  n = s32[] get-tuple-element(c), index=1
  m = s32[] add(n, n)
  e = f32[8,4] multiply(t, t)
  f = f32[8,4] add(e, t)
  ROOT r = (f32[8,4], s32[]) tuple(f, m)
}
"""
TURNS = """HloModule turns
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  w = f32[4] custom-call(v, i), custom_call_target="turn"
  u = f32[4] add(w, w)
  ROOT r = (s32[], f32[4]) tuple(n, u) }
more { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[4] parameter(0)
  start = s32[] START
  s = (s32[], f32[4]) tuple(start, x)
  w = (s32[], f32[4]) while(s), condition=more, body=body
  v = f32[4] get-tuple-element(w), index=1
  ROOT r = f32[4] subtract(v, x) }
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    unregister_custom_call("turn")


def turn(call: LibraryCall, a: Array) -> tuple[Array, Array]:
    return a.T, np.asarray(a.shape[0], np.int32)


def test_the_host_computes_between_runs(fake: FakeApi) -> None:
    register_custom_call("turn", turn)
    exe = fake.executable(BETWEEN)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)
        t = (x + x).T
        for given in (x, exe.put(x)):
            f, m = exe(given)
            assert isinstance(f, DeviceArray) == isinstance(given, DeviceArray)
            np.testing.assert_allclose(np.asarray(f), t * t + t, rtol=1e-6)
            assert np.asarray(m) == 8
    assert len(exe.profile(x).rows) == len(exe.plan.thunks)
    loaded = exe.loaded()
    with pytest.raises(UnsupportedError, match="as one graph"):
        loaded.repeated([([exe.put(x)], [])])  # type: ignore[attr-defined]


@pytest.mark.parametrize("start", ["constant(0)", "parameter(1)"])
def test_loops_with_library_calls_turn_as_often_as_they_should(fake: FakeApi, start: str) -> None:
    """With a number of turns that is known beforehand, and with one that is not."""
    seen: list[int] = []

    def count(call: LibraryCall, v: Array, i: Array) -> Array:
        seen.append(int(i))
        if wrong and i == 1:
            raise LookupError("no turn 1")
        return v + 1

    register_custom_call("turn", count)
    exe: Executable = fake.executable(TURNS.replace("START", start))
    x = np.arange(4, dtype=np.float32)
    given = (x,) if start.startswith("constant") else (x, np.int32(0))
    wrong = False
    for _ in range(2):
        np.testing.assert_array_equal(exe(*given), 7 * x + 14)
    assert seen == [0, 1, 2] * 2
    wrong = True
    with pytest.raises(LookupError, match="no turn 1"):
        exe(*given)
    wrong = False
    np.testing.assert_array_equal(exe(*given), 7 * x + 14)
