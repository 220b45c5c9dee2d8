"""Rungs of tensor cores: cp.async, ldmatrix and mma by type, the large tile, split depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .rung import Array, expect, expect_equal, expect_near
from .site import Site

PARTS = ("cp.async", "ldmatrix", "mma.sync")
LARGE_SHARED = 192 << 10  # bytes of shared memory that four stages of the large tile take
ROUNDED = {"f16": 2e-5, "bf16": 2e-5, "tf32": 5e-3, "s8": 0.0}
"""Errors of sums over normal numbers: operands are exact but for tf32, whose mantissa is cut."""


def mma(kind: str) -> Callable[[Site], str]:
    """Return the rung of one operand type: squares, exact on small integers, near on normal
    numbers.
    """

    def run(site: Site) -> str:
        worst = 0.0
        for n in site.sizes:
            worst = max(worst, product(site, n, kind, n, n, n))
        sizes = ", ".join(map(str, site.sizes))
        return f"exact on integers at {sizes}; error {worst:.1e}"

    return run


def large_tile(site: Site) -> str:
    """bf16 by the kernel of 256 x 128 x 64 whose four stages take nearly all shared memory."""
    (n,) = site.sizes
    (launch,) = site.launches(n)
    expect(launch.shared_bytes == LARGE_SHARED, f"it takes {launch.shared_bytes} bytes, not 192 K")
    error = product(site, n, "bf16", n, n, n)
    return f"{launch.grid[0]} blocks of {launch.threads} threads, 192 KiB; error {error:.1e}"


def split_k(site: Site) -> str:
    """Run a product so deep and small that its depth is split among blocks and summed
    afterwards.
    """
    told = []
    for depth in site.sizes:
        _, parts, batch = site.launches(depth)[0].grid  # another launch adds up a batch of parts
        parts = max(parts, batch)
        expect(parts > 1, f"the depth of {depth} is not split")
        error = product(site, depth, "f16", 64, 64, depth)
        told.append(f"{depth} in {parts} parts: error {error:.1e}")
    return ", ".join(told)


def product(site: Site, size: int, kind: str, m: int, n: int, depth: int) -> float:
    """Check a product twice; the relative error of the second, which is on normal numbers."""
    ptx = "".join(code.ptx for code in site.codes(size))
    lacking = [part for part in PARTS if part not in ptx]
    expect(not lacking, f"the kernel for {size} has no {', '.join(lacking)}")
    rng = np.random.default_rng(depth)
    what = f"{kind} {m} x {n} x {depth}"
    small = [rng.integers(-8, 9, s).astype(_numpy(kind)) for s in ((m, depth), (depth, n))]
    expect_equal(site.call(size, *small), _right(kind, *small), f"{what}, integers")
    if kind == "s8":
        full = [rng.integers(-128, 128, s).astype(np.int8) for s in ((m, depth), (depth, n))]
        expect_equal(site.call(size, *full), _right(kind, *full), f"{what}, all values")
        return 0.0
    wide = [rng.standard_normal(s).astype(_numpy(kind)) for s in ((m, depth), (depth, n))]
    made = site.call(size, *wide)
    return expect_near(made, _right(kind, *wide), ROUNDED[kind], f"{what}, normal numbers")


def _right(kind: str, a: Array, b: Array) -> Array:
    """Return the product in f64, in which sums of such integers are exact, too."""
    right: Array = a.astype(np.float64) @ b.astype(np.float64)
    return right.astype(np.int32) if kind == "s8" else right


def _numpy(kind: str) -> np.dtype[Any]:
    if kind == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f16": "float16", "tf32": "float32", "s8": "int8"}[kind])
