"""Four products of bytes per lane: a loop of four inside of the lanes as one instruction."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dtypes import index, s32
from ...ir.loop.nodes import Buffer, Cast, Const, Expr, For, Load, Op, Store
from ...ir.quads import DEPTH, Quad, quad_of
from .access import store_element
from .expr import Emitter
from .index import LinearForm
from .llvm.core import IRValue, mangle


def accumulate_quads(em: Emitter, s: For) -> bool:
    """Emit ``for q in range(4): acc[i] += x[..+q] * w[..4 i + q]`` in lanes i; False if not that.

    ``x`` does not depend on the lane. The sum is exact: 32-bit lanes wrap as the loop's do.
    """
    lanes = em.lanes
    found = _terms(s)
    if lanes is None or found is None or em.device is not None:
        return False
    store, (x, w) = found
    quad = quad_of(em.target, x.buffer.dtype, w.buffer.dtype, lanes.count)
    if quad is None or not lanes.certain or not _is_free(em, s, store):
        return False
    shared, own = _first(em, s, x, 0), _first(em, s, w, DEPTH)
    if shared is None or own is None:
        return False
    four = _load(em, x.buffer, shared, 0)
    operands = em.broadcast(four, lanes.count), _load(em, w.buffer, own, lanes.count)
    old = em.value(Load(store.buffer, store.index))
    store_element(em, store.buffer, store.index[0], _instruction(em, quad, old, *operands))
    return True


def _terms(s: For) -> tuple[Store, tuple[Load, Load]] | None:
    """Match the loop; return its store and the loads of both factors."""
    match s:
        case For(
            extent=Const(value=4),
            body=Store(
                buffer=acc,
                index=(at,),
                value=Op(
                    name="add",
                    args=(
                        Load(buffer=old, index=(before,)),
                        Op(
                            name="multiply",
                            args=(
                                Cast(value=Load() as a, bits=False),
                                Cast(value=Load() as b, bits=False),
                            ),
                        ),
                    ),
                ),
            ) as store,
        ) if old is acc and before == at and acc.dtype == s32:
            return store, (a, b)
        case _:
            return None


def _is_free(em: Emitter, s: For, store: Store) -> bool:
    """True if the sum's place does not depend on which of the four terms is added."""
    places = [_at(em, s, store.index[0], k) for k in (0, 1)]
    return places[0] is not None and places[0] == places[1]


def _at(em: Emitter, s: For, at: Expr, k: int) -> LinearForm | None:
    em.env[s.var] = em.const(k, index)
    return em.form(at)


def _first(em: Emitter, s: For, x: Load, lane: int) -> LinearForm | None:
    """Return the place of the first of four neighbours, ``lane`` elements apart between lanes.

    None if they are not neighbours, or the lanes lie otherwise.
    """
    (at,) = x.index
    first, second = _at(em, s, at, 0), _at(em, s, at, 1)
    if first is None or second is None or first.lane != lane:
        return None
    return first if replace(second, constant=second.constant - 1) == first else None


def _load(em: Emitter, buffer: Buffer, form: LinearForm, lanes: int) -> IRValue:
    """Load four bytes, of each active lane if there are lanes, as 32-bit integers."""
    pointer = em.pointer(buffer, form)
    mask = em.lanes.mask if lanes and em.lanes is not None else None
    type_ = f"<{lanes} x i32>" if lanes else "i32"
    if mask is None:
        text = f"load {type_}, ptr {pointer.text}, align 1"
        return em.read(text, s32, lanes, buffer, pointer, pointer.depth)
    name = f"llvm.masked.load.{mangle(s32, lanes)}.p0"
    em.declare(name, type_, ["ptr", "i32", mask.type, type_])
    text = f"call {type_} @{name}(ptr {pointer.text}, i32 1, {mask}, {type_} zeroinitializer)"
    return em.function.read(text, s32, lanes, buffer, max(pointer.depth, mask.depth))


def _instruction(em: Emitter, quad: Quad, sums: IRValue, shared: IRValue, own: IRValue) -> IRValue:
    bytes_ = f"<{DEPTH * quad.lanes} x i8>"
    parts = []
    for x in (shared, own):
        parts.append(em.pure(f"bitcast {x} to {bytes_}", s32, x.lanes, x.depth).text)
    em.declare(quad.intrinsic, sums.type, [sums.type, bytes_, bytes_])
    text = f"call {sums.type} @{quad.intrinsic}({sums}, {bytes_} {parts[0]}, {bytes_} {parts[1]})"
    return em.pure(text, s32, quad.lanes, max(x.depth for x in (sums, shared, own)))
