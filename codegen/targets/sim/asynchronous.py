"""Intrinsics of barriers with phases and of the asynchronous proxy, as calls of the runtime."""

from __future__ import annotations

from typing import Protocol

from ....ir.errors import UnsupportedError
from ....ir.loop.intrinsics import WARP
from ....ir.loop.nodes import Buffer, Intrinsic, Region
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
from .describe import SimulatedModule
from .thread import ThreadFunction


class CoroutineDevice(Protocol):
    """The part of the simulator that is used here."""

    em: Emitter
    thread: ThreadFunction
    out: SimulatedModule

    def record(self, buffer: Buffer) -> str:
        """Return the name of a buffer's record."""

    def address(self, region: Region) -> IRValue:
        """Return the address of a box of a flat buffer."""

    def number(self, region: Region, at: int = 0) -> str:
        """Return an element of a box of 32-bit registers, as an i64."""

    def suspend_here(self) -> None:
        """Wait in the state that this thread is in already."""

    def end_if(self, call: str) -> None:
        """End the thread where a call says that there was a fault."""


def emit_asynchronous(sim: CoroutineDevice, s: Intrinsic) -> bool:
    """Emit an intrinsic; False if it is none of these."""
    match s.name:
        case "mbarrier_init":
            sim.end_if(f"call i1 @nw_phase_init({_bar(sim, s.writes[0])}, i64 {s.args[0]})")
        case "mbarrier_arrive":
            sim.end_if(f"call i1 @nw_phase_arrive({_bar(sim, s.writes[0])}, i64 0)")
        case "mbarrier_expect":
            sim.end_if(f"call i1 @nw_phase_arrive({_bar(sim, s.writes[0])}, i64 {s.args[0]})")
        case "mbarrier_arrive_copies":
            sim.end_if(f"call i1 @nw_phase_arrive_copies({_bar(sim, s.writes[0])})")
        case "mbarrier_wait":
            bar, parity = _bar(sim, s.reads[0]), sim.number(s.reads[1])
            sim.end_if(f"call i1 @nw_phase_wait({bar}, i64 {parity})")
            sim.suspend_here()
        case "named_barrier" | "named_barrier_arrive":
            _named(sim, s)
        case "fence_proxy_async":
            sim.thread.raw("call void @nw_phase_fence()")
        case "fence_mbarrier_init" | "give_registers" | "take_registers":
            pass
        case _:
            return False
    return True


def _bar(sim: CoroutineDevice, region: Region) -> str:
    """Return the operands for an mbarrier: its buffer's record, its address."""
    record, at = sim.record(region.buffer), sim.address(region)
    return f"ptr {record}, ptr {at.text}"


def _named(sim: CoroutineDevice, s: Intrinsic) -> None:
    number, count = s.args
    if not 1 <= number <= 15 or count % WARP or not count:
        what = f"intrinsic {s.name} {number} of {count} threads"
        raise UnsupportedError(what, f"barriers 1 to 15 are of multiples of {WARP} threads")
    waits = s.name == "named_barrier"
    name = sim.out.string("named barrier")
    flag = str(waits).lower()
    sim.end_if(f"call i1 @nw_phase_named(i64 {number}, i64 {count}, ptr {name}, i1 {flag})")
    if waits:
        sim.suspend_here()
