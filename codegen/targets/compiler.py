"""The interface of a target's compiler: how its code is lowered, emitted, compiled, finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...ir.target import Target
from ..plan.code.form import Code
from ..plan.nodes import ALIGNMENT, Plan

if TYPE_CHECKING:
    from ...ir.loop.nodes import Func
    from ..lower.pipeline import Lowering
    from ..plan.interface import Interface

Stage: TypeAlias = tuple[str, Callable[[], str]]


@dataclass(frozen=True, slots=True)
class Start:
    """A stage whose text code can be made of: ``compile`` returns what ``makes`` names."""

    makes: str
    compile: Callable[[str, Target], bytes]


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """The code that runs a plan, and the runtime that it is linked with; a GPU needs neither."""

    code: bytes = b""
    runtime: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """The functions of a C library as object code, and the bytes of an instance with its arena."""

    code: bytes
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Backend:
    """The compiler for one kind of target.

    ``lowering`` are the passes that make a scheduled function flat; ``emit`` writes a flat function
    as LLVM text; ``compile`` makes a flat function's code and notes the seconds of each stage;
    ``listings`` are the names of the stages after LLVM's text, and ``stages`` gives what prints
    each. ``starts`` makes code of a text of LLVM's or of such a stage, by its name, and does not
    trust it. ``finish`` makes what runs the plan on the kernels' code, given by symbol, under a
    seal (``codegen.plan.saved.seal``). ``runtime`` gives the object code that native code for the
    target is linked with: first what all executables of a process share, then what each has of its
    own.
    ``library`` gives a C library's functions; None where there are no such libraries.
    ``probed`` makes the objects that run a plan and tell when its thunks do (``cpu.probe``); none
    where a device's own clock tells it.

    Values of a program begin at multiples of ``alignment`` bytes, the arrays that a caller hands a
    kernel at multiples of ``argument_alignment`` and of their elements' size. Compiling a kernel
    takes ``weight`` times as long as for a processor.
    """

    lowering: Lowering
    emit: Callable[[Func, Target], str]
    compile: Callable[[Func, Target, dict[str, float]], Code]
    listings: tuple[str, ...]
    stages: Callable[[str, Target], Iterator[Stage]]
    starts: Mapping[str, Start]
    finish: Callable[[Plan, bytes, Target, Mapping[str, Code]], CompiledPlan]
    runtime: Callable[[Target], tuple[bytes, ...]]
    probed: Callable[[Plan, Target, Mapping[str, Code]], tuple[bytes, ...]] | None = None
    alignment: int = ALIGNMENT
    argument_alignment: int = 1
    weight: int = 1
    library: Callable[[Interface, Target], LibraryCode] | None = None
