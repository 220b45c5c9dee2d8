"""Vectors of every second element: the parts of complex numbers, read and written as neighbours.

Two vectors of neighbours and a shuffle take the place of a gather, and of two scatters.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.loop.nodes import Buffer, Const, Stmt, Store, Var
from .index import Indices, LinearForm
from .llvm.core import Value, memory_type
from .llvm.opaque import opaque
from .scalarize import stored_type


def is_paired(em: Indices, buffer: Buffer, form: LinearForm) -> bool:
    """Whether lanes have every second element, and the elements between them are there too."""
    if em.device is not None or em.lanes is None or em.lanes.mask is not None or form.lane != 2:
        return False
    within = form.constant % 2 == 1 or buffer.shape[0] % 2 == 0
    return within and all(factor % 2 == 0 for _, factor in form.terms.values())


def load_paired(em: Indices, buffer: Buffer, form: LinearForm) -> Value:
    """Every second element, of two loads that the elements between share."""
    assert em.lanes is not None
    dtype, count, odd = stored_type(buffer.dtype), em.lanes.count, form.constant % 2
    halves = []
    for start in (0, count):
        pointer = em.pointer(buffer, replace(form, constant=form.constant - odd + start))
        type_ = f"<{count} x {memory_type(buffer.dtype)}>"
        text = f"load {type_}, ptr {pointer.text}, align {buffer.dtype.bytes}"
        halves.append(em.read(text, dtype, count, buffer, pointer, pointer.depth))
    return _mixed(em, halves[0], halves[1], [2 * k + odd for k in range(count)])


def store_paired(em: Indices, first: Stmt, second: Stmt) -> bool:
    """Write ``x[2 k] = a``, ``x[2 k + 1] = b`` as neighbours; False if the two are not that."""
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
    parts = em.wide(em.value(a), count), em.wide(em.value(b), count)
    order = [k // 2 + count * (k % 2) for k in range(2 * count)]
    for start in (0, count):
        pointer = em.pointer(buffer, replace(form, constant=form.constant + start))
        value = _mixed(em, *parts, order[start : start + count])
        value = opaque(em, value) if buffer in em.numbered else value
        line = f"store {value}, ptr {pointer.text}, align {buffer.dtype.bytes}"
        em.change(line, buffer, pointer, value)
    em.function.forget(buffer)
    return True


def _mixed(em: Indices, a: Value, b: Value, order: list[int]) -> Value:
    """The named lanes of two vectors, those of the second numbered on."""
    mask = ", ".join(f"i32 {k}" for k in order)
    text = f"shufflevector {a}, {b}, <{len(order)} x i32> <{mask}>"
    return em.pure(text, a.dtype, len(order), max(a.depth, b.depth))
