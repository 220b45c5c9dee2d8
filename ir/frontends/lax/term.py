"""Instructions written as formulas: a ``Term`` is an array that Python's operators compute with.

Arrays broadcast as NumPy's do, and Python's numbers take the type of the array beside them; the
types of two arrays have to agree: a front-end converts them by its own rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ...errors import VerifyError
from ...hlo.nodes import AnyShape, Instruction, Shape, TupleShape

Number: TypeAlias = "float | int | complex"
Dims: TypeAlias = tuple[int, ...]


class WriteSite(Protocol):
    """Where instructions are written: a ``Graph``, or a place in one that words its errors."""

    @property
    def depth(self) -> int:
        """Return the number of graphs around this one."""

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[Instruction] = (), **attrs: Any
    ) -> Instruction:
        """Write an instruction of this shape."""

    def infer(self, opcode: str, operands: Sequence[Instruction], **attrs: Any) -> Instruction:
        """Write an instruction of the shape that its operands give."""

    def constant(self, value: Array) -> Instruction:
        """Write a constant of an array's value."""

    def known(self, value: Instruction) -> Array | None:
        """Return the value if constants alone give it and it is small."""


@dataclass(frozen=True, slots=True)
class Term:
    """An array while a formula is written."""

    site: WriteSite
    value: Instruction

    @property
    def shape(self) -> Shape:
        """Return the shape of the array."""
        return self.value.array

    @property
    def dims(self) -> Dims:
        """Return the sizes of its dimensions; bounded ones at their bounds."""
        return self.value.array.dims

    @property
    def rank(self) -> int:
        """Return the number of its dimensions."""
        return len(self.value.array.dims)

    @property
    def dtype(self) -> DType:
        """Return the type of its elements."""
        return self.value.array.dtype

    def known(self) -> Array | None:
        """Return the value if constants alone give it and it is small, else None."""
        return self.site.known(self.value)

    def number(self, number: Number) -> Term:
        """A number for every element."""
        one = Term(self.site, self.site.constant(_as(number, self.dtype)))
        return one.like(self.shape)

    def like(self, shape: Shape) -> Term:
        """This array, broadcast to the sizes of another as NumPy does."""
        old, lead = self.shape, shape.rank - self.rank
        if old.dims == shape.dims and (any(old.dynamic) or not any(shape.dynamic)):
            return self
        kept = tuple(k for k, d in enumerate(old.dims) if d == shape.dims[lead + k])
        if any(old.dims[k] != 1 for k in range(old.rank) if k not in kept):
            why = f"{list(old.dims)} does not broadcast to {list(shape.dims)}"
            raise VerifyError("shapes do not fit", why)
        source = self.value
        if len(kept) < old.rank:
            flags = tuple(old.dynamic[k] for k in kept) if old.dynamic else ()
            small = Shape(old.dtype, tuple(old.dims[k] for k in kept), None, flags)
            source = self.site.add("reshape", small, [source])
        to = tuple(lead + k for k in kept)
        own = {lead + k for k in kept if old.marks[k]}
        marks = tuple(m or k in own for k, m in enumerate(shape.marks)) if own else shape.dynamic
        wide = Shape(old.dtype, shape.dims, None, marks)
        return Term(self.site, self.site.add("broadcast", wide, [source], dimensions=to))

    def do(self, opcode: str, *others: Term | Number, **attrs: Any) -> Term:
        """One element-wise operation of this and others, broadcast to each other."""
        given = [self, *(o for o in others if isinstance(o, Term))]
        site = innermost(given)
        shape = common_shape([t.shape for t in given])
        rest = [o if isinstance(o, Term) else self.number(o) for o in others]
        terms = [Term(site, t.value).like(shape).value for t in (self, *rest)]
        return Term(site, site.infer(opcode, terms, **attrs))

    def __add__(self, other: Term | Number) -> Term:
        return self.do("add", other)

    def __radd__(self, other: Number) -> Term:
        return self.number(other).do("add", self)

    def __sub__(self, other: Term | Number) -> Term:
        return self.do("subtract", other)

    def __rsub__(self, other: Number) -> Term:
        return self.number(other).do("subtract", self)

    def __mul__(self, other: Term | Number) -> Term:
        return self.do("multiply", other)

    def __rmul__(self, other: Number) -> Term:
        return self.number(other).do("multiply", self)

    def __truediv__(self, other: Term | Number) -> Term:
        return self.do("divide", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.number(other).do("divide", self)

    def __pow__(self, other: Term | Number) -> Term:
        return self.do("power", other)

    def __neg__(self) -> Term:
        return self.do("negate")

    def __invert__(self) -> Term:
        return self.do("not")

    def __and__(self, other: Term | Number) -> Term:
        return self.do("and", other)

    def __or__(self, other: Term | Number) -> Term:
        return self.do("or", other)

    def __xor__(self, other: Term | Number) -> Term:
        return self.do("xor", other)

    def __lt__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="LT")

    def __le__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="LE")

    def __gt__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="GT")

    def __ge__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="GE")

    def equals(self, other: Term | Number) -> Term:
        """Return a pred array: true where this equals the other."""
        return self.do("compare", other, direction="EQ")

    def differs(self, other: Term | Number) -> Term:
        """Return a pred array: true where this differs from the other; NaN does from itself."""
        return self.do("compare", other, direction="NE")

    def select(self, yes: Term | Number, no: Term | Number) -> Term:
        """``yes`` where this is true; one of both must be a term."""
        like = yes if isinstance(yes, Term) else no
        assert isinstance(like, Term)
        sides = [s if isinstance(s, Term) else like.number(s) for s in (yes, no)]
        return self.do("select", *sides)

    def to(self, kind: DType | Shape, opcode: str = "convert") -> Term:
        """Converted, or its bits taken, to another element type."""
        dtype = kind.dtype if isinstance(kind, Shape) else kind
        if dtype == self.dtype:
            return self
        wide = Shape(dtype, self.dims, None, self.shape.dynamic)
        return Term(self.site, self.site.add(opcode, wide, [self.value]))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """By Horner's rule, the highest power first."""
        total = self.number(coefficients[0])
        for c in coefficients[1:]:
            total = total * self + c
        return total

    def chebyshev(self, coefficients: Sequence[float]) -> Term:
        """A series of Chebyshev polynomials of half of this, the highest order first.

        By Clenshaw's recurrence; the last coefficient counts half.
        """
        before, now, after = self.number(0), self.number(0), self.number(0)
        for c in coefficients:
            before, now, after = now, after, self * after - now + c
        return 0.5 * (after - before)


