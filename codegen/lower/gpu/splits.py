"""Loops that ``split_roles`` is to divide among warps: which statements are for which warps."""

from __future__ import annotations

from ....ir.loop.nodes import For, Seq, Stmt
from ....ir.loop.notes import PIPELINE, PRODUCERS


def is_split(s: Stmt) -> bool:
    """True for a loop whose first statement is for some warps, the rest for the others."""
    return isinstance(s, For) and PRODUCERS.of(s) is not None and PIPELINE.of(s) is None


def copies_of(s: Stmt) -> Stmt:
    """Return the copies of such a loop, which a loop of one iteration keeps together."""
    assert isinstance(s, For)
    first = s.body.stmts[0] if isinstance(s.body, Seq) else s.body
    assert isinstance(first, For)
    return first.body
