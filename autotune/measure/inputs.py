"""Inputs of a candidate's checks: ordinary values, small whole numbers, values far apart.

Sums of whole numbers are exact in any order, so a single missing or repeated element shows. Values
of very different sizes, integers of either sign and out-of-range indices show faults that ordinary
values hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir.arrays import Array
from ...ir.conversion import convert
from ...ir.dtypes import DType, to_numpy
from ...ir.formats import FORMATS
from ...ir.hlo.analysis.inputs import Draw, draws
from ...te.from_hlo.storage import stored
from ..tasks.programs import Program

ORDINARY, WHOLE, FAR = "ordinary values", "whole numbers", "values far apart"
LADDER = (7, 2, 1)  # largest whole numbers to try, until all results are exact
SMALLEST, SPREAD = -8, 12  # the least exponent of values far apart, and the number of exponents


def far_apart(program: Program, seed: int) -> list[Array]:
    """Draw floats of sizes 2^-8 to 2^4, and integers in, at and outside the usual range."""
    most = max((e for b in program.func.params for e in b.shape), default=1)
    return [_stored(r, _far(rng, r, most)) for rng, r in _recipes(program, seed, 1)]


def whole_numbers(program: Program, seed: int, largest: int) -> list[Array]:
    """Draw floats that are whole numbers up to ``largest``, including zero, and small integers."""
    return [_stored(r, _whole(rng, r, largest)) for rng, r in _recipes(program, seed, 2)]


def _recipes(program: Program, seed: int, turn: int) -> Iterator[tuple[np.random.Generator, Draw]]:
    recipes: Sequence[Draw]
    if program.computation is not None:
        recipes = draws(program.computation)
    else:
        recipes = [Draw(b.shape, b.dtype, 1.0, _unsigned(b.dtype)) for b in program.inputs]
    for n, r in enumerate(recipes):
        yield np.random.default_rng([seed, n, turn]), r


def _unsigned(dtype: DType) -> bool:
    return dtype.is_float and not FORMATS[dtype].sign


def _stored(r: Draw, a: Array) -> Array:
    return stored(convert(a, to_numpy(r.dtype)))


def _whole(rng: np.random.Generator, r: Draw, largest: int) -> Array:
    match r.dtype.kind:
        case "pred":
            return np.asarray(rng.random(r.dims) < 0.5)
        case "signed" | "unsigned":
            high = min(10, 2 ** (r.dtype.bits - 1))
            return np.asarray(rng.integers(0, high, r.dims)).astype(np.int64)
        case "complex":
            parts = rng.integers(-largest, largest + 1, (2, *r.dims))
            return np.asarray(parts[0] + 1j * parts[1])
        case _ if r.positive:  # their roots are whole numbers, too
            return np.asarray(4.0 ** rng.integers(0, 1 + largest // 3, r.dims)).astype(np.float32)
        case _:
            found = rng.integers(-largest, largest + 1, r.dims, np.int8)
            return np.asarray(found).astype(np.float32)


def _far(rng: np.random.Generator, r: Draw, most: int) -> Array:
    match r.dtype.kind:
        case "pred":
            return np.asarray(rng.random(r.dims) < 0.5)
        case "signed" | "unsigned":
            return _places(rng, r, most)
        case "complex":
            pair = [_spread(rng, r.dims) for _ in range(2)]
            return np.asarray(pair[0] + 1j * pair[1])
        case _:
            x = np.float32(r.scale) * _spread(rng, r.dims)
            return np.asarray(np.abs(x) if r.positive else x)


def _spread(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Draw f32 from random bits: any sign and fraction, one of ``SPREAD`` exponents."""
    bits = np.asarray(rng.integers(0, 1 << 32, dims, np.uint32))
    exponent = (bits >> 23 & 0xFF) % SPREAD + (127 + SMALLEST)
    return np.asarray((bits & 0x807FFFFF | exponent << 23).astype(np.uint32)).view(np.float32)


def _places(rng: np.random.Generator, r: Draw, most: int) -> Array:
    """Draw mostly indices of an array, some just out of range, and one in ten arbitrary."""
    bits = r.dtype.bits - (r.dtype.kind == "signed")
    low = -(2**bits) if r.dtype.kind == "signed" else 0
    near = np.clip(rng.integers(-3, most + 3, r.dims), low, 2**bits - 1)
    wild = rng.integers(low, 2**bits - 1, r.dims, dtype=np.int64 if low else np.uint64)
    chosen = np.where(rng.random(r.dims) < 0.9, near.astype(wild.dtype), wild)
    return np.asarray(chosen).astype(np.int64 if low else np.uint64)
