"""The simulator's kernels behind the launches of a model that was built for an NVIDIA GPU.

A group of several launches runs one launch at a time, each when the stand-in's stream comes to it.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.runtime.sim.process import watching
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

from .control import Launched, Stub

TARGET = "cuda -arch=sm_90"
RANK = 8  # extents and strides of a strided copy
WIDTHS = (1, 2, 4, 8)


def simulated(stub: Stub | None, model: HloModule | str, target: str = TARGET) -> Executable:
    """Return a model built for a GPU; over the stand-in its kernels are run by the simulator."""
    module = parse(model) if isinstance(model, str) else model
    made = build(module, target)
    prepared = Kernels(made, module)
    if stub is not None:
        prepared.attach(stub)
    return made


class Kernels:
    """The simulator's code of each launch of an executable that was built for a GPU.

    To compile it is the slow part, so that it can be done before a process forks.
    """

    def __init__(self, made: Executable, module: HloModule | None = None) -> None:
        spec = made.bundle.target.spec.replace("cuda", "cuda-sim", 1)
        options = replace(BuildOptions.of(spec), excess_precision=made.bundle.excess_precision)
        twin = build(module or made.module, options)
        self.library: Any = twin.loaded().library  # type: ignore[attr-defined]
        self.launches: dict[str, tuple[int, int]] = {}
        for symbol, thunk in kernels(made.plan).items():
            for number, launch in enumerate(made.bundle.kernels[symbol].launches):  # type: ignore[union-attr]
                described = self.library.address(f"{symbol}.launch{number}")
                self.launches[launch.symbol] = described, len(thunk.args)
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
            self.library.address("nw_sim_launch")
        )

    def attach(self, stub: Stub) -> None:
        """Put the code behind the launches."""
        for symbol, (_, count) in self.launches.items():
            stub.kernel(symbol, self.run, (1 << count) - 1)
        for width in WIDTHS:
            stub.kernel(f"nw_gather_{width}", gather, 0b11)

    def run(self, launch: Launched) -> None:
        """Run one launch. ``SimulationError`` if it does something undefined."""
        described, count = self.launches[launch.name]
        if len(launch.words) != count:
            raise ValueError(f"{launch.name} takes {count} addresses, not {len(launch.words)}")
        words = (ctypes.c_uint64 * max(1, count))(*launch.words)
        with watching(self.library):
            self._run(described, ctypes.addressof(words))


def gather(launch: Launched) -> None:
    """The runtime's kernel for strided arrays, written in PTX there: element by element."""
    target, source, count, *rest = launch.words
    width = int(launch.name.rpartition("_")[2])
    if launch.grid[0] * launch.block[0] < count:
        raise ValueError(f"{launch.name} has {count} elements and too few threads")
    extents, strides = rest[:RANK], np.array(rest[RANK:], np.uint64).astype(np.int64)
    places = np.zeros((), np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        places = places[..., None] + np.arange(extent, dtype=np.int64) * stride
    for number, place in enumerate(places.reshape(-1)[:count].tolist()):
        ctypes.memmove(target + number * width, source + place * width, width)
