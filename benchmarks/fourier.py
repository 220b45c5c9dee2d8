"""Fourier transforms beside XLA's, and SciPy's where it is installed: medians in turns, and ratios.

Needs JAX. Give it a quiet machine; arguments choose rows, as they are printed::

    python benchmarks/fourier.py
    python benchmarks/fourier.py fft:64x256 irfft:1x65536
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import medians, show_seconds

import nestwright as nw

BATCHES = {
    "fft": "1x1024 8x400 64x256 1000x400 1024x1024 256x4096 20000x8 1x65536 1x1048576",
    "rfft": "1x1024 64x256 1000x400 1024x1024 64x16000 1x65536",
    "irfft": "1x1024 64x256 1000x400 1024x1024 64x16000 1x65536",
    "fft2": "8x256x256 1x1024x1024",
    "rfft2": "8x224x224 64x28x28",
}
"""Batches and lengths by function of ``jnp.fft``."""


def argument(kind: str, dims: tuple[int, ...]) -> Any:
    """Return normally distributed numbers: of ``irfft`` half a spectrum for the last length."""
    rng = np.random.default_rng(0)
    if kind.startswith("r"):
        return rng.standard_normal(dims, np.float32)
    shape = (*dims[:-1], dims[-1] // 2 + 1) if kind == "irfft" else dims
    re, im = rng.standard_normal((2, *shape), np.float32)
    return re + 1j * im


def row(kind: str, size: str) -> str:
    """Measure one transform; ``AssertionError`` if two disagree."""
    dims = tuple(map(int, size.split("x")))
    x = argument(kind, dims)
    named = {"n": dims[-1]} if kind == "irfft" else {}
    jitted = jax.jit(lambda a: getattr(jnp.fft, kind)(a, **named))
    exe, there = nw.build(jitted.lower(x), cache=False), jnp.asarray(x)
    calls: dict[str, Callable[[], Any]] = {
        "nestwright": lambda: exe(x),
        "XLA": lambda: jitted(there).block_until_ready(),
    }
    try:
        from scipy import fft
    except ImportError:
        pass
    else:
        calls["SciPy"] = lambda: getattr(fft, kind)(x, workers=2, **named)
    wanted = np.asarray(jitted(there))
    np.testing.assert_allclose(exe(x), wanted, atol=1e-5 * float(np.abs(wanted).max()))
    times = medians(calls)
    own = times.pop("nestwright")
    others = [f"{name} {show_seconds(s):>8} {s / own:5.2f}" for name, s in times.items()]
    return f"{kind + ':' + size:20} {show_seconds(own):>8}  " + "  ".join(others)


def main() -> None:
    """Print a row for each transform: our time, then theirs with theirs / ours."""
    rows = [(kind, size) for kind, sizes in BATCHES.items() for size in sizes.split()]
    wanted = sys.argv[1:] or [f"{kind}:{size}" for kind, size in rows]
    for name in wanted:
        kind, _, size = name.partition(":")
        print(row(kind, size), flush=True)


if __name__ == "__main__":
    main()
