"""How a driver can be unfit: not loadable, too old, without a device, refusing what it gets."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from gpu.stub.control import Stub
from gpu.stub.library import build, compiler, damaged, environment
from gpu.stub.models import assert_right, prepared

from nestwright.ir.errors import NestwrightError, TargetError, UnsupportedError, VerifyError

CALL = """
import nestwright as nw
from nestwright.codegen.driver.build import build
from nestwright.ir.hlo.text import parse
from nestwright.ir.errors import TargetError
exe = build(parse('HloModule m\\nENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }'),
            "cuda -arch=sm_90")
try:
    exe(*exe.random_arguments(0))
    print("it works")
except TargetError as error:
    print(error)
"""


def prepare() -> None:
    for name in "chain", "split":
        prepared(name)


def _told(folder: Path) -> str:
    """What a user sees whose driver is that of a folder."""
    if compiler() is None:
        pytest.skip("no C compiler here: cc, gcc or clang")
    pytest.importorskip("cuda.bindings.driver")
    made = {**environment(folder), "NESTWRIGHT_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", CALL], env=made, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_library_that_cannot_be_loaded_is_no_driver(tmp_path: Path) -> None:
    damaged(tmp_path)
    assert "no NVIDIA GPU can be used here" in _told(tmp_path)


def test_a_library_without_the_newer_lookup(tmp_path: Path) -> None:
    """Some releases of cuda-python look up each function by itself, others give up."""
    if compiler() is not None:
        build(tmp_path, without=["cuGetProcAddress_v2"])
    told = _told(tmp_path)
    assert told == "it works" or "no NVIDIA GPU can be used here" in told


def assert_runs(stub: Stub, name: str = "chain", **changes: Any) -> list[str]:
    """The model is right, called three times; what the user was warned of."""
    model = prepared(name)
    exe, args = model.over(stub, **changes), model.arguments()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_right(model.module, args, exe(*args))
    return [str(w.message) for w in warned]


@pytest.mark.parametrize("status", [200, 209, 218, 222, 300, 801])
def test_machine_code_that_is_refused_is_compiled_from_ptx(stub: Stub, status: int) -> None:
    stub.fail("cuModuleLoadData", status, times=100)
    told = assert_runs(stub, cubin=b"of another release")
    assert stub.log("cuModuleLoadDataEx")
    assert status == 209 or any("PTX" in text for text in told), told


def test_machine_code_that_is_damaged_is_compiled_from_ptx(stub: Stub) -> None:
    assert_runs(stub, cubin=b"\x7fELF" + bytes(60))
    assert {call.status for call in stub.log("cuModuleLoadData")} == {200}


def test_ptx_that_is_refused_is_told_with_the_compilers_words(stub: Stub) -> None:
    stub.fail("cuModuleLoadDataEx", 218)
    stub.refusal("ptxas fatal : planted at line 7")
    model = prepared("chain")
    exe = model.over(stub, cubin=b"")
    with pytest.raises(VerifyError, match="planted at line 7"):
        exe(*model.arguments())
    assert_right(model.module, model.arguments(), exe(*model.arguments()))


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_a_machine_without_a_device(stub: Stub, function: str) -> None:
    stub.fail(function, 100, times=100)
    model = prepared("chain")
    with pytest.raises(TargetError, match="NO_DEVICE"):
        model.over(stub)(*model.arguments())
    stub.heal()
    assert_runs(stub)


@pytest.mark.parametrize("function", ["cuInit", "cuMemAlloc", "cuLaunchKernel", "cuCtxPushCurrent"])
def test_a_function_that_the_driver_lacks_is_named(stub: Stub, function: str) -> None:
    stub.hide(function)
    model = prepared("chain")
    with pytest.raises(NestwrightError, match=function):
        model.over(stub)(*model.arguments())


def test_more_shared_memory_than_there_is_is_told(stub: Stub) -> None:
    model = prepared("chain")
    with pytest.raises(UnsupportedError, match="shared memory"):
        model.over(stub, shared=228 << 10)(*model.arguments())


def test_static_and_dynamic_shared_memory_count_together(stub: Stub) -> None:
    (code,) = prepared("split").bundle.kernels.values()
    assert ".shared" in code.ptx  # type: ignore[union-attr]
    assert_runs(stub, "split", shared=48 << 10)
