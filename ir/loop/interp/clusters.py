"""Reads of the shared memory of other blocks of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..nodes import Intrinsic
from .operands import BoxCompiler
from .races import UndefinedError
from .scalar import Env
from .shadow import Shadow


def load_remote(c: BoxCompiler, s: Intrinsic, text: str) -> Callable[[Env], None]:
    """Return the action that reads a box of the block of a rank, which must be there."""
    of, me, shadow = s.reads[0].buffer, c.me, c.shadow
    box, rank_of, write = c.box(s.reads[0]), c.reader(s.reads[1], text), c.writer(s.writes[0])
    size = math.prod(of.shape)

    def run(env: Env) -> None:
        t, rank = env[me], int(rank_of(env)[0])
        if not 0 <= rank < len(t.peers):
            what = f"a read of block {rank} of a cluster of {len(t.peers)}"
            raise UndefinedError(what, "the cluster does not have it", text)
        data = t.peers[rank].setdefault(of, [None] * size)
        if shadow is not None:
            shadow.part = rank
            if rank != t.rank:
                shadow.remote[rank] = shadow.meetings
        values = []
        for i in box(env):
            if shadow is not None:
                shadow.read(of, i, text)
            values.append(c.unwritten(of, i, text) if data[i] is None else data[i])
        if shadow is not None:
            shadow.part = t.rank
        write(t, values)

    return run


def check_ends(shadow: Shadow, ranks: int) -> None:
    """``UndefinedError`` if a block may end while another one reads its shared memory."""
    late = [r for r in range(ranks) if shadow.remote.get(r, -1) == shadow.meetings]
    shadow.remote.clear()
    if late:
        what = f"block {late[0]} of a cluster may end while its shared memory is read"
        raise UndefinedError(what, hint="no cluster_barrier follows the last read")
