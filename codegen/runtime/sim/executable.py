"""Executables whose kernels are simulated: native code with a check for faults after every run."""

from __future__ import annotations

from collections.abc import Sequence

from ...plan.bundle import Bundle
from ...plan.function import CompiledFunc
from ...plan.loaded import ThunkTime
from ..native import Native, NativeFunc
from .process import watching


def load(bundle: Bundle) -> Simulated:
    """Load a bundle for a simulated GPU."""
    return Simulated(bundle)


class Simulated(Native):
    """A bundle's simulated code, loaded. Runs come one after the other."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.call = self._slow

    def run_at(self, params: Sequence[int], results: Sequence[int]) -> None:
        """Run as ``Native.run_at``; ``SimulationError`` if the run did something undefined."""
        with watching(self.library):
            super().run_at(params, results)

    def profile(self, args: Sequence[object], rounds: int) -> tuple[ThunkTime, ...]:
        """Profile as ``Native.profile``; ``SimulationError`` if a run did something undefined."""
        with watching(self.library):
            return super().profile(args, rounds)


def load_function(compiled: CompiledFunc) -> SimulatedFunc:
    """Load a function for a simulated GPU."""
    return SimulatedFunc.load(compiled)


class SimulatedFunc(NativeFunc):
    """A simulated function on its own, loaded. Runs come one after the other."""

    def execute(self, bound: Sequence[int], workspace: int) -> None:
        """Run as ``NativeFunc.execute``; ``SimulationError`` if the run did something undefined."""
        with watching(self.library):
            super().execute(bound, workspace)
