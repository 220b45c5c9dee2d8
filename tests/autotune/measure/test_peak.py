"""The loops that peaks are read with: they do what they are counted for. Nothing is timed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from nestwright.autotune.measure.host import peak
from nestwright.autotune.measure.host.peak import (
    LINE,
    Clocks,
    Looping,
    Peak,
    PeakLoops,
    Reading,
    repeat,
)
from nestwright.codegen.targets.cpu.toolchain import assembly
from nestwright.ir.dtypes import f32
from nestwright.ir.target import Target

HERE = Target.parse("cpu -threads=2")


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> PeakLoops:
    monkeypatch.setattr(peak, "PASSED", 1 << 14)
    monkeypatch.setattr(peak, "TRIPS", 10)
    monkeypatch.setattr(peak, "FORKS", 3)
    monkeypatch.setattr(peak, "BURST", 5)
    return PeakLoops(HERE)


def test_a_copy_copies_what_it_counts(loops: PeakLoops) -> None:
    block = 4 * peak.chains_of(HERE) * HERE.lanes(f32)
    looping = loops.copy(6 * block + 12, threads=2)
    source, goal = looping.held[:2], looping.held[2:]
    assert [len(x) for x in looping.held] == [3 * block] * 4
    assert all(x.ctypes.data % LINE == 0 for x in looping.held)
    for number, data in enumerate(source):
        data[:] = np.arange(len(data)) % 251 + number
    looping.call(1)
    assert np.array_equal(source[1], goal[1]) and not np.array_equal(source[0], goal[0])
    # A short set is passed over again and again: a call from Python takes longer than one pass.
    assert looping.amount == 2 * max(3 * block, (1 << 14) // block * block)


def test_a_read_reads_every_byte(loops: PeakLoops) -> None:
    block = 4 * peak.chains_of(HERE) * HERE.lanes(f32)
    looping = loops.read(16 * block, threads=1)
    (data,) = looping.held
    words = data.view(np.float32)
    words[:] = 0
    words[-1] = 7.0
    looping.call(0)
    sink = loops._sink[0][: peak.chains_of(HERE) * HERE.lanes(f32)]
    times = looping.amount / (16 * block)
    starts = sum(n * HERE.lanes(f32) for n in range(peak.chains_of(HERE)))
    assert sink.sum() == pytest.approx(starts + 7.0 * times)


def test_registers_and_parallel_loops_run(loops: PeakLoops) -> None:
    for looping, amount in (
        (loops.fma(2), 2.0 * peak.chains_of(HERE) * HERE.lanes(f32) * 10),
        (loops.cycles(), peak.STEPS * 10.0),
        (loops.forks(), 3.0),
        (loops.burst(), 2 * 2.0 * peak.chains_of(HERE) * HERE.lanes(f32) * 5),
    ):
        looping.call(0)
        assert looping.amount == amount


def test_a_burst_runs_on_every_thread(loops: PeakLoops) -> None:
    for sink in loops._sink:
        sink[0] = 1
    loops.burst().call(0)
    for sink in loops._sink:
        starts = np.repeat(np.arange(peak.chains_of(HERE), dtype=np.float32), HERE.lanes(f32))
        assert np.array_equal(sink[: len(starts)], 1 + starts + 5), "1 is added each turn"


def test_rates_of_threads_are_added() -> None:
    """By a clock that each thread advances itself: a call takes half a second of two."""
    now = threading.local()

    def call(number: int) -> None:
        now.spent = getattr(now, "spent", 0.0) + 0.5

    clocks = Clocks(lambda: getattr(now, "spent", 0.0), lambda: 4 * getattr(now, "spent", 0.0))
    found = repeat(Looping(call, 10.0, threads=2), 3, clocks)
    assert found == Reading((40.0,) * 3, (0.25,) * 3)
    assert found.best == 40.0


def interrupted(hit: Callable[[], None]) -> list[str]:
    """Return the threads that still called when ``hit`` had interrupted the two of a loop."""
    main = threading.main_thread()
    let_go, late = threading.Event(), list[str]()

    def call(number: int) -> None:
        if threading.current_thread() is not main:
            hit()
            if let_go.wait(0.1):
                late.append(threading.current_thread().name)

    here = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        repeat(Looping(call, 1.0, threads=2), 3, Clocks(lambda: 0.0, lambda: 0.0))
    let_go.set()
    for thread in set(threading.enumerate()) - here:
        thread.join(60)
        assert not thread.is_alive()
    return late


def test_ctrl_c_ends_the_calls_of_threads_whose_code_is_let_go_of() -> None:
    main, called = threading.main_thread(), threading.Event()

    def hit() -> None:
        if not called.is_set():
            called.set()
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

    assert interrupted(hit) == []


def test_ctrl_c_while_a_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thread whose start is interrupted, the pool knows nothing."""
    start, started = threading.Thread.start, []
    calls = threading.Event()

    def interrupt_the_second(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        if len(started) == 2:
            assert calls.wait(60)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt_the_second)
    assert interrupted(calls.set) == []


def test_a_thread_that_cannot_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    here, start, started = threading.active_count(), threading.Thread.start, []

    def only_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", only_one)
    with pytest.raises(RuntimeError, match="new thread"):
        repeat(Looping(lambda number: None, 1.0, threads=2), 3)
    assert threading.active_count() == here


def test_each_level_of_caches_has_a_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[tuple[int, int]] = []

    class Copies:
        target = Target.parse("cpu -mcpu=znver4 -threads=2")

        def copy(self, size: int, threads: int) -> Looping:
            copied.append((size, threads))
            return Looping(lambda n: None, 1e12 / size, threads)

    monkeypatch.setattr(peak, "repeat", lambda work: Reading((work.amount,), (1.0,)))
    found = Peak(2, 1e11, 1e3, roofs=tuple(peak._level_roofs(Copies())))  # type: ignore[arg-type]
    assert [r.name for r in found.roofs] == ["L1", "L2", "L3"]
    assert [r.size for r in found.roofs] == [64 << 10, 2 << 20, 32 << 20], "those of both cores"
    assert copied == [(16 << 10, 2), (512 << 10, 2), (8 << 20, 2)]
    assert found.roof_of(65 << 10) == found.roofs[1] and found.roof_of(33 << 20).bandwidth == 1e3
    assert Peak(1, 2e11, 4e10).told == "200.0 GFLOP/s FMA; copy GB/s: 40.0 in memory"


@pytest.mark.parametrize("spec", ["cpu -mcpu=haswell", "cpu -mcpu=x86-64", "cpu -mcpu=znver4"])
def test_accumulators_of_the_peak_stay_in_registers(spec: str) -> None:
    target = Target.parse(f"{spec} -threads=1")
    text = assembly(peak.module_text(target), target)
    body = text.partition("peak_fma:")[2].partition("peak_read:")[0]
    assert "rsp" not in body, "an accumulator in memory makes the peak lower than kernels"
    assert "call" not in body, "nor is a multiply-add a call where there is no such instruction"
