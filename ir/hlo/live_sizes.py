"""Rules about live sizes that the interpreter and ``pad_dynamic`` share.

A bounded dimension has a live size from 0 to its bound. Where arrays of different live sizes meet,
the smallest counts. What is read beyond a live size, where a result of fixed size needs it, is 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from ..errors import UnsupportedError
from .nodes import Instruction, Shape
from .shape_text import show_shape


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring dimensions of a reshape with equal numbers of elements, old and new.

    ``live`` is the new dimension that takes as many rows as there are live elements, by number (or
    its bound, where others have no elements); if it is None the new dimensions keep their sizes,
    and are filled up with zeros.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    live: int | None


def marks(shape: Shape) -> tuple[bool, ...]:
    """Which dimensions are declared to be bounded."""
    return shape.dynamic or (False,) * shape.rank


def reshape_runs(i: Instruction, dynamic: Collection[int]) -> tuple[Run, ...]:
    """The runs of a ``reshape`` whose operand's dimensions ``dynamic`` have live sizes.

    Dimensions of 1 that are not bounded are in no run. ``UnsupportedError`` where it is not clear
    which dimension of the result has a live size.
    """
    old, new = i.operands[0].array, i.array
    bounded = {*dynamic, *(d for d in range(old.rank) if marks(old)[d])}
    left = [d for d in range(old.rank) if old.dims[d] != 1 or d in bounded]
    right = [d for d in range(new.rank) if new.dims[d] != 1 or marks(new)[d]]
    runs = _equal_runs(old.dims, new.dims, left, right)
    return tuple(Run(a, b, _live(i, b) if set(a) & set(dynamic) else None) for a, b in runs)


def _equal_runs(
    old: tuple[int, ...], new: tuple[int, ...], left: list[int], right: list[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    runs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if 0 in old or 0 in new:  # products tell nothing: equal dimensions at both ends, and the rest
        last: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        while left and right and old[left[0]] == new[right[0]]:
            runs.append(((left.pop(0),), (right.pop(0),)))
        while left and right and old[left[-1]] == new[right[-1]]:
            last.append(((left.pop(),), (right.pop(),)))
        rest = [(tuple(left), tuple(right))] if left or right else []
        return [*runs, *rest, *reversed(last)]
    while left and right:
        i = j = 1
        while (a := prod(old[d] for d in left[:i])) != (b := prod(new[d] for d in right[:j])):
            i, j = (i + 1, j) if a < b else (i, j + 1)
        runs.append((tuple(left[:i]), tuple(right[:j])))
        left, right = left[i:], right[j:]
    if left or right:  # dimensions of 1 at the end
        first = runs.pop() if runs else ((), ())
        runs.append((first[0] + tuple(left), first[1] + tuple(right)))
    return runs


def _live(i: Instruction, run: tuple[int, ...]) -> int | None:
    """Which of these dimensions has a live size: the marked one, else the only one above 1."""
    marked = [d for d in run if marks(i.array)[d]]
    wide = [d for d in run if i.array.dims[d] != 1]
    found = marked or wide
    if len(found) > 1:
        raise UnsupportedError(
            f"cannot compile reshape `{i.name}`",
            f"{show_shape(i.operands[0].shape)} is divided among {len(found)} dimensions of "
            f"{show_shape(i.shape)}, and which one varies is not clear",
            hint="mark one dimension of each part as bounded (`<=`), or use dynamic-reshape",
        )
    return found[0] if found else None


def is_whole(start: int, limit: int, stride: int, bound: int) -> bool:
    """Whether a slice takes a bounded dimension as it is."""
    return (start, limit, stride) == (0, bound, 1)
