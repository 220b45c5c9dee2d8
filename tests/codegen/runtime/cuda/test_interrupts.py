"""Signals while a GPU is waited for, and between what is submitted; over a stand-in driver."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.runtime.process import runtime

from ...conftest import Status

LIMIT = 120  # seconds after which a thread counts as hung
ADD = """HloModule add
ENTRY e { x = f32[8] parameter(0)
 y = f32[8] parameter(1)
 ROOT z = f32[8] add(x, y) }"""

EVER = """HloModule ever
c { t = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 n = s32[] constant(0)
 ROOT p = pred[] compare(i, n), direction=GE }
b { t = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 x = f32[8] get-tuple-element(t), index=1
 y = f32[8] add(x, x)
 ROOT r = (s32[], f32[8]) tuple(i, y) }
ENTRY e { n = s32[] parameter(0)
 x = f32[8] parameter(1)
 t = (s32[], f32[8]) tuple(n, x)
 w = (s32[], f32[8]) while(t), condition=c, body=b
 ROOT y = f32[8] get-tuple-element(w), index=1 }"""


def busy(fake: Any, monkeypatch: pytest.MonkeyPatch, turns: int, number: int) -> None:
    """A device that is busy from now on; after so many questions whether it still is, a signal."""
    asked = 0

    def query(handle: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == turns:
            os.kill(os.getpid(), number)
        assert asked < turns + 1000, "the wait goes on"
        return (Status.CUDA_ERROR_NOT_READY,)

    monkeypatch.setitem(fake.__dict__, "cuStreamQuery", query)
    monkeypatch.setitem(fake.__dict__, "cuEventQuery", query)


@pytest.mark.parametrize("turns", [1, 3])
def test_waiting_for_a_gpu_is_interrupted(
    fake: Any, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    exe = fake.executable(ADD)
    x = np.arange(8, dtype=np.float32)
    for _ in range(3):
        assert np.array_equal(exe(x, x), x + x)
    with monkeypatch.context() as patch:
        busy(fake, patch, turns, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            exe(x, x)
    for _ in range(3):
        assert np.array_equal(exe(x, -x), x - x)


def test_waiting_on_another_thread_is_interrupted(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = fake.executable(ADD)
    x = np.arange(8, dtype=np.float32)
    exe(x, x)
    ended: list[type[BaseException]] = []
    waiting = threading.Event()

    def work() -> None:
        try:
            exe(x, x)
        except BaseException as error:
            ended.append(type(error))

    def query(handle: Any) -> Any:
        waiting.set()
        return (Status.CUDA_ERROR_NOT_READY,)

    runtime().signals.adopt()
    with monkeypatch.context() as patch:
        patch.setitem(fake.__dict__, "cuStreamQuery", query)
        patch.setitem(fake.__dict__, "cuEventQuery", query)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            assert waiting.wait(LIMIT)
            os.kill(os.getpid(), signal.SIGINT)
            thread.join(LIMIT)
        thread.join(LIMIT)
    assert ended == [KeyboardInterrupt]
    assert np.array_equal(exe(x, x), x + x)


def test_an_endless_loop_on_a_gpu_is_left(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = fake.executable(EVER)
    x = np.ones(8, np.float32)
    ask = fake.cuLaunchKernel
    launched = 0

    def launch(*args: Any) -> Any:
        nonlocal launched
        launched += 1
        if launched % 20 == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return ask(*args)

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setitem(os.environ, "NESTWRIGHT_CUDA_SYNC", "1")
            patch.setitem(fake.__dict__, "cuLaunchKernel", launch)
            exe(np.int32(0), x)
        assert np.array_equal(exe(np.int32(-1), x), x)


@pytest.mark.parametrize("copy", ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"])
def test_a_copy_that_nothing_marks_is_waited_for(
    fake: Any, monkeypatch: pytest.MonkeyPatch, copy: str
) -> None:
    """Interrupted between a copy and its event, a call leaves the page-locked memory in use."""
    exe = fake.executable(ADD)
    x = np.arange(8, dtype=np.float32)
    exe(x, x)
    real = getattr(fake, copy)
    with monkeypatch.context() as patch:

        def begun(*args: Any) -> Any:
            done = real(*args)
            patch.setitem(fake.__dict__, "cuEventRecord", stopped)
            return done

        def stopped(*args: Any) -> Any:
            raise KeyboardInterrupt

        patch.setitem(fake.__dict__, copy, begun)
        with pytest.raises(KeyboardInterrupt):
            exe(x, x)
    for n in range(4):
        y = x + n
        assert np.array_equal(exe(x, y), x + y)
