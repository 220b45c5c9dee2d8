"""Every function of the driver fails in turn: the user is told which, and how, by our own errors.

What is planted must also leave the process in order: once it is healed, calls are right again,
unless the failure has ended the context.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from gpu.stub.control import Stub
from gpu.stub.models import assert_right, prepared

from nestwright.ir.errors import DeviceError, NestwrightError, NestwrightWarning

AT_START = (
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuStreamCreate",
    "cuMemHostAlloc",
)
AT_CALLS = (
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuStreamQuery",
    "cuMemAlloc",
    "cuMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyDtoDAsync",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuStreamWaitEvent",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuStreamBeginCapture",
    "cuStreamEndCapture",
    "cuGraphInstantiate",
    "cuGraphLaunch",
)
AT_END = ("cuMemFree", "cuEventDestroy", "cuGraphDestroy", "cuGraphExecDestroy", "cuModuleUnload")
"""Called while something is let go, where nobody may be there to be told."""
WITH_PTXAS = ("cuModuleLoadData",)
NOT_PERMITTED, LAUNCH_FAILED = 800, 719
OURS = (NestwrightError, NestwrightWarning)
INSTANTIATE = "cuGraphInstantiate", "cuGraphInstantiateWithFlags"  # as releases of cuda-python ask


def prepare() -> None:
    for name in "double", "chain", "decide":
        prepared(name)


class Side:
    """An array that another stream makes, through the array interface."""

    def __init__(self, of: Any, stream: int) -> None:
        self.of = of
        self.__cuda_array_interface__ = {**of.__cuda_array_interface__, "stream": stream}


class Scenario:
    """A user who does all that makes the runtime call the driver."""

    def __init__(self, stub: Stub) -> None:
        self.chain, self.decide = prepared("chain"), prepared("decide")
        self.exe, self.loops = self.chain.over(stub), self.decide.over(stub)
        self.wide = prepared("double").over(stub, shared=64 << 10, cubin=b"")
        self.arrays: list[Any] = []
        self.actions: tuple[Callable[[], object], ...] = (
            self.call,
            self.call,
            self.call,
            self.put,
            self.side,
            self.side,
            self.alias,
            self.profile,
            self.choose,
            self.choose,
            self.drop,
        )

    def call(self) -> None:
        args = self.chain.arguments()
        assert_right(self.chain.module, args, self.exe(*args))

    def put(self) -> None:
        self.arrays = [self.exe.put(a) for a in self.chain.arguments()]

    def side(self) -> None:
        if not self.arrays:
            return
        x, w = self.arrays
        first, second = self.exe(Side(x, int(x.device.stream)), w)
        first.__dlpack__(stream=int(x.device.stream))
        args = self.chain.arguments()
        assert_right(self.chain.module, args, (first.numpy(), second.numpy()))

    def alias(self) -> None:
        (x,) = prepared("double").arguments()
        a = self.wide.put(x)
        self.wide(a, out=a)
        assert (a.numpy() == 2 * x).all()

    def profile(self) -> None:
        self.exe.profile(*self.chain.arguments())

    def choose(self) -> None:
        args = self.decide.arguments()
        assert_right(self.decide.module, args, self.loops(*args))

    def drop(self) -> None:
        device = self.arrays[0].device if self.arrays else None
        self.arrays.clear()
        del self.exe, self.loops, self.wide, self.actions
        gc.collect()
        if device is not None:
            device.release_kept()


def run(stub: Stub) -> list[BaseException]:
    """Do it all; what was raised on the way, and what the user was warned of."""
    told: list[BaseException] = []
    for action in Scenario(stub).actions:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                action()
            except AssertionError:
                raise
            except BaseException as error:
                told.append(error)
        told += [w.message for w in warned if isinstance(w.message, Warning)]
    return told


def plant(stub: Stub, function: str, status: int, nth: int = 1) -> None:
    for name in INSTANTIATE if function in INSTANTIATE else (function,):
        stub.fail(name, status, nth)


def calls(stub: Stub, function: str) -> int:
    return sum(map(stub.calls, INSTANTIATE if function in INSTANTIATE else (function,)))


def assert_told(raised: list[BaseException], function: str, status: str) -> None:
    """The first error says what failed and how; all are of the project's own kinds."""
    for error in raised:
        assert isinstance(error, OURS), f"{type(error).__name__}: {error}"
    assert function in str(raised[0]) and status in str(raised[0]), str(raised[0])


