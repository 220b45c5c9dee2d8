"""Loads and stores: scalar, contiguous, reversed, strided, data-dependent; masked where needed.

Every access states the alignment of one element: nothing more is known of a user's arrays, and it
costs nothing on machines with unaligned vectors.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import DType, index, pred, s8, s32
from ...ir.loop.build import both, opposite
from ...ir.loop.nodes import Buffer, Cast, Expr, Load, Op, Scope
from ...ir.loop.unclamped import unclamped
from .fetch import LINE, fetch_far
from .index import Indices, Lanes, LinearForm
from .llvm.convert import convert
from .llvm.core import IRValue, mangle, memory_type
from .llvm.fold import lane_literals
from .llvm.opaque import opaque
from .scalarize import is_plain, load_scalarized, store_one, store_scalarized, stored_type
from .small_strides import (
    is_near,
    is_within_vector,
    load_near,
    load_run,
    load_within_vector,
    masks_loads,
)

SMALL = 2**31 - 1
NONTEMPORAL = ", !nontemporal !0"


def _size(buffer: Buffer) -> int:
    return buffer.shape[0]


def _loaded(em: Indices, x: IRValue, dtype: DType) -> IRValue:
    return em.compare("ne", x, em.like(0, x)) if dtype == pred else x


def load_element(em: Indices, buffer: Buffer, at: Expr) -> IRValue:
    """Load the element of ``buffer`` at an index, per lane where the index depends on the lane."""
    if em.lanes is not None and em.lanes.known:
        at = _unclamped(em, buffer, at, both(*em.lanes.known))
    form = em.form(at)
    if not is_plain(em, form):
        return _loaded(em, load_scalarized(em, buffer, at, form), buffer.dtype)
    if form is None:
        spread = em.uneven(at)
        if spread is not None and is_within_vector(em, buffer, spread):
            return _loaded(em, load_within_vector(em, buffer, spread), buffer.dtype)
        return _gather(em, buffer, em.buffers[buffer], em.value(at))
    if em.lanes is None or not form.lane:
        return _load_scalar(em, buffer, form)
    count = em.lanes.count
    if form.lane == 1:
        fetch_far(em, buffer, form)
        return _load_vector(em, buffer, em.pointer(buffer, form), em.alignment(buffer, at))
    if form.lane == -1 and (em.lanes.mask is None or masks_loads(em.target, buffer.dtype)):
        return _load_reversed(em, buffer, form, em.lanes)
    if is_near(em, buffer, form):
        return _loaded(em, load_near(em, buffer, form), buffer.dtype)
    narrow = abs(form.lane) * count <= SMALL
    steps = em.iota(s32 if narrow else index, count, form.lane)
    return _gather(em, buffer, em.pointer(buffer, form), steps)


def _load_reversed(em: Indices, buffer: Buffer, form: LinearForm, lanes: Lanes) -> IRValue:
    back = list(range(lanes.count - 1, -1, -1))
    first = replace(form, constant=form.constant - lanes.count + 1)
    on = lanes.mask if buffer.scope is not Scope.REGISTER else None
    mask = None if on is None else em.shuffle(on, back)
    x = load_run(em, buffer, em.pointer(buffer, first), mask, buffer.dtype.bytes)
    return em.shuffle(_loaded(em, x, buffer.dtype), back)


def gains(em: Indices, known: Expr | None, e: Expr) -> bool:
    """True if loads of ``e`` are of neighbors for lanes where ``known`` holds, and only for these.

    In ``select(0 <= y and y < n, x[min(max(y, 0), n - 1)], 0)`` each lane at an end has an index of
    its own. Where the condition holds the index is ``y``, so that a load of those lanes alone is
    one of neighbors. False without masked loads.
    """
    match e:
        case Load(buffer=buffer, index=(at,)):
            if em.device is not None or not masks_loads(em.target, buffer.dtype):
                return False
            return at is not _unclamped(em, buffer, at, known)
        case Op(name="select", args=(cond, a, b)) if cond.dtype == pred:
            return gains(em, both(known, cond), a) or gains(em, both(known, opposite(cond)), b)
        case Op(args=args):
            return any(gains(em, known, x) for x in args)
        case Cast(value=value):
            return gains(em, known, value)
        case _:
            return False


def _unclamped(em: Indices, buffer: Buffer, at: Expr, known: Expr | None) -> Expr:
    """Return an index without its clamps, if they do nothing where ``known`` holds.

    Unchanged if that does not make the lanes neighbors.
    """
    if buffer.scope is Scope.REGISTER or _is_near(em, at):
        return at
    free = unclamped(at, known)
    return free if _is_near(em, free) else at


def _is_near(em: Indices, at: Expr) -> bool:
    """True if lanes are neighbors, in either order, or the same element."""
    form = em.form(at)
    return form is not None and form.lane in (-1, 0, 1)


def _load_scalar(em: Indices, buffer: Buffer, form: LinearForm) -> IRValue:
    dtype = stored_type(buffer.dtype)
    pointer = em.pointer(buffer, form)
    if em.lanes is not None and em.lanes.mask is not None and not em.lanes.certain:
        # No lane may be on: then there may be no such element, but there is a first one.
        any_on = em.any_lane(em.lanes.mask)
        start = em.buffers[buffer]
        text = f"select {any_on}, ptr {pointer.text}, ptr {start.text}"
        pointer = em.pure(text, index, 0, max(any_on.depth, pointer.depth, start.depth))
    text = f"load {memory_type(buffer.dtype)}, ptr {pointer.text}, align {buffer.dtype.bytes}"
    x = em.read(text, dtype, 0, buffer, pointer, pointer.depth)
    return _loaded(em, x, buffer.dtype)


def _load_vector(em: Indices, buffer: Buffer, pointer: IRValue, align: int) -> IRValue:
    assert em.lanes is not None
    mask = None if buffer.scope is Scope.REGISTER else em.lanes.mask
    return _loaded(em, load_run(em, buffer, pointer, mask, align), buffer.dtype)


def _narrowed(em: Indices, buffer: Buffer, steps: IRValue) -> IRValue:
    """Truncate indices to 32 bits where the buffer is small enough: half the registers of
    a gather.
    """
    if steps.dtype == index and steps.lanes and _size(buffer) <= SMALL:
        return convert(em, steps, s32)
    return steps


def _addresses(em: Indices, buffer: Buffer, start: IRValue, steps: IRValue) -> IRValue:
    steps = _narrowed(em, buffer, steps)
    text = f"getelementptr {memory_type(buffer.dtype)}, ptr {start.text}, {steps}"
    return em.pure(text, index, steps.lanes, max(start.depth, steps.depth))


def _gather(em: Indices, buffer: Buffer, start: IRValue, steps: IRValue) -> IRValue:
    dtype, mask = stored_type(buffer.dtype), em.mask_text()
    count = mask.lanes
    type_ = f"<{count} x {memory_type(buffer.dtype)}>"
    pointers = _addresses(em, buffer, start, steps)
    name = f"llvm.masked.gather.{mangle(dtype, count)}.v{count}p0"
    em.declare(name, type_, [f"<{count} x ptr>", "i32", mask.type, type_])
    text = (
        f"call {type_} @{name}(<{count} x ptr> {pointers.text}, i32 {buffer.dtype.bytes}, "
        f"{mask}, {type_} zeroinitializer)"
    )
    depth = max(pointers.depth, mask.depth)
    return _loaded(em, em.function.read(text, dtype, count, buffer, depth), buffer.dtype)


def store_element(em: Indices, buffer: Buffer, at: Expr, value: IRValue) -> None:
    """Emit ``buffer[at] = value`` in the active lanes."""
    if value.dtype == pred:
        value = em.cast("zext", value, s8)
    form = em.form(at)
    lanes = em.lanes
    if lanes is not None and not is_plain(em, form):
        store_scalarized(em, buffer, at, form, em.broadcast(value, lanes.count))
    elif lanes is None or (form is not None and not form.lane):
        assert form is not None
        _store_uniform(em, buffer, form, value)
    elif form is not None and form.lane == 1:
        align = em.alignment(buffer, at)
        _store_vector(em, buffer, em.pointer(buffer, form), em.broadcast(value, lanes.count), align)
    elif form is not None:
        narrow = abs(form.lane) * lanes.count <= SMALL
        steps = em.iota(s32 if narrow else index, lanes.count, form.lane)
        _scatter(em, buffer, em.pointer(buffer, form), steps, em.broadcast(value, lanes.count))
    else:
        value = em.broadcast(value, lanes.count)
        _scatter(em, buffer, em.buffers[buffer], em.value(at), value)
    em.function.forget(buffer)


def _store_uniform(em: Indices, buffer: Buffer, form: LinearForm, value: IRValue) -> None:
    """Store an element that is the same for every lane.

    The lanes agree, so any active lane will do.
    """
    pointer = em.pointer(buffer, form)
    one = em.lane(value, 0)
    if em.lanes is None or em.lanes.mask is None or em.lanes.certain:
        store_one(em, buffer, pointer, one)
        return
    em.function.open_arm()
    store_one(em, buffer, pointer, one)
    em.function.branch(em.any_lane(em.lanes.mask), em.function.close_arm(), None)


def _store_vector(
    em: Indices, buffer: Buffer, pointer: IRValue, value: IRValue, align: int
) -> None:
    assert em.lanes is not None
    mask, doubtful = em.lanes.mask, buffer in em.lane_dependent
    on = None if mask is None else lane_literals(mask)
    if mask is not None and buffer.scope is Scope.REGISTER:  # masked stores are not promoted
        kept = f"load {value.type}, ptr {pointer.text}, align {align}"
        old = em.function.read(kept, value.dtype, value.lanes, buffer, pointer.depth)
        value, mask = em.select(mask, value, old), None
        doubtful = doubtful or on is None or sum(on) == 1
    if mask is None:
        value = opaque(em, value) if doubtful else value
        past = NONTEMPORAL if _is_streamed(em, buffer, value, align) else ""
        line = f"store {value}, ptr {pointer.text}, align {align}{past}"
        em.change(line, buffer, pointer, value)
    elif on is not None and sum(on) == 1:
        lane, type_ = on.index(1), memory_type(buffer.dtype)
        at = em.offset(pointer, em.const(lane, index), type_) if lane else pointer
        store_one(em, buffer, at, em.lane(value, lane))
    else:
        value = opaque(em, value)
        name = f"llvm.masked.store.{mangle(value.dtype, value.lanes)}.p0"
        em.declare(name, "void", [value.type, "ptr", "i32", mask.type])
        em.function.write(f"call void @{name}({value}, ptr {pointer.text}, i32 {align}, {mask})")


def _is_streamed(em: Indices, buffer: Buffer, value: IRValue, align: int) -> bool:
    """True if a store of this vector goes past the caches: it is a line that nothing reads soon."""
    whole = value.lanes * value.dtype.bytes == LINE
    return buffer in em.bypassing and whole and align == LINE


def _scatter(em: Indices, buffer: Buffer, start: IRValue, steps: IRValue, value: IRValue) -> None:
    mask, count = em.mask_text(), value.lanes
    pointers = _addresses(em, buffer, start, steps)
    name = f"llvm.masked.scatter.{mangle(value.dtype, count)}.v{count}p0"
    em.declare(name, "void", [value.type, f"<{count} x ptr>", "i32", mask.type])
    em.function.write(
        f"call void @{name}({value}, <{count} x ptr> {pointers.text}, "
        f"i32 {buffer.dtype.bytes}, {mask})"
    )
