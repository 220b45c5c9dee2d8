"""Memory that runs out, faults of kernels and code that cannot run; over a stand-in driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.cuda.device import SYNC
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.errors import (
    DeviceError,
    TargetError,
    UnsupportedError,
    VerifyError,
)
from nestwright.ir.target import Target

from .models import ADD, CHAIN, arguments, assert_right


def test_too_little_memory_is_told_with_figures(fake: Any) -> None:
    exe = fake.executable(ADD.replace("[64]", f"[{1 << 20}]"))
    fake.total = 5 << 20
    x = np.zeros(1 << 20, np.float32)
    with pytest.raises(MemoryError, match=r"Imaginary GPU has no room for y of add: it takes"):
        exe(x, x)
    fake.total = 1 << 30
    assert (exe(x, x) == 0).all()


def test_memory_that_waits_is_given_up_before_that(fake: Any) -> None:
    exe = fake.executable(ADD)
    put = exe.loaded().put  # type: ignore[attr-defined]
    big = put(np.zeros(1 << 20, np.float32))
    del big
    fake.total = fake.used + (1 << 10)
    bigger = put(np.zeros((1 << 20) - (1 << 12), np.float32))
    assert bigger.nbytes > 1 << 21


def test_a_launch_that_is_refused_names_its_kernel(fake: Any) -> None:
    exe = fake.executable(ADD)
    fake.fail("cuLaunchKernel", "LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(UnsupportedError, match=r"kernel nw_\w+ of group .* cannot be launched"):
        exe(*arguments(exe))
    args = arguments(exe)
    assert_right(exe, args, exe(*args))


def faulty(fake: Any, exe: Executable) -> str:
    """Make the last kernel fault when it runs."""
    symbol = list(kernels(exe.plan))[-1]
    words = fake.kernels[symbol].words

    def fault(*pointers: int) -> None:
        fake.fault()

    fault.words = words  # type: ignore[attr-defined]
    fake.kernels[symbol] = fault
    return symbol


def test_a_fault_names_the_kernel_and_ends_the_device(fake: Any) -> None:
    exe = fake.executable(ADD)
    args = arguments(exe)
    symbol = faulty(fake, exe)
    with pytest.raises(DeviceError, match=rf"kernel {symbol} of group .* failed.*ILLEGAL_ADDRESS"):
        exe(*args)
    with pytest.raises(DeviceError, match="cannot be used any more in this process"):
        exe(*args)
    with pytest.raises(DeviceError, match="start a new process"):
        fake.executable(ADD)(*args)


def test_of_several_kernels_the_faulty_one_is_named_on_request(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = fake.executable(CHAIN)
    args = arguments(exe)
    exe(*args)
    symbol = faulty(fake, exe)
    monkeypatch.setenv(SYNC, "1")
    program: Any = exe.loaded()
    program._recorder._known.clear()
    with pytest.raises(DeviceError, match=f"kernel {symbol} of group"):
        exe(*args)


def test_without_that_the_error_says_how(fake: Any) -> None:
    exe = fake.executable(CHAIN)
    args = arguments(exe)
    faulty(fake, exe)
    with pytest.raises(DeviceError, match=SYNC):
        exe.loaded().run(args, None)
        exe.loaded().synchronize()  # type: ignore[attr-defined]


def test_a_late_fault_tells_what_was_under_way(fake: Any) -> None:
    exe = fake.executable(ADD)
    put = [exe.put(a) for a in arguments(exe)]
    faulty(fake, exe)
    made = exe(*put)
    with pytest.raises(DeviceError, match=f"in progress: add\n.*{SYNC}=1"):
        made.numpy()


def test_ptx_that_the_driver_refuses_is_told_with_its_log(fake: Any) -> None:
    fake.log = "ptxas fatal: line 3: what is this?"
    with pytest.raises(VerifyError, match="line 3: what is this"):
        fake.executable(ADD)(*[np.zeros(64, np.float32)] * 2)


@pytest.mark.parametrize(
    ("arch", "capability", "loads"),
    [
        ("sm_90", 90, "cuModuleLoadData"),
        ("sm_90a", 90, "cuModuleLoadData"),
        ("sm_80", 86, "cuModuleLoadData"),
        ("sm_80", 90, "cuModuleLoadDataEx"),
        ("sm_90", 100, "cuModuleLoadDataEx"),
        ("sm_90a", 100, None),
        ("sm_90", 80, None),
    ],
)
def test_code_loads_where_it_can_run(fake: Any, arch: str, capability: int, loads: Any) -> None:
    exe = fake.executable(ADD)
    codes = {s: replace(c, cubin=b"cubin") for s, c in exe.bundle.kernels.items()}  # type: ignore[type-var]
    target = Target.parse(f"cuda -arch={arch}")
    other = Executable(replace(exe.bundle, target=target, kernels=codes), lambda: exe.module)
    fake.capability = capability
    if loads is None:
        with pytest.raises(TargetError, match=f"built for cuda -arch={arch}.*sm_{capability}"):
            other(*arguments(other))
    else:
        other(*arguments(other))
        first = next(n for n, _ in fake.calls if n.startswith("cuModuleLoad"))
        assert first == loads
