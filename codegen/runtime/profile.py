"""Profile an executable: the time of each thunk, run one at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from ..plan.constants import aligned_zeros
from ..plan.loaded import ThunkTime
from ..plan.nodes import BufferSlice, CopyThunk, KernelThunk, LibraryThunk, Thunk, accesses, walk
from ..plan.symbols import FAILED, step_symbol
from .arguments import Array
from .library_calls import LibraryCalls


@dataclass(frozen=True)
class _Memories:
    params: Sequence[Array]
    results: Sequence[Array]
    arena: Array
    constants: Array

    def address(self, s: BufferSlice) -> int:
        match s.memory:
            case "param":
                base = self.params[s.index]
            case "result":
                base = self.results[s.index]
            case "arena":
                base = self.arena
            case _:
                base = self.constants
        return int(base.ctypes.data) + s.offset


def profile(
    thunks: Sequence[Thunk],
    address: Callable[[str], int],
    library: LibraryCalls,
    params: Sequence[Array],
    results: Sequence[Array],
    arena_bytes: int,
    constants: Array,
    rounds: int,
    guarded: Callable[..., Any],
) -> tuple[ThunkTime, ...]:
    """Run the thunks in order, ``rounds`` times; return for each the best of its times.

    ``address`` returns a symbol's address, ``library`` runs the library calls. The arrays are
    C-contiguous and fit the plan. ``guarded`` calls native code (``process.Runtime``).
    """
    memories = _Memories(params, results, aligned_zeros(arena_bytes), constants)
    numbers = {id(t): n for n, t in enumerate(t for t in walk(thunks) if _is_library(t))}
    calls = [
        _library(numbers[id(t)], t, library, memories)
        if isinstance(t, LibraryThunk)
        else _call(n, t, address, library, memories, guarded)
        for n, t in enumerate(thunks)
    ]
    best = np.full(len(calls), np.inf)
    for _ in range(rounds):
        for n, call in enumerate(calls):
            start = perf_counter()
            call()
            best[n] = min(best[n], perf_counter() - start)
    return tuple(thunk_time(t, float(seconds)) for t, seconds in zip(thunks, best, strict=True))


def thunk_time(thunk: Thunk, seconds: float) -> ThunkTime:
    """Return the time of a thunk with its name and the bytes that it moves."""
    task = thunk.task if isinstance(thunk, KernelThunk) else ""
    return ThunkTime(thunk.name, task, seconds, _moved(thunk))


def _moved(thunk: Thunk) -> int:
    return sum(s.bytes for t in walk([thunk]) for part in accesses(t) for s in part)


def _is_library(thunk: Thunk) -> bool:
    return isinstance(thunk, LibraryThunk)


def _library(
    number: int, thunk: LibraryThunk, library: LibraryCalls, memories: _Memories
) -> Callable[[], Any]:
    places = [memories.address(s) for s in (*thunk.operands, *thunk.results)]
    return lambda: library.run(number, places)


def _call(
    number: int,
    thunk: Thunk,
    address: Callable[[str], int],
    library: LibraryCalls,
    memories: _Memories,
    guarded: Callable[..., Any],
) -> Callable[[], Any]:
    match thunk:
        case KernelThunk(symbol=symbol, args=args):
            pointers = [ctypes.c_void_p(memories.address(s)) for s in args]
            return partial(guarded, _bound(address(symbol), pointers))
        case CopyThunk(source=source, target=target):
            places = memories.address(target), memories.address(source)
            return lambda: ctypes.memmove(*places, source.bytes)
        case _:
            tables = [
                (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
                for arrays in (memories.params, memories.results)
            ]
            bases = [memories.arena.ctypes.data, memories.constants.ctypes.data]
            pointers = [ctypes.c_void_p(ctypes.addressof(t)) for t in tables]
            pointers += list(map(ctypes.c_void_p, bases))
            call = _bound(address(step_symbol(number)), pointers, ctypes.c_int32)

            def step(held: object = tables) -> None:
                if guarded(call) == FAILED:
                    library.failure()

            return step


def _bound(
    function: int, pointers: Sequence[ctypes.c_void_p], result: Any = None
) -> Callable[[], Any]:
    native = ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * len(pointers))(function)
    return lambda: native(*pointers)
