"""Object code and assembly for CPUs, from LLVM text.

The emitted IR is already vectorized, unrolled and hoisted, so only a handful of LLVM's passes run,
which takes milliseconds: ``sroa`` turns register tiles into SSA values, the others tidy up. A
module is verified first: LLVM ends the process on one that is not well formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ....ir.errors import TargetError, VerifyError
from ....ir.target import Target
from ...emit.llvm.template import render
from ...runtime.orc import LOCK, OPTIMIZATION, llvm_machine

LONGEST = 64 << 20  # characters of one module
COROUTINE = "@llvm.coro."  # calls of what is to be lowered before machine code is made


def _check(target: Target) -> None:
    if target.is_gpu:
        raise TargetError(f"{target.spec!r} is not a CPU", "this is the CPU code generator")


def _module(text: str, target: Target) -> tuple[Any, Any]:
    """Return the verified and optimized module, and the machine it is for."""
    _check(target)
    if len(text) > LONGEST:
        raise VerifyError(f"LLVM module of {len(text)} characters", f"at most {LONGEST}")
    machine = llvm_machine(target)
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
    return _Passes(llvm.create_pass_builder(llvm_machine(target), options), (passes,))


@cache
def _splitting(target: Target) -> _Passes:
    """Make state machines of coroutines: LLVM's pipeline without optimizations does just that."""
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    builder = llvm.create_pass_builder(llvm_machine(target), options)
    tidy = llvm.create_new_module_pass_manager()
    tidy.add_instruction_combine_pass()
    tidy.add_simplify_cfg_pass()
    return _Passes(builder, (builder.getModulePassManager(), tidy))


@cache
def coroutine_end() -> str:
    """Return the type of ``llvm.coro.end``: void, or in older versions of LLVM i1."""
    with LOCK:
        try:
            llvm.parse_assembly(render(__package__, "coroutine_end.ll")).verify()
        except RuntimeError:
            return "i1"
        return "void"


def compile(text: str, target: Target) -> bytes:
    """Return the object code of an LLVM module; ``VerifyError`` if LLVM refuses the text."""
    with LOCK:
        module, machine = _module(text, target)
        return bytes(machine.emit_object(module))


_compiled: dict[tuple[str, ...], bytes] = {}


def compile_once(text: str, target: Target) -> bytes:
    """Return what ``compile`` does, kept for all targets that differ in nothing LLVM is told."""
    key = _key(text, target)
    with LOCK:
        if key not in _compiled:
            _compiled[key] = compile(text, target)
        return _compiled[key]


def keep(text: str, target: Target, code: bytes) -> None:
    """Let ``compile_once`` return this object code, which another process has compiled."""
    _compiled.setdefault(_key(text, target), code)


def is_kept(text: str, target: Target) -> bool:
    """True if ``compile_once`` has the object code already."""
    return _key(text, target) in _compiled


def _key(text: str, target: Target) -> tuple[str, ...]:
    return text, target.triple, target.cpu, target.attributes


def assembly(text: str, target: Target) -> str:
    """Return the assembly of an LLVM module, as ``compile`` would make it."""
    with LOCK:
        module, machine = _module(text, target)
        return str(machine.emit_assembly(module))