def assert_well(stub: Stub) -> None:
    """From now on everything is right."""
    stub.heal()
    raised = run(stub)
    assert not raised, f"after it was healed: {type(raised[0]).__name__}: {raised[0]}"


def leave(stub: Stub) -> None:
    """The contexts that a failure of cuCtxPopCurrent has left on the stack."""
    from cuda.bindings import driver

    while stub.depth():
        driver.cuCtxPopCurrent()


def test_the_scenario_calls_every_function_that_is_made_to_fail(stub: Stub) -> None:
    assert not run(stub)
    machine_code = any(c.cubin for c in prepared("chain").bundle.kernels.values())  # type: ignore[union-attr]
    for function in (*AT_START, *AT_CALLS, *AT_END, *(WITH_PTXAS if machine_code else ())):
        assert calls(stub, function), function


@pytest.mark.parametrize("function", [*AT_START, *AT_CALLS])
def test_a_first_call_fails(stub: Stub, function: str) -> None:
    plant(stub, function, NOT_PERMITTED)
    raised = run(stub)
    assert raised
    assert_told(raised, function, "NOT_PERMITTED")
    assert_well(stub)
    leave(stub)


@pytest.mark.parametrize("function", AT_CALLS)
def test_a_later_call_fails(stub: Stub, function: str) -> None:
    before = calls(stub, function)
    assert not run(stub)
    many = calls(stub, function) - before
    for nth in dict.fromkeys((many // 2, many)):  # the first: above
        if nth:
            plant(stub, function, NOT_PERMITTED, nth)
            raised = run(stub)
            if raised:
                assert_told(raised, function, "NOT_PERMITTED")
            assert raised or function == "cuCtxPopCurrent" or nth == many
            stub.heal()
    assert_well(stub)
    leave(stub)


@pytest.mark.parametrize("function", [*AT_END, *WITH_PTXAS])
def test_what_fails_while_something_is_let_go_or_has_another_way_does_no_harm(
    stub: Stub, function: str
) -> None:
    for nth in 1, 2:
        plant(stub, function, NOT_PERMITTED, nth)
        for error in run(stub):
            assert isinstance(error, OURS), f"{type(error).__name__}: {error}"
            assert function in str(error), str(error)
        assert_well(stub)


@pytest.mark.parametrize("function", AT_CALLS)
def test_a_call_that_ends_the_context(stub: Stub, function: str) -> None:
    assert not run(stub)
    plant(stub, function, LAUNCH_FAILED, 2)
    raised = run(stub)
    if not raised:  # it is called but once
        return leave(stub)
    assert_told(raised, "cu", "LAUNCH_FAILED")  # the function where it showed
    stub.heal()
    after = run(stub)
    assert after and all(isinstance(error, DeviceError) for error in after), after
    assert "cannot be used any more in this process" in str(after[0])
    assert "LAUNCH_FAILED" in str(after[0])
    return leave(stub)


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_fault_of_a_kernel_is_told_as_one(stub: Stub, nth: int) -> None:
    stub.fault(nth=nth)
    raised = run(stub)
    assert raised and all(isinstance(error, DeviceError) for error in raised), raised
    assert "ILLEGAL_ADDRESS" in str(raised[0]) and "chain" in str(raised[0])
    assert "cannot be used any more in this process" in str(raised[-1])
    leave(stub)
