"""Run a computation on values with errors: its results, and how far right ones may be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, accumulator, bf16, f32, to_numpy
from ...reducers import ufunc_of
from ..meaning import (
    conv as interp_conv,
)
from ..meaning import (
    indexing as interp_indexing,
)
from ..meaning import (
    linear as interp_linear,
)
from ..meaning import (
    pointwise as interp_pointwise,
)
from ..meaning import (
    shaping as interp_shaping,
)
from ..meaning import (
    window as interp_window,
)
from ..meaning.values import Handler, first, simple_op
from ..nodes import Computation, Instruction, Shape, TupleShape
from ..ops.registry import definition
from ..patterns.match import is_pointwise, moves
from ..rewrite import needs, post_order
from . import places, sums
from .bounded import (
    Bounded,
    MachineRounding,
    exact,
    flushed,
    moved,
    moved_all,
    narrow,
    rounded,
    unit,
    unknown,
    wide,
)
from .elementwise import apply, compare, conversion, map_moved, precision, select
from .places import Known, given, lost, no_calls, only_chooses, run_scalars
from .sums import growth, in_f64

PLAIN = MachineRounding()

Rule: TypeAlias = "Callable[[BoundEvaluator, Instruction, list[Bounded]], Known]"


def evaluate(
    computation: Computation, args: Sequence[Array], rounding: MachineRounding = PLAIN
) -> list[Bounded]:
    """Return each result of a computation on certain arguments, with the error that it may have.

    The bounds hold for any order of sums and any contraction of products, for library functions
    good to 4 ulp, and for narrow floats kept in f32 or rounded at every step.
    """
    given = [exact(a, p.array.dtype) for a, p in zip(args, computation.parameters, strict=True)]
    with np.errstate(all="ignore"):
        found = BoundEvaluator(rounding).run(computation, given)
    return _leaves(found)


def _leaves(x: Known) -> list[Bounded]:
    return [leaf for part in x for leaf in _leaves(part)] if isinstance(x, tuple) else [x]


@dataclass(frozen=True, slots=True)
class BoundEvaluator:
    """``lifted``: every instruction is of scalars, and runs on whole arrays of them."""

    rounding: MachineRounding
    lifted: bool = False

    def run(self, c: Computation, args: Sequence[Known]) -> Known:
        """Return the result of a computation."""
        steps = [i for i in post_order([c.root], needs) if i.opcode != "parameter"]
        users: dict[Instruction, int] = {}
        for i in steps:
            for o in needs(i):
                users[o] = users.get(o, 0) + 1
        values: dict[Instruction, Known] = {p: args[p.attrs["number"]] for p in c.parameters}
        for i in steps:
            read = [values[o] for o in needs(i)]
            values[i] = self.one(i, read) if needs(i) == i.operands else read[0]
            for o in needs(i):
                users[o] -= 1
                if not users[o] and o is not c.root:
                    del values[o]
        return values[c.root]

    def one(self, i: Instruction, args: list[Known]) -> Known:
        """Return the result of one instruction."""
        match i.opcode:
            case "tuple":
                return tuple(args)
            case "get-tuple-element":
                whole = args[0]
                assert isinstance(whole, tuple)
                part: Known = whole[i.attrs["index"]]
                return part
            case "call" | "fusion":
                return self.run(
                    i.attrs["calls"] if "calls" in i.attrs else i.attrs["to_apply"], args
                )
            case "copy" | "opt-barrier" | "add-dependency":
                return args[0]
        flat = [a for a in args if isinstance(a, Bounded)]
        if len(flat) != len(args):
            return self.other(i, args)
        op = definition(i.opcode)
        if self.lifted and op.lifted is first:
            return flat[0]
        dtypes = [o.array.dtype for o in i.operands if isinstance(o.shape, Shape)]
        if op.arithmetic:
            return apply(i.opcode, flat, dtypes, i.array.dtype)
        rule = _RULES.get(i.opcode)
        return self.other(i, args) if rule is None else rule(self, i, flat)

    def other(self, i: Instruction, args: Sequence[Known]) -> Known:
        """Return an operation without a rule: what comes of certain integers is certain."""
        handler = definition(i.opcode).numpy
        if handler is None or any(isinstance(a, tuple) for a in args):
            return lost(i.shape)
        pairs = list(zip(args, i.operands, strict=True))
        flat = [(a, o.array.dtype) for a, o in pairs if isinstance(a, Bounded)]
        found = handler(i, [narrow(a, d) for a, d in flat], no_calls)
        sure = all(a.certain and d.kind not in ("float", "complex") for a, d in flat)
        return given(found, i.shape, sure)

    def many(self, c: Computation, args: Sequence[Bounded]) -> tuple[Bounded, ...]:
        """Return a computation of scalars on arrays, element by element."""
        found = BoundEvaluator(self.rounding, lifted=True).run(c, list(args))
        shape = np.broadcast_shapes(*(a.value.shape for a in args))
        return tuple(moved(x, lambda a: np.broadcast_to(a, shape)) for x in _leaves(found))


def _movement(handler: Handler) -> Rule:
    """An operation that moves elements of all its operands to places known beforehand."""

    def rule(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
        return moved_all(args, lambda arrays: np.asarray(handler(i, list(arrays), no_calls)))

    return rule


def _indexed(handler: Handler, arrays: int) -> Rule:
    """The same where all operands but the first ``arrays`` are places, which must be certain."""

    def rule(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
        at = [a.value for a in args[arrays:]]

        def move(moving: Sequence[Array]) -> Array:
            return np.asarray(handler(i, [*moving, *at], no_calls))

        found = moved_all(args[:arrays], move)
        return found if all(a.certain for a in args[arrays:]) else unknown(found.value)

    return rule


def _constant(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return given(i.attrs["literal"], i.shape, sure=True)


def _iota(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return exact(interp_shaping.iota(i, [], no_calls), i.array.dtype)


def _compare(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return compare(i, *args)


def _convert(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return conversion(args[0], i.operands[0].array.dtype, i.array.dtype)


def _bits(handler: Handler) -> Rule:
    def rule(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
        old, new = i.operands[0].array.dtype, i.array.dtype
        if old == new:
            return moved(args[0], lambda a: np.asarray(handler(i, [a], no_calls)))
        found = map_moved(args[0], old, lambda a: np.asarray(handler(i, [a], no_calls)))
        return Bounded(wide(found.value, new), found.error)

    return rule


def _precision(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    dtype = i.array.dtype
    made = interp_pointwise.reduce_precision(i, [narrow(args[0], dtype)], no_calls)
    return precision(args[0], dtype, made, i.attrs["mantissa_bits"])


def _part(imaginary: bool) -> Rule:
    def rule(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
        x = args[0]
        if i.operands[0].array.dtype.kind != "complex":
            return Bounded(np.zeros_like(x.value)) if imaginary else x
        return Bounded(np.array(x.value.imag if imaginary else x.value.real), x.error)

    return rule


def _complex(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    a, b = args
    value = np.empty(np.broadcast_shapes(a.value.shape, b.value.shape), np.complex128)
    value.real, value.imag = a.value, b.value
    sure = a.error is None and b.error is None
    return Bounded(value, None if sure else a.errors + b.errors)


def _dot(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return _contraction(e, i, args, interp_linear.dot)


def _convolution(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return _contraction(e, i, args, interp_conv.convolution)


def _contraction(e: BoundEvaluator, i: Instruction, args: list[Bounded], handler: Handler) -> Known:
    depth = definition(i.opcode).terms(i)
    to, (a, b) = i.array.dtype, args
    types = [o.array.dtype for o in i.operands]
    if to.kind == "complex" or any(d.kind == "complex" for d in types):
        return e.other(i, args)
    if not to.is_float:
        found = handler(i, [narrow(x, d) for x, d in zip(args, types, strict=True)], no_calls)
        return Bounded(np.asarray(found)) if a.certain and b.certain else unknown(np.asarray(found))
    a, b = _stored(e, i.operands, a, 0), _stored(e, i.operands, b, 1)
    twin = in_f64(i)

    def times(x: Array, y: Array) -> Array:
        return np.asarray(handler(twin, [x, y], no_calls))

    p, q = a.value.astype(np.float64), b.value.astype(np.float64)
    value, squares = times(p, q), times(p * p, q * q)
    error = None
    if not (a.certain and b.certain):
        error = times(np.abs(p), b.errors) + times(a.errors, np.abs(q) + b.errors)
    if not sums.plain(squares):
        # Infinities and NaNs mix with padding and zeros: certain only where nothing was off.
        squares = np.where(np.isfinite(squares), squares, 0.0)
    acc = accumulator(to)
    tf32 = e.rounding.operands if to == f32 and types[0] == f32 else 0.0
    step = sums.grid(p, q) if sums.plain(p) and sums.plain(q) else None
    if tf32 and step is not None and _short(p) and _short(q):
        tf32 = 0.0
    steady = e.rounding.steady and not (sums.few_values(p) and sums.few_values(q))
    rounding = replace(e.rounding, steady=steady)
    bits = rounding.f8_sums if all(t.is_float and t.bits == 8 for t in types) else 0
    return sums.total(value, squares, error, depth, step, acc, to, rounding, 2 * tf32, bits)


def _stored(e: BoundEvaluator, factors: Sequence[Instruction], x: Bounded, n: int) -> Bounded:
    """Return the ``n``-th factor of a product as a schedule may store it."""
    own, other = _source(factors[n]), _source(factors[1 - n]).array.dtype
    computed = own.operands and own.array.dtype == f32 and other.is_float
    if computed and e.rounding.factors <= other.bytes < f32.bytes:
        x = rounded(x.value, x.error, other)
    elif bf16 not in (own.array.dtype, factors[n].array.dtype):
        return x
    return flushed(x) if other == bf16 else x


def _source(x: Instruction) -> Instruction:
    """Return the array that ``x`` has the elements of, moved or in another type."""
    while moves(x) or (is_pointwise(x) and x.array.dtype != x.operands[0].array.dtype):
        x = x.operands[0]
    return x


def _short(a: Array) -> bool:
    """True if f16 holds every element: rounding it to TF32 then changes nothing."""
    with np.errstate(all="ignore"):
        return bool((a.astype(np.float16) == a).all())


def _reduce(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    n, axes = len(args) // 2, i.attrs["dimensions"]
    c, dtype = i.attrs["to_apply"], i.operands[0].array.dtype
    extents = i.operands[0].array.dims
    count = prod(extents[d] for d in axes)
    op = simple_op(c)
    same = n == 1 and isinstance(i.shape, Shape) and i.shape.dtype == dtype
    if same and op is not None and dtype.kind != "complex":
        x, start = args

        def fold(f: np.ufunc, empty: float) -> sums.Fold:
            def run(a: Array) -> Array:
                if count == 0:
                    return np.full(
                        [m for d, m in enumerate(extents) if d not in axes], empty, a.dtype
                    )
                return np.asarray(f.reduce(a, axis=tuple(axes))) if axes else a

            return run

        found = _simple(e, op, x, start, fold, count, dtype)
        if found is not None:
            return found
    return _general(e, i, args[:n], args[n:], axes, count)


def _simple(
    e: BoundEvaluator,
    op: str,
    x: Bounded,
    start: Bounded,
    fold: Callable[[np.ufunc, float], sums.Fold],
    count: int,
    dtype: DType,
) -> Bounded | None:
    """A reduction by one operation; None if it has no rule."""
    if dtype.is_float:
        match op:
            case "add":
                return sums.add(x, start, fold(np.add, 0.0), count, dtype, e.rounding)
            case "multiply":
                times = fold(np.multiply, 1.0)
                acc = accumulator(dtype)
                return sums.product(x, start, times, count + 1.0, acc, dtype, e.rounding)
            case "maximum" | "minimum":
                f = np.maximum if op == "maximum" else np.minimum
                return sums.extreme(x, start, fold(f, sums.neutral(op, dtype)), f)
        return None
    own = to_numpy(dtype)
    g = ufunc_of(op, own)
    if x.certain and start.certain and own.kind in "biu":
        folded = fold(g, 0)(x.value) if count else np.broadcast_to(start.value, ())
        value = np.asarray(g(folded, start.value) if count else start.value)
        kept = fold(g, 0)(x.value).shape
        return Bounded(np.broadcast_to(value, kept).astype(own))
    return None


def _general(
    e: BoundEvaluator,
    i: Instruction,
    arrays: Sequence[Bounded],
    starts: Sequence[Bounded],
    axes: Sequence[int],
    count: int,
) -> Known:
    """Any reducer: neighbors are combined until one is left, as some order may."""
    c, dims = i.attrs["to_apply"], arrays[0].value.shape
    kept = [d for d in range(len(dims)) if d not in axes]
    order, rest = [*sorted(axes), *kept], [dims[d] for d in kept]
    values = [moved(a, lambda x: x.transpose(order).reshape([count, *rest])) for a in arrays]
    begin = [moved(s, lambda x: np.broadcast_to(x, rest)) for s in starts]
    if not count:
        return _results(i, tuple(begin))
    orders = [_orders(x, o.array.dtype, e) for x, o in zip(values, i.operands, strict=False)]
    while len(values[0].value) > 1:
        even = len(values[0].value) // 2 * 2
        left, right = (
            [moved(v, partial(_every_second, first=first, stop=even)) for v in values]
            for first in (0, 1)
        )
        joined = list(e.many(c, [*left, *right]))
        if len(values[0].value) % 2:
            tail = [moved(v, lambda x: x[-1:]) for v in values]
            joined = [moved_all(p, np.concatenate) for p in zip(joined, tail, strict=True)]
        values = joined
    found = e.many(c, [*begin, *(moved(v, lambda x: x[0]) for v in values)])
    levels = max(1.0, float(np.log2(count + 1)))
    found = tuple(_more(x, float(growth(count, e.rounding)) / levels) for x in found)
    if not only_chooses(c):
        settled = np.all([free for free, _ in orders], axis=0)
        found = tuple(_unless(settled, x, more) for x, (_, more) in zip(found, orders, strict=True))
    return _results(i, found)


def _orders(x: Bounded, dtype: DType, e: BoundEvaluator) -> tuple[Array, Array]:
    """Return where sums along the first dimension are exact in any order, and how far they may be
    apart elsewhere.
    """
    apart = np.zeros(x.value.shape[1:])
    if dtype.is_float:
        with np.errstate(all="ignore"):
            steps = growth(len(x.value), e.rounding) * unit(dtype)
            apart = steps * np.sqrt(np.square(x.value).sum(0))
    return sums.exact_in_any_order(x, dtype), apart


def _unless(settled: Array, x: Bounded, more: Array) -> Bounded:
    """Return floats that are off by ``more`` where another order of the steps may give another
    result, and unknown where this order happened to need no rounding.
    """
    if x.value.dtype.kind not in "fc" or settled.all():
        return x
    lucky = (x.errors == 0) & np.isfinite(x.value)
    return Bounded(x.value, np.where(settled, x.errors, np.where(lucky, np.inf, x.errors + more)))


def _every_second(a: Array, first: int, stop: int) -> Array:
    return a[first:stop:2]


def _more(x: Bounded, times: float) -> Bounded:
    """Errors that grow with the number of steps, not of levels of a tree."""
    if x.error is None or x.value.dtype.kind not in "fc":
        return x
    return Bounded(x.value, x.error * max(1.0, times))


def _results(i: Instruction, found: tuple[Bounded, ...]) -> Known:
    return found if isinstance(i.shape, TupleShape) else found[0]


def _reduce_window(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    op, dtype = simple_op(i.attrs["to_apply"]), i.operands[0].array.dtype
    if len(args) != 2 or op is None or not dtype.is_float or not isinstance(i.shape, Shape):
        return _window_of_integers(e, i, args)
    twin, x, start = in_f64(i), args[0], args[1]
    handler = interp_window.reduce_window

    def fold(zero: float) -> sums.Fold:
        return lambda a: np.asarray(handler(twin, [a * 1.0, np.float64(zero)], no_calls))

    count = definition(i.opcode).terms(i)
    match op:
        case "add":
            return sums.add(x, start, fold(0.0), count, dtype, e.rounding)
        case "maximum" | "minimum":
            f = np.maximum if op == "maximum" else np.minimum
            lost = bool(np.isinf(x.errors).any())
            found = sums.extreme(x, start, fold(sums.neutral(op, dtype)), f)
            return unknown(found.value) if lost else found
        case "multiply":
            acc = accumulator(dtype)
            return sums.product(x, start, fold(1.0), count + 1.0, acc, dtype, e.rounding)
        case _:
            return e.other(i, args)


def _window_of_integers(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    """A reducer of several values or of integers: known where all that it is given is."""
    n = len(args) // 2
    flat = [narrow(a, o.array.dtype) for a, o in zip(args, i.operands, strict=True)]
    found = interp_window.reduce_window(i, flat, run_scalars)
    floats = any(o.array.dtype.kind in ("float", "complex") for o in i.operands[:n])
    moves = only_chooses(i.attrs["to_apply"])
    return given(found, i.shape, sure=all(a.certain for a in args) and (moves or not floats))


def _map(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return _results(i, e.many(i.attrs["to_apply"], args))


def _placed(rule: places.PlaceRule) -> Rule:
    return lambda e, i, args: rule(e.rounding, i, args)


def _select(e: BoundEvaluator, i: Instruction, args: list[Bounded]) -> Known:
    return select(*args)


_RULES: dict[str, Rule] = {
    "broadcast": _movement(interp_shaping.broadcast),
    "reshape": _movement(interp_shaping.reshape),
    "transpose": _movement(interp_shaping.transpose),
    "reverse": _movement(interp_shaping.reverse),
    "concatenate": _movement(interp_shaping.concatenate),
    "slice": _movement(interp_shaping.slice_),
    "pad": _movement(interp_shaping.pad),
    "dynamic-slice": _indexed(interp_indexing.dynamic_slice, 1),
    "dynamic-update-slice": _indexed(interp_indexing.dynamic_update_slice, 2),
    "gather": _indexed(interp_indexing.gather, 1),
    "constant": _constant,
    "iota": _iota,
    "compare": _compare,
    "convert": _convert,
    "select": _select,
    "bitcast": _bits(interp_shaping.bitcast),
    "bitcast-convert": _bits(interp_pointwise.bitcast_convert),
    "reduce-precision": _precision,
    "real": _part(imaginary=False),
    "imag": _part(imaginary=True),
    "complex": _complex,
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "map": _map,
    **{name: _placed(rule) for name, rule in places.RULES.items()},
}
