"""Objects by their methods: those of JAX and ``nw.jit``, recognized without importing JAX."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class LoweredByJax(Protocol):
    """``jax.jit(f).lower(x)``: a ``jax.stages.Lowered``."""

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """Return the module in a dialect; for ``"hlo"`` an XLA computation."""


@runtime_checkable
class Traced(Protocol):
    """``jax.jit(f).trace(x)``: a ``jax.stages.Traced``."""

    @property
    def jaxpr(self) -> Any:
        """Return the traced program."""

    def lower(self) -> Any:
        """Lower the traced program; return a ``LoweredByJax``."""


@runtime_checkable
class Exported(Protocol):
    """``jax.export.export(jax.jit(f))(x)``: a ``jax.export.Exported``."""

    def mlir_module(self) -> str:
        """Return the module as StableHLO text."""


@runtime_checkable
class Importer(Protocol):
    """``nw.jit(f)``: a function that knows its graph for given arguments."""

    def imported(self, *args: Any, **named: Any) -> Any:
        """Return an ``Imported`` for such arguments."""


def is_jitted(model: object) -> bool:
    """True for a function of ``nw.jit``."""
    return isinstance(model, Importer) and not isinstance(model, type)


def is_staged(model: object) -> bool:
    """True for what JAX traced, lowered or exported; false for a class of such objects."""
    return isinstance(model, LoweredByJax | Traced | Exported) and not isinstance(model, type)


def is_class(model: object) -> bool:
    """True for a class, of models or of anything else."""
    return isinstance(model, type)


def is_function(model: object) -> bool:
    """True for anything callable that is not a class."""
    return callable(model) and not isinstance(model, type)
