"""The stages of the loop IR while it is lowered: all that each may not hold, on one page.

  stage      begins with     what it is
  scheduled  the input       blocks under loops; intermediate buffers are a list of the function's
  placed     place_buffers   each intermediate buffer is allocated around its uses
  bound      bind_threads    (GPU) launches: chains of thread loops around what each thread does
  opened     lower_blocks    stores under loops and conditions
  assigned   assign_memory_scopes  (GPU) the same, each buffer of a launch in its memory
  flat       flatten         the same over buffers of one dimension

``NESTWRIGHT_VERIFY=1`` in the environment checks every lowering, as the tests do: a pass that
breaks a rule of the stage it works in is named at once, rather than by what is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ...ir.errors import VerifyError
from ...ir.loop.build import as_int
from ...ir.loop.intrinsics import SPREAD
from ...ir.loop.nodes import (
    THREADS,
    Alloc,
    AllReduce,
    Block,
    Buffer,
    For,
    Func,
    Kind,
    Stmt,
)
from ...ir.loop.notes import UNPLACED
from ...ir.loop.verify import verify
from ...ir.loop.visit import children, walk
from ...ir.passes import Invariant, LegalIR

Rule: TypeAlias = Invariant[Func]


def _buffers(func: Func) -> Iterable[Buffer]:
    """Yield all buffers but parameters; a well-formed function touches no others."""
    yield from func.allocs
    yield from (s.buffer for s in walk(func.body) if isinstance(s, Alloc))


def _first(func: Func, kind: type[Alloc] | type[AllReduce] | type[Block]) -> str:
    found = next((s for s in walk(func.body) if isinstance(s, kind)), None)
    match found:
        case Alloc(buffer=buffer):
            return f"the alloc of {buffer.name}"
        case Block(name=name):
            return f"block {name}"
        case AllReduce(values=values):
            return f"the all_reduce of {', '.join(b.name for b in values)}"
        case _:
            return ""


def _malformed(func: Func) -> str:
    try:
        verify(func)
    except VerifyError as error:
        return str(error)
    return ""


def _malformed_on_threads(func: Func) -> str:
    try:
        verify(func, on_threads=True)
    except VerifyError as error:
        return str(error)
    return ""


def _unplaced(func: Func) -> str:
    return ", ".join(b.name for b in func.allocs)


def _fragment(func: Func) -> str:
    return next((b.name for b in _buffers(func) if b.scope in SPREAD), "")


def _nested_index(func: Func) -> str:
    found = (b.name for b in (*func.params, *_buffers(func)) if len(b.shape) != 1)
    return next(found, "")


def _laid_out(func: Func) -> str:
    return next((b.name for b in _buffers(func) if b.align or b.swizzle), "")


def _chains(s: Stmt) -> Iterator[For]:
    """Yield the outermost thread loops."""
    if isinstance(s, For) and s.kind is Kind.THREAD:
        yield s
    else:
        for child in children(s):
            yield from _chains(child)


def _not_a_launch(func: Func) -> str:
    for s in _chains(func.body):
        order, inner = iter(THREADS), s
        while inner.kind is Kind.THREAD:
            if inner.thread not in order or as_int(inner.extent) is None:
                return f"loop {inner.var.name} over {inner.thread}"
            if not isinstance(inner.body, For):
                break
            inner = inner.body
        if again := next((x for x in _chains(inner.body) if x.kind is Kind.THREAD), None):
            return f"loop {again.var.name} over {again.thread}"
    return ""


WELL_FORMED: Rule = Invariant("a function is well formed", _malformed)
THREADS_WELL_FORMED: Rule = Invariant("a function is well formed", _malformed_on_threads)
NO_ALLOCS: Rule = Invariant("buffers are listed by the function", lambda func: _first(func, Alloc))
NO_EXCHANGE: Rule = Invariant("threads exchange nothing", lambda func: _first(func, AllReduce))
PLACED: Rule = Invariant("every intermediate buffer is allocated around its uses", _unplaced)
LAUNCHES: Rule = Invariant(
    "thread loops are chains, each index once and in the order of THREADS", _not_a_launch
)
NO_BLOCKS: Rule = Invariant("there are no blocks", lambda func: _first(func, Block))
ASSIGNED: Rule = Invariant(
    "no buffer waits for its memory", lambda func: ", ".join(UNPLACED.of(func) or ())
)
NO_FRAGMENTS: Rule = Invariant("no buffer is spread over the lanes of a warp", _fragment)
ONE_DIMENSION: Rule = Invariant("every buffer has one dimension", _nested_index)
DENSE: Rule = Invariant("alignment and swizzle are part of the indices", _laid_out)

SCHEDULED_IR = LegalIR("scheduled", (WELL_FORMED, NO_ALLOCS, NO_EXCHANGE))
PLACED_IR = LegalIR("placed", (WELL_FORMED, PLACED, NO_EXCHANGE))
OPENED_IR = LegalIR("opened", (WELL_FORMED, PLACED, NO_EXCHANGE, NO_BLOCKS))
FLAT_IR = OPENED_IR.then("flat", NO_FRAGMENTS, ONE_DIMENSION, DENSE)

BOUND_IR = LegalIR("bound", (THREADS_WELL_FORMED, PLACED, LAUNCHES))
GPU_OPENED_IR = BOUND_IR.then("opened", NO_BLOCKS)
ASSIGNED_IR = GPU_OPENED_IR.then("assigned", ASSIGNED)
GPU_FLAT_IR = ASSIGNED_IR.then("flat", NO_FRAGMENTS, ONE_DIMENSION, DENSE)

STAGES = (SCHEDULED_IR, PLACED_IR, OPENED_IR, FLAT_IR)
GPU_STAGES = (SCHEDULED_IR, PLACED_IR, BOUND_IR, GPU_OPENED_IR, ASSIGNED_IR, GPU_FLAT_IR)
