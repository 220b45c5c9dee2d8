"""Emit loop-IR statements as LLVM code: stores, lets, conditionals, loops, memory, parallel bodies.

An unrolled loop is written out here, its variable a literal. A parallel loop's body becomes a
function of its own that reads its captured values from a context on the caller's stack. Buffers
outside of parallel loops are placed in the ``workspace`` that the caller of the kernel provides
(see ``lower.workspace``); those inside belong to one thread: a stack slot if small, else scratch
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....ir.dtypes import index, pred, s8
from ....ir.errors import UnsupportedError
from ....ir.loop.affine import bounds, loop_range
from ....ir.loop.nodes import (
    SHARED_ALIGN,
    Alloc,
    AllReduce,
    Block,
    Buffer,
    For,
    If,
    Intrinsic,
    Kind,
    Let,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from ....ir.loop.notes import FETCH, FETCH_AHEAD, IN_TILES
from ....ir.loop.visit import buffers_read, buffers_written, exprs_under
from ...lower.passes.workspace import ALIGN, buffer_bytes, is_tile
from ...plan.symbols import PARALLEL
from ..access import store_element
from ..align import divisor
from ..expr import Emitter
from ..fetch import fetch_lines, streams
from ..launches import DeviceEmitter, LaunchNest
from ..llvm.core import Function, IRValue, memory_type
from ..small_strides import store_paired
from .flushing import definitions, parallel_call
from .interleaved import store_interleaved
from .interrupt_polls import close_loop, return_if_interrupted
from .lane_dots import accumulate_dot
from .lane_trees import reduce_neighbors
from .pieces import few_pieces
from .streaming import end_streams
from .tile_dots import accumulate_tiles, end_tiles, lose_tiles, uses_tiles
from .transposed import store_transposed
from .vector import narrow_counter, reduce_element, unrolled_loop, vector_loop

OWN_ALIGN = 16  # bytes: of the buffers of one GPU thread
STACK = 8 << 10  # bytes up to which a thread's own buffer is on its stack


def emit_stmt(em: Emitter, s: Stmt) -> None:
    """Emit a statement at the end of the open region."""
    match s:
        case Store(buffer=buffer, index=(at,), value=value):
            if not reduce_element(em, s):
                store_element(em, buffer, at, em.value(value))
        case Let(var=var, value=value, body=body):
            em.env[var] = em.value(value)
            if var.dtype == index:
                em.ranges[var] = bounds(value, em.ranges)
                if em.device is not None or em.bypassing:
                    em.divisors[var] = divisor(value, em.divisor)
            emit_stmt(em, body)
        case If():
            _branch(em, s)
        case Seq(stmts=stmts):
            _sequence(em, stmts)
        case For():
            emit_loop(em, s)
        case Alloc():
            _alloc(em, s)
        case Intrinsic() | AllReduce():
            _collective(em, s)
        case Block(name=name):
            raise AssertionError(f"block {name} was not opened")
        case _:
            raise AssertionError(f"not a flat statement: {s}")


def _sequence(em: Emitter, stmts: Sequence[Stmt]) -> None:
    """Emit statements in order, some pairs of them together."""
    n = 0
    while n < len(stmts):
        if n + 1 < len(stmts) and _pair(em, stmts[n], stmts[n + 1]):
            n += 2
            continue
        emit_stmt(em, stmts[n])
        n += 1


def _pair(em: Emitter, first: Stmt, second: Stmt) -> bool:
    """Emit two statements together where that is better; False if they are not emitted."""
    if isinstance(second, For) and IN_TILES.of(second) and accumulate_tiles(em, second, first):
        return True
    return store_paired(em, first, second)


def _branch(em: Emitter, s: If) -> None:
    cond = em.value(s.cond)
    if isinstance(cond.literal, bool):
        chosen = s.then if cond.literal else s.orelse
        if chosen is not None:
            emit_stmt(em, chosen)
    elif cond.lanes:
        _masked(em, s, cond)
    else:
        em.function.open_arm()
        emit_stmt(em, s.then)
        then, otherwise = em.function.close_arm(), None
        if s.orelse is not None:
            em.function.open_arm()
            emit_stmt(em, s.orelse)
            otherwise = em.function.close_arm()
        em.function.branch(cond, then, otherwise)


def _masked(em: Emitter, s: If, cond: IRValue) -> None:
    """Emit a conditional whose condition differs between lanes: both arms, each under its mask."""
    for mask, arm in ((cond, s.then), (em.negate_pred(cond), s.orelse)):
        if arm is not None and (lanes := em.masked(mask)) is not None:
            with em.over(lanes):
                emit_stmt(em, arm)


def emit_loop(em: Emitter, s: For) -> None:
    """Emit a loop according to its kind."""
    extent = em.value(s.extent)
    em.ranges[s.var] = loop_range(s.extent, em.ranges)
    count = extent.literal if isinstance(extent.literal, int) else None
    if count is not None and count <= 0:
        return
    if count == 1:
        em.env[s.var] = em.const(0, index)
        em.threaded = em.threaded or s.kind is Kind.THREAD
        emit_stmt(em, s.body)
        return
    match s.kind:
        case Kind.THREAD:
            em.env[s.var] = em.thread(_device(em, f"loop bound to {s.thread}"), s.thread, s.var)
            em.threaded = True
            emit_stmt(em, s.body)
        case Kind.UNROLLED if count is not None:
            if not _emit_together(em, s):
                unrolled_loop(em, s, count, emit_stmt)
        case Kind.VECTOR if count is not None and em.lanes is None:
            vector_loop(em, s, count, emit_stmt)
        case Kind.PARALLEL if not (em.parallel or em.device or em.lanes):
            _parallel(em, s, extent)
        case Kind.SERIAL if _emit_products(em, s):
            pass
        case _:
            serial_loop(em, s, extent)


def _emit_together(em: Emitter, s: For) -> bool:
    """Emit all iterations of an unrolled loop together where that is better; else False."""
    return store_interleaved(em, s) or store_transposed(em, s) or reduce_neighbors(em, s)


def _emit_products(em: Emitter, s: For) -> bool:
    """Emit a serial loop as dot products, in lanes or of tiles, where it is one; else False."""
    return accumulate_dot(em, s) or (bool(IN_TILES.of(s)) and accumulate_tiles(em, s))


def serial_loop(em: Emitter, s: For, extent: IRValue) -> None:
    """Emit a loop that counts from 0, guarded by a test where its trip count may be 0."""
    maybe = bounds(s.extent, em.ranges)[0] < 1
    if maybe:
        guard = em.compare("sgt", extent, em.const(0, index))
        em.function.open_arm()
    if FETCH_AHEAD.of(s) and em.device is None:
        for inner, found in streams(s).items():
            em.streams[inner] = [*em.streams.get(inner, ()), *found]
    counter, name = em.function.open_loop(em.stores(s.body), True)
    em.env[s.var] = counter
    em.fetches[name] = FETCH.of(s) or 0
    end = narrow_counter(em, counter, name, extent)
    fetch_lines(em, em.streams.get(id(s), ()))
    emit_stmt(em, s.body)
    close_loop(em, s, name, "0", end.text, 1, end.dtype.bits)
    if maybe:
        em.function.branch(guard, em.function.close_arm(), None)


def _device(em: Emitter, what: str) -> DeviceEmitter:
    if em.device is None:
        raise UnsupportedError(what, "code for a CPU has no GPU threads", hint="use target cuda")
    return em.device


def _collective(em: Emitter, s: Intrinsic | AllReduce) -> None:
    """Emit an operation of all threads of a block, after which their writes may be visible."""
    if isinstance(s, AllReduce):
        _device(em, "a reduction across threads").all_reduce(s)
    else:
        _device(em, f"intrinsic {s.name}").intrinsic(s)
    for buffer in em.stores(s):
        em.function.forget(buffer)


def _alloc_on_device(em: Emitter, s: Alloc, device: DeviceEmitter) -> None:
    """Allocate shared memory of the block, or a thread's own."""
    buffer, before = s.buffer, em.shared
    if buffer.scope is Scope.SHARED:
        em.buffers[buffer] = device.shared(buffer, before)
        em.shared += -(-buffer.shape[0] * buffer.dtype.bytes // SHARED_ALIGN) * SHARED_ALIGN
    elif buffer.scope is Scope.TENSOR:
        em.buffers[buffer] = device.tensor(buffer)
    else:
        type_ = f"[{buffer.shape[0]} x {memory_type(buffer.dtype)}]"
        em.buffers[buffer] = em.function.alloca(type_, OWN_ALIGN)
        if not device.watches(buffer):
            em.private.add(buffer)
    emit_stmt(em, s.body)
    em.function.forget(buffer)
    em.shared = before


def _alloc(em: Emitter, s: Alloc) -> None:
    buffer, function = s.buffer, em.function
    if em.device is not None and (em.threaded or buffer.scope is not Scope.GLOBAL):
        _alloc_on_device(em, s, em.device)
        return
    size, before = buffer_bytes(buffer), em.workspace
    type_ = f"[{size // buffer.dtype.bytes} x {memory_type(buffer.dtype)}]"
    if is_tile(buffer) or (em.parallel and size <= STACK):
        em.buffers[buffer] = function.alloca(type_, ALIGN)
    elif em.parallel:
        em.declare("nw_scratch", "ptr", ["i64"])
        name = f"%{function.name_for('own')}"
        function.regions[0].lines.append(f"  {name} = call ptr @nw_scratch(i64 {size})")
        em.buffers[buffer] = IRValue(name, index)
    else:
        em.workspace = place_in_workspace(em, buffer, before)
    emit_stmt(em, s.body)
    function.forget(buffer)  # its place may be another buffer's from here on
    em.workspace = before


def place_in_workspace(em: Emitter, buffer: Buffer, start: int) -> int:
    """Place ``buffer`` at byte ``start`` of the workspace; return its end."""
    work = IRValue("%workspace", index)
    em.buffers[buffer] = em.offset(work, em.const(start, index), "i8") if start else work
    return start + buffer_bytes(buffer)


def _captures(s: For) -> tuple[set[Var], set[Buffer]]:
    """Return the variables and buffers that a loop's body uses, its own included."""
    names = {x for x in exprs_under(s.body) if isinstance(x, Var)}
    return names, {*buffers_read(s.body), *buffers_written(s.body)}


def _parallel(em: Emitter, s: For, extent: IRValue) -> None:
    """Emit ``for i in parallel(n): body`` as ``nw_parallel(&body, &context, pieces)``."""
    names, buffers = _captures(s)
    taken: dict[Var | Buffer, IRValue] = {
        k: v for k, v in em.env.items() if k in names and v.literal is None
    }
    taken |= {k: v for k, v in em.buffers.items() if k in buffers}
    outer = em.function
    name = f"{outer.name}.{outer.name_for('body')}"
    context = outer.alloca(f"[{max(1, len(taken))} x i64]", 8)
    for slot, (key, value) in enumerate(taken.items()):
        at = em.offset(context, em.const(8 * slot, index), "i8") if slot else context
        pointer = isinstance(key, Buffer)
        wide = em.cast("zext", value, s8) if value.dtype == pred else value
        kept = f"ptr {value.text}" if pointer else str(wide)
        outer.write(f"store {kept}, ptr {at.text}, align 8")
    em.declare(PARALLEL, "void", ["ptr", "ptr", "i64"])
    pieces = few_pieces(s, em.target, em.ranges)
    shared = extent if pieces is None else em.const(pieces, index)
    outer.write(parallel_call(em.target, f"ptr @{name}, ptr {context.text}, {shared}"))
    if _outline(em, s, name, taken, pieces):
        lose_tiles(em)
    return_if_interrupted(em, s)
    for buffer in em.stores(s.body):
        outer.forget(buffer)


def _outline(
    em: Emitter, s: For, name: str, taken: Mapping[Var | Buffer, IRValue], pieces: int | None
) -> bool:
    """Emit the function that runs iterations ``begin`` to ``end - 1``, or such pieces of all.

    True if it uses tile registers, which are the caller's, too.
    """
    function = Function(name, "ptr %context, i64 %begin, i64 %end", em.target)
    with em.outlined(function):
        _load_context(em, taken)
        begin, end = IRValue("%begin", index), IRValue("%end", index)
        if pieces is not None:
            begin, end = (_first_of(em, s, x, pieces) for x in (begin, end))
        counter, loop = function.open_loop(em.stores(s.body), True)
        em.env[s.var] = counter
        emit_stmt(em, s.body)
        close_loop(em, s, loop, begin.text, end.text, 1, index.bits)
        end_streams(em)
        end_tiles(em)
        tiled = uses_tiles(em)
        em.finished += definitions(function, "#0", "internal ")
    return tiled


def _load_context(em: Emitter, taken: Mapping[Var | Buffer, IRValue]) -> None:
    """Load what ``_parallel`` stored: eight bytes for each variable and each buffer's address."""
    context = IRValue("%context", index)
    for slot, (key, value) in enumerate(taken.items()):
        at = em.offset(context, em.const(8 * slot, index), "i8") if slot else context
        if isinstance(key, Buffer):
            em.buffers[key] = em.function.result(f"load ptr, ptr {at.text}, align 8", index)
        else:
            type_ = memory_type(value.dtype)
            got = em.function.result(f"load {type_}, ptr {at.text}, align 8", value.dtype)
            byte = replace(got, dtype=s8)
            is_pred = value.dtype == pred
            em.env[key] = em.compare("ne", byte, em.like(0, byte)) if is_pred else got


def _first_of(em: Emitter, s: For, piece: IRValue, pieces: int) -> IRValue:
    """Return the first iteration of a piece of a parallel loop."""
    before = em.binary("mul", piece, em.value(s.extent))
    return em.binary("udiv", before, em.const(pieces, index))


def emit_nest(em: Emitter, device: DeviceEmitter, nest: LaunchNest) -> None:
    """Emit one GPU launch into ``em.finished``."""
    em.env, em.ranges, em.divisors, em.private = {}, {}, {}, set()
    em.stored, em.exchanged, em.small = {}, nest.exchanged, {}
    em.threaded, em.shared, em.workspace = False, 0, 0
    device.open_launch(nest)
    for buffer in nest.around:
        if buffer.scope is Scope.COUNTER:
            em.buffers[buffer] = device.counters(buffer)
        else:
            em.workspace = place_in_workspace(em, buffer, em.workspace)
    emit_stmt(em, nest.body)
    device.close_launch(nest)
