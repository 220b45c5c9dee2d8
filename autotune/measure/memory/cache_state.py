"""The caches before a timed call as the model leaves them, and a clock for a single call.

Between two runs of a group the rest of the model passes through the caches. A trial repeats that
before each timed call: it moves as many bytes as evict the caches of each core, rewrites the inputs
that other groups have just made, in the order and at the distances of the model, and evicts from
all caches what was last used so long ago that no cache holds it. The pool's threads do it, as they
run the model, so results lie in the caches of both cores, as written by another kernel.

A call after that is timed alone, in native code, for a warm-up would undo the state.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ....codegen.emit.llvm.template import render
from ....codegen.plan.struct_table import Struct
from ....codegen.runtime import jit
from ....codegen.runtime.process import runtime
from ....codegen.targets.cpu import toolchain as cpu
from ....ir.arrays import Array, aligned_zeros
from ....ir.dtypes import f32
from ....ir.target import HERE, Target

LINE = 64  # bytes of the unit that threads claim
CODE = 2048  # lines of code that evict a core's cache of instructions
TURNS = 16  # times that all of them are run, by whichever thread is free
EVICTING = 3  # times a core's L2, of passing bytes, after which nothing of before is in it

STEP = Struct("step", {"body": "ptr", "source": "ptr", "goal": "ptr", "lines": "i64"})
"""A step in native code: the body for a range of lines, its memory, the number of lines."""


@dataclass(frozen=True, slots=True)
class Passing:
    """One thing that happens between two runs of a group in its model.

    ``code``: other groups' code passes through the caches. ``pass``: other groups move ``bytes``.
    ``write``: one of them writes to ``buffer``. ``flush``: no cache holds ``buffer``.
    """

    kind: Literal["code", "pass", "write", "flush"]
    bytes: int = 0
    buffer: int = -1


def passing(
    sizes: Sequence[int], inputs: int, reuse: Sequence[float], target: Target
) -> tuple[Passing, ...]:
    """Return what happens in a model between two runs of a group.

    ``sizes`` are the bytes of its parameters, ``inputs`` of which are inputs; ``reuse`` is the
    reuse distance of each, and the bytes of a run of the model. What was used longest ago are
    weights, arguments and results of the model; other inputs were made by groups in between, and
    outputs lie where these had theirs. Without a model, large data is out of L2.
    """
    own, caches = sum(sizes), EVICTING * target.l2 * target.threads
    if len(reuse) != len(sizes) + 1:
        return () if own < target.l1 else (Passing("pass", caches),)
    *distances, run = reuse
    cold = target.l3 or caches
    if max(distances) > cold and not _is_x86(target):  # nothing is flushed: L3 is swept instead
        caches = max(caches, 2 * cold)
    cursor = int(min(max(0.0, run - own), caches))
    if cursor < LINE:
        return ()  # the group is all of the model
    steps = [Passing("flush", sizes[n], n) for n, r in enumerate(distances) if r > cold]
    steps += [Passing("code")] if cursor >= target.l2 else []
    made = [n for n in reversed(range(len(sizes))) if distances[n] < run]  # outputs are older
    for n in sorted(made, key=lambda n: -distances[n]):
        at = min(int(distances[n]), cursor)
        if (gap := cursor - at - sizes[n]) > 0:
            steps.append(Passing("pass", gap))
        steps.append(Passing("write", sizes[n], n))
        cursor = at
    return (*steps, Passing("pass", cursor)) if cursor else tuple(steps)


def cold_bytes(
    sizes: Sequence[int], reuse: Sequence[float], read: Sequence[bool], target: Target
) -> float:
    """Return the bytes of inputs that no L2 holds when a group runs in its model.

    ``read`` tells which inputs are read in full; the others are as in ``passing``.
    """
    steps = passing(sizes, len(read), reuse, target)
    kept = {s.buffer for s in steps if s.kind == "write"}
    passed = sum(s.bytes for s in steps if s.kind in ("pass", "write"))
    if passed < 2 * target.l2 * target.threads:
        return 0.0
    return float(sum(sizes[n] for n, whole in enumerate(read) if whole and n not in kept))


class CacheState:
    """Prepares the caches for a kernel, and times one call of it at a time."""

    def __init__(
        self, steps: Sequence[Passing], room: Array, places: Sequence[int], target: Target
    ) -> None:
        """``room`` is the memory that other groups move, ``places`` are the buffers' addresses."""
        self._room, self._places, self._count = room, places, len(steps)
        self._table = STEP.table([self._step(s) for s in steps])
        single = target.threads == 1
        self._clock = time.CLOCK_THREAD_CPUTIME_ID if single else time.CLOCK_MONOTONIC

    def _step(self, s: Passing) -> dict[str, int]:
        address = _library().address
        start = goal = 0
        if s.kind == "code":
            body, lines = address("cache_code"), TURNS
        elif s.kind == "pass":  # half of the bytes are read, half are written
            half, start = s.bytes // 2 // LINE, self._room.ctypes.data
            body, goal, lines = address("cache_copy"), start + half * LINE, half
        else:  # whole lines, and no byte outside the buffer
            start = goal = self._places[s.buffer]
            body = address("cache_copy" if s.kind == "write" else "cache_flush")
            lines = s.bytes // LINE
        return {"body": body, "source": start, "goal": goal, "lines": lines}

    def seconds(self, function: int, arguments: Sequence[int]) -> float:
        """Return the seconds of one call of the function at an address, on prepared caches."""
        call = _caller(len(arguments)).function
        table = self._table.ctypes.data
        return max(1, call(self._clock, table, self._count, function, *arguments)) * 1e-9


