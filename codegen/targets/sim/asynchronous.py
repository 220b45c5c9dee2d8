"""Intrinsics of barriers with phases and of the asynchronous proxy, as calls of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....ir.dtypes import f32, index, s32
from ....ir.errors import UnsupportedError
from ....ir.loop.intrinsics import TABLE, WARP
from ....ir.loop.nodes import Buffer, Intrinsic, Region, Scope, Stmt
from ....ir.loop.tensor_memory import TensorMatrix
from ....ir.loop.visit import walk
from ....ir.loop.warpgroups import GroupMatrix
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
from ...runtime.sim import structs
from .describe import Described, SimulatedModule, Site
from .matrix import values_of_bytes
from .thread import ThreadFunction


class CoroutineDevice(Protocol):
    """The part of the simulator that is used here."""

    em: Emitter
    thread: ThreadFunction
    out: SimulatedModule
    here: Described

    def record(self, buffer: Buffer) -> str:
        """Return the name of a buffer's record."""

    def address(self, region: Region) -> IRValue:
        """Return the address of a box of a flat buffer."""

    def number(self, region: Region, at: int = 0) -> str:
        """Return an element of a box of 32-bit registers, as an i64."""

    def deposit(self, operands: list[IRValue]) -> None:
        """Leave addresses where whoever does the operation finds them."""

    def suspend(self, state: int) -> None:
        """Wait in a state."""

    def suspend_here(self) -> None:
        """Wait in the state that this thread is in already."""

    def end_if(self, call: str, depth: int = -1) -> None:
        """End the thread where a call says that there was a fault."""


def emit_asynchronous(sim: CoroutineDevice, s: Intrinsic) -> bool:
    """Emit an intrinsic; False if it is none of these."""
    match s.name:
        case "mbarrier_init":
            sim.end_if(f"call i1 @nw_phase_init({place_of(sim, s.writes[0])}, i64 {s.args[0]})")
        case "mbarrier_arrive":
            sim.end_if(f"call i1 @nw_phase_arrive({place_of(sim, s.writes[0])}, i64 0)")
        case "mbarrier_expect":
            sim.end_if(f"call i1 @nw_phase_arrive({place_of(sim, s.writes[0])}, i64 {s.args[0]})")
        case "mbarrier_arrive_copies":
            sim.end_if(f"call i1 @nw_phase_arrive_copies({place_of(sim, s.writes[0])})")
        case "mbarrier_wait":
            bar, parity = place_of(sim, s.reads[0]), sim.number(s.reads[1])
            sim.end_if(f"call i1 @nw_phase_wait({bar}, i64 {parity})")
            sim.suspend_here()
        case "named_barrier" | "named_barrier_arrive":
            _named(sim, s)
        case "fence_proxy_async":
            sim.thread.raw("call void @nw_phase_fence()")
        case "tma_load" | "tma_store":
            _box(sim, s)
        case "tma_commit":
            sim.thread.raw("call void @nw_box_commit()")
        case "tma_wait" | "tma_wait_read":
            sim.thread.raw(f"call void @nw_box_wait(i64 {s.args[0]})")
        case "wgmma_fence":
            _together(sim, s.name, "void @nw_group_fence(ptr $, i64 %stride)")
        case "wgmma_commit":
            _together(sim, s.name, "void @nw_group_commit(ptr $, i64 %stride)")
        case "wgmma_wait":
            call = f"void @nw_group_wait(ptr $, i64 %stride, i64 {s.args[0]})"
            _together(sim, s.name, call)
        case name if (group := TABLE[name].group) is not None:
            _multiply(sim, s, group)
        case "fence_mbarrier_init":
            sim.thread.raw("call void @nw_phase_fence_init()")
        case "give_registers" | "take_registers":
            pass
        case _:
            return False
    return True


def place_of(sim: CoroutineDevice, region: Region) -> str:
    """Return the operands for a place in memory: its buffer's record, its address."""
    record, at = sim.record(region.buffer), sim.address(region)
    return f"ptr {record}, ptr {at.text}"


