"""The kinds of targets, a row each, and the one interface behind which they differ.

A row names modules, which are imported when they are asked for: ``compiler`` holds ``BACKEND``, how
code for the target is made; ``loader`` holds ``load`` and ``load_function``, how a bundle and a
function on its own are run. So a built model loads without the code generator, and nothing of CUDA
is imported until a GPU is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ...ir.lazy import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from ...ir.loop.nodes import Func
    from ...ir.passes import Instrument
    from ...ir.target import Target
    from ..plan.bundle import Bundle
    from ..plan.code.form import Codec
    from ..plan.function import CompiledFunc
    from ..plan.interface import CLibrary
    from ..plan.loaded import Loaded, LoadedFunc
    from .compiler import Backend


class Row(NamedTuple):
    """A kind of target: the modules that compile for it and that load what was compiled.

    ``codec`` names the form of its code. Code that is ``eager`` is loaded as soon as it is made or
    read, where this machine can run it, other code with the first call. ``assembler`` names a
    module whose ``version()`` tells which assembler of this machine takes part in a build.
    """

    compiler: str
    loader: str
    codec: str = "..plan.code.form:OBJECT"
    eager: bool = False
    assembler: str = ""


ROWS: dict[str, Row] = {
    "cpu": Row(".cpu.backend", "..runtime.native", eager=True),
    "cuda": Row(
        ".cuda.backend",
        "..runtime.cuda.program",
        codec="..plan.code.reader:DEVICE",
        assembler=".cuda.ptxas",
    ),
    "cuda-sim": Row(".sim.backend", "..runtime.sim.executable"),
}
"""By the name of a kind (``ir.target``)."""


def backend(target: Target) -> Backend:
    """Return how code for a target is made."""
    found: Backend = import_module(ROWS[target.kind].compiler, __package__).BACKEND
    return found


def codec(target: Target) -> Codec:
    """Return the form of the code for a target."""
    found: Codec = resolve(ROWS[target.kind].codec, __package__)
    return found


def loads_eagerly(target: Target) -> bool:
    """True if code for a target is loaded as soon as it is made or read, not when it is called."""
    return ROWS[target.kind].eager


def assembler(target: Target) -> str:
    """Return the version of the assembler that builds for a target use; "" for one without."""
    name = ROWS[target.kind].assembler
    return str(import_module(name, __package__).version()) if name else ""


def load(bundle: Bundle) -> Loaded:
    """Load a bundle into this process. ``TargetError`` if this machine cannot run it."""
    found: Loaded = import_module(ROWS[bundle.target.kind].loader, __package__).load(bundle)
    return found


def load_function(compiled: CompiledFunc) -> LoadedFunc:
    """Load a function into this process or on its device; ``TargetError`` as ``load``."""
    module = import_module(ROWS[compiled.target.kind].loader, __package__)
    found: LoadedFunc = module.load_function(compiled)
    return found


def export_c(
    bundle: Bundle, folder: Path, name: str, weights: str, threads: int | None
) -> CLibrary:
    """Write a bundle as a C library; see ``codegen.export.library``."""
    found: CLibrary = import_module("..export.library", __package__).export_c(
        bundle, folder, name, weights, threads
    )
    return found


def lower(func: Func, target: Target, instruments: Sequence[Instrument[Func]] = ()) -> Func:
    """Return a scheduled function as a flat one for a target; see ``Lowering.lower``."""
    return backend(target).lowering.lower(func, target, instruments)


def emit(func: Func, target: Target) -> str:
    """Return a flat function as an LLVM module for a target.

    ``UnsupportedError`` for element types and operations that there is no code for.
    """
    return backend(target).emit(func, target)
