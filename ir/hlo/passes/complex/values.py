"""Split complex values: a pair of real arrays for an array, a tree of them for a tuple.

A value whose shape has nothing complex is one instruction. A complex array is a ``Parts``, and a
tuple with a complex array anywhere in it is a tuple of values. Between computations and through
control flow such a value is passed as one instruction, ``pack``ed: each complex array as a tuple of
two. At the entry's boundary and for library calls it is ``join``ed to complex arrays again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from ....dtypes import BY_NAME, DType, c64, f32, f64
from ...nodes import AnyShape, Instruction, Shape, TupleShape
from ...rewrite import make


@dataclass(frozen=True, slots=True)
class Parts:
    """A complex array, split into its real and its imaginary part."""

    re: Instruction
    im: Instruction


Value: TypeAlias = "Instruction | Parts | tuple[Value, ...]"
PartsRule: TypeAlias = Callable[[Instruction, list[Value]], Value]
"""How an instruction is done on split operands: its own split value."""


def part_type(dtype: DType) -> DType:
    """Return the type of a complex type's parts; a real type itself."""
    if dtype.kind != "complex":
        return dtype
    return f32 if dtype == c64 else f64


def has_complex(shape: AnyShape) -> bool:
    """True if a shape has a complex array in it."""
    match shape:
        case Shape(dtype=dtype):
            return dtype.kind == "complex"
        case TupleShape(elements=elements):
            return any(map(has_complex, elements))
        case _:
            return False


def part_shape(shape: Shape) -> Shape:
    """Return the shape of one part of a complex array; a real shape itself."""
    return replace(shape, dtype=part_type(shape.dtype))


def packed_shape(shape: AnyShape) -> AnyShape:
    """Return the shape that ``pack`` gives a value of ``shape``."""
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
    """Return a value as one instruction, with each pair as a tuple of two."""
    match value:
        case Instruction():
            return value
        case Parts(re=re, im=im):
            return make_tuple((re, im))
        case parts:
            return make_tuple(tuple(map(pack, parts)))


def unpack(i: Instruction, shape: AnyShape) -> Value:
    """Return the value of ``shape`` that ``i`` was packed from."""
    if not has_complex(shape):
        return i
    if isinstance(shape, TupleShape):
        parts = elements(i)
        return tuple(unpack(p, s) for p, s in zip(parts, shape.elements, strict=True))
    re, im = elements(i)
    return Parts(re, im)


def join(value: Value) -> Instruction:
    """Return a value as one instruction of its original shape, with ``complex`` of each pair."""
    match value:
        case Instruction():
            return value
        case Parts(re=re, im=im):
            return _joined(re, im)
        case parts:
            return make_tuple(tuple(map(join, parts)))


def _joined(re: Instruction, im: Instruction) -> Instruction:
    """``complex(real(z), imag(z))``  ->  ``z``"""
    if re.opcode == "real" and im.opcode == "imag" and re.operands[0] is im.operands[0]:
        return re.operands[0]
    dtype = BY_NAME[f"c{2 * re.array.dtype.bits}"]
    return make("complex", replace(re.array, dtype=dtype), (re, im))


def split(i: Instruction) -> Value:
    """Return the value of an instruction that has complex arrays: the inverse of ``join``."""
    if not has_complex(i.shape):
        return i
    if isinstance(i.shape, TupleShape):
        return tuple(map(split, elements(i)))
    shape = part_shape(i.array)
    return Parts(make("real", shape, (i,)), make("imag", shape, (i,)))


def flatten(values: Iterable[Value]) -> Iterator[Instruction]:
    """Yield the real arrays that values consist of, in order."""
    for value in values:
        match value:
            case Instruction():
                yield value
            case Parts(re=re, im=im):
                yield from (re, im)
            case parts:
                yield from flatten(parts)


def flat_shapes(shape: AnyShape) -> tuple[Shape, ...]:
    """Return the shapes of the arrays that ``flatten`` yields for a value of ``shape``."""
    match shape:
        case Shape():
            return (part_shape(shape),) * (2 if has_complex(shape) else 1)
        case TupleShape(elements=elements_):
            return tuple(s for e in elements_ for s in flat_shapes(e))
        case _:
            return ()


def unflatten(parts: Iterator[Instruction], shape: AnyShape) -> Value:
    """Take the next real arrays as a value of ``shape``: the inverse of ``flatten``."""
    match shape:
        case Shape() if has_complex(shape):
            return Parts(next(parts), next(parts))
        case TupleShape(elements=elements_) if has_complex(shape):
            return tuple(unflatten(parts, e) for e in elements_)
        case TupleShape(elements=elements_):
            return make_tuple(tuple(next(parts) for _ in elements_))
        case _:
            return next(parts)


def make_tuple(parts: tuple[Instruction, ...]) -> Instruction:
    """Return a ``tuple`` of instructions; if they are all elements of one tuple, that tuple."""
    shape = TupleShape(tuple(p.shape for p in parts))
    if parts and all(p.opcode == "get-tuple-element" for p in parts):
        whole = parts[0].operands[0]
        numbers = [p.attrs["index"] for p in parts]
        same = all(p.operands[0] is whole for p in parts) and whole.shape == shape
        if same and numbers == list(range(len(parts))):
            return whole
    return make("tuple", shape, parts)


def elements(i: Instruction) -> tuple[Instruction, ...]:
    """Return the elements of a tuple; the operands, if it is a ``tuple`` instruction."""
    if i.opcode == "tuple":
        return i.operands
    assert isinstance(i.shape, TupleShape)
    shapes = enumerate(i.shape.elements)
    return tuple(make("get-tuple-element", s, (i,), index=n) for n, s in shapes)
