"""Mbarriers: 64-bit words of shared memory at which threads wait for copies and products."""

from __future__ import annotations

from .....ir.dtypes import s32, u64
from .....ir.loop.build import cast, floormod, whole_of
from .....ir.loop.nodes import Alloc, Buffer, Const, Expr, Intrinsic, Region, Scope, Stmt, Store
from .....ir.loop.visit import seq

PATTERN_BYTES = 1024
"""The longest pattern of a swizzle: tiles of asynchronous products begin at its multiples."""


def mbarriers(name: str, count: int, before_tiles: bool = True) -> Buffer:
    """Return a buffer of so many mbarriers; ``before_tiles`` it fills whole patterns."""
    if before_tiles:
        count = -(-count * u64.bytes // PATTERN_BYTES) * PATTERN_BYTES // u64.bytes
    return Buffer(name, (count,), u64, Scope.SHARED)


def wait_for_phase(bar: Region, number: Expr) -> Stmt:
    """Return the wait until an mbarrier has completed phase ``number``, known by its parity."""
    parity = Buffer("parity", (1,), s32, Scope.REGISTER)
    value = cast(floormod(number, 2), s32)
    wait = Intrinsic("mbarrier_wait", (), (bar, whole_of(parity)))
    return Alloc(parity, seq(Store(parity, (Const(0),), value), wait))
