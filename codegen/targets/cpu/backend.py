"""The backend for processors: object code, and one native function that runs the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...emit.statements.interrupt_polls import poll_points
from ...emit.statements.module import function_module
from ...lower.pipeline import PASSES, Lowering
from ...plan.code.form import Code
from ...plan.interface import Interface
from ...plan.nodes import Plan
from ...plan.symbols import polls_interrupts
from ..compiler import Backend, CompiledPlan, LibraryCode, Stage, Start
from ..registry import backend
from ..timings import timed
from . import program
from . import toolchain as cpu
from .c_library import instance
from .calls import entry, interrupts
from .probe import probe
from .threads import pool
from .untrusted import compile_untrusted


@cache
def _shared_texts(host: Target) -> tuple[str, ...]:
    return tuple(module.module_text(host) for module in (pool, entry, interrupts))


def shared_runtime(host: Target) -> tuple[bytes, ...]:
    """Return the object code of what all executables of a process share."""
    return tuple(cpu.compile_once(text, host) for text in _shared_texts(host))


def has_shared_runtime(host: Target) -> bool:
    """True if this process has that code already."""
    return all(cpu.is_kept(text, host) for text in _shared_texts(host))


def keep_shared_runtime(host: Target, code: Sequence[bytes]) -> None:
    """Take over that code from another process of this version."""
    for text, each in zip(_shared_texts(host), code, strict=True):
        cpu.keep(text, host, each)


def emit(func: Func, target: Target) -> str:
    """Return the LLVM text of a flat function; see ``registry.emit``."""
    return function_module(func, target, poll_points(func, target))


def _compile(flat: Func, target: Target, timings: dict[str, float]) -> Code:
    """Return the object code of a flat function, of a simulated GPU's as well."""
    with timed(timings, "emit"):
        text = backend(target).emit(flat, target)
    with timed(timings, "llvm"):
        return cpu.compile(text, target.host)


def _stages(text: str, target: Target) -> Iterator[Stage]:
    """Yield the stages after LLVM's text: assembly."""
    yield "asm", lambda: cpu.assembly(text, target.host)


def _finish(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> CompiledPlan:
    polling = [symbol for symbol, code in kernels.items() if polls_interrupts(code)]
    text = program.module_text(plan, seal, target, polling=polling)
    return CompiledPlan(cpu.compile(text, target), shared_runtime(target))


def _library(interface: Interface, target: Target) -> LibraryCode:
    code = cpu.compile(instance.module_text(interface, target), target)
    return LibraryCode(code, instance.memory_bytes(interface))


def _probed(plan: Plan, target: Target, kernels: Mapping[str, Code]) -> tuple[bytes, ...]:
    polling = [symbol for symbol, code in kernels.items() if polls_interrupts(code)]
    text = program.module_text(plan, b"", target, polling=polling, probed=True)
    return cpu.compile(text, target), probe(target)


BACKEND = Backend(
    lowering=Lowering(PASSES),
    emit=emit,
    compile=_compile,
    listings=("asm",),
    stages=_stages,
    starts={"llvm": Start("object code", compile_untrusted)},
    finish=_finish,
    runtime=shared_runtime,
    library=_library,
    probed=_probed,
)
