"""Accesses of stride two: the parts of complex numbers, read and written as contiguous vectors.

Two contiguous vectors and a shuffle replace a gather, or two scatters.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.nodes import Buffer, Const, Stmt, Store, Var
from .index import Indices, LinearForm
from .llvm.core import IRValue, memory_type
from .llvm.opaque import opaque
from .scalarize import stored_type


def is_paired(em: Indices, buffer: Buffer, form: LinearForm) -> bool:
    """True if lanes access every second element and the elements in between exist as well."""
    if em.device is not None or em.lanes is None or em.lanes.mask is not None or form.lane != 2:
        return False
    within = form.constant % 2 == 1 or buffer.shape[0] % 2 == 0
    return within and all(factor % 2 == 0 for _, factor in form.terms.values())


def load_paired(em: Indices, buffer: Buffer, form: LinearForm) -> IRValue:
    """Load every second element by two contiguous loads and a shuffle."""
    assert em.lanes is not None
    dtype, count, odd = stored_type(buffer.dtype), em.lanes.count, form.constant % 2
    halves = []
    for start in (0, count):
        pointer = em.pointer(buffer, replace(form, constant=form.constant - odd + start))
        type_ = f"<{count} x {memory_type(buffer.dtype)}>"
        text = f"load {type_}, ptr {pointer.text}, align {buffer.dtype.bytes}"
        halves.append(em.read(text, dtype, count, buffer, pointer, pointer.depth))
    return mixed(em, halves[0], halves[1], [2 * k + odd for k in range(count)])


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


def mixed(em: Indices, a: IRValue, b: IRValue, order: list[int]) -> IRValue:
    """Return the given lanes of two vectors, the second's numbered after the first's."""
    mask = ", ".join(f"i32 {k}" for k in order)
    text = f"shufflevector {a}, {b}, <{len(order)} x i32> <{mask}>"
    return em.pure(text, a.dtype, len(order), max(a.depth, b.depth))
