"""Machine code for CPUs: LLVM text to object code, object code to callable addresses.

Loops, vectors and hoisting are already as they shall be in the text. So only a handful of LLVM's
passes run, which takes milliseconds: ``sroa`` turns register tiles into SSA values, the others
tidy up. A module is verified first: LLVM ends the process on one that is not well formed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from threading import RLock
from typing import Any

import llvmlite.binding as llvm

from ..ir.errors import TargetError, VerifyError
from ..ir.target import Target

OPTIMIZATION = 2  # of instruction selection and register allocation
LONGEST = 64 << 20  # characters of one module
COROUTINE = "@llvm.coro."  # calls of what is to be lowered before machine code is made

_lock = RLock()  # LLVM's contexts and our JIT are used by one thread at a time
_numbers = itertools.count()


@cache
def _initialized() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@cache
def _machine(target: Target) -> Any:
    _initialized()
    try:
        description = llvm.Target.from_triple(target.triple)
    except RuntimeError as e:
        raise TargetError(f"LLVM has no code generator for {target.triple!r}", str(e)) from None
    return description.create_target_machine(
        cpu=target.cpu,
        features=target.attributes,
        opt=OPTIMIZATION,
        codemodel="jitdefault",
        jit=True,
    )


def _check(target: Target) -> None:
    if target.kind != "cpu":
        raise TargetError(f"{target.spec!r} is not a CPU", "this is the CPU code generator")


def _module(text: str, target: Target) -> tuple[Any, Any]:
    """The verified and optimized module, and the machine it is for."""
    _check(target)
    if len(text) > LONGEST:
        raise VerifyError(f"LLVM module of {len(text)} characters", f"at most {LONGEST}")
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as e:
        raise VerifyError("generated LLVM code is not well formed", str(e).strip()) from None
    _tidying(target).run(module)
    if COROUTINE in text:
        _splitting(target).run(module)
    return module, machine


@dataclass(frozen=True, slots=True)
class _Passes:
    """Passes for a machine, made once: llvmlite 0.50 leaks some KiB of each manager it disposes."""

    builder: Any
    managers: tuple[Any, ...]

    def run(self, module: Any) -> None:
        for manager in self.managers:
            manager.run(module, self.builder)


@cache
def _tidying(target: Target) -> _Passes:
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    return _Passes(llvm.create_pass_builder(_machine(target), options), (passes,))


@cache
def _splitting(target: Target) -> _Passes:
    """Make state machines of coroutines: LLVM's pipeline without optimizations does just that."""
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    builder = llvm.create_pass_builder(_machine(target), options)
    tidy = llvm.create_new_module_pass_manager()
    tidy.add_instruction_combine_pass()
    tidy.add_simplify_cfg_pass()
    return _Passes(builder, (builder.getModulePassManager(), tidy))


_ENDING = """
declare void @llvm.coro.end(ptr, i1, token)
define void @end(ptr %frame) {
  call void @llvm.coro.end(ptr %frame, i1 false, token none)
  ret void
}
"""


@cache
def coroutine_end() -> str:
    """What ``llvm.coro.end`` returns: nothing, or in older versions of LLVM an i1."""
    with _lock:
        try:
            llvm.parse_assembly(_ENDING).verify()
        except RuntimeError:
            return "i1"
        return "void"


def compile(text: str, target: Target) -> bytes:
    """The object code of an LLVM module. ``VerifyError`` if LLVM does not accept the text."""
    with _lock:
        module, machine = _module(text, target)
        return bytes(machine.emit_object(module))


def assembly(text: str, target: Target) -> str:
    """The assembly of an LLVM module, as ``compile`` would make it."""
    with _lock:
        module, machine = _module(text, target)
        return str(machine.emit_assembly(module))


@dataclass(frozen=True)
class Library:
    """Loaded code. It stays in memory as long as this object, or an address's user, keeps it."""

    name: str
    trackers: list[Any]  # the first of link, the others of lookups; each keeps the code loaded
    jit: Any  # let go of after the trackers
    found: dict[str, int] = field(default_factory=dict)

    def address(self, symbol: str) -> int:
        """Where a symbol lies in memory; ``KeyError`` if no object defines it.

        LLVM is asked once for each. A run must not ask it: a signal's handler that raises while
        llvmlite gives back its lock leaves it taken, for all other threads.
        """
        known = self.found.get(symbol)
        if known is not None:
            return known
        with _lock:
            try:
                tracker = self.jit.lookup(self.name, symbol)
            except RuntimeError as e:
                raise KeyError(f"{symbol}: {str(e).strip()}") from None
            self.trackers.append(tracker)
            return self.found.setdefault(symbol, int(tracker[symbol]))


LIBRARIES = 32  # that share a JIT: making one takes half a millisecond and 110 KiB


@lru_cache(maxsize=1)
def _jit(number: int) -> Any:
    """The JIT of libraries ``number * LIBRARIES`` and on; they alone keep an older one alive.

    A JIT keeps the tables of a library, 10 KiB, after the library is gone: llvmlite frees them with
    the JIT only.
    """
    return llvm.create_lljit_compiler(_machine(Target.parse("cpu")))


def load(objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> Library:
    """Link object code with each other and with this process (libc, libm), and load it.

    ``symbols`` are addresses of what the code may call beside that, such as the thread pool's.
    ``VerifyError`` for bytes that are no object code of this machine.
    """
    with _lock:
        number = next(_numbers)
        jit = _jit(number // LIBRARIES)
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        builder.add_current_process()
        for symbol, address in (symbols or {}).items():
            builder.import_symbol(symbol, address)
        name = f"nw{number}"
        try:
            tracker = builder.link(jit, name)
        except RuntimeError as e:
            raise VerifyError("object code cannot be loaded", str(e).strip()) from None
        return Library(name, [tracker], jit)
