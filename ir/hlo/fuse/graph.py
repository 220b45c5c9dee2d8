"""Groups of instructions that may be merged as long as the graph of groups has no cycle.

Every instruction begins as a cluster of its own. For each cluster the sets of instructions before
and after it are kept as bits of integers, so that the question whether a merge would make a cycle
is one intersection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..nodes import Computation, Instruction

_SOURCES = frozenset({"parameter", "constant"})
"""Never in a group and after nothing, so never on a cycle."""


class Clusters:
    """A partition of a computation's instructions; the quotient graph is acyclic at all times."""

    def __init__(
        self, computation: Computation, needs: Mapping[Instruction, tuple[Instruction, ...]]
    ) -> None:
        """``needs`` says which instructions each one waits for: its operands, or less."""
        self.order = computation.instructions
        self._number = {i: n for n, i in enumerate(self.order)}
        self._home = list(range(len(self.order)))
        self._inside = [1 << n for n in range(len(self.order))]
        self._before = [0] * len(self.order)
        self._after = [0] * len(self.order)
        for n, i in enumerate(self.order):
            for o in needs[i]:
                if o.opcode not in _SOURCES:
                    k = self._number[o]
                    self._before[n] |= self._before[k] | 1 << k
        for n in reversed(range(len(self.order))):
            for o in needs[self.order[n]]:
                if o.opcode not in _SOURCES:
                    self._after[self._number[o]] |= self._after[n] | 1 << n

    def home(self, i: Instruction) -> int:
        """Return the number of the cluster that ``i`` is in."""
        return self._home[self._number[i]]

    def members(self, home: int) -> list[Instruction]:
        """Return the instructions of a cluster, in program order."""
        return [self.order[n] for n in _bits(self._inside[home])]

    def reaches(self, a: Instruction, b: Instruction) -> bool:
        """True if the cluster of ``b`` needs the cluster of ``a``, directly or not."""
        return bool(self._after[self.home(a)] & self._inside[self.home(b)])

    def cycle(self, a: Instruction, b: Instruction) -> Instruction | None:
        """Return what would be both after and before the union of two clusters; None if nothing."""
        x, y = self.home(a), self.home(b)
        between = (self._after[x] & self._before[y]) | (self._after[y] & self._before[x])
        between &= ~(self._inside[x] | self._inside[y])
        return self.order[(between & -between).bit_length() - 1] if between else None

    def merge(self, a: Instruction, b: Instruction) -> None:
        """Put two clusters together. ``ValueError`` if that would make a cycle."""
        if (blocker := self.cycle(a, b)) is not None:
            raise ValueError(f"merging {a.name} and {b.name} makes a cycle through {blocker.name}")
        x, y = self.home(a), self.home(b)
        if x == y:
            return
        before, after = self._before[x] | self._before[y], self._after[x] | self._after[y]
        inside = self._inside[x] | self._inside[y]
        # What is before both knows all that is after both already.
        for n in self._homes(before & ~(self._before[x] & self._before[y]) & ~inside):
            self._after[n] |= after | inside
        for n in self._homes(after & ~(self._after[x] & self._after[y]) & ~inside):
            self._before[n] |= before | inside
        for n in _bits(self._inside[y]):
            self._home[n] = x
        self._inside[x] = inside
        self._before[x], self._after[x] = before & ~inside, after & ~inside

    def _homes(self, instructions: int) -> set[int]:
        return {self._home[n] for n in _bits(instructions)}


def _bits(x: int) -> Iterator[int]:
    while x:
        low = x & -x
        yield low.bit_length() - 1
        x ^= low
