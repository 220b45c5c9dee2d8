"""Scalarize vector memory accesses on targets without masked loads and gathers.

A lane that may be inactive gets a conditional of its own; it loads 0 when it is.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import DType, pred, s8
from ...ir.loop.nodes import Buffer, Expr
from .index import Indices, LinearForm
from .llvm.core import IRValue, memory_type, register_type


def stored_type(dtype: DType) -> DType:
    """Return the element type as it is in memory."""
    return s8 if dtype == pred else dtype


def load_one(em: Indices, buffer: Buffer, pointer: IRValue) -> IRValue:
    """Load the element at an address, in its memory type."""
    text = f"load {memory_type(buffer.dtype)}, ptr {pointer.text}, align {buffer.dtype.bytes}"
    return em.read(text, stored_type(buffer.dtype), 0, buffer, pointer, pointer.depth)


def store_one(em: Indices, buffer: Buffer, pointer: IRValue, value: IRValue) -> None:
    """Store a scalar to an address."""
    line = f"store {value}, ptr {pointer.text}, align {buffer.dtype.bytes}"
    em.change(line, buffer, pointer, value)


def is_plain(em: Indices, form: LinearForm | None) -> bool:
    """True if the lanes are one access: all active, and consecutive or the same element."""
    lanes = em.lanes
    if em.device is None or lanes is None:
        return True
    if form is None or form.lane not in (0, 1):
        return False
    return lanes.mask is None or (form.lane == 0 and lanes.certain)


def load_scalarized(em: Indices, buffer: Buffer, at: Expr, form: LinearForm | None) -> IRValue:
    """Load each lane's element by itself, under its predicate."""
    lanes = em.lanes
    assert lanes is not None
    if form is not None and not form.lane:
        on = em.any_lane(em.mask_text())
        return _guarded(em, buffer, em.pointer(buffer, form), on)
    pointers = _pointers(em, buffer, at, form)
    dtype = stored_type(buffer.dtype)
    result = em.like(0, IRValue("", dtype, lanes.count))
    depth = em.function.depth
    for k, pointer in enumerate(pointers):
        on = _on(em, k)
        if on.literal is False:
            continue
        x = load_one(em, buffer, pointer) if on.literal else _guarded(em, buffer, pointer, on)
        result = em.pure(f"insertelement {result}, {x}, i64 {k}", dtype, lanes.count, depth)
    return result


def store_scalarized(
    em: Indices, buffer: Buffer, at: Expr, form: LinearForm | None, value: IRValue
) -> None:
    """Store the active lanes, in order."""
    assert em.lanes is not None
    if form is not None and not form.lane:
        pointer = em.pointer(buffer, form)
        _store_guarded(em, buffer, pointer, em.lane(value, 0), em.any_lane(em.mask_text()))
        return
    for k, pointer in enumerate(_pointers(em, buffer, at, form)):
        _store_guarded(em, buffer, pointer, em.lane(value, k), _on(em, k))


def _pointers(em: Indices, buffer: Buffer, at: Expr, form: LinearForm | None) -> list[IRValue]:
    assert em.lanes is not None
    numbers = range(em.lanes.count)
    if form is not None:
        each = (replace(form, lane=0, constant=form.constant + k * form.lane) for k in numbers)
        return [em.pointer(buffer, f) for f in each]
    indices, type_ = em.value(at), memory_type(buffer.dtype)
    return [em.offset(em.buffers[buffer], em.lane(indices, k), type_) for k in numbers]


def _on(em: Indices, k: int) -> IRValue:
    """Return the predicate "lane ``k`` is active", a literal where that is known."""
    return em.lane(em.mask_text(), k)


def _guarded(em: Indices, buffer: Buffer, pointer: IRValue, on: IRValue) -> IRValue:
    dtype = stored_type(buffer.dtype)
    type_, size = register_type(dtype, 0), dtype.bytes
    slot = em.function.alloca(type_, size)
    em.function.write(f"store {type_} zeroinitializer, ptr {slot.text}, align {size}")
    em.function.open_arm()
    x = load_one(em, buffer, pointer)
    em.function.write(f"store {x}, ptr {slot.text}, align {size}")
    em.function.branch(on, em.function.close_arm(), None)
    return em.function.result(f"load {type_}, ptr {slot.text}, align {size}", dtype)


def _store_guarded(
    em: Indices, buffer: Buffer, pointer: IRValue, value: IRValue, on: IRValue
) -> None:
    if isinstance(on.literal, bool):
        if on.literal:
            store_one(em, buffer, pointer, value)
        return
    em.function.open_arm()
    store_one(em, buffer, pointer, value)
    em.function.branch(on, em.function.close_arm(), None)
