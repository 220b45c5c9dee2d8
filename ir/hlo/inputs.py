"""Random arguments for a module: seeded, and in ranges that real programs would see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType, to_numpy
from ..errors import UnsupportedError
from ..formats import FORMATS
from .nodes import Computation, Instruction, Shape

_POSITIVE = ("sqrt", "rsqrt", "log", "log-plus-one", "cbrt")
_PASSES = ("add", "broadcast", "reshape", "convert", "transpose", "copy", "multiply")


@dataclass(frozen=True, slots=True)
class Draw:
    """How one parameter's values are drawn."""

    dims: tuple[int, ...]
    dtype: DType
    scale: float = 1.0
    positive: bool = False


def random_arguments(computation: Computation, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """One array per parameter, drawn as ``draws`` says."""
    return draw_all(draws(computation), seed)


def draw_all(recipes: Sequence[Draw], seed: int) -> list[np.ndarray[Any, Any]]:
    """One row-major array per recipe, drawn from ``seed`` and the recipe's number."""
    return [_draw(np.random.default_rng([seed, n]), r) for n, r in enumerate(recipes)]


def draws(computation: Computation) -> list[Draw]:
    """How to draw values for each parameter.

    Floats are normal with deviation 1; those that multiply as the right side of a dot or
    convolution are scaled by their fan-in, so that deep networks neither vanish nor overflow;
    those that reach a root or logarithm are positive. Integers are small and not negative, so
    that they can serve as indices. Raises ``UnsupportedError`` for tuple or token parameters.
    """
    positive = _reach(computation)
    found = []
    for p in computation.parameters:
        if not isinstance(p.shape, Shape):
            raise UnsupportedError(
                what=f"cannot draw random values for parameter {p.name}",
                why="it is not an array",
                where=computation.name,
                hint="pass the arguments as a file",
            )
        scale = _scale(computation, p)
        unsigned = p.shape.dtype.is_float and not FORMATS[p.shape.dtype].sign
        found.append(Draw(p.shape.dims, p.shape.dtype, scale, unsigned or p in positive))
    return found


def _draw(rng: np.random.Generator, draw: Draw) -> np.ndarray[Any, Any]:
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


def _scale(computation: Computation, parameter: Instruction) -> float:
    for user in computation.instructions:
        if user.opcode in ("dot", "convolution") and len(user.operands) == 2:
            weights = user.operands[1]
            while weights.opcode in ("transpose", "reshape", "convert") and weights.operands:
                weights = weights.operands[0]
            if weights is parameter:
                columns = user.array.dims[-1] if user.array.dims else 1
                fan_in = max(1, parameter.array.size // max(1, columns))
                return 1.0 / math.sqrt(min(fan_in, max(1, parameter.array.size)))
    return 1.0


def _reach(computation: Computation) -> set[Instruction]:
    """Parameters whose values flow, by sums and products alone, into a root or logarithm."""
    wanted: set[Instruction] = set()
    for i in reversed(computation.instructions):
        if i.opcode in _POSITIVE or (i in wanted and i.opcode in _PASSES):
            wanted.update(i.operands)
    return {p for p in computation.parameters if p in wanted}
