"""Memory for a kernel's intermediate buffers: which are the caller's to give, and how much.

Buffers made outside of parallel loops lie in one workspace, those of different scopes in the same
place. What is made inside a parallel loop or thread loop belongs to the thread, register tiles to
the stack.
"""

from __future__ import annotations

from ....ir.loop.nodes import Alloc, Buffer, For, Kind, Scope, Stmt
from ....ir.loop.visit import children

ALIGN = 64  # of every buffer that we make
TILE = 32 << 10  # bytes of a register tile that may be on a stack; a larger one is memory


def buffer_bytes(buffer: Buffer) -> int:
    """Return the bytes of a flat buffer in whole cache lines; of a register tile, one line more.

    A tile's lanes that are off are read like others, past its last element.
    """
    lines = -(-max(1, buffer.shape[0]) * buffer.dtype.bytes // ALIGN)
    return (lines + (buffer.scope is Scope.REGISTER)) * ALIGN


def workspace_bytes(s: Stmt, parallel: bool = False) -> int:
    """Memory for the buffers outside of parallel loops; those of different scopes share it."""
    match s:
        case For(kind=kind, body=body):
            return workspace_bytes(body, parallel or kind in (Kind.PARALLEL, Kind.THREAD))
        case Alloc(buffer=buffer, body=body):
            none = parallel or is_tile(buffer) or buffer.scope is Scope.COUNTER
            own = 0 if none else buffer_bytes(buffer)
            return own + workspace_bytes(body, parallel)
        case _:
            return max((workspace_bytes(c, parallel) for c in children(s)), default=0)


def is_tile(buffer: Buffer) -> bool:
    """True if a buffer is meant for registers, and not so large that it cannot be."""
    return buffer.scope is Scope.REGISTER and buffer_bytes(buffer) <= TILE
