"""The constants of an executable, in one piece of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...ir.arrays import HUGE, Array, Bytes, aligned_zeros, row_major
from ...ir.errors import LimitError
from .nodes import ALIGNMENT, BufferSlice

SAMPLE = 64  # elements that are compared before two arrays are compared as a whole

_Key: TypeAlias = tuple[int, int, tuple[int, ...], np.dtype[Any], bytes]


class Packer(Protocol):
    """Brings a constant into the layout that a kernel takes, of ``bytes`` bytes."""

    @property
    def bytes(self) -> int:
        """The size of the result."""

    def fill(self, literal: Array, into: Bytes) -> None:
        """Write the packed constant into zeroed memory. May run in any thread."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A constant at its offset: as it is, row-major, or as ``packer`` lays it out."""

    literal: Array
    packer: Packer | None
    slice: BufferSlice

    def fill(self, memory: Bytes) -> None:
        into = memory[self.slice.offset : self.slice.offset + self.slice.bytes]
        if self.packer is not None:
            self.packer.fill(self.literal, into)
        else:
            into[:] = row_major(self.literal).reshape(-1).view(np.uint8)


@dataclass
class Constants:
    """The constants of an executable in one piece of memory; equal ones are stored once.

    They are only noted at first, and are packed straight into the memory when it is made.
    """

    alignment: int = ALIGNMENT
    size: int = 0
    _parts: dict[_Key, list[_Part]] = field(default_factory=dict)

    def add(self, literal: Array, packer: Packer | None = None) -> BufferSlice:
        """Return the slice that will hold the array, row-major or as ``packer`` lays it out."""
        key = (id(packer), literal.nbytes, literal.shape, literal.dtype, _sample(literal))
        alike = self._parts.setdefault(key, [])
        for part in alike:
            if _is_same(part.literal, literal):
                return part.slice
        size = literal.nbytes if packer is None else packer.bytes
        part = _Part(literal, packer, BufferSlice("constant", self.size, size))
        alike.append(part)
        self.size += -(-size // self.alignment) * self.alignment
        return part.slice

    def memory(self, threads: int = 1) -> Bytes:
        """Return all constants in aligned memory, zero in between, filled by so many threads."""
        parts = [p for alike in self._parts.values() for p in alike]
        try:
            memory = aligned_zeros(self.size)
            if threads == 1 or self.size < HUGE:
                for part in parts:
                    part.fill(memory)
            else:
                from concurrent.futures import ThreadPoolExecutor  # builds need it

                with ThreadPoolExecutor(threads) as pool:
                    for _ in pool.map(lambda part: part.fill(memory), parts):
                        pass
        except (MemoryError, OSError) as error:
            raise LimitError(
                f"{self.size} bytes of constants do not fit into memory",
                str(error),
                hint="compute them from smaller ones, or hand them in as arguments",
                asked=self.size,
            ) from error
        return memory


def _sample(literal: Array) -> bytes:
    """Return some elements of an array, evenly distributed."""
    step = max(1, literal.size // SAMPLE)
    return literal.flat[np.arange(0, literal.size, step)].tobytes() if literal.size else b""


def _is_same(a: Array, b: Array) -> bool:
    """True if two arrays of one shape and element type have the same bytes."""
    if a is b:
        return True
    unit = f"V{a.itemsize}" if a.itemsize not in (1, 2, 4, 8) else f"u{a.itemsize}"
    return bool(np.array_equal(a.view(unit), b.view(unit)))
