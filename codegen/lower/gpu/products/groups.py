"""Asynchronous matrix products in groups: what begins one, ends it, and waits for others.

Those of warp groups are in order of the group's threads; those with sums in tensor memory are one
thread's. ``warpgroups`` and ``tensor_memory`` make of the marks what the hardware has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from .....ir.loop.build import whole_of
from .....ir.loop.intrinsics import TABLE
from .....ir.loop.nodes import (
    Buffer,
    For,
    If,
    Intrinsic,
    Kind,
    Region,
    Scope,
    Seq,
    Stmt,
)
from .....ir.loop.visit import children, map_stmt, seq, walk


@dataclass(frozen=True, slots=True)
class Grouping:
    """How one kind of products is grouped."""

    fence: tuple[Intrinsic, ...]
    commit: Intrinsic
    landed: str

    def held(self, stmts: Sequence[Stmt]) -> tuple[Buffer, ...]:
        """Return the registers that products touch in statements up to the end of their group."""
        own = takewhile(lambda x: x != self.commit, stmts)
        calls = (
            x for s in own for x in walk(s) if isinstance(x, Intrinsic) and is_group_product(x)
        )
        used = dict.fromkeys(r.buffer for x in calls for r in (*x.writes, *x.reads))
        return tuple(b for b in used if b.scope is Scope.WARPGROUP)

    def wait(self, groups: int) -> Intrinsic:
        """Return the wait until at most so many groups of products are under way."""
        return Intrinsic(self.landed, args=(groups,))

    def all_landed(self, s: Stmt) -> tuple[Intrinsic, ...]:
        """Return the waits after which all sums of the products in a statement may be touched."""
        if not self.fence:
            return (self.wait(0),)
        calls = (x for x in walk(s) if isinstance(x, Intrinsic))
        sums = dict.fromkeys(r.buffer for x in calls for r in x.writes)
        return tuple(self.sums_landed(b) for b in sums)

    def sums_landed(self, b: Buffer) -> Intrinsic:
        """Return the wait after which all sums in a buffer may be touched."""
        every = (whole_of(b),)
        return replace(self.wait(0), writes=every, reads=every)


OF_GROUPS = Grouping((Intrinsic("wgmma_fence"),), Intrinsic("wgmma_commit"), "wgmma_wait")
OF_TENSORS = Grouping((), Intrinsic("tensor_commit"), "tensor_landed")
WAITS = (OF_GROUPS.landed, OF_TENSORS.landed)


def is_group_product(s: Stmt) -> bool:
    """True for a product that is under way when the next statement begins."""
    return grouping_of_call(s) is not None


def grouping_of_call(s: Stmt) -> Grouping | None:
    """Return how the products are grouped of which a call is one; None if it is none."""
    row = TABLE.get(s.name) if isinstance(s, Intrinsic) else None
    if row is None:
        return None
    return OF_TENSORS if row.product else OF_GROUPS if row.group else None


def grouping_of(s: Stmt) -> Grouping | None:
    """Return how the products in a statement are grouped; None if there are none."""
    return next((g for x in walk(s) if (g := grouping_of_call(x)) is not None), None)


def shared_operands(s: Stmt) -> tuple[Region, ...]:
    """Return the operands of a product that are in shared memory; none of other statements."""
    if not (isinstance(s, Intrinsic) and is_group_product(s)):
        return ()
    return tuple(r for r in s.reads[1:] if r.buffer.scope is Scope.SHARED)


def has_group_products(s: Stmt) -> bool:
    """True if there is one in a statement."""
    return any(map(is_group_product, walk(s)))


def grouped(s: Stmt) -> Stmt:
    """Return ``s`` with products outside of groups as a group that is waited for at once."""
    how = grouping_of(s)
    if how is None:
        return s
    if only_products(s):
        return seq(*how.fence, s, how.commit, *how.all_landed(s))
    if isinstance(s, Seq) and how.commit in s.stmts:
        return seq(*(x if only_products(x) else grouped(x) for x in s.stmts))
    return map_stmt(s, grouped)


def only_products(s: Stmt) -> bool:
    """True if a statement is asynchronous products and nothing else."""
    if isinstance(s, For | Seq | If) and not (isinstance(s, For) and s.kind is Kind.THREAD):
        return bool(children(s)) and all(map(only_products, children(s)))
    return is_group_product(s)
