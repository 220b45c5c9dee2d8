"""Joins: the last block of threads to finish a loop over blocks does what follows the loop.

``for x in thread("blockIdx.x", 4): (for y in thread("blockIdx.y", 8): f); g``  ->  every block does
``f`` and arrives at the counter of its x; the eighth to arrive does ``g``. An arrival is a release
and an acquire of global memory by the whole block, and the last one sets the counter back to 0.
Blocks of a cluster (the note ``cluster`` of the inner loop) wait for each other instead, and the
first one does ``g``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ....ir.dtypes import s32, u32
from ....ir.loop.build import compare, number_of, op
from ....ir.loop.nodes import (
    THREADS,
    Alloc,
    Buffer,
    Const,
    For,
    If,
    Intrinsic,
    Kind,
    Load,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Var,
)
from ....ir.loop.notes import CLUSTER
from ....ir.loop.visit import seq, walk

BLOCKS = tuple(t for t in THREADS if t.startswith("blockIdx"))


def grid_indices(s: Stmt) -> frozenset[str]:
    """Return the indices of blocks over which there are loops in a statement."""
    loops = (x for x in walk(s) if isinstance(x, For) and x.kind is Kind.THREAD)
    return frozenset(x.thread for x in loops if x.thread in BLOCKS)


def joined_indices(s: Stmt) -> frozenset[str]:
    """Return the indices of blocks whose last one does what follows the first statement."""
    return grid_indices(s.stmts[0]) if isinstance(s, Seq) else frozenset()


def counter_of(
    names: Mapping[str, Var], extents: Mapping[str, int], bound: Sequence[str]
) -> Region:
    """Return a join's counter: a new buffer has one for each iteration of the loops around it."""
    sizes = [extents[t] for t in bound]
    number = number_of([names[t] for t in bound], sizes)
    counters = Buffer("arrivals", (prod(sizes),), u32, Scope.COUNTER)
    return Region(counters, (Range(number, Const(1)),))


def is_clustered(s: Stmt, over: frozenset[str]) -> bool:
    """True if the loops over these indices in a statement are for blocks of clusters."""
    loops = [x for x in walk(s) if isinstance(x, For) and x.thread in over]
    return all(CLUSTER.of(x) is not None for x in loops)


def clustered(before: Stmt, after: Stmt, rank: Var) -> Stmt:
    """Return ``before`` by each block of a cluster, ``after`` by the first; then all may end."""
    barrier = Intrinsic("cluster_barrier")
    return seq(before, barrier, If(compare("eq", rank, 0), after), barrier)


def joined(before: Stmt, after: Stmt, counter: Region, blocks: int) -> Stmt:
    """Return ``before`` by each of so many blocks, ``after`` by the last of them to finish it."""
    last, zero = Buffer("last", (1,), s32, Scope.REGISTER), Const(0)
    own = Region(last, (Range(zero, Const(1)),))
    arrive = Intrinsic("arrive", (own,), (counter,), (blocks,))
    is_last = op("eq", Load(last, (zero,)), Const(1, s32))
    return seq(before, Alloc(last, seq(Intrinsic("barrier"), arrive, If(is_last, after))))
