"""Executables whose kernels are simulated: native code with a check for faults after every run."""

from __future__ import annotations

from collections.abc import Sequence

from ...plan.bundle import Bundle
from ...plan.function import CompiledFunc
from ..function import NativeFunc
from ..native import Native
from .process import watching


def load(bundle: Bundle) -> Simulated:
    """Load a bundle for a simulated GPU."""
    return Simulated(bundle)


class Simulated(Native):
    """A bundle's simulated code, loaded. Runs come one after the other."""

    @property
    def _is_direct(self) -> bool:
        return False

    def run_at(self, params: Sequence[int], results: Sequence[int]) -> None:
        """Run as ``Native.run_at``; ``SimulationError`` if the run did something undefined."""
        with watching(self.library):
            super().run_at(params, results)


def load_function(compiled: CompiledFunc) -> SimulatedFunc:
    """Load a function for a simulated GPU."""
    return SimulatedFunc.load(compiled)


class SimulatedFunc(NativeFunc):
    """A simulated function on its own, loaded. Runs come one after the other."""

    def execute(self, bound: Sequence[int], workspace: int) -> None:
        """Run as ``NativeFunc.execute``; ``SimulationError`` if the run did something undefined."""
        with watching(self.library):
            super().execute(bound, workspace)
