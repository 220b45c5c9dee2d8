"""The kinds of targets, a row each, and the one interface behind which they differ.

A row names two modules, which are imported when they are asked for: ``compiler`` holds ``BACKEND``,
how code for the target is made; ``loader`` holds ``load``, how a bundle for it is run. So a built
model loads without the code generator, and nothing of CUDA is imported until a GPU is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from ...ir.target import Target
from ..plan.bundle import Bundle
from ..plan.code import Code
from ..plan.loaded import Loaded
from ..plan.nodes import Plan

if TYPE_CHECKING:
    from ...ir.loop.nodes import Func

Stage: TypeAlias = tuple[str, Callable[[], str]]


@dataclass(frozen=True, slots=True)
class Program:
    """What runs a plan: native code, and the runtime that it needs. A GPU needs neither."""

    code: bytes = b""
    runtime: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Backend:
    """How code for one kind of target is made.

    ``emit`` writes a flat function as LLVM text; ``compile`` makes a flat function's code and notes
    the seconds of each stage; ``stages`` gives the stages after LLVM's text and what prints each;
    ``finish`` makes what runs the plan on the kernels' code, given by symbol, under a seal
    (``codegen.plan.seal``). ``runtime`` gives the object code that native code for the target is
    linked with: first what all executables of a process share, then what each has of its own.
    """

    emit: Callable[[Func, Target], str]
    compile: Callable[[Func, Target, dict[str, float]], Code]
    stages: Callable[[str, Target], Iterator[Stage]]
    finish: Callable[[Plan, bytes, Target, Mapping[str, Code]], Program]
    runtime: Callable[[Target], tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of target: the modules that compile for it and that load what was compiled."""

    compiler: str
    loader: str


ROWS: Mapping[str, Row] = {
    "cpu": Row(".cpu.backend", "..runtime.native"),
    "cuda": Row(".cuda.backend", "..runtime.cuda.program"),
    "cuda-sim": Row(".sim.backend", "..runtime.sim.executable"),
}


def backend(target: Target) -> Backend:
    """Return how code for a target is made."""
    found: Backend = import_module(ROWS[target.kind].compiler, __package__).BACKEND
    return found


def load(bundle: Bundle) -> Loaded:
    """Load a bundle into this process. ``TargetError`` if this machine cannot run it."""
    found: Loaded = import_module(ROWS[bundle.target.kind].loader, __package__).load(bundle)
    return found


def emit(func: Func, target: Target) -> str:
    """Return a flat function as an LLVM module for a target.

    ``UnsupportedError`` for element types and operations that there is no code for.
    """
    return backend(target).emit(func, target)
