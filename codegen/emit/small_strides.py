"""Accesses of small stride: parts of complex numbers, elements of short rows.

Contiguous vectors and shuffles replace gathers, or two scatters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.dtypes import DType, pred
from ...ir.loop.nodes import Buffer, Const, Scope, Stmt, Store, Var
from ...ir.target import Target
from .index import Indices, LinearForm
from .llvm.core import IRValue, mangle, memory_type
from .llvm.opaque import opaque
from .scalarize import stored_type

FARTHEST = 16  # elements between neighboring lanes: a shuffle each
FARTHEST_MASKED = 4  # of them where lanes may be off: a mask and a shuffle each
MASKED = {512: 1, 256: 4}
"""Bytes from which elements are loaded by themselves, by the bits of the processor's vectors."""


def is_near(em: Indices, buffer: Buffer, form: LinearForm) -> bool:
    """True if lanes access every few elements, which vectors and shuffles load faster."""
    step, lanes = form.lane, em.lanes
    if em.device is not None or lanes is None or not 2 <= step <= FARTHEST:
        return False
    if lanes.mask is None:
        return step <= lanes.count or _is_whole(buffer, form)
    masks = masks_loads(em.target, buffer.dtype) and buffer.scope is not Scope.REGISTER
    return masks and step <= min(FARTHEST_MASKED, lanes.count)


def masks_loads(target: Target, dtype: DType) -> bool:
    """True if the processor loads some lanes of a vector in one instruction."""
    return dtype.bytes >= MASKED.get(target.vector_bits, dtype.bytes + 1)


def _is_whole(buffer: Buffer, form: LinearForm) -> bool:
    """True if lanes access one element each of whole steps, all of whose elements exist."""
    step = form.lane
    within = form.constant % step == step - 1 or buffer.shape[0] % step == 0
    return within and all(factor % step == 0 for _, factor in form.terms.values())


def load_near(em: Indices, buffer: Buffer, form: LinearForm) -> IRValue:
    """Load every few elements by as many contiguous loads, and shuffles.

    Whole steps are loaded where they exist, as accesses of their other elements load them, too.
    Else nothing is read behind the last lane's element: the last load ends with it.
    """
    assert em.lanes is not None
    step, count = form.lane, em.lanes.count
    if em.lanes.mask is None and _is_whole(buffer, form):
        first, starts = form.constant % step, list(range(0, step * count, count))
    else:
        last = step * (count - 1) + 1 - count
        first, starts = 0, [*range(0, last, count), last]
    begin = replace(form, constant=form.constant - first)
    parts = [_load_part(em, buffer, begin, start) for start in starts]
    wanted = [step * k + first for k in range(count)]
    held = [next(n for n, s in enumerate(starts) if s <= e < s + count) for e in wanted]
    return picked(em, parts, [(n, e - starts[n]) for n, e in zip(held, wanted, strict=True)])


def _load_part(em: Indices, buffer: Buffer, form: LinearForm, start: int) -> IRValue:
    """Load as many consecutive elements as there are lanes: where some are off, only theirs."""
    assert em.lanes is not None
    count, mask = em.lanes.count, em.lanes.mask
    if mask is not None:
        places = [divmod(start + k, form.lane) for k in range(count)]
        order = [lane if not between else count for lane, between in places]
        mask = mixed(em, mask, em.const(False, pred, count), order)
    pointer = em.pointer(buffer, replace(form, constant=form.constant + start))
    return load_run(em, buffer, pointer, mask, buffer.dtype.bytes)


def load_run(
    em: Indices, buffer: Buffer, pointer: IRValue, mask: IRValue | None, align: int
) -> IRValue:
    """Load as many consecutive elements as there are lanes, in their memory type.

    With a mask, only those of lanes that are on; others are 0.
    """
    assert em.lanes is not None
    dtype, count = stored_type(buffer.dtype), em.lanes.count
    type_ = f"<{count} x {memory_type(buffer.dtype)}>"
    if mask is None:
        return _load_consecutive(em, buffer, pointer, count, align)
    name = f"llvm.masked.load.{mangle(dtype, count)}.p0"
    em.declare(name, type_, ["ptr", "i32", mask.type, type_])
    text = f"call {type_} @{name}(ptr {pointer.text}, i32 {align}, {mask}, {type_} zeroinitializer)"
    return em.function.read(text, dtype, count, buffer, max(pointer.depth, mask.depth))


