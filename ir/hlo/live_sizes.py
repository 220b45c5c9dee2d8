"""Rules about live sizes that the interpreter and the pass ``pad_dynamic`` share.

A bounded dimension has a live size from 0 to its bound. An operation on arrays of different live
sizes uses the smallest. Where a result of fixed size needs elements beyond a live size, they are 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from ..errors import UnsupportedError
from .nodes import Instruction, Shape
from .shape_text import show_shape


@dataclass(frozen=True, slots=True)
class ReshapeGroup:
    """Adjacent dimensions of a reshape's operand and of its result with equal element counts.

    ``live`` is the new dimension whose size follows from the number of live elements (its bound, if
    the other dimensions have no elements). If it is None, the new dimensions keep their sizes and
    are filled up with zeros.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    live: int | None


def reshape_groups(i: Instruction, dynamic: Collection[int]) -> tuple[ReshapeGroup, ...]:
    """Divide a ``reshape`` into groups; the operand's dimensions ``dynamic`` have live sizes.

    Unbounded dimensions of size 1 are in no group. ``UnsupportedError`` if it is ambiguous which
    dimension of the result has a live size.
    """
    old, new = i.operands[0].array, i.array
    bounded = {*dynamic, *(d for d in range(old.rank) if old.marks[d])}
    left = [d for d in range(old.rank) if old.dims[d] != 1 or d in bounded]
    right = [d for d in range(new.rank) if new.dims[d] != 1 or new.marks[d]]
    pairs = _equal_products(old.dims, new.dims, left, right)
    live = set(dynamic)
    return tuple(ReshapeGroup(a, b, _live(i, b) if live & set(a) else None) for a, b in pairs)


def reshaped_marks(old: Shape, dims: tuple[int, ...]) -> tuple[bool, ...]:
    """Return the marks of a reshaped array where they follow from the sizes alone.

    Each group of dimensions with a bounded one among the old has one new dimension whose size is
    not 1; of a group that has several none is marked.
    """
    left = [d for d in range(old.rank) if old.dims[d] != 1 or old.marks[d]]
    right = [d for d in range(len(dims)) if dims[d] != 1]
    marks = [False] * len(dims)
    for a, b in _equal_products(old.dims, dims, left, right):
        wide = [d for d in b if dims[d] != 1]
        if len(wide) == 1 and any(old.marks[d] for d in a):
            marks[wide[0]] = True
    return tuple(marks)


def tells_sizes(old: Shape, new: Shape) -> bool:
    """True if the marks of a reshape's result say which of its dimensions vary, and with what.

    That is so where each group of dimensions has one mark in the result if it has any before.
    """
    if old.size != new.size:
        return False
    left = [d for d in range(old.rank) if old.dims[d] != 1 or old.marks[d]]
    right = [d for d in range(new.rank) if new.dims[d] != 1 or new.marks[d]]
    return all(
        sum(new.marks[d] for d in b) == any(old.marks[d] for d in a)
        for a, b in _equal_products(old.dims, new.dims, left, right)
    )


def _equal_products(
    old: tuple[int, ...], new: tuple[int, ...], left: list[int], right: list[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shortest pairs of adjacent dimensions, old and new, with equal products."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if 0 in old or 0 in new:  # all products are 0: pair equal dimensions at both ends, and the rest
        last: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        while left and right and old[left[0]] == new[right[0]]:
            groups.append(((left.pop(0),), (right.pop(0),)))
        while left and right and old[left[-1]] == new[right[-1]]:
            last.append(((left.pop(),), (right.pop(),)))
        rest = [(tuple(left), tuple(right))] if left or right else []
        return [*groups, *rest, *reversed(last)]
    while left and right:
        i = j = 1
        while (a := prod(old[d] for d in left[:i])) != (b := prod(new[d] for d in right[:j])):
            i, j = (i + 1, j) if a < b else (i, j + 1)
        groups.append((tuple(left[:i]), tuple(right[:j])))
        left, right = left[i:], right[j:]
    if left or right:  # dimensions of 1 at the end
        first = groups.pop() if groups else ((), ())
        groups.append((first[0] + tuple(left), first[1] + tuple(right)))
    return groups


def _live(i: Instruction, new: tuple[int, ...]) -> int | None:
    """Return the one of these dimensions that has a live size: the bounded one, else the only one
    whose size is not 1. ``UnsupportedError`` if there are several."""
    marked = [d for d in new if i.array.marks[d]]
    wide = [d for d in new if i.array.dims[d] != 1]
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
    """True if a slice takes all of a dimension of this bound."""
    return (start, limit, stride) == (0, bound, 1)
