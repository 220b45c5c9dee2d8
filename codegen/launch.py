"""The launches of a flat GPU function: what its caller must start, in order, and how."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.loop.nodes import SHARED_ALIGN, Func, Scope, Stmt
from .llvm_ir_device import nests
from .lower.gpu.limits import memory


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel. ``grid`` and ``block`` are extents of x, y and z.

    It takes the function's parameters, and after them the workspace where there is one.
    """

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of one block."""
        x, y, z = self.block
        return x * y * z


def launches(flat: Func) -> tuple[Launch, ...]:
    """The launches of ``codegen.lower.pipeline.lower(func, target)`` for a GPU."""
    return tuple(Launch(n.symbol, n.grid, n.block, shared_bytes(n.body)) for n in nests(flat))


def shared_bytes(s: Stmt) -> int:
    """Shared memory of a block: buffers that are never there at once lie in the same place."""
    return memory(s, (Scope.SHARED,), SHARED_ALIGN)
