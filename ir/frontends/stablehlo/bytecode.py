"""StableHLO bytecode, which jaxlib decodes -> HloModule.

The bytecode is a portable artifact: MLIR bytecode of a versioned dialect, which
``jax.export.export(f)(x).mlir_module_serialized`` is and torch_xla and TensorFlow write.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...errors import ParseError, UnsupportedError
from ...hlo.nodes import HloModule
from ..declared import Declared
from ..registry import Shapes
from ..signatures import PORTABLE
from . import reader


def parse(data: bytes, source: str, shapes: Shapes | None = None) -> HloModule:
    """Read a module; ``shapes`` as for text.

    ``UnsupportedError`` for bytecode that is no portable artifact, and where jaxlib is not
    installed; ``ParseError`` for an artifact that jaxlib cannot decode; else as for text.
    """
    return reader.parse(_text(data, source), source, shapes)


def of_file(path: Path) -> Declared:
    """Return the sizes that a file declares; errors as for reading it."""
    return reader.declared(_text(path.read_bytes(), str(path)), str(path))


def _text(data: bytes, source: str) -> str:
    """Return the module as text; errors as for ``parse``."""
    if not PORTABLE.match(data):
        raise UnsupportedError(
            "cannot read this MLIR bytecode",
            "it is no portable artifact of StableHLO",
            source,
            "write one with `stablehlo-translate --serialize`, or give the module's text",
        )
    ir, stablehlo, beside = _bindings(source)
    said: list[str] = []
    with ir.Context() as context:
        for dialect in beside:
            dialect.register_dialect(context)
        context.attach_diagnostic_handler(partial(_noted, said))
        try:
            module = stablehlo.deserialize_portable_artifact(context, data)
        except (ValueError, RuntimeError) as e:
            why = "; ".join(said) or str(e)
            raise ParseError("cannot decode this StableHLO bytecode", why, source) from None
        return str(module.operation.get_asm())


def _noted(said: list[str], diagnostic: Any) -> bool:
    """Keep what MLIR has to say; True, so that it does not print it."""
    said.append(str(diagnostic))
    return True


def _bindings(source: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return jaxlib's bindings of MLIR, of StableHLO, and of the dialects that an artifact may mix
    with it."""
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import chlo, sdy, stablehlo
    except ImportError:
        raise UnsupportedError(
            "cannot read this StableHLO bytecode",
            "jaxlib has to decode it, and is not installed",
            source,
            'pip install "nestwright[jax]"; or give StableHLO text: print the module, e.g. with '
            "`jax.export.deserialize(data).mlir_module()`",
        ) from None
    return ir, stablehlo, (chlo, sdy)
