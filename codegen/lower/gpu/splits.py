"""Loops that are yet to be divided among warps with roles: what is whose in them."""

from __future__ import annotations

from ....ir.loop.nodes import For, Seq, Stmt
from ....ir.loop.notes import PIPELINE, PRODUCERS


def is_split(s: Stmt) -> bool:
    """True for a loop whose first statement is for some warps, the rest for the others."""
    return isinstance(s, For) and PRODUCERS.of(s) is not None and PIPELINE.of(s) is None


def copies_of(s: Stmt) -> Stmt:
    """Return the part of such a loop that copies: a loop of one iteration, so that it is one."""
    assert isinstance(s, For)
    first = s.body.stmts[0] if isinstance(s.body, Seq) else s.body
    assert isinstance(first, For)
    return first.body
