"""Runs of a kernel with all its buffers, workspace and packed constants between guard pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...codegen.plan.nodes import ALIGNMENT
from ...codegen.runtime.function import NativeFunc
from ...codegen.targets.registry import backend
from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ...ir.loop.nodes import Buffer
from ...ir.target import Target
from .machine import CheckedRun
from .memory.guarded import GuardedMemory
from .memory.poison import poison


class GuardedBuffers:
    """Guarded memory for a function's parameters, and for kernels' workspace and constants."""

    def __init__(self, params: Sequence[Buffer], target: Target) -> None:
        self._params = params
        self._backend = backend(target)
        self._cells = [GuardedMemory(math.prod(b.shape) * b.dtype.bytes) for b in params]
        self._packed: dict[int, GuardedMemory] = {}
        self._work = GuardedMemory(0)

    def run(
        self, kernel: NativeFunc, arguments: Sequence[Array], pattern: int, upper: bool
    ) -> CheckedRun:
        """Run once on these inputs; all other memory holds the byte ``pattern``."""
        views = [self._view(n, pattern, upper) for n in range(len(self._params))]
        given = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arguments]
        for view, value in zip(views, given, strict=False):
            view[:] = value
        work = self._workspace(kernel.compiled.workspace, pattern, upper)
        bound, made = kernel.bind([v.ctypes.data for v in views])
        addresses, packed = list(bound), []
        for number, value in zip(kernel.packs, made, strict=True):
            view = self._pack(number, value, pattern, upper)
            addresses[number] = view.ctypes.data
            packed.append((number, view, value))
        poison().begin(pattern)
        kernel.execute(addresses, work.ctypes.data)
        damage = self._damage(views, given) or _spoiled(packed) or self._beside()
        results = [
            v.view(to_numpy(b.dtype)).reshape(b.shape)
            for v, b in zip(views[len(given) :], self._params[len(given) :], strict=True)
        ]
        return CheckedRun(results, damage)

    def _view(self, number: int, pattern: int, upper: bool) -> Array:
        cell, b = self._cells[number], self._params[number]
        alignment = max(self._backend.argument_alignment, b.dtype.bytes)
        return cell.place(cell.size, alignment, upper, pattern)

    def _workspace(self, size: int, pattern: int, upper: bool) -> Array:
        if size > self._work.size:
            self._work = GuardedMemory(size)
        return self._work.place(size, self._backend.alignment, upper, pattern)

    def _pack(self, number: int, value: Array, pattern: int, upper: bool) -> Array:
        cell = self._packed.get(number)
        if cell is None or cell.size < value.size:
            cell = self._packed[number] = GuardedMemory(value.size)
        view = cell.place(value.size, ALIGNMENT, upper, pattern)
        view[:] = value
        return view

    def _damage(self, views: Sequence[Array], given: Sequence[Array]) -> str:
        for n, (view, value) in enumerate(zip(views, given, strict=False)):
            if not same_bytes(view, value):
                return f"it overwrites input {n}"
        return ""

    def _beside(self) -> str:
        """Return a description of writes between a buffer and its guard page; "" if none."""
        for n, cell in enumerate(self._cells):
            if not cell.intact:
                return f"it writes outside parameter {n}"
        if not all(c.intact for c in self._packed.values()):
            return "it writes outside a packed constant"
        if not self._work.intact:
            return "it writes outside its workspace"
        return "it writes outside its scratch memory" if poison().damaged() else ""


def _spoiled(packed: Sequence[tuple[int, Array, Array]]) -> str:
    for number, view, value in packed:
        if not same_bytes(view, value):
            return f"it overwrites the packed constant {number}"
    return ""


def same_bytes(a: Array, b: Array) -> bool:
    """True if two arrays hold the same bytes, including NaNs."""
    x, y = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b))
    if x.size % 8 == 0:
        x, y = x.view(np.uint64), y.view(np.uint64)
    return bool(np.array_equal(x, y))
