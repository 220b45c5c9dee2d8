"""The environment of a rung: a GPU, or in a dry run a stub of the driver or the simulator."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from . import programs, stub
from .rung import Needs, Program, Rung, Skipped, Wrong
from .stub import Made

GPU_ALONE = Made(None, "it was not asked for")


class Ground(Enum):
    """The layer that runs kernels."""

    GPU = "gpu"
    STUB = "stub"
    SIMULATOR = "simulator"


@dataclass
class Site:
    """A rung's environment: its built programs, the device, and the numbers that it measured.

    ``dry`` means that there is no GPU; ``stub`` then replaces the driver.
    """

    rung: Rung
    dry: bool
    arch: str = "sm_90"
    prebuilt: Path | None = None
    stub: Made = GPU_ALONE
    built: dict[int, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    _simulated: dict[int, Any] = field(default_factory=dict)

    @property
    def ground(self) -> Ground:
        """In a dry run the stub, if it can be had."""
        if not self.dry:
            return Ground.GPU
        return Ground.SIMULATOR if self.stub.file is None else Ground.STUB

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that the row has for this ground."""
        return self.rung.dry if self.dry else self.rung.sizes

    def prepare(self) -> None:
        """Everything that needs no GPU: imports and builds. ``Skipped`` where it is of no use."""
        why = self._lacks()
        if why:
            raise Skipped(why)
        if self.stub.file is not None:
            stub.preload(self.stub.file)
        for size, program in self.rung.programs(self.dry).items():
            self.built[size] = self._executable(program)
            if self.ground is Ground.SIMULATOR or (self.dry and program.choices):
                self._simulated[size] = programs.build(program, f"cuda-sim -arch={self.arch}")
            elif self.ground is Ground.STUB:
                stub.put_behind(self.built[size])

    def _lacks(self) -> str:
        if self.dry and self.rung.needs is Needs.GPU:
            return "a dry run has no GPU"
        if self.ground is Ground.SIMULATOR and self.rung.needs is Needs.DRIVER:
            return f"a dry run needs a stub of the driver for this: {self.stub.why}"
        return ""

    def _executable(self, program: Program) -> Any:
        spec = f"cuda -arch={self.arch}"
        found = self.prebuilt and programs.load(program, spec, self.prebuilt)
        if self.prebuilt and not found:
            self.numbers.setdefault("not_prebuilt", []).append(program.name)
        return found or programs.build(program, spec)

    def open(self) -> None:
        """Meet the device. ``TargetError`` where there is none."""
        if self.ground is not Ground.SIMULATOR:
            _ = self.device

    def close(self) -> None:
        """``Wrong`` if the stub has seen what a correct program never does."""
        found = stub.reports() if self.ground is Ground.STUB and not self.rung.ends else []
        if found:
            raise Wrong(f"the stub reports: {found[0]}\n" + "\n".join(found[1:]))

    @property
    def device(self) -> Any:
        """The runtime's device."""
        from nestwright.codegen.runtime.cuda.device import device

        return device()

    def call(self, size: int, *args: Any) -> Any:
        """Run the program of this size on NumPy arrays."""
        return self._simulated.get(size, self.built[size])(*args)

    def codes(self, size: int) -> list[Any]:
        """Return the code of each kernel of the program of this size, as it is for the GPU."""
        return list(self.built[size].bundle.kernels.values())

    def launches(self, size: int) -> list[Any]:
        """Return all launches of these."""
        return [launch for code in self.codes(size) for launch in code.launches]

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the calls of each driver function within the block."""
        driver, counts = self.device.driver, Counter[str]()
        plain = driver.call

        def call(function: str, *args: object) -> Any:
            counts[function] += 1
            return plain(function, *args)

        driver.call = call
        try:
            yield counts
        finally:
            del driver.call


def quiet() -> None:
    """Settings of the process that rungs rely on."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["NESTWRIGHT_CACHE"] = "off"
