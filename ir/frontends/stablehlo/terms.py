"""Instructions written as formulas: a ``Term`` is an array that Python's operators compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...dtypes import to_numpy
from ...hlo.nodes import Instruction, Shape
from .ops_plain import splat
from .to_hlo import OpSite

Number: TypeAlias = "float | int"


@dataclass(frozen=True, slots=True)
class Term:
    """An array while a formula is written. Numbers become arrays of its shape and element type."""

    site: OpSite
    value: Instruction

    @property
    def shape(self) -> Shape:
        """Return the shape of the array."""
        return self.value.array

    def number(self, number: Number) -> Term:
        """A number for every element."""
        kind = to_numpy(self.shape.dtype)
        with np.errstate(over="ignore"):
            one = self.site.constant(np.asarray(number).astype(kind))
        return Term(self.site, splat(self.site, one, self.shape))

    def do(self, opcode: str, *others: Term | Number, **attrs: Any) -> Term:
        """One element-wise operation of this and others."""
        rest = [o.value if isinstance(o, Term) else self.number(o).value for o in others]
        return Term(self.site, self.site.infer(opcode, [self.value, *rest], **attrs))

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

    def __neg__(self) -> Term:
        return self.do("negate")

    def __and__(self, other: Term | Number) -> Term:
        return self.do("and", other)

    def __or__(self, other: Term | Number) -> Term:
        return self.do("or", other)

    def __lt__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="LT")

    def __le__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="LE")

    def __gt__(self, other: Term | Number) -> Term:
        return self.do("compare", other, direction="GT")

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

    def to(self, shape: Shape, opcode: str = "convert") -> Term:
        """Converted, or its bits taken, to another element type."""
        if shape.dtype == self.shape.dtype:
            return self
        wide = Shape(shape.dtype, self.shape.dims, None, self.shape.dynamic)
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