def room_for(steps: Sequence[Passing]) -> Array:
    """Return the memory that the steps' passing bytes need, in the pages of a model's."""
    return aligned_zeros(max((s.bytes for s in steps if s.kind == "pass"), default=0))


@cache
def _library() -> jit.JitLibrary:
    return jit.load(
        [cpu.compile(module_text(Target.parse(HERE)), Target.parse(HERE))], runtime().addresses
    )


def _is_x86(target: Target) -> bool:
    return target.triple.startswith(("x86_64", "i686"))


def module_text(target: Target) -> str:
    """Return the functions as an LLVM module for a processor."""
    x86 = _is_x86(target)
    names = {
        "triple": target.triple,
        "line": LINE,
        "code": _jumps(target),
        "lanes": target.lanes(f32),
        "vector": 4 * target.lanes(f32),
        "declared": "declare void @llvm.x86.sse2.clflush(ptr)" if x86 else "",
        "flush": "call void @llvm.x86.sse2.clflush(ptr %p)" if x86 else "",
    }
    return render(__package__, "cache_state.ll", [STEP.names], names)


def _jumps(target: Target) -> str:
    """Return assembly that runs through lines of code: each jumps to the next."""
    jump = "jmp" if _is_x86(target) else "b"
    return f".rept {CODE}\\0A{jump} 1f\\0A.p2align 6\\0A1:\\0A.endr"


@cache
def _caller(count: int) -> _Loaded:
    """Return a function that prepares the caches, and times a call with ``count`` arguments.

    Its own arguments are the clock, the steps, their number, the address and the arguments. The
    time that reading the clock takes is subtracted.
    """
    named = [f"ptr %a{n}" for n in range(count)]
    taken = ", ".join(["i32 %clock, ptr %steps, i64 %n, ptr %f", *named])
    text = "declare void @set_caches(ptr, i64)\ndeclare i64 @clock_now(i32)\n"
    text += f"define i64 @timed({taken}) {{\n  call void @set_caches(ptr %steps, i64 %n)\n"
    text += "".join(f"  %t{n} = call i64 @clock_now(i32 %clock)\n" for n in range(3))
    text += f"  call void %f({', '.join(named)})\n  %t3 = call i64 @clock_now(i32 %clock)\n"
    text += "  %all = sub i64 %t3, %t2\n  %idle = sub i64 %t2, %t1\n"
    text += "  %net = sub i64 %all, %idle\n  ret i64 %net\n}\n"
    own = {name: _library().address(name) for name in ("set_caches", "clock_now")}
    library = jit.load([cpu.compile(text, Target.parse(HERE))], own)
    pointers = [ctypes.c_void_p] * (count + 1)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, *pointers
    )
    return _Loaded(kind(library.address("timed")), library)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A function, and the library that has its code."""

    function: Callable[..., int]
    library: jit.JitLibrary
