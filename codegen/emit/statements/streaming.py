"""Streaming stores: whole cache lines of results that nothing reads soon, written past the caches.

They exist for lines at their own alignment only, and nothing is known of a user's arrays: a kernel
with such results has its code twice, and looks at the addresses when it is called. The stores of a
thread are weakly ordered: a fence ends its part, before it tells anyone that it is done.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.dtypes import index, pred
from ....ir.loop.nodes import Buffer, Func, Stmt
from ....ir.loop.notes import IN_PLACE, STREAMED, UPDATES
from ....ir.loop.visit import loads_under
from ..expr import Emitter
from ..fetch import LINE
from ..llvm.core import IRValue

METADATA = "!0 = !{i32 1}"


def end_streams(em: Emitter) -> None:
    """Emit the fence that ends a thread's streaming stores."""
    if em.bypassing:
        em.declare("llvm.x86.sse.sfence", "void", [])
        em.function.write("call void @llvm.x86.sse.sfence()")


def emit_streaming(em: Emitter, func: Func, emit: Callable[[Emitter, Stmt], None]) -> None:
    """Emit the body of a function, once more with streaming stores if it may have them."""
    buffers = _streamed(em, func)
    if not buffers:
        emit(em, func.body)
        return
    offset = em.const(0, index)
    for buffer in sorted(buffers, key=func.params.index):
        start = em.buffers[buffer]
        address = em.pure(f"ptrtoint ptr {start.text} to i64", index, 0, start.depth)
        offset = em.binary("or", offset, em.binary("and", address, em.const(LINE - 1, index)))
    pays = em.compare("eq", offset, em.const(0, index))
    if IN_PLACE.of(func):
        pays = _apart(em, func, buffers, pays)
    em.function.open_arm()
    em.bypassing = buffers
    emit(em, func.body)
    end_streams(em)
    em.bypassing = frozenset()
    past = em.function.close_arm()
    em.function.open_arm()
    emit(em, func.body)
    em.function.branch(pays, past, em.function.close_arm())


def _apart(em: Emitter, func: Func, buffers: frozenset[Buffer], pays: IRValue) -> IRValue:
    """Return the condition that ``pays`` holds and no result takes the place of an input.

    The memory of an input is in the cache by then.
    """
    for x in func.params[: -func.outputs]:
        for buffer in sorted(buffers, key=func.params.index):
            same = f"icmp ne ptr {em.buffers[x].text}, {em.buffers[buffer].text}"
            pays = em.binary("and", pays, em.pure(same, pred, 0, 0))
    return pays


def _streamed(em: Emitter, func: Func) -> frozenset[Buffer]:
    """Return the results to write past the caches: the function only writes them, line by line."""
    if em.target.machine != "x86_64" or em.target.vector_bits < 8 * LINE:
        return frozenset()
    if UPDATES.of(func):
        return frozenset()
    read = {x.buffer for x in loads_under(func.body)}
    return frozenset(func.params[n] for n in STREAMED.of(func) or ()) - read
