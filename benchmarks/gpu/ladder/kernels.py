"""Rungs of single kernels: loaded both ways, with many threads, shuffles, much shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .machine import drawn
from .rung import Array, Skipped, expect, expect_equal, expect_near
from .site import Ground, Site

FREE_SHARED = 48 << 10  # bytes of shared memory that a kernel has without asking
SUMS = 1e-5  # relative error of sums of f32 in any order


def cubin(site: Site) -> str:
    """Run an element-wise kernel from machine code."""
    for size in site.sizes:
        if not all(code.cubin for code in site.codes(size)):
            raise Skipped("there was no ptxas where this was built: it holds no machine code")
        _elementwise(site, size)
    if site.ground is not Ground.SIMULATOR:
        with site.counted() as counts:
            _loaded_anew(site, site.built[site.sizes[0]])
        expect(counts["cuModuleLoadData"], "the machine code was not loaded")
        expect(
            not counts["cuModuleLoadDataEx"],
            "the driver refused the machine code, and the PTX was taken instead",
        )
    return f"{len(site.codes(site.sizes[0])[0].cubin)} bytes of machine code"


def jit(site: Site) -> str:
    """Run the same kernel without its machine code: the driver compiles the PTX."""
    from nestwright.codegen.runtime.executable import Executable

    for size in site.sizes:
        exe = site.built[size]
        codes = {s: replace(code, cubin=b"") for s, code in exe.bundle.kernels.items()}
        site.built[size] = Executable(replace(exe.bundle, kernels=codes))
        _elementwise(site, size)
    if site.ground is not Ground.SIMULATOR:
        with site.counted() as counts:
            _loaded_anew(site, site.built[site.sizes[0]])
        expect(counts["cuModuleLoadDataEx"], "the PTX was not handed to the driver")
    ptx = site.codes(site.sizes[0])[0].ptx
    stated = next(line for line in ptx.splitlines() if line.startswith(".version"))
    return f"PTX {stated.split()[1]}"


def _loaded_anew(site: Site, exe: Any) -> None:
    from nestwright.codegen.runtime.cuda.kernels import load_all

    load_all(exe.bundle.kernels, exe.bundle.target, site.device, exe.name)


def threads(site: Site) -> str:
    """As many threads as elements in one launch."""
    told = ""
    for size in site.sizes:
        _elementwise(site, size)
        (launch,) = site.launches(size)
        count = launch.threads * launch.grid[0] * launch.grid[1] * launch.grid[2]
        expect(site.dry or count >= 1 << 20, f"only {count} threads")
        told = f"{count} threads in {launch.grid[0]} blocks"
    return told


def _elementwise(site: Site, size: int) -> None:
    rng = np.random.default_rng(size)
    x, y = (rng.integers(-99, 100, size).astype(np.float32) for _ in "xy")
    expect_equal(site.call(size, x, y), x * y + x, f"x * y + x of {size} elements")


def reduction(site: Site) -> str:
    """Sums over threads, of rows and of everything: of integers, which are right in any order."""
    for size in site.sizes:
        expect(any("shfl" in code.ptx for code in site.codes(size)), "no kernel has a shuffle")
        x = np.random.default_rng(size).integers(-9, 10, (33, size)).astype(np.float32)
        rows, total = site.call(size, x)
        expect_equal(rows, x.sum(1), f"sums of rows of {size}")
        expect_equal(np.asarray(total), np.asarray(x.sum()), f"the sum of 33 x {size}")
    return f"exact for rows of {', '.join(map(str, site.sizes))}"


def shared(site: Site) -> str:
    """Softmax of rows that are held in more shared memory than a kernel has without asking."""
    told = []
    for size in site.sizes:
        most = max(launch.shared_bytes for launch in site.launches(size))
        expect(most > FREE_SHARED, f"no kernel takes more than {most} bytes of shared memory")
        x = drawn(np.random.default_rng(size), 140, size)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        want: Array = e / e.sum(1, keepdims=True)
        error = expect_near(site.call(size, x), want, SUMS, f"softmax of rows of {size}")
        told.append(f"{most >> 10} KiB: error {error:.1e}")
    return ", ".join(told)
