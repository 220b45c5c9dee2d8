"""Arithmetic on floats of at most 8 bits and integers of 2 and 4 bits is done in wider types.

``add(f8, f8)`` becomes ``convert(add(convert, convert))`` in f32; integers are computed in 8 bits.
After this pass narrow types are only stored, moved, selected, converted and bit-cast. Each
operation rounds or wraps its result, as in XLA; sums, dots and windows round once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dtypes import BY_NAME, DType, f16, f32, s8, s32, u8
from ....elementwise import TABLE
from ....formats import FORMATS, is_narrow
from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...ops.definition import NarrowPolicy
from ...ops.registry import definition
from ...patterns import build
from ...rewrite import (
    assemble,
    make,
    map_computations,
    parameter,
    rebuild,
    with_attrs,
    with_operands,
)


def widen_narrow(module: HloModule) -> HloModule:
    """Compute every operation on narrow types in a wider one, with conversions around it."""
    return map_computations(module, lambda c: rebuild(c, _rule))


def _rule(i: Instruction) -> Instruction | None:
    if not any(_narrow(x) for x in (i, *i.operands)):
        return None
    i = _whole_indices(i)
    match definition(i.opcode).narrow:
        case NarrowPolicy.STORED:
            return i
        case NarrowPolicy.COMPUTED:
            return _elementwise(i)
        case NarrowPolicy.COMPARED:
            return _compare(i)
        case NarrowPolicy.COUNTED:
            return build.convert(_retyped(i, (), s32), i.array.dtype)
        case NarrowPolicy.SUMMED:
            return _product(i)
        case NarrowPolicy.COMBINED:
            return _combining(i)
        case NarrowPolicy.RANKED:
            return _topk(i)


def _narrow(i: Instruction) -> bool:
    match i.shape:
        case Shape(dtype=dtype):
            return is_narrow(dtype)
        case TupleShape(elements=elements):
            return any(isinstance(e, Shape) and is_narrow(e.dtype) for e in elements)
        case _:
            return False


def wide(dtype: DType) -> DType:
    """Return the type in which elements of a type are computed; itself if it is not narrow."""
    if not is_narrow(dtype):
        return dtype
    return f32 if dtype.is_float else s8 if dtype.kind == "signed" else u8


def _widened(x: Instruction) -> Instruction:
    return build.convert(x, wide(x.array.dtype)) if isinstance(x.shape, Shape) else x


def _retyped(i: Instruction, operands: Sequence[Instruction], dtype: DType) -> Instruction:
    """Return the same operation on other operands, with a result of another type."""
    return make(i.opcode, Shape(dtype, i.array.dims), operands, metadata=i.metadata, **i.attrs)


def _elementwise(i: Instruction) -> Instruction:
    dtype = i.array.dtype
    if dtype.is_int and is_narrow(dtype):
        return _integer(i, dtype)
    if i.opcode == "reduce-precision" and FORMATS[dtype].exponent <= 5:
        return build.convert(_retyped(i, [build.convert(i.operands[0], f16)], f16), dtype)
    operands = [_widened(x) for x in i.operands]
    return build.convert(_retyped(i, operands, wide(dtype)), dtype)


def _integer(i: Instruction, dtype: DType) -> Instruction:
    spare = 8 - dtype.bits
    if i.opcode == "shift-right-arithmetic":
        x, amount = i.operands
        signed = build.convert(build.convert(x, BY_NAME[f"s{dtype.bits}"]), s8)
        return build.convert(_retyped(i, (signed, build.convert(_bits(amount), s8)), s8), dtype)
    if i.opcode in TABLE and TABLE[i.opcode].of_bits:
        result = _retyped(i, [_bits(x) for x in i.operands], u8)
        if i.opcode == "count-leading-zeros":
            result = build.pointwise("subtract", result, build.full(spare, u8, i.array.dims))
        return build.convert(result, dtype)
    operands = [_widened(x) for x in i.operands]
    if i.opcode == "mulhi":
        product = build.pointwise("multiply", *operands)
        down = "shift-right-arithmetic" if dtype.kind == "signed" else "shift-right-logical"
        width = build.full(dtype.bits, product.array.dtype, i.array.dims)
        return build.convert(build.pointwise(down, product, width), dtype)
    return build.convert(_retyped(i, operands, wide(dtype)), dtype)


def _bits(x: Instruction) -> Instruction:
    """Zero-extend the bits of a narrow integer to u8."""
    return build.convert(build.convert(x, BY_NAME[f"u{x.array.dtype.bits}"]), u8)


def _compare(i: Instruction) -> Instruction:
    total = i.attrs.get("type") == "TOTALORDER" and i.operands[0].array.dtype.is_float
    operands = [_total_order(x) if total else _widened(x) for x in i.operands]
    return build.pointwise("compare", *operands, direction=i.attrs["direction"])


def _total_order(x: Instruction) -> Instruction:
    """Map narrow floats to 8-bit integers in their total order."""
    dtype, dims = x.array.dtype, x.array.dims
    if not FORMATS[dtype].sign:
        return make("bitcast-convert", Shape(u8, dims), (x,))
    if dtype.bits == 8:
        key = make("bitcast-convert", Shape(s8, dims), (x,))
    else:
        bits = _bits(make("bitcast-convert", Shape(BY_NAME[f"u{dtype.bits}"], dims), (x,)))
        top = build.pointwise("shift-left", bits, build.full(8 - dtype.bits, u8, dims))
        key = make("bitcast-convert", Shape(s8, dims), (top,))
    return _reversed_below_zero(key)


def _of_total_order(key: Instruction, dtype: DType) -> Instruction:
    """Return the floats whose ``_total_order`` these integers are."""
    shape = Shape(dtype, key.array.dims)
    if not FORMATS[dtype].sign:
        return make("bitcast-convert", shape, (key,))
    code = _reversed_below_zero(key)
    if dtype.bits == 8:
        return make("bitcast-convert", shape, (code,))
    top = make("bitcast-convert", Shape(u8, shape.dims), (code,))
    spare = build.full(8 - dtype.bits, u8, shape.dims)
    bits = build.pointwise("shift-right-logical", top, spare)
    return make("bitcast-convert", shape, (build.convert(bits, BY_NAME[f"u{dtype.bits}"]),))


def _reversed_below_zero(x: Instruction) -> Instruction:
    """Flip all bits but the sign of each negative ``s8``; the function is its own inverse."""
    sign = build.pointwise("shift-right-arithmetic", x, build.full(7, s8, x.array.dims))
    flip = build.pointwise("and", sign, build.full(0x7F, s8, x.array.dims))
    return build.pointwise("xor", x, flip)


def _product(i: Instruction) -> Instruction:
    """Rewrite a dot or convolution: products of integers are summed in s32, of floats in f32."""
    dtype = i.array.dtype
    kept = dtype if not is_narrow(dtype) else f32 if dtype.is_float else s32
    x, y = (o.array.dtype for o in i.operands)
    factors = (_factor(x, y, kept), _factor(y, x, kept))
    operands = [build.convert(o, t) for o, t in zip(i.operands, factors, strict=True)]
    return build.convert(_retyped(i, operands, kept), dtype)


def _factor(own: DType, other: DType, result: DType) -> DType:
    """Return the type in which a factor is multiplied: that of the other if it holds both.

    Narrow integers are multiplied in s8, which also holds u4, and narrow floats in f32.
    """
    if not is_narrow(own):
        return own
    if own.is_float:
        held = other.is_float and FORMATS[own].exponent <= FORMATS[other].exponent
        return other if held and not is_narrow(other) else f32
    if is_narrow(other):
        return f32 if result.is_float else s8
    signed_only = own.kind == "signed" and other.kind == "unsigned"
    return other if other.is_float or (other.is_int and not signed_only) else s8


def _whole_indices(i: Instruction) -> Instruction:
    """Convert narrow start indices to s32."""
    starts = definition(i.opcode).indices(len(i.operands))
    operands = [
        build.convert(x, s32) if n in starts and is_narrow(x.array.dtype) else x
        for n, x in enumerate(i.operands)
    ]
    return with_operands(i, tuple(operands))


def _topk(i: Instruction) -> Instruction:
    """Rewrite topk of floats to the integers of ``_total_order``: the only NaN of some types has
    the sign bit set, which a widened NaN need not have."""
    (x,) = i.operands
    assert isinstance(i.shape, TupleShape)
    values, places = (e for e in i.shape.elements if isinstance(e, Shape))
    key = _total_order(x) if values.dtype.is_float else _widened(x)
    keys = Shape(key.array.dtype, values.dims)
    found = make("topk", TupleShape((keys, places)), (key,), metadata=i.metadata, **i.attrs)
    if not values.dtype.is_float:
        return _tuple_of(found, i.shape)
    first, second = (
        make("get-tuple-element", s, (found,), index=n) for n, s in enumerate((keys, places))
    )
    return make("tuple", i.shape, (_of_total_order(first, values.dtype), second))


def _tuple_of(found: Instruction, shape: TupleShape) -> Instruction:
    """Convert the elements of a wide tuple to the types of a narrow one."""
    assert isinstance(found.shape, TupleShape)
    parts = []
    for n, (own, e) in enumerate(zip(found.shape.elements, shape.elements, strict=True)):
        assert isinstance(e, Shape)
        part = make("get-tuple-element", own, (found,), index=n)
        parts.append(build.convert(part, e.dtype))
    return make("tuple", shape, parts)


def _combining(i: Instruction) -> Instruction:
    """Rewrite an operation that combines elements by a computation, which then takes wide ones."""
    names = [n for n in ("to_apply", "select", "scatter") if n in i.attrs]
    if i.opcode == "scatter" and not any(x.array.dtype.is_int and _narrow(x) for x in i.operands):
        return i  # rounded at each update, as it is stored
    changed = {n: _wide_computation(i.attrs[n]) for n in names}
    operands = [_widened(x) for x in i.operands]
    shape: Shape | TupleShape
    if isinstance(i.shape, TupleShape):
        shape = TupleShape(tuple(_wide_shape(e) for e in i.shape.elements if isinstance(e, Shape)))
    else:
        shape = _wide_shape(i.array)
    found = make(i.opcode, shape, operands, metadata=i.metadata, **i.attrs)
    found = with_attrs(found, **changed)
    if isinstance(i.shape, TupleShape):
        return _tuple_of(found, i.shape)
    return build.convert(found, i.array.dtype)


def _wide_shape(shape: Shape) -> Shape:
    return Shape(wide(shape.dtype), shape.dims)


def _wide_computation(c: Computation) -> Computation:
    """Return a scalar computation with wide parameters and results.

    A single commutative operation is done in the wide type; others round every value.
    """
    if not any(_narrow(p) for p in c.parameters):
        return c
    parameters = [parameter(n, _wide_shape(p.array), p.name) for n, p in enumerate(c.parameters)]
    simple = _simple(c)
    if simple is not None:
        return assemble(c.name, parameters, make(simple, parameters[0].shape, parameters))
    env = {
        old: build.convert(new, old.array.dtype)
        for old, new in zip(c.parameters, parameters, strict=True)
    }
    for i in c.instructions:
        if i not in env:
            env[i] = with_operands(i, tuple(env[o] for o in i.operands))
    root = env[c.root]
    if root.opcode != "tuple":
        return assemble(c.name, parameters, _widened(root))
    parts = [_widened(x) for x in root.operands]
    shape = TupleShape(tuple(p.shape for p in parts))
    return assemble(c.name, parameters, make("tuple", shape, parts))


def _simple(c: Computation) -> str | None:
    """Return the opcode of a widened reducer that is one commutative operation, else None.

    Conversions other than to the wide type and back are part of what it computes.
    """

    def bare(x: Instruction) -> Instruction:
        while x.opcode == "convert":
            own, source = x.array.dtype, x.operands[0].array.dtype
            if wide(source) != own and wide(own) != source:
                break
            x = x.operands[0]
        return x

    root = bare(c.root)
    commutes = root.opcode in TABLE and TABLE[root.opcode].commutative
    if not commutes or len(c.parameters) != 2:
        return None
    whole = all(p.array.dtype == c.root.array.dtype for p in c.parameters)
    return root.opcode if whole and {bare(x) for x in root.operands} == {*c.parameters} else None