def _box(sim: CoroutineDevice, s: Intrinsic) -> None:
    """Emit a bulk copy. Its constant has the matrix, the box, its swizzle and bytes (``BOX``)."""
    tile, matrix = (s.writes[0], s.reads[0]) if s.name == "tma_load" else (s.reads[0], s.writes[0])
    values = dict(zip(structs.BOX.fields, (*s.args, tile.buffer.dtype.bytes), strict=True))
    box = _constant(sim, "box", structs.BOX.constant(values))
    operands = [f"ptr {box}", place_of(sim, tile), place_of(sim, matrix)]
    if s.name == "tma_load":
        operands.append(place_of(sim, s.reads[2]))
    operands += [f"i64 {sim.number(s.reads[1], n)}" for n in (0, 1)]
    sim.end_if(f"call i1 @nw_{s.name.replace('tma', 'box')}({', '.join(operands)})")


def _together(
    sim: CoroutineDevice, name: str, call: str, operands: tuple[IRValue, ...] = ()
) -> None:
    """Have 128 threads meet, who deposit operands and last their numbers."""
    me = sim.thread.name_for("m")
    sim.thread.raw(f"%{me} = call ptr @nw_group_me()")
    sim.deposit([*operands, IRValue(f"%{me}", index)])
    action = f"getelementptr i8, ptr %slots, i64 0|{call}"
    sim.suspend(sim.here.site(Site(name, structs.GROUP, (action,))))


def _multiply(sim: CoroutineDevice, s: Intrinsic, x: GroupMatrix) -> None:
    c, a, b = s.writes[0], s.reads[1], s.reads[2]
    held = a.buffer.scope is Scope.REGISTER
    product = product_constant(sim, s, x, (a, b))
    records = [IRValue(sim.record((b if held else r).buffer), index) for r in (a, b)]
    operands = (*map(sim.address, (c, a, b)), *records)
    call = f"void @nw_group_multiply(ptr $, i64 %stride, ptr {product})"
    _together(sim, s.name, call, operands)


def product_constant(
    sim: CoroutineDevice, s: Intrinsic, x: GroupMatrix | TensorMatrix, sides: Sequence[Region]
) -> str:
    """Return the name of a constant that describes a product (``structs.PRODUCT``) of operands."""
    held = sides[0].buffer.scope is Scope.REGISTER
    kind = "tf32" if x.operands == f32 else str(x.operands)
    known = kind if kind in structs.ELEMENTS else "byte"
    values: dict[str, object] = {
        "columns": x.n,
        "depth": x.k,
        "bytes": x.operands.bytes,
        "kind": structs.ELEMENTS.index(known),
        "whole": int(x.sums == s32),
        "held": int(held),
    }
    turned, sizes = s.args[:2], (*((0,) * 3 if held else ()), *s.args[2:])
    for n, side in enumerate("ab"):
        table = "null"
        if known == "byte":
            table = _constant(sim, "values", values_of_bytes(x.types[n]))
        layout = (turned[n], *sizes[3 * n : 3 * n + 3], f"ptrtoint (ptr {table} to i64)")
        values[side] = f"[{', '.join(f'i64 {v}' for v in layout)}]"
    return _constant(sim, "product", structs.PRODUCT.constant(values))


def _constant(sim: CoroutineDevice, stem: str, text: str) -> str:
    """Return the name of a constant of the module; equal ones are the same."""
    known = sim.out.products
    for name, line in known.items():
        if line.endswith(f" = internal constant {text}"):
            return name
    name = f"@{sim.out.name}.{stem}{len(known)}"
    known[name] = f"{name} = internal constant {text}"
    return name


def sums_of(s: Stmt) -> frozenset[Buffer]:
    """Return the registers that products of 128 threads update or read, and asynchronous loads."""
    calls = [x for x in walk(s) if isinstance(x, Intrinsic) and x.name in TABLE]
    used = [r for x in calls if TABLE[x.name].group is not None for r in x.reads]
    used += [r for x in calls if x.name.startswith("tensor_load") for r in x.writes]
    return frozenset(r.buffer for r in used if r.buffer.scope is Scope.REGISTER)


def touch_sums(sim: CoroutineDevice, pointer: IRValue, size: int, write: bool, depth: int) -> None:
    """Emit what checks an access to such registers."""
    flag = str(write).lower()
    sim.end_if(f"call i1 @nw_group_touch(ptr {pointer.text}, i64 {size}, i1 {flag})", depth)


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
