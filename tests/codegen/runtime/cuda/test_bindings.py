"""The calls of the runtime, made as the real bindings take them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.runtime.executable import Executable

from .models import ADD, CHAIN, COUNT, Foreign, aligned, arguments


def test_the_bindings_take_what_they_are_given(fake: Any) -> None:
    """Every call that the stand-in saw, made to the real functions: without a driver they convert
    their arguments, then say that there is none."""
    api = pytest.importorskip("cuda.bindings.driver")
    try:
        api.cuInit(0)
    except RuntimeError:
        pass
    else:
        pytest.skip("there is a driver here, which must not be called like this")
    for text in (CHAIN, COUNT):
        exe = fake.executable(text, shared_bytes=64 << 10)
        for _ in range(3):
            exe(*arguments(exe))
        exe.profile(*arguments(exe))
        exe(*map(exe.loaded().put, arguments(exe)))  # type: ignore[attr-defined]
    put = exe.loaded().put(np.zeros(4, np.float32))  # type: ignore[attr-defined]
    put.__dlpack__(stream=2)
    del exe, put
    program = fake.executable(ADD)
    codes = {s: replace(c, cubin=b"x") for s, c in program.bundle.kernels.items()}  # type: ignore[type-var]
    again = Executable(replace(program.bundle, kernels=codes), lambda: program.module)
    again(*map(Foreign, map(aligned, arguments(again))))
    again.loaded().device.release_kept()  # type: ignore[attr-defined]
    fake.total = 0
    with pytest.raises(MemoryError):
        again.loaded().put(np.zeros(1 << 20))  # type: ignore[attr-defined]
    seen: dict[str, tuple[Any, ...]] = dict(fake.calls)
    assert len(seen) > 30
    for name, args in seen.items():
        with pytest.raises(RuntimeError, match="driver"):
            getattr(api, name)(*(as_real(api, name, i, a) for i, a in enumerate(args)))
    for kind, names in CONSTANTS.items():
        assert all(hasattr(getattr(api, kind), n) for n in names)


CONSTANTS = {
    "CUdevice_attribute": [
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE",
        "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
    ],
    "CUjit_option": ["CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"],
    "CUfunction_attribute": ["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"],
    "CUstreamCaptureMode": ["CU_STREAM_CAPTURE_MODE_RELAXED"],
}
HANDLES = {
    "cuStreamQuery": ("CUstream",),
    "cuEventRecord": ("CUevent", "CUstream"),
    "cuEventQuery": ("CUevent",),
    "cuEventDestroy": ("CUevent",),
    "cuEventElapsedTime": ("CUevent", "CUevent"),
    "cuStreamWaitEvent": ("CUstream", "CUevent"),
    "cuCtxPushCurrent": ("CUcontext",),
    "cuModuleGetFunction": ("CUmodule",),
    "cuModuleUnload": ("CUmodule",),
    "cuFuncSetAttribute": ("CUfunction",),
    "cuStreamBeginCapture": ("CUstream",),
    "cuStreamEndCapture": ("CUstream",),
    "cuGraphInstantiate": ("CUgraph",),
    "cuGraphDestroy": ("CUgraph",),
    "cuGraphLaunch": ("CUgraphExec", "CUstream"),
    "cuGraphExecDestroy": ("CUgraphExec",),
    "cuLaunchKernel": ("CUfunction",),
}


def as_real(api: Any, name: str, index: int, value: Any) -> Any:
    """A recorded argument as the real function would have got it."""
    if isinstance(value, str):
        for kind in CONSTANTS:
            if value.startswith("CU_") and hasattr(getattr(api, kind), value):
                return getattr(getattr(api, kind), value)
    if name == "cuGetErrorString":
        return api.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    if name == "cuModuleLoadDataEx" and index == 2:
        return [as_real(api, name, index, v) for v in value]
    kinds = HANDLES.get(name, ())
    kind = kinds[index] if index < len(kinds) else ""
    if isinstance(value, int) and kind in ("", "CUstream"):
        return value  # other libraries name their streams by numbers
    if isinstance(value, bytes | list) and not kind:
        return value
    return getattr(api, kind or "CUstream")(1)
