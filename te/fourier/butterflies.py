"""Fourier transforms of a few numbers, as straight-line code with a name for every value.

A length that is a product is transformed in two steps (Cooley and Tukey, An Algorithm for the
Machine Calculation of Complex Fourier Series, 1965). An odd prime takes sums and differences of the
pairs of numbers whose roots are each other's conjugates, which halves the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, isqrt, pi, sin
from typing import TypeAlias

from ...ir.dtypes import DType
from ...ir.loop.build import const, op
from ...ir.loop.nodes import Expr, Var

Complex: TypeAlias = tuple[Expr, Expr]
"""A real and an imaginary part."""


@dataclass(slots=True)
class Butterfly:
    """Arithmetic on complex values of parts of type ``dtype``; ``names`` are bound in order."""

    dtype: DType
    names: list[tuple[Var, Expr]] = field(default_factory=list)

    def named(self, value: Expr) -> Expr:
        """Return a name for a value."""
        var = Var("t", self.dtype)
        self.names.append((var, value))
        return var

    def number(self, value: float) -> Expr:
        """Return a literal."""
        return const(value, self.dtype)

    def add(self, a: Complex, b: Complex) -> Complex:
        """Return ``a + b``."""
        return self.named(op("add", a[0], b[0])), self.named(op("add", a[1], b[1]))

    def subtract(self, a: Complex, b: Complex) -> Complex:
        """Return ``a - b``."""
        return self.named(op("subtract", a[0], b[0])), self.named(op("subtract", a[1], b[1]))

    def scaled(self, a: Complex, by: Expr) -> Complex:
        """Return a multiple of a number."""
        return self.named(op("multiply", a[0], by)), self.named(op("multiply", a[1], by))

    def multiply(self, a: Complex, b: Complex) -> Complex:
        """Return ``a * b``."""
        ac, bd = op("multiply", a[0], b[0]), op("multiply", a[1], b[1])
        ad, bc = op("multiply", a[0], b[1]), op("multiply", a[1], b[0])
        return self.named(op("subtract", ac, bd)), self.named(op("add", ad, bc))

    def turned(self, a: Complex, k: int, n: int) -> Complex:
        """Return ``a * exp(-2 pi i k / n)``, without products for multiples of a quarter."""
        quarters, rest = divmod(4 * (k % n), n)
        if rest:
            angle = 2 * pi * (k % n) / n
            return self.multiply(a, (self.number(cos(angle)), self.number(-sin(angle))))
        re, im = a
        match quarters:
            case 0:
                return a
            case 1:
                return im, self.named(op("negate", re))
            case 2:
                return self.named(op("negate", re)), self.named(op("negate", im))
            case _:
                return self.named(op("negate", im)), re

    def transform(self, values: Sequence[Complex]) -> list[Complex]:
        """Return the sums over j of ``values[j] * exp(-2 pi i j k / n)``, for all n values of k."""
        n = len(values)
        first = next((f for f in range(isqrt(n), 1, -1) if n % f == 0), n)
        if n == 1:
            return list(values)
        if n == 2:
            a, b = values
            return [self.add(a, b), self.subtract(a, b)]
        return self._prime(values) if first == n else self._product(values, first)

    def _product(self, values: Sequence[Complex], n1: int) -> list[Complex]:
        """Transform ``j = j1 n2 + j2`` to ``k = k1 + n1 k2``: over ``j1`` first."""
        n, n2 = len(values), len(values) // n1
        columns = [self.transform(values[j2::n2]) for j2 in range(n2)]
        found: dict[int, Complex] = {}
        for k1 in range(n1):
            row = [self.turned(columns[j2][k1], j2 * k1, n) for j2 in range(n2)]
            found |= {k1 + n1 * k2: b for k2, b in enumerate(self.transform(row))}
        return [found[k] for k in range(n)]

    def _prime(self, values: Sequence[Complex]) -> list[Complex]:
        n, first = len(values), values[0]
        half = range(1, (n + 1) // 2)
        sums = [self.add(values[j], values[n - j]) for j in half]
        gaps = [self.subtract(values[j], values[n - j]) for j in half]
        found = {0: self._sum(first, sums)}
        for k in half:
            even = [self.number(cos(2 * pi * (j * k % n) / n)) for j in half]
            odd = [self.number(sin(2 * pi * (j * k % n) / n)) for j in half]
            a = self._sum(first, sums, even)
            b = self._sum(None, gaps, odd)
            b = b[1], self.named(op("negate", b[0]))  # times -i
            found[k], found[n - k] = self.add(a, b), self.subtract(a, b)
        return [found[k] for k in range(n)]

    def _sum(
        self,
        start: Complex | None,
        values: Sequence[Complex],
        factors: Sequence[Expr] = (),
    ) -> Complex:
        """Return a sum of numbers, or of real multiples of them, added to ``start``."""
        parts: list[Expr] = []
        for k in range(2):
            total = None if start is None else start[k]
            for n, v in enumerate(values):
                term = op("multiply", v[k], factors[n]) if factors else v[k]
                total = term if total is None else op("add", total, term)
            assert total is not None
            parts.append(self.named(total))
        return parts[0], parts[1]