def _load_consecutive(
    em: Indices, buffer: Buffer, pointer: IRValue, count: int, align: int
) -> IRValue:
    dtype = stored_type(buffer.dtype)
    text = f"load <{count} x {memory_type(buffer.dtype)}>, ptr {pointer.text}, align {align}"
    return em.read(text, dtype, count, buffer, pointer, pointer.depth)


def is_within_vector(em: Indices, buffer: Buffer, form: LinearForm) -> bool:
    """True if lanes load elements of one vector at a multiple of its size, all of which exist."""
    lanes = em.lanes
    if em.device is not None or lanes is None or lanes.mask is not None:
        return False
    return _vector_of(buffer, form, lanes.count) is not None


def _vector_of(buffer: Buffer, form: LinearForm, count: int) -> tuple[int, int] | None:
    """Return where that vector is, beside what differs between iterations, and its elements."""
    offsets = _offsets(form, count)
    whole = [buffer.shape[0], *(factor for _, factor in form.terms.values())]
    sizes = (1 << n for n in range(1, count.bit_length()))
    fitting = (n for n in sizes if not any(x % n for x in whole))
    return next(
        ((x[0] * n, n) for n in fitting if len(x := [*{k // n for k in offsets}]) == 1), None
    )


def load_within_vector(em: Indices, buffer: Buffer, form: LinearForm) -> IRValue:
    """Load that vector, and put its elements into the lanes that want them."""
    assert em.lanes is not None
    found = _vector_of(buffer, form, em.lanes.count)
    assert found is not None
    first, size = found
    begin = replace(form, lane=0, constant=first, uneven=())
    x = _load_consecutive(em, buffer, em.pointer(buffer, begin), size, buffer.dtype.bytes)
    return mixed(em, x, x, [n - first for n in _offsets(form, em.lanes.count)])


def _offsets(form: LinearForm, count: int) -> list[int]:
    """Return the constant part of the index of each lane."""
    return [
        form.constant + form.lane * k + n for k, n in zip(range(count), form.uneven, strict=True)
    ]


def store_paired(em: Indices, first: Stmt, second: Stmt) -> bool:
    """Store ``x[2 k] = a``, ``x[2 k + 1] = b`` contiguously; False if the two are not such
    a pair.
    """
    if em.device is not None or em.lanes is None or em.lanes.mask is not None:
        return False
    match first, second:
        case (
            Store(buffer=buffer, index=(at,), value=Var() | Const() as a),
            Store(buffer=other, index=(after,), value=Var() | Const() as b),
        ) if buffer is other and buffer.dtype.kind != "pred":
            form, next_ = em.form(at), em.form(after)
        case _:
            return False
    if form is None or next_ is None or form.lane != 2:
        return False
    if replace(next_, constant=next_.constant - 1) != form:
        return False
    count = em.lanes.count
    parts = em.broadcast(em.value(a), count), em.broadcast(em.value(b), count)
    order = [k // 2 + count * (k % 2) for k in range(2 * count)]
    for start in (0, count):
        pointer = em.pointer(buffer, replace(form, constant=form.constant + start))
        value = mixed(em, *parts, order[start : start + count])
        value = opaque(em, value) if buffer in em.lane_dependent else value
        line = f"store {value}, ptr {pointer.text}, align {buffer.dtype.bytes}"
        em.change(line, buffer, pointer, value)
    em.function.forget(buffer)
    return True


def picked(em: Indices, parts: Sequence[IRValue], places: Sequence[tuple[int, int]]) -> IRValue:
    """Return a vector of given lanes of the parts, one by one: pairs of a part and its lane."""
    count = len(places)
    found = parts[0]
    order = [lane if part == 0 else -1 for part, lane in places]
    for n, part in enumerate(parts[1:], 1):
        order = [count + k if at == n else o for o, (at, k) in zip(order, places, strict=True)]
        found = mixed(em, found, part, order)
        order = [k if o >= 0 else -1 for k, o in enumerate(order)]
    return found


def mixed(em: Indices, a: IRValue, b: IRValue, order: list[int]) -> IRValue:
    """Return the given lanes of two vectors, the second's numbered after the first's.

    -1 stands for any value.
    """
    mask = ", ".join(f"i32 {k}" if k >= 0 else "i32 poison" for k in order)
    text = f"shufflevector {a}, {b}, <{len(order)} x i32> <{mask}>"
    return em.pure(text, a.dtype, len(order), max(a.depth, b.depth))
