"""Padded arrays with live sizes, and the masks that hide their padding.

The padding of an array has undefined contents: an operation that lets it reach a live element, or
counts it, masks it first. Sizes are s32 scalars between 0 and the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ....dtypes import DType, pred, s32, to_numpy
from ....elementwise import identity
from ...nodes import AnyShape, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import splat

Sizes: TypeAlias = Mapping[int, Instruction]
Scalar: TypeAlias = Instruction | int


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """An array of static shape (or a token), and the live sizes of the dimensions that vary."""

    value: Instruction
    sizes: Sizes = field(default_factory=dict)

    @property
    def dims(self) -> tuple[int, ...]:
        """Extents of the padded array."""
        return self.value.array.dims

    def size(self, d: int) -> Scalar:
        """Return the live size of dimension ``d``; its extent if it does not vary."""
        return self.sizes.get(d, self.dims[d])


Tree: TypeAlias = Padded | tuple["Tree", ...]


def static(shape: AnyShape) -> AnyShape:
    """Return a shape with every bounded dimension at its bound; the same object if none is."""
    match shape:
        case Shape(dynamic=()):
            return shape
        case Shape():
            return replace(shape, dynamic=())
        case TupleShape(elements=elements):
            new = tuple(map(static, elements))
            same = all(a is b for a, b in zip(new, elements, strict=True))
            return shape if same else TupleShape(new)
        case _:
            return shape


def constant_size(x: Scalar) -> int | None:
    """Return the value of a constant size; None if it is not constant."""
    if isinstance(x, int):
        return x
    value = splat(x)
    return None if value is None else int(value)


def scalar(x: Scalar) -> Instruction:
    """Return a size as an s32 scalar."""
    return build.scalar(x, s32) if isinstance(x, int) else x


def arithmetic(opcode: str, a: Scalar, b: Scalar) -> Scalar:
    """Apply an operation to two sizes, folding constants.

    Opcodes are ``add``, ``subtract``, ``multiply``, ``divide``, ``remainder``, ``maximum`` and
    ``minimum``. Division truncates; ``x / 0`` is -1 and ``x % 0`` is x.
    """
    x, y = constant_size(a), constant_size(b)
    if x is not None and y is not None:
        return _folded(opcode, x, y)
    neutral = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}.get(opcode)
    if y is not None and y == neutral:
        return a
    if x is not None and x == neutral and opcode in ("add", "multiply"):
        return b
    return build.pointwise(opcode, scalar(a), scalar(b))


def _folded(opcode: str, x: int, y: int) -> int:
    match opcode:
        case "add":
            return x + y
        case "subtract":
            return x - y
        case "multiply":
            return x * y
        case "divide":
            return int(x / y) if y else -1
        case "remainder":
            return x - int(x / y) * y if y else x
        case "maximum":
            return max(x, y)
        case _:
            return min(x, y)


def smallest_sizes(parts: Iterable[Sizes]) -> dict[int, Instruction]:
    """Return the smallest live size of every dimension that has one in any of ``parts``."""
    found: dict[int, Instruction] = {}
    for sizes in parts:
        for d, size in sizes.items():
            other = found.setdefault(d, size)
            if other is not size:
                found[d] = scalar(arithmetic("minimum", other, size))
    return found


def varying(dims: Sequence[int], sizes: Mapping[int, Scalar]) -> dict[int, Instruction]:
    """Return the sizes that are not known to be the dimension's extent, as instructions."""
    return {d: scalar(s) for d, s in sorted(sizes.items()) if constant_size(s) != dims[d]}


def live_mask(dims: tuple[int, ...], sizes: Mapping[int, Scalar]) -> Instruction | None:
    """Return a pred array that is true within the live sizes; None if all elements are."""
    condition: Instruction | None = None
    for d, size in sorted(sizes.items()):
        if constant_size(size) == dims[d]:
            continue
        places = build.iota(s32, dims, d)
        inside = build.pointwise(
            "compare", places, build.broadcast(scalar(size), (), dims), direction="LT"
        )
        condition = inside if condition is None else build.pointwise("and", condition, inside)
    return condition


def masked(x: Instruction, sizes: Mapping[int, Scalar], fill: Instruction) -> Instruction:
    """Replace all elements of ``x`` beyond the live sizes by ``fill``, a scalar."""
    dims = x.array.dims
    condition = live_mask(dims, sizes)
    if condition is None:
        return x
    return build.pointwise("select", condition, x, build.broadcast(fill, (), dims))


def zeroed(x: Padded, dims: Iterable[int] | None = None) -> Instruction:
    """Return the array with zeros in its padding, along some dimensions or all."""
    chosen = x.sizes if dims is None else {d: x.sizes[d] for d in dims if d in x.sizes}
    return masked(x.value, chosen, build.scalar(0, x.value.array.dtype))


def neutral(op: str, dtype: DType) -> Instruction | None:
    """Return the scalar that changes no result of a reduction by ``op``; None if there is none."""
    if op == "add" and dtype.is_float:
        return build.scalar(-0.0, dtype)  # 0.0 would turn a sum of -0.0 into 0.0
    try:
        value = identity(op, dtype)
    except KeyError:
        return None
    if dtype.is_float and np.asarray(value).astype(to_numpy(dtype)) != value:
        return None  # a type without infinities
    return build.scalar(value, dtype)


def flags(x: Padded) -> Instruction:
    """Return a pred array that is true where ``x`` is live."""
    condition = live_mask(x.dims, x.sizes)
    return build.full(True, pred, x.dims) if condition is None else condition
