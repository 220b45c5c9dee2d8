"""Rungs of what came with sm_90: mbarriers, bulk copies, stmatrix, products of warp groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from . import programs
from .probes import Probe
from .rung import Skipped, expect, expect_equal
from .site import Ground, Site

TIMES = 20  # calls of a probe on a GPU: an order that is only likely shows
SEEDS = 3  # and in the simulator
SHAPES, DRY_SHAPES = ((128, 128, 256), (200, 136, 328), (1000, 2056, 4096)), ((136, 72, 200),)
PARTS = ("wgmma.mma_async", "cp.async.bulk.tensor", "mbarrier", "stmatrix")


def probe(one: Probe) -> Callable[[Site], str]:
    """Return the rung of a kernel of one mechanism: the same numbers as NumPy, each time."""

    def run(site: Site) -> str:
        from nestwright.codegen.driver.kernel import Kernel, compile_flat
        from nestwright.ir.loop.parser import parse
        from nestwright.ir.target import Target

        arch = _arch(site, one.asks)
        kind = "cuda" if site.ground is Ground.GPU else "cuda-sim"
        kernel = Kernel(compile_flat(parse(one.text), Target.parse(f"{kind} -arch={arch}")))
        if kind != "cuda":
            compile_flat(parse(one.text), Target.parse(f"cuda -arch={arch}"))
        count = TIMES if kind == "cuda" else SEEDS
        for seed in range(count):
            inputs = one.inputs(np.random.default_rng(seed))
            with _order_of_threads(seed):
                got = np.asarray(kernel(*inputs))
            expect_equal(got, one.right(*inputs), f"{', '.join(one.asks)}, call {seed + 1}")
        return f"right {count} times on {arch}"

    return run


def group_product(site: Site) -> str:
    """Run a whole product: all of these mechanisms in one kernel, with tails."""
    arch = _arch(site, ("wgmma_wait", "tma_load", "stmatrix.x4"))
    kind = "cuda" if site.ground is Ground.GPU else "cuda-sim"
    for m, n, k in DRY_SHAPES if site.dry else SHAPES:
        program = programs.rounded_product(m, n, k)
        built = programs.build(program, f"cuda -arch={arch}")
        ptx = "".join(code.ptx for code in built.bundle.kernels.values())
        lacking = [part for part in PARTS if part not in ptx]
        expect(not lacking, f"the kernel of {m} x {n} x {k} has no {', '.join(lacking)}")
        exe = built if kind == "cuda" else programs.build(program, f"{kind} -arch={arch}")
        rng = np.random.default_rng(m)
        a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (k, n)))
        want = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        expect_equal(np.asarray(exe(a, b)), want, f"{m} x {n} x {k}")
    return f"exact on integers, tails included, on {arch}"


@contextmanager
def _order_of_threads(seed: int) -> Iterator[None]:
    """Have the simulator run threads in the order of a seed."""
    from nestwright.codegen.runtime.sim.process import SEED

    before = os.environ.get(SEED)
    os.environ[SEED] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED]
        else:
            os.environ[SEED] = before


def _arch(site: Site, asks: tuple[str, ...]) -> str:
    """Return the architecture to build for, by its own features where it has such; ``Skipped``
    where it lacks an intrinsic.
    """
    from nestwright.ir.gpus import GPUS, best_arch
    from nestwright.ir.loop.intrinsics import TABLE

    own = f"{site.arch}a"
    arch = own if own in GPUS else site.arch
    if site.ground is Ground.GPU:
        arch = best_arch(site.device.capability)
    lacking = [name for name in asks if arch not in GPUS or not TABLE[name].on(GPUS[arch])]
    if lacking:
        raise Skipped(f"{arch or 'this processor'} has no {', '.join(lacking)}")
    return arch
