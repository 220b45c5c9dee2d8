"""The wire format in the other direction: bytes of messages, of shapes and of literals."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dtypes import from_numpy
from ...errors import UnsupportedError
from ...hlo.lexer import Cursor
from ...hlo.nodes import AnyShape, Raw, Shape, TokenShape, TupleShape
from ...hlo.shape_text import UNKNOWN, parse_shape, show_shape
from .schema import BUFFER, LITERALS, OPAQUE, TOKEN, TUPLE, TYPES, UNBOUNDED, VARINTS, WORDS

_TILING = re.compile(r"T((?:\([\d,*]+\))+)|([LESM])\((\d+)\)")
_MARKS = {"L": 16, "E": 7, "S": 8, "M": 15}


class WireWriter:
    """The bytes of a message, field after field; what has proto3's default is left out."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def integer(self, number: int, value: int) -> None:
        """Write a varint."""
        if value:
            self.data += varint(number << 3) + varint(value)

    def float32(self, number: int, value: float) -> None:
        """Write a float of 32 bits."""
        if value:
            self.data += varint(number << 3 | 5) + struct.pack("<f", value)

    def raw(self, number: int, value: bytes | bytearray) -> None:
        """Write bytes."""
        if value:
            self.message(number, value)

    def text(self, number: int, value: str) -> None:
        """Write a string."""
        self.raw(number, value.encode())

    def message(self, number: int, value: bytes | bytearray) -> None:
        """A message, or one of several strings: there even if it is empty."""
        self.data += varint(number << 3 | 2) + varint(len(value)) + value

    def integers(self, number: int, values: Iterable[int]) -> None:
        """Write packed varints."""
        self.raw(number, b"".join(map(varint, values)))


def varint(value: int) -> bytes:
    """A signed or unsigned integer of up to 64 bits."""
    rest = value & ((1 << 64) - 1)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_shape(shape: AnyShape) -> bytes:
    """``ShapeProto``; an array without a layout gets the row-major one."""
    out = WireWriter()
    match shape:
        case TupleShape(elements=elements):
            out.integer(2, TUPLE)
            for e in elements:
                out.message(4, write_shape(e))
        case TokenShape(text=text):
            out.integer(2, {"t": TOKEN, "o": OPAQUE}.get(text[:1], BUFFER))
            if text.startswith("b("):
                out.message(4, write_shape(parse_shape(Cursor(text[2:-1], "buffer"), {})))
        case Shape(dtype=dtype, dims=dims, layout=layout, dynamic=dynamic, tiling=tiling):
            out.integer(2, TYPES[dtype.name])
            out.integers(3, [UNBOUNDED if d == UNKNOWN else d for d in dims])
            order = tuple(range(len(dims) - 1, -1, -1)) if layout is None else layout
            out.message(5, _layout(order, tiling))
            out.integers(6, map(int, dynamic))
    return bytes(out.data)


def _layout(order: tuple[int, ...], tiling: str) -> bytes:
    out = WireWriter()
    out.integers(1, order)
    for tiles, letter, value in _TILING.findall(tiling):
        if letter:
            out.integer(_MARKS[letter], int(value))
        for tile in re.findall(r"\(([^()]*)\)", tiles):
            part = WireWriter()
            part.integers(1, [UNBOUNDED if d == "*" else int(d) for d in tile.split(",")])
            out.message(6, part.data)
    return bytes(out.data)


def write_literal(value: Any, shape: AnyShape) -> bytes:
    """``LiteralProto``; ``UnsupportedError`` for a value that its text left out."""
    out = WireWriter()
    if isinstance(value, Raw):
        why = "the text that it was read from left its value out"
        raise UnsupportedError("cannot write a constant", why, show_shape(shape))
    match shape:
        case TupleShape(elements=elements):
            out.message(1, write_shape(shape))
            for v, e in zip(value, elements, strict=True):
                out.message(10, write_literal(v, e))
        case Shape(dtype=dtype, dims=dims, layout=layout):
            out.message(1, write_shape(Shape(dtype, dims, layout)))
            physical = value if layout is None else value.transpose(layout[::-1])
            out.raw(LITERALS[dtype.name], _elements(np.ascontiguousarray(physical).reshape(-1)))
        case _:
            raise TypeError("a token has no literal")
    return bytes(out.data)


def _elements(flat: np.ndarray[Any, Any]) -> bytes:
    dtype = from_numpy(flat.dtype)
    if dtype.name in VARINTS:
        return b"".join(map(varint, flat.tolist()))
    if dtype.name in WORDS:
        parts = flat.view(WORDS[dtype.name][1:]) if dtype.kind == "complex" else flat
        return parts.astype(WORDS[dtype.name]).tobytes()
    if dtype.bits >= 8:
        return flat.view(f"u{dtype.bytes}").astype(f"<u{dtype.bytes}").tobytes()
    return (flat.view(np.uint8) & ((1 << dtype.bits) - 1)).astype(np.uint8).tobytes()
