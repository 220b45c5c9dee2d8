"""Blocks of threads that count themselves: the last one knows that all others are done.

A counter is a word of the module's own memory, zero when it is loaded. One thread of a block adds
to it, after a barrier and with release and acquire semantics at the scope of the GPU, so that what
any thread of an earlier block wrote is visible to all threads of the last one; ``atom.inc`` wraps
to zero there, for the next launch. The barrier that follows tells all threads.
"""

from __future__ import annotations

from ....ir.dtypes import s32
from ....ir.loop.nodes import Buffer
from ...emit.expr import Emitter
from ...emit.launches import LaunchNest
from ...emit.llvm.core import IRValue
from .assembly import assembly_result


def counters_of(nest: LaunchNest, buffer: Buffer) -> tuple[str, str]:
    """Return the name of the memory of a launch's counters, and its definition."""
    name = f"@nw_{nest.symbol}_{buffer.name}_{nest.around.index(buffer)}"
    words = f"[{buffer.shape[0]} x i32]"
    return name, f"{name} = internal addrspace(1) global {words} zeroinitializer, align 4"


def emit_arrival(em: Emitter, nest: LaunchNest, counter: str, to: IRValue, blocks: int) -> None:
    """Emit the arrival of a block at a counter; ``to`` gets 1 if it is the last one, else 0."""
    last = blocks - 1
    lines = (
        ".reg .pred p;",
        ".reg .b32 n;",
        "mov.b32 n, -1;",
        "setp.eq.u32 p, $1, 0;",
        f"@p atom.acq_rel.gpu.global.inc.u32 n, [$2], {last};",
        f"setp.eq.u32 p, n, {last};",
        "barrier.red.or.pred p, 0, p;",
        "selp.u32 $0, 1, 0, p;",
    )
    text = f"{{ {' '.join(lines)} }}"
    answer = assembly_result(em, text, s32, 1, _thread(em, nest), counter)
    em.function.write(f"store {answer}, ptr {to.text}, align 4")


def _thread(em: Emitter, nest: LaunchNest) -> IRValue:
    """Return a number that is 0 for one thread of a block."""
    assert em.device is not None
    value = em.device.thread_index("threadIdx.x")
    for axis, extent in zip("yz", nest.block[1:], strict=True):
        if extent > 1:
            value = em.binary("or", value, em.device.thread_index(f"threadIdx.{axis}"))
    return value
