"""Emit a short loop of products inside of vector lanes as one dot-product instruction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.dtypes import DType, f32, index, s16, s32, u8
from ....ir.lane_dots import LaneDot, lane_dot
from ....ir.loop.build import const
from ....ir.loop.nodes import Buffer, Cast, Const, Expr, For, Load, Op, Store
from ....ir.loop.visit import free_vars
from ..access import store_element
from ..expr import Emitter
from ..index import LinearForm
from ..llvm.core import IRValue, mangle

LANE = "i32"  # LLVM's type of a lane whose bytes an instruction takes as one
NARROWEST = 4  # lanes of the narrowest instruction
BYTE = 8  # bits
WHOLE_BYTE = (1 << BYTE) - 1
WHOLE = {2: s16, 4: s32}
"""The integer types that hold the terms of a lane, by their bytes."""


def accumulate_dot(em: Emitter, s: For) -> bool:
    """Emit ``for q in range(d): acc[i] += x[..+q] * w[..d i + q]`` in lanes i; False if not that.

    ``x`` does not depend on the lane. A sum without lanes, or fewer lanes than any instruction has,
    are the first ones of the narrowest. Sums of integers are exact: 32-bit lanes wrap as the loop's
    do. Those of bf16 are rounded as the instruction does.
    """
    count = 0 if em.lanes is None else em.lanes.count
    found = added_terms(s)
    if found is None or em.device is not None:
        return False
    depth, store, x, own_factor = found
    w, code = own_factor.load, _code(em, s, own_factor)
    if code is None:
        return False
    dot = lane_dot(em.target, x.buffer.dtype, w.buffer.dtype, max(count, NARROWEST), depth)
    if dot is None or dot.sums != store.buffer.dtype:
        return False
    if (em.lanes is not None and not em.lanes.certain) or not _is_free(em, s, store):
        return False
    shared, own = _first(em, s, x, 0), _first(em, s, w, depth if count else 0)
    if shared is None or own is None:
        return False
    one = load_groups(em, x.buffer, shared, depth, 0)
    old = em.value(Load(store.buffer, store.index))
    many = _codes(em, load_groups(em, w.buffer, own, depth, count), code)
    sums, factors = _first_lanes(em, old, dot.lanes), _first_lanes(em, many, dot.lanes)
    new = _instruction(em, dot, sums, em.broadcast(one, dot.lanes), factors)
    if not count:
        new = em.lane(new, 0)
    elif count < dot.lanes:
        new = em.shuffle(new, list(range(count)))
    store_element(em, store.buffer, store.index[0], new)
    return True


def _first_lanes(em: Emitter, x: IRValue, lanes: int) -> IRValue:
    """Return a number or a short vector as the first lanes of a vector, the others zeros."""
    if x.lanes == lanes:
        return x
    if not x.lanes:
        text = f"insertelement <{lanes} x {x.type}> zeroinitializer, {x}, i64 0"
    else:
        mask = ", ".join(f"i32 {min(k, x.lanes)}" for k in range(lanes))
        text = f"shufflevector {x}, {x.type} zeroinitializer, <{lanes} x i32> <{mask}>"
    return em.pure(text, x.dtype, lanes, x.depth)


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a product: an element, or some bits of a byte, ``load >> shift & mask``."""

    load: Load
    shift: Expr
    mask: int

    @property
    def is_whole(self) -> bool:
        """True if it is the element as it is stored."""
        return (self.shift, self.mask) == (const(0, u8), WHOLE_BYTE)


def added_terms(s: For) -> tuple[int, Store, Load, Factor] | None:
    """Match the loop; return its trip count, its store, the load of the factor that lanes share,
    and of their own one.
    """
    match s:
        case For(
            extent=Const(value=int(depth)),
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
                                Cast(value=b, bits=False),
                            ),
                        ),
                    ),
                ),
            ) as store,
        ) if old is acc and before == at and acc.dtype in (s32, f32):
            own = _part(b)
            return None if own is None else (depth, store, a, own)
        case _:
            return None


def _part(e: Expr) -> Factor | None:
    match e:
        case Load():
            return Factor(e, const(0, u8), WHOLE_BYTE)
        case Op(name="and", args=(Load() as x, Const(value=int(mask)))):
            return Factor(x, const(0, u8), mask)
        case Op(
            name="and",
            args=(
                Op(name="shift-right-logical", args=(Load() as x, shift)),
                Const(value=int(mask)),
            ),
        ):
            return Factor(x, shift, mask)
        case _:
            return None


