"""Every buffer of every kernel against a page that may not be touched; a pytest plugin.

``NESTWRIGHT_GUARD=end pytest -p guarded_memory``, with this folder on PYTHONPATH, is what
``tests/sanitize.sh`` runs. Each argument, result, constant, intermediate value and workspace of a
native kernel is in memory of its own during the call, its end (``start``: its beginning) against
such a page: an access outside, by one byte, ends the process. On the other side, up to the next
page, are bytes that must stay, which finds writes. What a kernel only reads is read-only memory;
what it only writes is filled with a pattern first.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from nestwright.codegen.plan.function import CompiledFunc
from nestwright.codegen.plan.nodes import kernels
from nestwright.codegen.runtime import jit, native
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.runtime.native import Native
from nestwright.codegen.runtime.process import SHARED

FILL = 0xCB  # of what is written only
CANARY = 0xA7  # of what must stay
PAGE = mmap.PAGESIZE
NONE, READ, WRITE = 0, 1, 3  # mprotect's

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Buffer:
    """``size`` bytes at ``address``, right against a page without access, other such pages around.

    Freed with the object.
    """

    def __init__(self, size: int, side: str) -> None:
        self.size, self.inner = size, -(-size // PAGE) * PAGE
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.whole = _libc.mmap(None, self.inner + 2 * PAGE, NONE, private, -1, 0)
        if self.whole in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no guarded memory of {size} bytes")
        self.begin = self.whole + PAGE
        spare = self.inner - size
        self.address = self.begin + (spare if side == "end" else 0)
        self.rest = (self.begin if side == "end" else self.begin + size), spare
        self.allow(WRITE)
        ctypes.memset(self.rest[0], CANARY, spare)

    def allow(self, access: int) -> None:
        if self.inner and _libc.mprotect(self.begin, self.inner, access):
            raise OSError(ctypes.get_errno(), "mprotect")

    def is_whole(self) -> bool:
        """Whether no byte of what must stay has changed."""
        address, spare = self.rest
        return ctypes.string_at(address, spare) == bytes([CANARY]) * spare

    def __del__(self) -> None:
        if getattr(self, "whole", None):
            _libc.munmap(self.whole, self.inner + 2 * PAGE)


@dataclass
class Guarded:
    """A kernel whose buffers are guarded; called with addresses, as the kernel itself is.

    The last ``written`` of its arguments, of ``sizes`` bytes, may be written; ``held`` is what
    keeps its code in memory.
    """

    name: str
    function: Callable[..., object]
    sizes: Sequence[int]
    written: int
    side: str
    held: object = None

    def __post_init__(self) -> None:
        self.lock = Lock()
        self.buffers = [Buffer(n, self.side) for n in self.sizes]

    def __call__(self, *addresses: int | None) -> None:
        places = [a or 0 for a in addresses]
        first = len(places) - self.written
        with self.lock:
            taken: dict[tuple[int, int], int] = {}  # what stands at one place stays at one place
            slices = zip(places, self.sizes, strict=True)
            used = [taken.setdefault(place, k) for k, place in enumerate(slices)]
            changed = {used[k] for k in range(first, len(places))}
            for k in sorted(set(used)):
                buffer = self.buffers[k]
                if k < first:
                    ctypes.memmove(buffer.address, places[k], buffer.size)
                else:
                    ctypes.memset(buffer.address, FILL, buffer.size)
                if k not in changed:
                    buffer.allow(READ)
            self.function(*(self.buffers[k].address for k in used))
            for k in sorted(set(used)):
                buffer = self.buffers[k]
                buffer.allow(WRITE)
                if not buffer.is_whole():
                    _end(f"{self.name} wrote outside of its buffer {k} of {buffer.size} bytes")
                if k in changed:
                    ctypes.memmove(places[k], buffer.address, buffer.size)


def _end(message: str) -> None:
    """A callback's exception would be printed and forgotten."""
    os.write(2, f"\nguarded_memory: {message}\n".encode())
    sys.stderr.flush()
    os.abort()


@dataclass(frozen=True)
class GuardedLibrary:
    """A program whose kernels are guarded, and what has to live as long as it does."""

    program: jit.JitLibrary
    own: Mapping[str, int]
    guarded: list[Any]

    def address(self, symbol: str) -> int:
        """Return the address of a guarded kernel, or of another symbol of the program."""
        return self.own[symbol] if symbol in self.own else self.program.address(symbol)


def install(side: str) -> None:
    """Guard all native kernels that are loaded from now on. ``side`` is ``end`` or ``start``."""
    if side not in ("end", "start"):
        raise ValueError(f"buffers are guarded at their end or start, not {side!r}")
    plain_linked, plain_load = Native.linked, native.load_function

    def linked(
        self: Native, symbols: Mapping[str, int], program: Sequence[bytes]
    ) -> jit.JitLibrary:
        if self.bundle.target.row.simulated:
            return plain_linked(self, symbols, program)
        guarded = []
        for symbol, thunk in kernels(self.plan).items():
            code = self.bundle.kernels[symbol]
            assert isinstance(code, bytes)
            library = jit.load([code], symbols)
            kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(thunk.args))
            sizes = [s.bytes for s in thunk.args]
            function = kind(library.address(symbol))
            call = Guarded(symbol, function, sizes, thunk.outputs, side, library)
            guarded.append((symbol, kind(call)))
        own = {symbol: _address(call) for symbol, call in guarded}
        objects = [*program, *self.bundle.runtime[SHARED:]]
        return GuardedLibrary(jit.load(objects, {**symbols, **own}), own, guarded)

    def load(compiled: CompiledFunc) -> NativeFunc:
        made = plain_load(compiled)
        sizes = [spec.bytes for spec in compiled.params]
        for pack in compiled.packs:
            sizes[pack.index] = pack.size
        work = [compiled.workspace] if compiled.workspace else []
        written = compiled.outputs + len(work)
        return replace(
            made, entry=Guarded(compiled.name, made.entry, [*sizes, *work], written, side)
        )

    Native.linked, native.load_function = linked, load  # type: ignore[method-assign]


def _address(callback: Any) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0


if os.environ.get("NESTWRIGHT_GUARD"):
    install(os.environ["NESTWRIGHT_GUARD"])
