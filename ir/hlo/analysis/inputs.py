"""Random arguments for a module: seeded, and in ranges that real programs would see."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ...errors import ArgumentError, UnsupportedError
from ...formats import FORMATS
from ..nodes import AnyShape, Computation, Instruction, Shape, TupleShape
from ..ops.definition import Pattern
from ..ops.registry import definition


@dataclass(frozen=True, slots=True)
class Draw:
    """The random distribution of one array's values."""

    dims: tuple[int, ...]
    dtype: DType
    scale: float = 1.0
    positive: bool = False


def require_seed(seed: object, where: str = "") -> None:
    """Raise ``ArgumentError`` for what is no seed: anything but whole numbers from 0."""
    if not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed {seed!r}", "expected a non-negative integer", where)


def random_arguments(computation: Computation, seed: int = 0) -> list[Any]:
    """One value per parameter, an array or nested tuples of arrays, drawn as ``draws`` says."""
    arrays = iter(draw_all(draws(computation), seed))
    return [_in_tuples(p.shape, arrays) for p in computation.parameters]


def _in_tuples(shape: AnyShape, arrays: Iterator[Array]) -> Any:
    if isinstance(shape, TupleShape):
        return tuple([_in_tuples(e, arrays) for e in shape.elements])
    return next(arrays)


def draw_all(recipes: Sequence[Draw], seed: int) -> list[Array]:
    """One row-major array per recipe, drawn from ``seed`` and the recipe's number."""
    return [_draw(np.random.default_rng([seed, n]), r) for n, r in enumerate(recipes)]


def drawable(computation: Computation) -> bool:
    """True if all parameters are arrays, or tuples of such."""
    return not any(_holds_token(p.shape) for p in computation.parameters)


def draws(computation: Computation) -> list[Draw]:
    """Return how to draw values for each parameter, one entry per array where it is a tuple.

    Floats are normal with deviation 1; those that multiply as the right side of a dot or
    convolution are scaled by their fan-in, so that deep networks neither vanish nor overflow;
    those that reach a root or logarithm are positive. Integers are small and not negative, so
    that they can serve as indices. Raises ``UnsupportedError`` for token parameters.
    """
    positive, parts, scales = _reach(computation), _parts(computation), _scales(computation)
    found: list[Draw] = []
    for p in computation.parameters:
        if _holds_token(p.shape):
            raise UnsupportedError(
                what=f"cannot draw random values for parameter {p.name}",
                why="it holds a token",
                where=computation.name,
                hint="pass the arguments as a file",
            )
        for shape, holders in _arrays(p.shape, [p], parts):
            scale = min((scales.get(h, 1.0) for h in holders), default=1.0)
            unsigned = shape.dtype.is_float and not FORMATS[shape.dtype].sign
            above = unsigned or not positive.isdisjoint(holders)
            found.append(Draw(shape.dims, shape.dtype, scale, above))
    return found


def _holds_token(shape: AnyShape) -> bool:
    match shape:
        case TupleShape(elements=elements):
            return any(map(_holds_token, elements))
        case Shape():
            return False
        case _:
            return True


Parts: TypeAlias = Mapping[tuple[Instruction, int], Sequence[Instruction]]


def _parts(computation: Computation) -> Parts:
    """The instructions that take an element of a tuple, by the tuple and the element's number."""
    found: dict[tuple[Instruction, int], list[Instruction]] = {}
    for i in computation.instructions:
        if i.opcode == "get-tuple-element":
            found.setdefault((i.operands[0], i.attrs["index"]), []).append(i)
    return found


def _arrays(
    shape: AnyShape, holders: Sequence[Instruction], parts: Parts
) -> Iterator[tuple[Shape, Sequence[Instruction]]]:
    """The arrays in a value of this shape, each with the instructions that are that array."""
    if isinstance(shape, Shape):
        yield shape, holders
    elif isinstance(shape, TupleShape):
        for n, element in enumerate(shape.elements):
            taken = [i for h in holders for i in parts.get((h, n), ())]
            yield from _arrays(element, taken, parts)


def _draw(rng: np.random.Generator, draw: Draw) -> Array:
    dims, dtype = draw.dims, to_numpy(draw.dtype)
    match draw.dtype.kind:
        case "pred":
            return rng.random(dims) < 0.5
        case "signed" | "unsigned":
            high = min(10, 2 ** (draw.dtype.bits - 1))
            return np.asarray(rng.integers(0, high, dims)).astype(dtype)
        case "complex":
            pair = rng.standard_normal((2, *dims))
            return np.asarray(draw.scale * (pair[0] + 1j * pair[1])).astype(dtype)
        case _:
            x = np.asarray(rng.standard_normal(dims, dtype=np.float32)) * np.float32(draw.scale)
            return np.asarray(np.abs(x) + np.float32(0.1) if draw.positive else x).astype(dtype)


def _scales(computation: Computation) -> Mapping[Instruction, float]:
    """Return what to multiply the right sides of products by; the first product of each counts."""
    found: dict[Instruction, float] = {}
    for user in computation.instructions:
        product = definition(user.opcode).pattern is Pattern.OUT_FUSABLE
        if product and len(user.operands) == 2:
            weights = user.operands[1]
            while _is_rearranged(weights):
                weights = weights.operands[0]
            size = weights.array.size if isinstance(weights.shape, Shape) else 0
            columns = user.array.dims[-1] if user.array.dims else 1
            found.setdefault(weights, 1.0 / math.sqrt(max(1, size // max(1, columns))))
    return found


def _is_rearranged(i: Instruction) -> bool:
    """True if ``i`` has the elements of its one operand, each once and perhaps converted."""
    if len(i.operands) != 1 or not definition(i.opcode).keeps_positive:
        return False
    return i.array.size == i.operands[0].array.size


def _reach(computation: Computation) -> set[Instruction]:
    """Instructions whose values flow, by sums and products alone, into a root or logarithm."""
    wanted: set[Instruction] = set()
    for i in reversed(computation.instructions):
        op = definition(i.opcode)
        if op.needs_positive or (i in wanted and op.keeps_positive):
            wanted.update(i.operands)
    return wanted
