"""Run packs: constants are brought into the layout that a kernel takes, once, at build time."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.arrays import Array, Bytes, row_major
from ..plan.code.kernel import PackCode
from . import jit
from .process import runtime


@dataclass(frozen=True, slots=True)
class LoadedPack:
    """A pack loaded into this process. The code stays loaded as long as ``library`` is held."""

    library: jit.JitLibrary
    entry: Any
    bytes: int

    def fill(self, literal: Array, into: Bytes) -> None:
        """Write the constant in the kernel's layout; padding stays as it is, zero."""
        source = row_major(literal)
        runtime().guarded(self.entry, source.ctypes.data, into.ctypes.data)

    def pack(self, literal: Array) -> Bytes:
        """Return the constant's bytes in the kernel's layout; padding is zero."""
        made = np.zeros(self.bytes, np.uint8)
        self.fill(literal, made)
        return made


def packers(packs: Sequence[PackCode]) -> Mapping[int, LoadedPack]:
    """Return, for each packed input of a kernel, the function that packs a constant."""
    return {p.index: _load(p) for p in packs}


def _load(code: PackCode) -> LoadedPack:
    library = jit.load([code.object], runtime().addresses)
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address(code.symbol))
    return LoadedPack(library, entry, code.size)
