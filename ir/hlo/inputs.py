"""Random arguments for a module: seeded, and in ranges that real programs would see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import to_numpy
from ..errors import UnsupportedError
from .nodes import Computation, Instruction, Shape

_POSITIVE = ("sqrt", "rsqrt", "log", "log-plus-one", "cbrt")
_PASSES = ("add", "broadcast", "reshape", "convert", "transpose", "copy", "multiply")


def random_arguments(computation: Computation, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """One array per parameter, row-major, drawn from ``seed`` and the parameter's number.

    Floats are normal with deviation 1; those that multiply as the right side of a dot or
    convolution are scaled by their fan-in, so that deep networks neither vanish nor overflow;
    those that reach a root or logarithm are positive. Integers are small and not negative, so
    that they can serve as indices. Raises ``UnsupportedError`` for tuple or token parameters.
    """
    positive = _reach(computation)
    arrays = []
    for number, p in enumerate(computation.parameters):
        if not isinstance(p.shape, Shape):
            raise UnsupportedError(
                what=f"cannot draw random values for parameter {p.name}",
                why="it is not an array",
                where=computation.name,
                hint="pass the arguments as a file",
            )
        rng = np.random.default_rng([seed, number])
        arrays.append(_draw(rng, p.shape, _scale(computation, p), p in positive))
    return arrays


def _draw(
    rng: np.random.Generator, shape: Shape, scale: float, positive: bool
) -> np.ndarray[Any, Any]:
    dims, dtype = shape.dims, to_numpy(shape.dtype)
    match shape.dtype.kind:
        case "pred":
            return rng.random(dims) < 0.5
        case "signed" | "unsigned":
            high = min(10, 2 ** (shape.dtype.bits - 1))
            return np.asarray(rng.integers(0, high, dims)).astype(dtype)
        case "complex":
            pair = rng.standard_normal((2, *dims))
            return np.asarray(scale * (pair[0] + 1j * pair[1])).astype(dtype)
        case _:
            x = np.asarray(rng.standard_normal(dims, dtype=np.float32)) * np.float32(scale)
            return np.asarray(np.abs(x) + np.float32(0.1) if positive else x).astype(dtype)


def _scale(computation: Computation, parameter: Instruction) -> float:
    for user in computation.instructions:
        if user.opcode in ("dot", "convolution") and len(user.operands) == 2:
            weights = user.operands[1]
            while weights.opcode in ("transpose", "reshape", "convert") and weights.operands:
                weights = weights.operands[0]
            if weights is parameter:
                fan_in = max(1, parameter.array.size // max(1, user.array.dims[-1] if user.array.dims else 1))
                return 1.0 / math.sqrt(min(fan_in, max(1, parameter.array.size)))
    return 1.0


def _reach(computation: Computation) -> set[Instruction]:
    """Parameters whose values flow, by sums and products alone, into a root or logarithm."""
    wanted: set[Instruction] = set()
    for i in reversed(computation.instructions):
        if i.opcode in _POSITIVE:
            wanted.update(i.operands)
        elif i in wanted and i.opcode in _PASSES:
            wanted.update(i.operands)
    return {p for p in computation.parameters if p in wanted}
