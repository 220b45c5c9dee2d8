"""LLVM's target machines, and its linker for systems whose object files are not ELF."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from threading import RLock
from typing import Any

import llvmlite.binding as llvm

from ...ir.errors import TargetError, VerifyError
from ...ir.target import HERE, Target

OPTIMIZATION = 2  # of instruction selection and register allocation
LOCK = RLock()  # LLVM's contexts and our JIT are used by one thread at a time

_numbers = itertools.count()


@cache
def _initialized() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


_ABI = {"riscv64": "lp64d"}  # where LLVM has to be told that floats are passed in registers


@cache
def llvm_machine(target: Target) -> Any:
    """Return LLVM's target machine. ``TargetError`` where LLVM has no code generator for it.

    Its code is position-independent: our own linker's images run wherever they are put, and the
    same objects also link into C programs.
    """
    _initialized()
    try:
        description = llvm.Target.from_triple(target.triple)
    except RuntimeError as e:
        raise TargetError(f"LLVM has no code generator for {target.triple!r}", str(e)) from None
    return description.create_target_machine(
        cpu=target.cpu,
        features=target.attributes,
        opt=OPTIMIZATION,
        reloc="pic",
        codemodel="small",
        abiname=_ABI.get(target.machine, ""),
    )


@dataclass(frozen=True)
class OrcLibrary:
    """Code that LLVM loaded; see ``jit.JitLibrary``."""

    name: str
    trackers: list[Any]  # the first of link, the others of lookups; each keeps the code loaded
    jit: Any  # let go of after the trackers
    found: dict[str, int] = field(default_factory=dict)

    def address(self, symbol: str) -> int:
        """Return the address of a symbol; ``KeyError`` if no object defines it.

        LLVM is asked once for each. A run must not ask it: a signal handler that raises while
        llvmlite releases its lock would leave the lock taken, for all other threads.
        """
        known = self.found.get(symbol)
        if known is not None:
            return known
        with LOCK:
            try:
                tracker = self.jit.lookup(self.name, symbol)
            except RuntimeError as e:
                raise KeyError(f"{symbol}: {str(e).strip()}") from None
            self.trackers.append(tracker)
            return self.found.setdefault(symbol, int(tracker[symbol]))


LIBRARIES = 32  # that share a JIT: making one takes half a millisecond and 110 KiB


@lru_cache(maxsize=1)
def _jit(number: int) -> Any:
    """Return the JIT of libraries ``number * LIBRARIES`` and on; an older one lives on in its
    libraries.

    A JIT keeps the tables of a library, 10 KiB, after the library is gone: llvmlite frees them with
    the JIT only.
    """
    return llvm.create_lljit_compiler(llvm_machine(Target.parse(HERE)))


def load(objects: Sequence[bytes], symbols: Mapping[str, int]) -> OrcLibrary:
    """Link object code with each other and with this process, and load it; see ``jit.load``."""
    with LOCK:
        number = next(_numbers)
        jit = _jit(number // LIBRARIES)
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        builder.add_current_process()
        for symbol, address in symbols.items():
            builder.import_symbol(symbol, address)
        name = f"nw{number}"
        try:
            tracker = builder.link(jit, name)
        except RuntimeError as e:
            raise VerifyError("object code cannot be loaded", str(e).strip()) from None
        return OrcLibrary(name, [tracker], jit)
