"""Shapes and literals of protos, both read with their limits: ``ShapeProto``, ``LiteralProto``."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import BY_NAME, DType, to_numpy
from ...hlo.nodes import AnyShape, Shape, TokenShape, TupleShape
from ...hlo.shape_text import UNKNOWN, show_shape, too_large
from .schema import BUFFER, LITERALS, OPAQUE, TOKEN, TUPLE, TYPES, UNBOUNDED, VARINTS, WORDS
from .wire import Message

Literal: TypeAlias = "Array | tuple[Literal, ...]"

_NAMES = {number: name for name, number in TYPES.items()}


def read_shape(message: Message) -> AnyShape:
    """A shape, its layout with tiles, element bits and memory space as text has them."""
    kind = message.integer(2)
    if kind == TUPLE:
        return TupleShape(tuple(read_shape(m) for m in message.messages(4)))
    if kind in (OPAQUE, TOKEN):
        return TokenShape("token[]" if kind == TOKEN else "opaque[]")
    if kind == BUFFER:
        parts = message.messages(4)
        return TokenShape(f"b({show_shape(read_shape(parts[0])) if parts else ''})")
    if kind not in _NAMES:
        hint = f"known: {', '.join(TYPES)}"
        message.fail("unknown element type", f"type number {kind}", hint)
    dtype = BY_NAME[_NAMES[kind]]
    sizes = message.integers(3)
    dims = tuple(UNKNOWN if d == UNBOUNDED else d for d in sizes)
    if any(d < 0 and d != UNBOUNDED for d in sizes) or too_large(dims, dtype.bytes):
        message.fail("shape is too large", f"{dtype}[{','.join(map(str, dims))}]")
    dynamic = tuple(map(bool, message.integers(6)))
    if dynamic and len(dynamic) != len(dims):
        message.fail("shape is inconsistent", f"{len(dynamic)} marks, {len(dims)} sizes")
    if UNKNOWN in dims:
        marks = dynamic or (False,) * len(dims)
        dynamic = tuple(m or d == UNKNOWN for m, d in zip(marks, dims, strict=True))
    inner = message.message(5)
    layout = inner.integers(1) if inner is not None else ()
    if layout and sorted(layout) != list(range(len(dims))):
        message.fail("layout does not fit the shape", f"{layout} of {len(dims)} dimensions")
    tiling = _tiling(inner) if inner is not None else ""
    return Shape(dtype, dims, layout or None, dynamic if any(dynamic) else (), tiling)


def _tiling(layout: Message) -> str:
    """Return the tiles of a layout as text; ``*`` joins a dimension to the next."""
    tiles = [
        f"({','.join('*' if d == UNBOUNDED else str(d) for d in m.integers(1))})"
        for m in layout.messages(6)
    ]
    rows = ["T" + "".join(tiles)] if tiles else []
    for letter, number, usual in (("L", 16, 1), ("E", 7, 0), ("S", 8, 0), ("M", 15, 0)):
        if (value := layout.integer(number)) not in (0, usual):
            rows.append(f"{letter}({value})")
    return "".join(rows)


def literal_shape(message: Message) -> AnyShape:
    """The shape that a literal has by itself."""
    inner = message.message(1)
    if inner is None:
        message.fail("constant has no shape")
    return read_shape(inner)


def read_literal(message: Message, shape: AnyShape) -> Literal:
    """The value of a constant of this shape."""
    own = literal_shape(message)
    match shape, own:
        case TupleShape(elements=elements), TupleShape():
            parts = message.messages(10)
            if len(parts) != len(elements):
                why = f"{len(parts)} values for {len(elements)} elements"
                message.fail("tuple constant does not fit its shape", why)
            return tuple(read_literal(p, e) for p, e in zip(parts, elements, strict=True))
        case Shape(dims=dims, dtype=dtype), Shape(layout=layout) if (
            own.dims == dims and own.dtype == dtype
        ):
            return _array(message, dtype, dims, layout)
    why = f"a literal of {show_shape(own)} for {show_shape(shape)}"
    message.fail("constant does not fit its shape", why)


def _array(
    message: Message, dtype: DType, dims: tuple[int, ...], layout: tuple[int, ...] | None
) -> Array:
    """Return the elements in the order of the literal's own layout."""
    if 0 not in dims and not message.has(LITERALS[dtype.name]):
        message.fail(
            "a constant has no value",
            "what wrote the proto left the values of constants out",
            "of TensorFlow's stages, hlo_serialized and optimized_hlo_serialized have them",
        )
    size = int(np.prod(dims, dtype=object)) if dims else 1
    values = _elements(message, dtype, size)
    if values.size != size:
        why = f"{values.size} values for {dtype}[{','.join(map(str, dims))}]"
        message.fail("constant does not fit its shape", why)
    if layout is None:
        return values.reshape(dims)
    outer_first = layout[::-1]
    physical = values.reshape([dims[d] for d in outer_first])
    return np.ascontiguousarray(physical.transpose(np.argsort(outer_first))).reshape(dims)


def _elements(message: Message, dtype: DType, size: int) -> Array:
    field = LITERALS[dtype.name]
    storage = to_numpy(dtype)
    if dtype.name in VARINTS:
        return message.varints(field).astype(storage)
    if dtype.name in WORDS:
        numbers = message.words(field, WORDS[dtype.name])
        paired = dtype.kind == "complex"
        if paired and numbers.size % 2:
            message.fail("constant does not fit its shape", "a complex number has no second part")
        return numbers.view(storage) if paired else numbers.astype(storage, copy=False)
    data = message.raw(field)
    if len(data) != size * dtype.bytes:
        why = f"{len(data)} bytes for {size} values of {dtype}"
        message.fail("constant does not fit its shape", why)
    if dtype.bits >= 8:
        return np.frombuffer(data, storage.newbyteorder("<")).astype(storage)
    low = np.frombuffer(data, np.uint8) & ((1 << dtype.bits) - 1)
    if dtype.kind == "signed":
        shift = 8 - dtype.bits
        return ((low << shift).astype(np.uint8).view(np.int8) >> shift).astype(storage)
    return low.view(storage) if dtype.is_float else low.astype(storage)
