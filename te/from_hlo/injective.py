"""Data movement with places known at compile time: broadcast, reshape, slice, pad, and others."""

from __future__ import annotations

import numpy as np

from ...ir.dtypes import BY_NAME, index
from ...ir.hlo.nodes import Instruction
from ...ir.loop.build import add, both, cast, compare, const, mul, number_of, op, select, sub
from ...ir.loop.nodes import Expr, Load
from .emitter import ElementEmitter, Index, Rule, leaf
from .reshaping import source_index
from .scalars import SMALL_CONSTANT, apply, literal, refuse, reinterpret, splat


def constant(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return a literal; a few elements as a chain of selections."""
    if (value := splat(x)) is not None:
        return value
    array = np.asarray(x.attrs["literal"])
    if array.size > SMALL_CONSTANT:
        why = f"a constant of {array.size} elements is too large for a kernel"
        refuse(x, e.computation, why, hint="pass it as an input")
    flat = number_of(at, array.shape)
    values = [literal(v, x.array.dtype) for v in array.reshape(-1)]
    chosen: Expr = values[-1]
    for n, v in reversed(list(enumerate(values[:-1]))):
        chosen = select(compare("eq", flat, n), v, chosen)
    return chosen


def part(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the real or the imaginary part of a complex element, two numbers in memory."""
    number = 0 if x.opcode == "real" else 1
    (operand,) = x.operands
    source, _ = leaf(operand)
    buffer = e.buffers.get(leaf(operand))
    if buffer is None and source.opcode == "complex":
        return e.element(source.operands[number], at)
    if buffer is None:
        refuse(x, e.computation, f"its operand is computed by {source.opcode}, not in memory")
    return Load(buffer, (*at, const(number)))


def iota(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the place along one dimension."""
    return cast(at[x.attrs["iota_dimension"]], x.array.dtype)


def broadcast(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the operand at the dimensions that come from it."""
    source = x.operands[0].array
    dims = x.attrs.get("dimensions", ())
    # A dimension of extent 1 may be stretched: its index is then 0.
    places = (const(0) if n == 1 else at[d] for d, n in zip(dims, source.dims, strict=True))
    return e.element(x.operands[0], tuple(places))


def reshape(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the element with the same row-major position."""
    source = x.operands[0].array
    value = e.element(x.operands[0], source_index(e, source.dims, x.array.dims, at))
    return reinterpret(value, x.array.dtype)


def transpose(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return ``out[i] = in[j]`` with ``j[dimensions[n]] = i[n]``."""
    source: list[Expr] = [const(0)] * len(at)
    for place, dim in zip(at, x.attrs["dimensions"], strict=True):
        source[dim] = place
    return e.element(x.operands[0], source)


def slice_(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return ``out[i] = in[start + i * stride]``."""
    dims = x.attrs["slice"]
    places = (add(mul(i, d.stride), d.start) for i, d in zip(at, dims, strict=True))
    return e.element(x.operands[0], tuple(places))


def reverse(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the operand read backwards along some dimensions."""
    flipped, dims = x.attrs["dimensions"], x.array.dims
    places = (sub(dims[n] - 1, i) if n in flipped else i for n, i in enumerate(at))
    return e.element(x.operands[0], tuple(places))


def pad(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the operand where the place has come from it, else the padding value."""
    source, fill = x.operands
    places: list[Expr] = []
    conditions: list[Expr | None] = []
    for i, d, extent in zip(at, x.attrs["padding"], source.array.dims, strict=True):
        place, there = e.unpadded(i, d.low, d.interior + 1, extent)
        places.append(place)
        conditions.append(there)
    if source.array.size == 0:
        return e.scalar(fill)
    value = e.element(source, tuple(places))
    condition = both(*conditions)
    return value if condition is None else select(condition, value, e.scalar(fill))


def concatenate(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return a chain of selections; every operand is read at a place that it has."""
    (dim,) = x.attrs["dimensions"]
    end, parts = 0, []
    for operand in x.operands:
        extent = operand.array.dims[dim]
        start, end = end, end + extent
        if extent:
            parts.append((operand, start, end))
    chosen: Expr | None = None
    for operand, start, end in reversed(parts):
        place = e.clamped(add(at[dim], -start), end - start - 1)
        value = e.element(operand, (*at[:dim], place, *at[dim + 1 :]))
        chosen = value if chosen is None else select(compare("lt", at[dim], end), value, chosen)
    return literal(0, x.array.dtype) if chosen is None else chosen


def bitcast_convert(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the same bits as another type; between widths, the last dimension counts the parts."""
    source, to = x.operands[0], x.array.dtype
    wide, narrow = max(source.array.dtype.bits, to.bits), min(source.array.dtype.bits, to.bits)
    if wide == narrow:
        return reinterpret(e.element(source, at), to)
    own, part = BY_NAME[f"u{wide}"], BY_NAME[f"u{narrow}"]
    whole = BY_NAME[f"u{max(wide, 8)}"]  # in which there is arithmetic
    if to.bits == narrow:
        bits = cast(reinterpret(e.element(source, at[:-1]), own), whole)
        amount = cast(op("multiply", at[-1], const(narrow, index)), whole)
        return reinterpret(cast(op("shift-right-logical", bits, amount), part), to)
    result: Expr | None = None
    for n in range(wide // narrow):
        piece = cast(reinterpret(e.element(source, (*at, n)), part), whole)
        piece = piece if n == 0 else op("shift-left", piece, const(n * narrow, whole))
        result = piece if result is None else op("or", result, piece)
    assert result is not None
    return reinterpret(cast(result, own), to)


def map_(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the mapped computation, in place."""
    return apply(x.attrs["to_apply"], [e.element(o, at) for o in x.operands])[0]


RULES: dict[str, Rule] = {
    "constant": constant,
    "iota": iota,
    "broadcast": broadcast,
    "reshape": reshape,
    "transpose": transpose,
    "slice": slice_,
    "reverse": reverse,
    "pad": pad,
    "concatenate": concatenate,
    "bitcast-convert": bitcast_convert,
    "map": map_,
    "real": part,
    "imag": part,
}
