"""Boxes of results that one thread stores: bulk copies from shared memory, behind a barrier.

The threads of a block have made a box; what they wrote is seen by the asynchronous proxy after a
fence of each and a barrier. Whoever starts the copies waits until the box was read, so that what
takes its place in shared memory needs a barrier only.
"""

from __future__ import annotations

from ....ir.loop.build import both, compare
from ....ir.loop.nodes import Expr, For, Func, If, Intrinsic, Scope, Seq, Stmt
from ....ir.loop.visit import map_stmt, seq
from ..passes.launches import BARRIER, PROXY_FENCE
from ..passes.rebuild import with_body
from .bulk_copies import is_box, panels_of

_COMMIT, _READ = Intrinsic("tma_commit"), Intrinsic("tma_wait_read", args=(0,))


def store_boxes(func: Func) -> Func:
    """Return the function with boxes of results as bulk copies by each block's first thread."""

    def stmt(s: Stmt, first: Expr | None) -> Stmt:
        if isinstance(s, For) and s.over_threads:
            first = both(first, compare("eq", s.var, 0))
        if isinstance(s, Seq):
            return seq(*_in_order(tuple(stmt(x, first) for x in s.stmts)))
        if isinstance(s, Intrinsic) and is_box(s) and s.reads[0].buffer.scope is Scope.SHARED:
            return seq(PROXY_FENCE, BARRIER, _store(s, first))
        return map_stmt(s, lambda c: stmt(c, first))

    return with_body(func, stmt(func.body, None))


def _in_order(stmts: tuple[Stmt, ...]) -> list[Stmt]:
    """Return the statements without a barrier right before one that begins with a barrier."""
    done: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq) and s.stmts[:2] == (PROXY_FENCE, BARRIER) and done[-1:] == [BARRIER]:
            done.pop()
        done.append(s)
    return done


def _store(s: Intrinsic, first: Expr | None) -> Stmt:
    """Return the copies of a box's panels, and the wait for them, by the first thread."""
    (to,), (of,) = s.writes, s.reads
    copies = [
        p.placed(Intrinsic("tma_store", (p.whole,), (p.box, p.where), p.args))
        for p in panels_of(of, to)
    ]
    done = seq(*copies, _COMMIT, _READ)
    return done if first is None else If(first, done)
