"""Buffers that get a dimension in front: several places for one, of which a statement uses one."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.loop.moves import Indices, moved
from ....ir.loop.nodes import Buffer, Expr, Stmt


def at_place(s: Stmt, by: Mapping[Buffer, Buffer], place: Expr) -> Stmt:
    """Return ``s`` on a ``place`` of the buffers that replace others: ``A[i] -> B[place, i]``."""

    def index(at: Indices) -> Indices:
        return (place, *at)

    return moved(s, {old: (new, index) for old, new in by.items()})