def unpacked(site: WriteSite, value: Instruction) -> list[Term]:
    """Return an array as a term, or the elements of a tuple of arrays."""
    match value.shape:
        case TupleShape(elements=parts):
            numbers = range(len(parts))
            one = [site.infer("get-tuple-element", [value], index=n) for n in numbers]
            return [Term(site, part) for part in one]
        case _:
            return [Term(site, value)]


def innermost(terms: Sequence[Term]) -> WriteSite:
    """Return the site of the innermost graph: there an operation of all the terms is written."""
    return max((t.site for t in terms), key=lambda site: site.depth)


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that arrays broadcast to; ``VerifyError`` if they do not."""
    first = shapes[0]
    if all(s.dims == first.dims and s.dynamic == first.dynamic for s in shapes):
        return first
    try:
        dims = np.broadcast_shapes(*(s.dims for s in shapes))
    except ValueError:
        shown = " and ".join(str(list(s.dims)) for s in shapes)
        raise VerifyError("shapes do not fit", f"{shown} do not broadcast") from None
    bounded = [False] * len(dims)
    for s in shapes:
        lead = len(dims) - s.rank
        for k, flag in enumerate(s.dynamic):
            bounded[lead + k] |= flag
    return Shape(first.dtype, tuple(dims), None, tuple(bounded) if any(bounded) else ())


def _as(number: Number, dtype: DType) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(to_numpy(dtype))
