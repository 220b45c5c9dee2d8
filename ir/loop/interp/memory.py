"""The contents of a buffer while the interpreter runs: element by element, or as an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import Array
from ...dtypes import to_numpy
from ..nodes import Buffer


class Memory:
    """The elements of ``buffer`` in row-major order, in one of two forms at a time.

    As a list, an element that was never written is None; as an array, ``known`` is false there.
    """

    def __init__(self, buffer: Buffer, contents: Array | None = None) -> None:
        self.buffer = buffer
        size = math.prod(buffer.shape)
        self._items: list[Any] | None = None
        if contents is None:
            self.values: Array = np.zeros(size, to_numpy(buffer.dtype))
            self.known: Array = np.zeros(size, np.bool_)
        else:
            self.values = np.array(contents, order="C").reshape(-1)
            self.known = np.ones(size, np.bool_)

    def items(self) -> list[Any]:
        """Return the elements as a list, to be changed in place; valid until ``to_array``."""
        if self._items is None:
            self._items = list(self.values)
            if not self.known.all():
                for i in np.flatnonzero(~self.known):
                    self._items[i] = None
        return self._items

    def to_array(self) -> None:
        """Make ``values`` and ``known`` what they should be; the list is given up."""
        if self._items is not None:
            zero = self.values.dtype.type(0)
            self.known = np.fromiter((v is not None for v in self._items), np.bool_)
            filled = [zero if v is None else v for v in self._items]
            self.values = np.array(filled, self.values.dtype)
            self._items = None

    def copy(self) -> Memory:
        """Return the same contents, apart."""
        self.to_array()
        other = Memory(self.buffer)
        other.values, other.known = self.values.copy(), self.known.copy()
        return other
