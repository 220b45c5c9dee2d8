"""Complex values while they are taken apart: a pair of real arrays, a tree of them for a tuple.

A value whose shape has nothing complex is one instruction. A complex array is a ``Pair``, a tuple
with a complex array somewhere in it a tuple of values. Between computations and through control
flow such a value travels as one instruction, ``pack``ed: each complex array is a tuple of two.
At the entry's edge and beside library calls it is ``join``ed: each complex array is one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from ....dtypes import BY_NAME, DType, c64, f32, f64
from ...nodes import AnyShape, Instruction, Shape, TupleShape
from ...rewrite import make


@dataclass(frozen=True, slots=True)
class Pair:
    """A complex array as its real and its imaginary part."""

    re: Instruction
    im: Instruction


Value: TypeAlias = "Instruction | Pair | tuple[Value, ...]"


def part_type(dtype: DType) -> DType:
    """The type of the parts of a complex type; a real type itself."""
    if dtype.kind != "complex":
        return dtype
    return f32 if dtype == c64 else f64


def has_complex(shape: AnyShape) -> bool:
    """Whether a shape has a complex array in it."""
    match shape:
        case Shape(dtype=dtype):
            return dtype.kind == "complex"
        case TupleShape(elements=elements):
            return any(map(has_complex, elements))
        case _:
            return False


def part_shape(shape: Shape) -> Shape:
    """The shape of one part of a complex array."""
    return replace(shape, dtype=part_type(shape.dtype))


def packed_shape(shape: AnyShape) -> AnyShape:
    """The shape that ``pack`` gives a value of ``shape``."""
    match shape:
        case Shape() if has_complex(shape):
            return TupleShape((part_shape(shape),) * 2)
        case TupleShape(elements=elements):
            new = tuple(map(packed_shape, elements))
            same = all(a is b for a, b in zip(new, elements, strict=True))
            return shape if same else TupleShape(new)
        case _:
            return shape


def pack(value: Value) -> Instruction:
    """One instruction for a value: a tuple of two for each pair."""
    match value:
        case Instruction():
            return value
        case Pair(re=re, im=im):
            return gathered((re, im))
        case parts:
            return gathered(tuple(map(pack, parts)))


def unpack(i: Instruction, shape: AnyShape) -> Value:
    """The value of ``shape`` that ``i`` is packed from."""
    if not has_complex(shape):
        return i
    if isinstance(shape, TupleShape):
        parts = elements(i)
        return tuple(unpack(p, s) for p, s in zip(parts, shape.elements, strict=True))
    re, im = elements(i)
    return Pair(re, im)


def join(value: Value) -> Instruction:
    """One instruction for a value, of the shape it had: ``complex`` of each pair."""
    match value:
        case Instruction():
            return value
        case Pair(re=re, im=im):
            return _joined(re, im)
        case parts:
            return gathered(tuple(map(join, parts)))


def _joined(re: Instruction, im: Instruction) -> Instruction:
    """``complex(real(z), imag(z))``  ->  ``z``"""
    if re.opcode == "real" and im.opcode == "imag" and re.operands[0] is im.operands[0]:
        return re.operands[0]
    dtype = BY_NAME[f"c{2 * re.array.dtype.bits}"]
    return make("complex", replace(re.array, dtype=dtype), (re, im))


def take_apart(i: Instruction) -> Value:
    """The value of an instruction that has complex arrays as they are."""
    if not has_complex(i.shape):
        return i
    if isinstance(i.shape, TupleShape):
        return tuple(map(take_apart, elements(i)))
    shape = part_shape(i.array)
    return Pair(make("real", shape, (i,)), make("imag", shape, (i,)))


def flat(values: Iterable[Value]) -> Iterator[Instruction]:
    """The real arrays that values are made of, in order."""
    for value in values:
        match value:
            case Instruction():
                yield value
            case Pair(re=re, im=im):
                yield from (re, im)
            case parts:
                yield from flat(parts)


def flat_shapes(shape: AnyShape) -> tuple[Shape, ...]:
    """The shapes of the arrays of ``flat`` of a value of ``shape``."""
    match shape:
        case Shape():
            return (part_shape(shape),) * (2 if has_complex(shape) else 1)
        case TupleShape(elements=elements_):
            return tuple(s for e in elements_ for s in flat_shapes(e))
        case _:
            return ()


def grouped(parts: Iterator[Instruction], shape: AnyShape) -> Value:
    """The value of ``shape`` of the next real arrays: what ``flat`` undoes."""
    match shape:
        case Shape() if has_complex(shape):
            return Pair(next(parts), next(parts))
        case TupleShape(elements=elements_) if has_complex(shape):
            return tuple(grouped(parts, e) for e in elements_)
        case TupleShape(elements=elements_):
            return gathered(tuple(next(parts) for _ in elements_))
        case _:
            return next(parts)


def gathered(parts: tuple[Instruction, ...]) -> Instruction:
    """A ``tuple``; what it is made of, if that is all elements of one tuple."""
    shape = TupleShape(tuple(p.shape for p in parts))
    if parts and all(p.opcode == "get-tuple-element" for p in parts):
        whole = parts[0].operands[0]
        numbers = [p.attrs["index"] for p in parts]
        same = all(p.operands[0] is whole for p in parts) and whole.shape == shape
        if same and numbers == list(range(len(parts))):
            return whole
    return make("tuple", shape, parts)


def elements(i: Instruction) -> tuple[Instruction, ...]:
    """The elements of a tuple, of one that is made here as they are."""
    if i.opcode == "tuple":
        return i.operands
    assert isinstance(i.shape, TupleShape)
    shapes = enumerate(i.shape.elements)
    return tuple(make("get-tuple-element", s, (i,), index=n) for n, s in shapes)
