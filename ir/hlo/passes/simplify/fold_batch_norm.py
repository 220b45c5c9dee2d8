"""Folding of a per-channel scale and offset after a product into its constant weights.

``dot(x, w) * s + t  ->  dot(x, w * s) + t`` with constants w, s, t. Any chain of additions,
subtractions, multiplications and divisions by constants is collected; one vector of offsets is
left. Rounding differs, because the scale is applied before the sum instead of after it; so a scale
that would leave a channel no normal numbers, or infinities, stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ....arrays import Array
from ....dtypes import to_numpy
from ...nodes import Computation, HloModule, Instruction
from ...patterns import build
from ...patterns.match import is_pointwise, is_splat, splat
from ...rewrite import constant, map_computations, rebuild, users, with_operands


def fold_batch_norm(module: HloModule) -> HloModule:
    """``convolution(x, constant) * s + t``  ->  ``convolution(x, constant * s) + t``"""
    return map_computations(module, _fold)


@dataclass(frozen=True, slots=True)
class _Affine:
    """A value ``product * scale + offset``, with one scale and offset per output channel."""

    product: Instruction
    scale: Array
    offset: Array


def _fold(computation: Computation) -> Computation:
    followers = users(computation)
    known: dict[Instruction, _Affine] = {}
    ends: dict[Instruction, _Affine] = {}
    for i in computation.instructions:
        found = _product(i) or _step(i, known, followers)
        if found is None:
            continue
        for o in i.operands:
            if o in ends and ends[o].product is found.product:
                del ends[o]
        known[i] = ends[i] = found
    ends = {i: a for i, a in ends.items() if (a.scale != 1).any() and _is_normal(a)}
    if not ends:
        return computation
    written = iter(computation.instructions)
    moved: dict[Instruction, Instruction] = {}

    def rule(i: Instruction) -> Instruction | None:
        old = next(written)
        moved[old] = i
        affine = ends.get(old)
        return None if affine is None else _scaled(affine, moved[affine.product])

    return rebuild(computation, rule)


def _product(i: Instruction) -> _Affine | None:
    """Match a canonical dot or convolution with constant weights as its right operand."""
    if i.opcode not in ("dot", "convolution") or i.operands[1].opcode != "constant":
        return None
    if not i.array.dtype.is_float or i.operands[1].array.dtype != i.array.dtype:
        return None
    if i.opcode == "dot" and i.array.rank != 2:
        return None
    channels = i.array.dims[-1]
    return _Affine(i, np.ones(channels), np.zeros(channels))


def _step(
    i: Instruction,
    known: dict[Instruction, _Affine],
    followers: dict[Instruction, tuple[Instruction, ...]],
) -> _Affine | None:
    """Return ``i`` as scale and offset of a product, if it applies one more constant vector."""
    if i.opcode not in ("add", "subtract", "multiply", "divide") or not is_pointwise(i):
        return None
    if not i.array.dtype.is_float or not any(x in known for x in i.operands):
        return None
    for side, x in enumerate(i.operands):
        other = _vector(i.operands[1 - side])
        if x not in known or other is None or followers[x] != (i,):
            continue
        a = known[x]
        if a.product.array.dtype != i.array.dtype:
            return None
        match i.opcode:
            case "add":
                return _Affine(a.product, a.scale, a.offset + other)
            case "subtract" if side == 0:
                return _Affine(a.product, a.scale, a.offset - other)
            case "subtract":
                return _Affine(a.product, -a.scale, other - a.offset)
            case "multiply":
                return _Affine(a.product, a.scale * other, a.offset * other)
            case "divide" if side == 0 and (other != 0).all():
                return _Affine(a.product, a.scale / other, a.offset / other)
            case _:
                return None
    return None


def _vector(x: Instruction) -> Array | None:
    """Return the constant vector that ``x`` broadcasts along the channels, as float64, or None."""
    channels = x.array.dims[-1:]
    if (value := splat(x)) is not None:
        return np.full(channels, float(value))
    last = (x.array.rank - 1,)
    if x.opcode != "broadcast" or x.attrs.get("dimensions", ()) != last:
        return None
    source = x.operands[0]
    if source.opcode != "constant" or source.array.dims != channels:
        return None
    values: Array = source.attrs["literal"].astype(np.float64)
    return values if np.isfinite(values).all() else None


def _is_normal(a: _Affine) -> bool:
    """True if the largest scaled weight of each channel is a normal number, or all are 0."""
    w = a.product.operands[1]
    weights, storage = w.attrs["literal"], to_numpy(w.array.dtype)
    if not weights.size:
        return False
    rows, limits = tuple(range(weights.ndim - 1)), ml_dtypes.finfo(storage)
    ends = weights.max(rows).astype(np.float64), weights.min(rows).astype(np.float64)
    largest = np.maximum(*map(np.abs, ends)) * np.abs(a.scale)
    normal = (largest >= float(limits.tiny)) & (largest <= float(limits.max))
    return bool((normal | (largest == 0)).all())


def _scaled(a: _Affine, product: Instruction) -> Instruction:
    x, w = product.operands
    storage = to_numpy(w.array.dtype)
    weights = np.empty(w.array.dims, storage)
    np.multiply(w.attrs["literal"], a.scale, out=weights, dtype=np.float64, casting="unsafe")
    new = with_operands(product, (x, constant(weights, name=w.name)))
    offset = constant(a.offset.astype(storage))
    last = (product.array.rank - 1,)
    spread = build.broadcast(offset, last, product.array.dims)
    return new if is_splat(offset, 0) or not a.offset.any() else build.pointwise("add", new, spread)
