"""A cluster of a graph: compiled at its first call, with the weights that it is called with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from threading import RLock
from typing import Any

from ...autotune.lowered import lower
from ...autotune.recompile import told_if_long
from ...codegen.plan.counters import count
from ...codegen.runtime.executable import Executable
from ...ir.errors import LimitError, NestwrightWarning, UnsupportedError
from ...ir.frontends.torch.dtypes import as_array
from ...ir.hlo.nodes import HloModule
from .border import Call, border, guarded, or_eager, without
from .layouts import Order, laid_out, order_of
from .openmp import undisturbed
from .settings import Settings

REBUILDS = 2  # after this many, weights that change are passed with every call


class CompiledCluster:
    """A graph module of operators that compile, as a function of tensors.

    ``static`` are the numbers of its inputs that are weights. They are compiled in as constants by
    the first call, if the settings say so. A call with other weights, or after they were written,
    compiles it again, and those that differed are passed from then on. ``checked`` modules have a
    truth value as the last result: a call for which it is false is torch's, which raises its error.
    """

    def __init__(
        self,
        gm: Any,
        module: HloModule,
        static: frozenset[int],
        settings: Settings,
        checked: bool,
    ) -> None:
        self.gm = gm
        self._inputs = [n.meta.get("val") for n in gm.graph.find_nodes(op="placeholder")]
        self._checked = checked
        self._orders = [_order(t, i in static) for i, t in enumerate(self._inputs)]
        results = gm.graph.output_node().args[0]
        self.module, self._results = laid_out(module, self._orders, results, checked)
        self.executable: Executable | None = None
        self._settings = settings
        self._static = static if settings.freeze else frozenset[int]()
        self._frozen: dict[int, tuple[int, int, int]] = {}
        self._rebuilds = 0
        self._building = RLock()
        self._call: Call = self._first

    def function(self) -> Call:
        """Return a plain function that runs it, as a graph can call."""

        def cluster(*args: Any) -> Any:
            return self._call(*args)

        return cluster

    @property
    def nbytes(self) -> int:
        """Bytes of its code, weights and intermediate values; 0 until it is compiled."""
        if self.executable is None:
            return 0
        took = self.executable.memory_analysis()
        return sum(took[f"{kind}_size_in_bytes"] for kind in ("generated_code", "constant", "temp"))

    def _first(self, *args: Any) -> Any:
        with self._building:
            if self._call == self._first:
                weights = {i: args[i] for i in self._static if not args[i].is_inference()}
                self._build(weights)
        return self._call(*args)

    def _changed(self, *args: Any) -> Any:
        """Compile again without the weights that differ in this call."""
        with self._building:
            same = {i: args[i] for i, was in self._frozen.items() if _state(args[i]) == was}
            if len(same) < len(self._frozen):
                self._rebuilds += 1
                self._build(same if self._rebuilds < REBUILDS else {})
        return self._call(*args)

    def _build(self, weights: Mapping[int, Any]) -> None:
        try:
            with told_if_long(f"compiling {self.module.name} for torch"):
                exe = self._compiled(weights)
        except (UnsupportedError, LimitError) as error:
            told = f"{self.module.name} runs in eager mode: {error}"
            warnings.warn(told, NestwrightWarning, stacklevel=2)
            self._call = self.gm.forward
            return
        lazy = any(t.is_complex() or t.is_neg() for t in (*self._inputs, *self._results))
        passed = [o for i, o in enumerate(self._orders) if i not in weights]
        call = undisturbed(exe, border(exe, passed, self._results, lazy))
        self._frozen = {i: _state(t) for i, t in weights.items()}
        self.executable = exe
        if weights:
            call = without(weights, call, len(self._inputs))
        if self._checked:
            call = or_eager(call, self.gm.forward)
        self._call = guarded(call, weights, self._changed) if weights else call

    def _compiled(self, weights: Mapping[int, Any]) -> Executable:
        settings, log = self._settings, self._settings.log
        lowered = lower(
            self.module,
            target=settings.target,
            constants={i: as_array(t) for i, t in weights.items()},
            excess_precision=settings.excess_precision,
            weights=settings.weights if weights else None,
            accuracy=settings.accuracy,
            denormals=settings.denormals,
        )
        if settings.tune:
            log = lowered.tune(trials=settings.tune, log=log).log
        count(shapes=1)
        return lowered.compile(log=log)


def _order(tensor: Any, is_weight: bool) -> Order:
    """Return the order that an input is read in; weights are packed when they are compiled in."""
    return tuple(range(tensor.dim())) if is_weight else order_of(tensor)


def _state(tensor: Any) -> tuple[int, int, int]:
    """Return what tells a weight from others, and from itself before it was written."""
    return id(tensor), tensor._version, tensor.data_ptr()
