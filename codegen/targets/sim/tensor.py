"""Intrinsics of tensor memory, as calls of the simulator's runtime (``tensor.ll``)."""

from __future__ import annotations

from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic
from .asynchronous import CoroutineDevice, place_of, product_constant


def emit_tensor(sim: CoroutineDevice, s: Intrinsic) -> None:
    """Emit an intrinsic of tensor memory."""
    if (x := TABLE[s.name].product) is not None:
        flag, _, a, b = s.reads
        operands = (
            f"{place_of(sim, a)}, {place_of(sim, b)}, ptr {product_constant(sim, s, x, (a, b))}"
        )
        to = f"{place_of(sim, s.writes[0])}, i64 {_pitch(s)}, i64 {sim.number(flag)}"
        sim.end_if(f"call i1 @nw_tensor_multiply({to}, {operands})")
        return
    match s.name.split("."):
        case ["tensor_alloc"]:
            place = place_of(sim, s.writes[0])
            sim.end_if(f"call i1 @nw_tensor_alloc({place}, i64 {s.args[0]})")
        case ["tensor_free"]:
            sim.end_if(f"call i1 @nw_tensor_free(i64 {s.args[0]})")
        case ["tensor_commit"]:
            sim.end_if(f"call i1 @nw_tensor_commit({place_of(sim, s.writes[0])})")
        case ["tensor_load", words]:
            to = f"ptr {sim.address(s.writes[0]).text}, i64 {words[1:]}"
            call = f"{place_of(sim, s.reads[0])}, i64 {_pitch(s)}, {to}"
            sim.end_if(f"call i1 @nw_tensor_load({call})")
        case _:
            sim.thread.raw(f"call void @nw_{s.name}()")


def _pitch(s: Intrinsic) -> int:
    """Bytes from lane to lane of tensor memory, as it is simulated."""
    column = s.writes[0] if TABLE[s.name].product is not None else s.reads[0]
    return column.buffer.shape[0] * column.buffer.dtype.bytes
