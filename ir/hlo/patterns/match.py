"""Questions that rewrite rules ask about instructions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..nodes import Instruction, Shape
from ..ops.definition import Role
from ..ops.registry import definition, opcodes

POINTWISE = opcodes(lambda d: d.pointwise)
MOVING = opcodes(lambda d: d.role is Role.MOVES)


def is_static(i: Instruction) -> bool:
    """True if ``i`` is one array without bounded dimensions."""
    return isinstance(i.shape, Shape) and not any(i.shape.dynamic)


def all_static(i: Instruction) -> bool:
    """True if ``i`` and its operands are arrays without bounded dimensions."""
    return is_static(i) and all([is_static(o) for o in i.operands])


def is_pointwise(i: Instruction) -> bool:
    """True if ``i`` is an element-wise operation on arrays of its own shape."""
    if i.opcode not in POINTWISE or not i.operands or not all_static(i):
        return False
    dims = i.array.dims
    return all([o.array.dims == dims for o in i.operands])


def moves(i: Instruction) -> bool:
    """True if ``i`` places the elements of its one operand, and nothing else."""
    return i.opcode in MOVING


def is_local(i: Instruction) -> bool:
    """True if ``i`` computes, or puts together, each element from those at the same place."""
    return definition(i.opcode).role in (Role.POINTWISE, Role.PARTS)


def splat(i: Instruction) -> np.ndarray[Any, Any] | None:
    """Return the one value of all elements of ``i``, of rank 0; None if that is not known."""
    while moves(i) and is_static(i) and i.operands:
        i = i.operands[0]
    if i.opcode != "constant" or not is_static(i):
        return None
    literal: np.ndarray[Any, Any] = i.attrs["literal"]
    if literal.size == 1:
        return literal.reshape(())
    return None


def is_splat(i: Instruction, value: float) -> bool:
    """True if every element of ``i`` equals ``value``."""
    found = splat(i)
    return found is not None and found.dtype.kind != "c" and bool(found == value)


def is_integral(i: Instruction) -> bool:
    """True if elements are integers or truth values, so that ``x == x`` holds for all of them."""
    return i.array.dtype.kind in ("signed", "unsigned", "pred")


def nonunit(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions other than 1."""
    return tuple(d for d in dims if d != 1)


def inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes ``permutation``."""
    back = [0] * len(permutation)
    for to, origin in enumerate(permutation):
        back[origin] = to
    return tuple(back)


def segments(
    old: tuple[int, ...], new: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Split a reshape into the finest runs of dimensions with equal products.

    ``[2, 3, 4] -> [6, 4]`` gives ``[((0, 1), (0,)), ((2,), (1,))]``: positions in the old shape
    and in the new. Dimensions of size 1 belong to no run. None for a shape without elements.
    """
    if 0 in old or 0 in new:
        return None
    runs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    left = [k for k, d in enumerate(old) if d != 1]
    right = [k for k, d in enumerate(new) if d != 1]
    i = j = 0
    while i < len(left):
        a, b, first_i, first_j = old[left[i]], new[right[j]], i, j
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * old[left[i]], i + 1
            else:
                b, j = b * new[right[j]], j + 1
        runs.append((tuple(left[first_i:i]), tuple(right[first_j:j])))
    return runs


class Factors(NamedTuple):
    """The factors of each dimension before and after a reshape, by number, and their sizes."""

    split: list[list[int]]
    joined: list[list[int]]
    sizes: list[int]


def common_factors(old: tuple[int, ...], new: tuple[int, ...]) -> Factors | None:
    """Return the factors of which a reshape makes its dimensions out of those before.

    ``[6, 4] -> [2, 12]`` gives ``[[0, 1], [2]]``, ``[[0], [1, 2]]`` and the sizes ``[2, 3, 4]``.
    Dimensions of size 1 have none. None where a dimension would be cut unevenly, as for
    ``[4, 6] -> [6, 4]``, and for a shape without elements.
    """
    if 0 in old or 0 in new:
        return None
    found = Factors([[] for _ in old], [[] for _ in new], [])
    rest, left = list(old), list(new)
    i = j = 0
    while i < len(rest) and j < len(left):
        if rest[i] == 1 or left[j] == 1:
            i, j = i + (rest[i] == 1), j + (left[j] == 1)
            continue
        size = min(rest[i], left[j])
        if rest[i] % size or left[j] % size:
            return None
        found.split[i].append(len(found.sizes))
        found.joined[j].append(len(found.sizes))
        found.sizes.append(size)
        rest[i], left[j] = rest[i] // size, left[j] // size
    return found