def _code(em: Emitter, s: For, part: Factor) -> tuple[int, int] | None:
    """Return shift and mask if four bytes can be shifted as one integer without mixing bits."""
    if s.var in free_vars(part.shift):
        return None
    shift = em.value(part.shift).literal
    if not isinstance(shift, int) or not 0 <= shift < BYTE:
        return None
    if (shift, part.mask) == (0, WHOLE_BYTE):
        return 0, WHOLE_BYTE
    fits = 0 <= part.mask < 1 << (BYTE - shift)
    return (shift, part.mask) if fits and part.load.dtype == u8 else None


def _codes(em: Emitter, groups: IRValue, code: tuple[int, int]) -> IRValue:
    """Return the parts of the bytes of groups, each group an integer."""
    shift, mask = code
    if mask == WHOLE_BYTE:
        return groups
    if shift:
        groups = em.binary("lshr", groups, em.const(shift, groups.dtype))
    every = int.from_bytes(bytes([mask] * groups.dtype.bytes), "little")
    return em.binary("and", groups, em.const(every, groups.dtype))


def _is_free(em: Emitter, s: For, store: Store) -> bool:
    """True if the sum's place does not depend on which of the terms is added."""
    places = [_at(em, s, store.index[0], k) for k in (0, 1)]
    return places[0] is not None and places[0] == places[1]


def _at(em: Emitter, s: For, at: Expr, k: int) -> LinearForm | None:
    em.env[s.var] = em.const(k, index)
    return em.form(at)


def _first(em: Emitter, s: For, x: Load, lane: int) -> LinearForm | None:
    """Return the place of the first of the neighbors, ``lane`` elements apart between lanes.

    None if they are not neighbors, or the lanes lie otherwise.
    """
    (at,) = x.index
    first, second = _at(em, s, at, 0), _at(em, s, at, 1)
    if first is None or second is None or first.lane != lane:
        return None
    return first if replace(second, constant=second.constant - 1) == first else None


def load_groups(em: Emitter, buffer: Buffer, form: LinearForm, depth: int, lanes: int) -> IRValue:
    """Load ``depth`` neighbors, of each active lane if there are lanes, as one integer."""
    pointer = em.pointer(buffer, form)
    mask = em.lanes.mask if lanes and em.lanes is not None else None
    dtype = WHOLE[depth * buffer.dtype.bytes]
    type_ = f"<{lanes} x i{dtype.bits}>" if lanes else f"i{dtype.bits}"
    if mask is None:
        text = f"load {type_}, ptr {pointer.text}, align 1"
        return em.read(text, dtype, lanes, buffer, pointer, pointer.depth)
    name = f"llvm.masked.load.{mangle(dtype, lanes)}.p0"
    em.declare(name, type_, ["ptr", "i32", mask.type, type_])
    text = f"call {type_} @{name}(ptr {pointer.text}, i32 1, {mask}, {type_} zeroinitializer)"
    return em.function.read(text, dtype, lanes, buffer, max(pointer.depth, mask.depth))


def _instruction(em: Emitter, dot: LaneDot, sums: IRValue, x: IRValue, w: IRValue) -> IRValue:
    count = dot.lanes if dot.element == LANE else dot.depth * dot.lanes
    operands = f"<{count} x {dot.element}>"
    factors = [_factors(em, dot, a, t) for a, t in ((x, dot.shared), (w, dot.own))]
    taken = [(sums.type, sums.text)] if dot.adding else []
    taken += [(operands, f.text) for f in (factors[::-1] if dot.own_first else factors)]
    em.declare(dot.intrinsic, sums.type, [type_ for type_, _ in taken])
    listed = ", ".join(f"{type_} {text}" for type_, text in taken)
    depth = max(a.depth for a in (sums, *factors))
    found = em.pure(f"call {sums.type} @{dot.intrinsic}({listed})", dot.sums, dot.lanes, depth)
    return found if dot.adding else em.binary("add", sums, found)


def _factors(em: Emitter, dot: LaneDot, groups: IRValue, dtype: DType) -> IRValue:
    """Return groups of elements, each an integer, as a vector of elements for the instruction."""
    if dot.element == LANE:
        return groups
    count = dot.depth * dot.lanes
    stored = dot.element if dot.element == "bfloat" else f"i{dtype.bits}"
    found = em.pure(f"bitcast {groups} to <{count} x {stored}>", s32, groups.lanes, groups.depth)
    if stored == dot.element:
        return found
    extend = "zext" if dtype.kind == "unsigned" else "sext"
    text = f"{extend} <{count} x {stored}> {found.text} to <{count} x {dot.element}>"
    return em.pure(text, s32, groups.lanes, groups.depth)
