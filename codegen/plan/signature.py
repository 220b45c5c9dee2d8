"""The signature of an executable: its arrays as Python sees them, and as native code takes them.

Native code takes an array of bounded dimensions at its bound, followed by each of its sizes as an
s32, in the order of the dimensions in memory. Together these are the array's slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...ir.dtypes import DType, s32

Tree: TypeAlias = int | tuple["Tree", ...]  # how leaves, by number, are nested in tuples


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An argument or a result as Python sees it.

    ``order`` are its dimensions in memory order, the slowest first; empty for row-major.
    ``dynamic[d]`` is true if ``dims[d]`` is only the bound of a dimension, as in HLO's shapes.
    """

    name: str
    dtype: DType
    dims: tuple[int, ...]
    order: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()

    def __str__(self) -> str:
        marks = self.dynamic or (False,) * len(self.dims)
        sizes = (f"<={d}" if m else str(d) for d, m in zip(self.dims, marks, strict=True))
        return f"{self.dtype.name}[{','.join(sizes)}]"

    def takes(self, shape: tuple[int, ...]) -> bool:
        """True if an array of this shape fits."""
        if not self.dynamic:
            return shape == self.dims
        rows = zip(shape, self.dims, self.dynamic, strict=False)
        return len(shape) == len(self.dims) and all(n == d or (m and n < d) for n, d, m in rows)

    @property
    def stored(self) -> tuple[int, ...]:
        """The dimensions of the row-major array that has the same bytes."""
        return tuple(self.dims[d] for d in self.order) if self.order else self.dims

    @property
    def bytes(self) -> int:
        """Size of the array in bytes, at its bounds."""
        size = self.dtype.bytes
        for d in self.dims:
            size *= d
        return size


def named(specs: Sequence[ArraySpec], tree: Tree, names: Sequence[str]) -> tuple[ArraySpec, ...]:
    """Return the arrays with names; each names an element of the tree, as an argument."""
    found = list(specs)
    branches = tree if isinstance(tree, tuple) else (tree,)
    for name, branch in zip(names, branches, strict=False):
        for leaf in leaves(branch):
            found[leaf] = replace(found[leaf], name=name)
    return tuple(found)


def names(specs: Sequence[ArraySpec], tree: Tree) -> tuple[str, ...]:
    """Return the names of a tree's elements: of the arguments, or of the results."""
    branches = tree if isinstance(tree, tuple) else (tree,)
    return tuple(
        next((specs[leaf].name for leaf in leaves(b)), f"{n}") for n, b in enumerate(branches)
    )


def leaves(tree: Tree) -> Iterator[int]:
    """Yield the leaves of a tree in order."""
    if isinstance(tree, int):
        yield tree
    else:
        for branch in tree:
            yield from leaves(branch)


def is_bounded(specs: Sequence[ArraySpec]) -> bool:
    """True if any array has a bounded dimension."""
    return any(any(s.dynamic) for s in specs)


def bounded_dims(spec: ArraySpec) -> list[int]:
    """Return the dimensions, in memory order, of which only the bound is known."""
    order = spec.order or range(len(spec.dims))
    return [k for k, d in enumerate(order) if spec.dynamic and spec.dynamic[d]]


def slots(specs: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """Return the arrays that native code takes for these: each at its bound, followed by
    its sizes.
    """
    found: list[ArraySpec] = []
    for spec in specs:
        found.append(replace(spec, dynamic=()))
        for d in bounded_dims(spec):
            found.append(ArraySpec(f"size {d} of {spec.name}", s32, ()))
    return tuple(found)
