"""Rungs below all kernels: the driver and its versions, memory and copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .rung import Array, expect, expect_equal
from .site import Site

PACKAGES = ("numpy", "llvmlite", "ml-dtypes", "cuda-bindings", "torch", "cupy", "jax", "triton")
FILL = 0xA5  # of device memory before a copy
AROUND = 512  # bytes before and after a copy's target that must stay as they are
TIMED = 1 << 24  # bytes from which a copy's speed says something


def driver(site: Site) -> str:
    """Report all versions that matter: device, driver, assembler and packages."""
    from nestwright.codegen.targets.cuda import ptxas

    gpu, call = site.device, site.device.driver.call
    handle = call("cuDeviceGet", 0)
    told = call("cuDriverGetVersion")
    constant = gpu.driver.constant
    count = constant("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT")
    with gpu:
        free, total = call("cuMemGetInfo")
    assembler = ptxas.find()
    found: dict[str, Any] = {
        "device": gpu.name,
        "capability": gpu.capability,
        "multiprocessors": int(call("cuDeviceGetAttribute", count, handle)),
        "memory_bytes": total,
        "free_bytes": free,
        "l2_bytes": gpu.l2,
        "cuda": f"{told // 1000}.{told % 1000 // 10}",
        "driver": _kernel_module(),
        "ptxas": assembler.version if assembler else "none",
        "packages": {name: _version(name) for name in PACKAGES},
    }
    site.numbers.update(found)
    expect(free <= total, f"{free} bytes free of {total}")
    here = ", ".join(f"{n} {v}" for n, v in found["packages"].items() if v)
    return (
        f"{gpu.name}, sm_{gpu.capability}, {found['multiprocessors']} SMs, {total >> 20} MiB, "
        f"driver {found['driver'] or '?'} (CUDA {found['cuda']}), ptxas {found['ptxas']}; {here}"
    )


def _version(package: str) -> str:
    for name in (package, f"{package}-cuda13x", f"{package}-cuda12x"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _kernel_module() -> str:
    """Return the driver's own version, as its kernel module tells it."""
    try:
        with open("/sys/module/nvidia/version") as file:
            return file.read().strip()
    except OSError:
        return ""


def copies(site: Site) -> str:
    """Bytes up, on the device and down again, of odd sizes and at odd places."""
    from nestwright.codegen.runtime.cuda.program import staging

    gpu, speeds = site.device, {}
    rng = np.random.default_rng(0)
    for size in site.sizes:
        data = rng.integers(0, 256, size, dtype=np.uint8)
        for shift in (0, 1):
            up, over, down = _round(gpu, staging(gpu), data, shift)
            if size >= TIMED:
                moved = {"up": (size, up), "over": (2 * size, over), "down": (size, down)}
                speeds = {n: b / max(s, 1e-9) / 1e9 for n, (b, s) in moved.items()}
    site.numbers["gigabytes_per_second"] = speeds
    shown = "".join(f"; {n} {v:.3g} GB/s" for n, v in speeds.items())
    return f"{len(site.sizes)} sizes to {max(site.sizes)} bytes{shown}"


def _round(gpu: Any, pieces: Any, data: Array, shift: int) -> tuple[float, float, float]:
    """Seconds of copies up, across and down of bytes, which must arrive, and nothing around them
    change."""
    whole = np.empty(data.size + 2 * AROUND, np.uint8)
    first, second = (_filled(gpu, whole.size) for _ in range(2))
    start, end = AROUND + shift, AROUND + shift + data.size
    up = _seconds(gpu, lambda: pieces.upload(data, first.address + start))
    over = _seconds(gpu, lambda: _across(gpu, second, first, whole.size))
    down = _seconds(gpu, lambda: pieces.download(second.address, whole))
    what = f"{data.size} bytes to {shift} past an aligned place"
    expect_equal(whole[start:end], data, what)
    outside = np.delete(whole, np.s_[start:end])
    expect_equal(outside, np.full_like(outside, FILL), f"around {what}")
    return up, over, down


def _filled(gpu: Any, size: int) -> Any:
    memory = gpu.allocate(size, "a copy")
    with gpu:
        gpu.driver.call("cuMemsetD8Async", memory.address, FILL, size, gpu.stream)
    return memory


def _across(gpu: Any, target: Any, source: Any, size: int) -> None:
    gpu.driver.call("cuMemcpyDtoDAsync", target.address, source.address, size, gpu.stream)


def _seconds(gpu: Any, action: Callable[[], object]) -> float:
    """Return the host's time for an action on the device, its end included."""
    with gpu:
        gpu.synchronize()
        start = time.perf_counter()
        action()
        gpu.synchronize()
        return time.perf_counter() - start


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers of f32."""
    return rng.standard_normal(shape, dtype=np.float32)
