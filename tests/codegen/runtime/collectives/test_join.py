"""Programs and ranks that do not fit together, and ranks that do not answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.runtime.collectives.threads import (
    ThreadCommunicator,
    thread_communicators,
)
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.errors import (
    ArgumentError,
    CommunicationError,
    NestwrightError,
    UnsupportedError,
)
from nestwright.ir.hlo.text import parse

from .on_threads import SECONDS, run_on_threads

ADD = "add { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT s = f32[] add(a, b) }\n"


def made(body: str = "n = f32[4] negate(x)", groups: str = "{}", rows: int = 4) -> Executable:
    """A sum over two replicas of something like ``n``."""
    text = f"""HloModule m, replica_count=2
{ADD}ENTRY e {{ x = f32[{rows}] parameter(0)
{body}
ROOT y = f32[{rows}] all-reduce(n), replica_groups={groups}, to_apply=add }}"""
    return build(parse(text))


X = np.arange(4, dtype="f4")


def on_each(
    exes: Sequence[Executable],
    action: Callable[[Executable, ThreadCommunicator], Any],
    seconds: float = SECONDS,
) -> list[Any]:
    """The result, or the error, of an action on each rank."""

    def run(exe: Executable, communicator: ThreadCommunicator) -> Any:
        try:
            return action(exe, communicator)
        except NestwrightError as error:
            return error

    with ThreadPoolExecutor(len(exes)) as pool:
        return list(pool.map(run, exes, thread_communicators(len(exes), seconds)))


def test_a_saved_model_runs_on_several_ranks(tmp_path: Path) -> None:
    made().save(tmp_path / "m.nw")
    for found in run_on_threads(load(tmp_path / "m.nw"), [[X], [X + 1]]):
        np.testing.assert_array_equal(found, -2 * X - 1)


@pytest.mark.parametrize("count", [1, 3])
def test_ranks_that_do_not_fit_are_told_alike(count: int) -> None:
    errors = on_each([made()] * count, lambda exe, own: exe.on(own))
    assert len({str(e) for e in errors}) == 1
    processes = f"{count} processes run it" if count > 1 else "1 process runs it"
    assert isinstance(errors[0], CommunicationError) and errors[0].exit_status == 2
    assert f"m is written for 2 devices (replica_count=2, num_partitions=1): {processes}" in str(
        errors[0]
    )
    assert "mpiexec -n 2" in errors[0].hint


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (made("n = f32[4] abs(x)"), "computation"),
        (made("n = f32[5] negate(x)", rows=5), "arguments and results"),
        (made(groups="{{1,0}}"), "collectives or replica groups"),
        (build(parse("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }")), "devices"),
    ],
    ids=["computation", "shape", "groups", "devices"],
)
def test_ranks_with_different_programs_are_told_alike(other: Executable, what: str) -> None:
    errors = on_each([made(), other], lambda exe, own: exe.on(own))
    for error in errors:
        assert isinstance(error, CommunicationError)
        assert "rank 1 and rank 0 run different programs" in str(error) and what in error.why


def test_weights_may_differ_from_rank_to_rank() -> None:
    text = f"""HloModule m, replica_count=2
{ADD}ENTRY e {{ x = f32[64] parameter(0)
w = f32[64] parameter(1)
n = f32[64] multiply(x, w)
ROOT y = f32[64] all-reduce(n), replica_groups={{}}, to_apply=add }}"""
    one = np.ones(64, "f4")
    weights = [np.arange(64, dtype="f4") + n for n in range(2)]
    exes = [build(parse(text), constants={"w": w}) for w in weights]
    for found in on_each(exes, lambda exe, own: exe.on(own)(one)):
        np.testing.assert_array_equal(found, sum(weights))


def test_a_rank_that_fails_ends_the_call_of_the_others() -> None:
    def call(exe: Executable, own: ThreadCommunicator) -> Any:
        bound = exe.on(own)
        if own.rank == 1:
            own.fail()
            return None
        return bound(X)

    error, _ = on_each([made()] * 2, call)
    assert isinstance(error, CommunicationError)
    assert "rank 1 has failed: rank 0 is in all-reduce `y`" in str(error)


def test_a_rank_that_does_not_come_ends_the_wait() -> None:
    """Neither to the start nor to a call; the limit is the communicator's."""
    one, two = thread_communicators(2, 0.2)
    began = monotonic()
    with pytest.raises(CommunicationError, match="rank 0 waits for rank 1 in the start"):
        made().on(one)
    assert monotonic() - began < 30

    def call(exe: Executable, own: ThreadCommunicator) -> Any:
        bound = exe.on(own)
        return bound(X) if own.rank == 0 else None

    error, _ = on_each([made()] * 2, call, seconds=4.0)
    assert "rank 0 waits for rank 1 in all-reduce `y`: nothing came within 4 seconds" in str(error)
    assert two.size == 2


def test_a_call_without_ranks_says_what_to_do() -> None:
    exe = made()
    with pytest.raises(CommunicationError, match="this call runs on one") as caught:
        exe(X)
    assert "executable.on(communicator)" in caught.value.hint
    with pytest.raises(ArgumentError, match="int is not a communicator"):
        exe.on(3)
    with pytest.raises(ArgumentError, match="seconds=0"):
        thread_communicators(2, 0)


def test_a_program_of_one_device_runs_on_one_rank() -> None:
    text = f"""HloModule m
{ADD}ENTRY e {{ x = f32[4] parameter(0)
ROOT y = f32[4] all-reduce(x), replica_groups={{}}, to_apply=add }}"""
    exe = build(parse(text))
    (own,) = thread_communicators(1)
    np.testing.assert_array_equal(exe.on(own)(X), X)
    assert "library" not in exe.as_text()  # a copy


def test_gpus_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="NCCL"):
        build(parse(made().as_text("hlo")), "cuda -arch=sm_80")


def test_ctrl_c_ends_the_wait() -> None:
    one, two = thread_communicators(2, SECONDS)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(made().on, two)
        exe = made().on(one)
        other.result()
    began = monotonic()
    timer = Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        exe(X)
    assert monotonic() - began < SECONDS / 2
    timer.join()
