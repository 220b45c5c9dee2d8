"""Fourier transforms for processors with vector registers: along one dimension each, by ``dft``.

A long transform of few rows is two of short rows (Cooley and Tukey, An Algorithm for the Machine
Calculation of Complex Fourier Series, 1965): of ``j = j1 n2 + j2`` and ``k = k1 + n1 k2``, over
``j1``, times the roots for ``j2 k1``, then over ``j2``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isqrt, prod

import numpy as np

from .....arrays import Array
from .....dtypes import DType, c64, c128, f32, to_numpy
from ....nodes import HloModule, Instruction, Shape
from ....patterns import build
from ....rewrite import constant, make, map_computations, rebuild
from .halves import told_apart, woven
from .planes import part_type, roots_of_unity

LONGEST, LONGEST_REAL = 4096, 16384
"""Complex and real numbers of a row that one kernel transforms: those of all lanes have to stay in
a cache.
"""

FACTOR = 13
"""The largest prime factor of a length."""

FEW, FEW_REAL = 32, 4
"""Rows of complex and of real numbers from which on one kernel is faster than several."""

TWICE, LARGEST = 64, 1 << 21
"""Numbers of a row that may be transformed in two steps; the roots between them are as many."""


def lane_transforms(module: HloModule) -> HloModule:
    """``fft``  ->  ``dft`` for each dimension"""
    tables = _Tables()
    return map_computations(module, lambda c: rebuild(c, lambda i: _rule(i, tables)))


def _rule(i: Instruction, tables: _Tables) -> Instruction | None:
    if i.opcode != "fft" or any(i.array.dynamic) or 0 in i.array.dims:
        return None
    lengths, kind = tuple(i.attrs["fft_length"]), str(i.attrs["fft_type"])
    (x,), last = i.operands, i.array.rank - 1
    axes = range(last + 1 - len(lengths), last)
    steps = [(last, kind)]
    between = [(axis, "IFFT" if kind[0] == "I" else "FFT") for axis in axes]
    steps = [*between, *steps] if kind == "IRFFT" else [*steps, *between]
    for axis, each in steps:
        found = _along(x, axis, lengths[axis - axes.start], each, tables)
        if found is None:
            return None
        x = found
    return x


@dataclass(slots=True)
class _Tables:
    """Constants that transforms of a module share."""

    known: dict[tuple[DType, int, int], Instruction] = field(default_factory=dict)

    def roots(self, dtype: DType, n: int) -> Instruction:
        """Return ``exp(-2 pi i k / n)`` as ``[n, 2]``."""
        return self._made((dtype, n, 0), lambda: roots_of_unity(n, np.arange(n), -1))

    def between(self, dtype: DType, n1: int, n2: int, sign: int) -> Instruction:
        """Return ``exp(sign 2 pi i j2 k1 / n)`` as ``[n1, n2, 2]``."""
        powers = np.outer(np.arange(n1), np.arange(n2))
        key = dtype, n1 * n2, sign * n1
        return self._made(key, lambda: roots_of_unity(n1 * n2, powers, sign))

    def _made(self, key: tuple[DType, int, int], roots: Callable[[], Array]) -> Instruction:
        if key not in self.known:
            found = roots()
            parts = np.stack([found.real, found.imag], axis=-1)
            self.known[key] = constant(parts.astype(to_numpy(key[0])))
        return self.known[key]


def _along(x: Instruction, axis: int, n: int, kind: str, tables: _Tables) -> Instruction | None:
    """Return the transform of one dimension; None for lengths that ``dft`` is not made for."""
    dims = x.array.dims
    outer, inner = prod(dims[:axis]), prod(dims[axis + 1 :])
    if not is_smooth(n):
        return None
    done = (*dims[:axis], {"RFFT": n // 2 + 1}.get(kind, n), *dims[axis + 1 :])
    if inner > 1:
        given = _reshaped(x, (outer, n, inner))
        return _reshaped(_dft(given, (1, 1), n, kind, (), tables), done) if n <= LONGEST else None
    rows = _reshaped(x, (outer, dims[axis]))
    found = _of_rows(rows, n, kind, tables)
    return None if found is None else _reshaped(found, done)


def _of_rows(x: Instruction, n: int, kind: str, tables: _Tables) -> Instruction | None:
    """Return the transforms of the rows of ``[rows, n]``, or of as many numbers as ``kind`` has."""
    rows, real = x.array.dims[0], kind in ("RFFT", "IRFFT")
    longest, few = (LONGEST_REAL, FEW_REAL) if real else (LONGEST, FEW)
    parts = n > longest or (n >= TWICE and rows < few)
    if parts and n <= LARGEST and (pair := _pair(n)) is not None:
        if not real:
            return _reshaped(_in_two_steps(x, pair, kind, tables), (rows, n))
        if n % 2 == 0 and (found := _of_halves(x, n, kind, tables)) is not None:
            return found
    if n > longest:
        return None
    given = _reshaped(x, (1, *x.array.dims))
    found = _dft(given, (2, 2), n, kind, (), tables)
    return _reshaped(found, found.array.dims[1:])


def _in_two_steps(x: Instruction, pair: tuple[int, int], kind: str, tables: _Tables) -> Instruction:
    n1, n2 = pair
    given = _reshaped(x, (x.array.dims[0], n1, n2))
    factors = tables.between(part_type(x), n1, n2, 1 if kind == "IFFT" else -1)
    turned = _dft(given, (1, 1), n1, kind, (factors,), tables)
    return _dft(turned, (2, 1), n2, kind, (), tables)


def _of_halves(x: Instruction, n: int, kind: str, tables: _Tables) -> Instruction | None:
    """Return the transforms of real rows as those of complex rows of half the length.

    None for lengths that two steps are not made for.
    """
    rows, half = x.array.dims[0], n // 2
    dtype = c64 if part_type(x) == f32 else c128
    if kind == "RFFT":
        pairs = make("bitcast", Shape(dtype, (rows, half)), (x,))
        found = _of_rows(pairs, half, "FFT", tables)
        return None if found is None else told_apart(found, tables.roots(part_type(x), n))
    given = woven(x, tables.roots(part_type(x), n))
    found = _of_rows(given, half, "IFFT", tables)
    return None if found is None else make("bitcast", Shape(part_type(x), (rows, n)), (found,))


def _dft(
    x: Instruction,
    dimensions: tuple[int, int],
    n: int,
    kind: str,
    factors: Sequence[Instruction],
    tables: _Tables,
) -> Instruction:
    along, to = dimensions
    outer, *rest = x.array.dims
    made, part = {"RFFT": n // 2 + 1}.get(kind, n), part_type(x)
    rows = rest[2 - along]
    dims = (outer, made, rows) if to == 1 else (outer, rows, made)
    dtype = part if kind == "IRFFT" else (c64 if part == f32 else c128)
    operands = (x, tables.roots(part, n), *factors)
    shape = Shape(dtype, dims)
    return make("dft", shape, operands, fft_type=kind, fft_length=(n,), dimensions=dimensions)


def _reshaped(x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Return a reshape, of both parts where a complex number is joined."""
    if x.opcode != "complex" or x.array.dims == dims:
        return build.reshape(x, dims)
    parts = tuple(build.reshape(p, dims) for p in x.operands)
    return make("complex", Shape(x.array.dtype, dims), parts)


def is_smooth(n: int) -> bool:
    """True if ``dft`` transforms rows of ``n`` numbers: no prime factor is too large for it."""
    found, k = n, 2
    while k <= FACTOR and found > 1:
        found, k = (found // k, k) if found % k == 0 else (found, k + 1)
    return n > 1 and found == 1


def _pair(n: int) -> tuple[int, int] | None:
    """Return two factors near each other, multiples of a vector's lanes where there are such."""
    pairs = [(k, n // k) for k in range(2, isqrt(n) + 1) if n % k == 0 and n // k <= LONGEST]
    return max(pairs, key=lambda p: (sum(k % 16 == 0 for k in p), p[0]), default=None)
