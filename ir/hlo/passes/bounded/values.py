"""Arrays at their bound with live sizes beside them, and the masks that hide their padding.

What stands in the padding of an array is anything: whatever lets it reach a live element, or
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
from ...rewrite import make

Sizes: TypeAlias = Mapping[int, Instruction]
Scalar: TypeAlias = Instruction | int


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """An array of static shape (or a token), and the live sizes of some of its dimensions."""

    value: Instruction
    sizes: Sizes = field(default_factory=dict)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.value.array.dims

    def size(self, d: int) -> Scalar:
        """The live size of dimension ``d``."""
        return self.sizes.get(d, self.dims[d])


Tree: TypeAlias = Padded | tuple["Tree", ...]


def static(shape: AnyShape) -> AnyShape:
    """The shape with every bounded dimension at its bound."""
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


def known(x: Scalar) -> int | None:
    """The value of a size that is a constant."""
    if isinstance(x, int):
        return x
    value = splat(x)
    return None if value is None else int(value)


def scalar(x: Scalar) -> Instruction:
    """A size as an s32 scalar."""
    return build.scalar(x, s32) if isinstance(x, int) else x


def arithmetic(opcode: str, a: Scalar, b: Scalar) -> Scalar:
    """``add``, ``subtract``, ``multiply``, ``divide``, ``remainder``, ``maximum``, ``minimum``.

    Division truncates; by 0 it gives -1, and the remainder is then the dividend.
    """
    x, y = known(a), known(b)
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


def meet(parts: Iterable[Sizes]) -> dict[int, Instruction]:
    """The smallest live size of every dimension that has one in some of ``parts``."""
    found: dict[int, Instruction] = {}
    for sizes in parts:
        for d, size in sizes.items():
            other = found.setdefault(d, size)
            if other is not size:
                found[d] = scalar(arithmetic("minimum", other, size))
    return found


def settled(dims: Sequence[int], sizes: Mapping[int, Scalar]) -> dict[int, Instruction]:
    """The sizes that may differ from the dimension's extent."""
    return {d: scalar(s) for d, s in sorted(sizes.items()) if known(s) != dims[d]}


def live(dims: tuple[int, ...], sizes: Mapping[int, Scalar]) -> Instruction | None:
    """A pred array: which elements lie within the live sizes; None if all do."""
    condition: Instruction | None = None
    for d, size in sorted(sizes.items()):
        if known(size) == dims[d]:
            continue
        places = make("iota", Shape(s32, dims), iota_dimension=d)
        inside = build.pointwise(
            "compare", places, build.broadcast(scalar(size), (), dims), direction="LT"
        )
        condition = inside if condition is None else build.pointwise("and", condition, inside)
    return condition


def masked(x: Instruction, sizes: Mapping[int, Scalar], fill: Instruction) -> Instruction:
    """``x`` with ``fill``, a scalar, in all places beyond the live sizes."""
    dims = x.array.dims
    condition = live(dims, sizes)
    if condition is None:
        return x
    return build.pointwise("select", condition, x, build.broadcast(fill, (), dims))


def zeroed(x: Padded, dims: Iterable[int] | None = None) -> Instruction:
    """The array with zeros in its padding, along some dimensions or all."""
    chosen = x.sizes if dims is None else {d: x.sizes[d] for d in dims if d in x.sizes}
    return masked(x.value, chosen, build.scalar(0, x.value.array.dtype))


def neutral(op: str, dtype: DType) -> Instruction | None:
    """The scalar that changes no result of a reduction by ``op``; None where there is none."""
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
    """A pred array that is true where ``x`` is live."""
    condition = live(x.dims, x.sizes)
    return build.full(True, pred, x.dims) if condition is None else condition
