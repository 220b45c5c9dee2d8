"""Runs of a kernel with a pattern in uninitialized memory: stacks and scratch memory.

A kernel under test is linked with this module's functions instead of the thread pool's. They call
the pool's, and add two things: the stack below each body is filled before the body is called, on
any thread, and scratch memory is filled, with red zones on either side that must be intact when
the memory is released.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from ....codegen.emit.llvm.template import render
from ....codegen.plan.struct_table import Struct
from ....codegen.runtime import jit
from ....codegen.runtime.function import NativeFunc
from ....codegen.runtime.process import runtime
from ....codegen.targets.cpu import toolchain as cpu
from ....ir.target import HERE, Target

DEPTH = 256 << 10  # bytes of stack to fill: more than the frames of a kernel
ZONE = 64  # bytes of the red zones around scratch memory; the first holds the header

BLOCK = Struct("block", {"previous": "ptr", "mark": "i64", "bytes": "i64"})
"""The header of a scratch block: the block before it, the mark it was allocated at, its size."""

_REPLACED = {
    "nw_parallel": "poisoned_parallel",
    "nw_scratch": "poisoned_scratch",
    "nw_scratch_release": "poisoned_release",
}


@dataclass(frozen=True, slots=True)
class Poison:
    """The loaded functions: ``begin(byte)`` before a run, ``damaged()`` after it."""

    library: jit.JitLibrary
    begin: Callable[[int], None]
    damaged: Callable[[], int]

    def symbols(self) -> dict[str, int]:
        """Return the symbols that a kernel under test is linked with."""
        own = {name: self.library.address(other) for name, other in _REPLACED.items()}
        return {**runtime().addresses, **own}


def module_text(target: Target) -> str:
    """Return the functions as an LLVM module for a processor."""
    names = {
        "triple": target.triple,
        "words": DEPTH // 8,
        "zone": ZONE,
        "padding": 3 * ZONE - 1,
    }
    return render(__package__, "poison.ll", [BLOCK.names], names)


@cache
def poison() -> Poison:
    """Return the functions, loaded once per process."""
    host = Target.parse(HERE)
    library = jit.load([cpu.compile(module_text(host), host)], runtime().addresses)
    init = ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("poison_init"))
    if init():
        raise MemoryError("no thread-specific data is left")
    begin = ctypes.CFUNCTYPE(None, ctypes.c_uint8)(library.address("poison_begin"))
    damaged = ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("poison_damaged"))
    return Poison(library, begin, damaged)


def poisoned(kernel: NativeFunc) -> NativeFunc:
    """Load a kernel's code again so that it runs on filled stacks and scratch memory."""
    loaded = type(kernel).load(kernel.compiled, poison().symbols())
    address = loaded.library.address(kernel.compiled.name)
    return replace(loaded, entry=partial(_caller(len(loaded.entry.argtypes)), address))


@cache
def _caller(count: int) -> Any:
    """Return a function that calls another, its first argument, on a filled stack."""
    taken = ", ".join(["ptr %function", *(f"ptr %a{n}" for n in range(count))])
    given = ", ".join(f"ptr %a{n}" for n in range(count))
    text = "declare void @poison_stack()\n"
    text += f"define void @call({taken}) {{\n  call void @poison_stack()\n"
    text += f"  call void %function({given})\n  ret void\n}}\n"
    own = {"poison_stack": poison().library.address("poison_stack")}
    library = jit.load([cpu.compile(text, Target.parse(HERE))], own)
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 1))(library.address("call"))
    return _Held(made, library)


@dataclass(frozen=True, slots=True)
class _Held:
    """A function that keeps its library loaded."""

    function: Callable[..., None]
    library: jit.JitLibrary

    def __call__(self, *addresses: int) -> None:
        self.function(*addresses)
