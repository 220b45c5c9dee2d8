"""Attention of few queries: the keys of a head are shared out among blocks of threads.

A block takes one part of the keys of a head, and leaves behind the maximum, the sum and the result
of that part. The last block of a head to finish puts the parts together in their order, in the same
launch. The queries of heads that share keys are rows of one head, so that keys and values are read
once. Threads have a key each for the scores, and for the result a column of every n-th key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from .....ir.loop.nodes import Scope
from .....ir.target import Target
from ....cursor import LoopRef
from ....language.schedule import Schedule
from ....space.attention import Attention, SoftmaxParts, in_order, is_full, pieces, take_parts
from ....space.lookup import below
from ....space.space import Choices
from ..fallback import schedule_fallback
from ..launches.machine import WIDEST
from ..launches.threads import BLOCKS, X, Y
from ..products.tiles import PART
from .mma import SUMS
from .simt import LANES, copies_apart, copy_operands, flat


def is_splittable(k: Attention) -> bool:
    """True if rows of scores have no other reductions than those of the softmax."""
    return sum(bool(b.reduce) and not is_full(k, b) for b in k.stages) == SUMS


def apply_split(k: Attention, sch: Schedule, c: Choices, target: Target) -> None:
    """Schedule an attention with the given decisions."""
    _Split(k, sch, c, target).apply()


class _Split:
    """The schedule in progress: a block of threads is ``warps`` warps with ``keys`` keys."""

    def __init__(self, k: Attention, sch: Schedule, c: Choices, target: Target) -> None:
        self.k, self.sch, self.target = k, sch, target
        self.warps, self.keys = int(c["warps"]), int(c["keys"])

    def apply(self) -> None:
        k, sch = self.k, self.sch
        assert k.exponential is not None
        for info in k.others:
            schedule_fallback(sch, info, self.target)
        made = copies_apart(k, sch)
        weights, values, result = sch.to_matmul(k.values.name, (1, 1, self.keys), ("mk", "kn"))
        made[sch.block(values).writes[0].buffer] = values
        host = result.name
        if k.consumer is not None:
            sch.compute_inline(result)
            host = k.consumer.name
        parts = replace(take_parts(sch, k.exponential, self.keys), copies=())
        sch.compute_inline(weights)
        product = self.by_warp(parts.partial[k.values.name])
        at = pieces(k, sch, host, k.queries)
        for name in reversed(in_order(k, parts)):
            if name != host:
                sch.compute_at(name, at, True)
            if name == parts.partial[k.values.name]:
                sch.compute_at(product, at, True)
        inside = self.merged(parts, product, at)
        sch.bind(at, BLOCKS)
        sch.bind(inside, PART)
        copy_operands(k, sch, product, (inside, inside), self.warps, made, whole=True)
        if k.shown is not None:
            self.copy_shown()
        self.spread(parts, product, inside)
        self.spread_rest(parts, at, host)
        self.place(parts, product)
        self.score(inside)
        self.multiply(product, inside)

    def copy_shown(self) -> None:
        """Read no keys and values that a mask hides from all queries of a head."""
        for ref in self.sch.blocks():
            block = self.sch.block(ref)
            copies = block.writes[0].buffer.scope is Scope.SHARED
            if copies and all(r.buffer in self.sch.func.params for r in block.reads):
                self.sch.attempt(partial(Schedule.copy_shown, block=ref))

    def by_warp(self, name: str) -> str:
        """Give each warp the sums of every n-th key of a part; return the block of those."""
        *_, along = self.sch.get_loops(name)
        _, warp = self.sch.split(along, [None, self.warps])
        return self.sch.rfactor(warp, 0).name

    def merged(self, parts: SoftmaxParts, product: str, at: LoopRef) -> LoopRef:
        """Return one loop over the parts of a row, with all that is done on each of them."""
        k, sch = self.k, self.sch
        first: LoopRef | None = None
        for name in [b.name for b in sch.blocks()]:
            if name == k.exponential:
                *rest, along = below(sch, name, at)
                part, along = sch.split(along, [None, self.keys])
                rest.append(along)
            elif name in parts.partial.values():
                *rest, part, along = below(sch, name, at)
                rest.append(along)
            elif name == product:
                *rest, part, warp, along = below(sch, name, at)
                rest = [warp, *rest, along]
            else:
                continue
            sch.reorder(part, *rest)
            first = part if first is None else sch.merge(first, part)
        assert first is not None
        for info in reversed(k.stages):
            if is_full(k, info) and info.name != k.exponential:
                sch.compute_at(info.name, first)
        sch.compute_at(k.scores.name, first)
        return first

    def score(self, inside: LoopRef) -> None:
        """Compute a thread's scores of all queries term by term, in registers."""
        k, sch, name = self.k, self.sch, self.k.scores.name
        *rows, key, y, x, term = below(sch, name, inside)
        term, each = sch.split(term, [None, WIDEST // k.keys.buffer.dtype.bytes])
        sch.reorder(y, x, term, each, *rows, key)
        init = sch.decompose_reduction(name, term)
        for loop in (each, *rows, key, *below(sch, init, x)):
            sch.unroll(loop)

    def threads(self, loop: LoopRef) -> list[LoopRef]:
        """Give neighboring iterations to all threads of a block; return what it is split into."""
        loops = self.sch.split(loop, [None, self.warps, LANES])
        self.sch.bind(loops[1], Y)
        self.sch.bind(loops[2], X)
        return list(loops)

    def spread(self, parts: SoftmaxParts, product: str, inside: LoopRef) -> None:
        """Divide the work on a part among threads: by keys, and by columns of the result."""
        k, sch = self.k, self.sch
        value = parts.partial[k.values.name]
        self.threads(below(sch, k.scores.name, inside)[-2])
        for info in k.stages:
            if is_full(k, info):
                self.threads(below(sch, info.name, inside)[-1])
        warp, *_, column, _ = below(sch, product, inside)
        sch.bind(warp, Y)
        sch.bind(sch.split(column, [LANES, None])[0], X)
        for name in parts.partial.values():
            *rows, last = below(sch, name, inside)
            if name == value:
                self.threads(flat(sch, rows))
            else:
                self.reduce(rows, last)

    def reduce(self, rows: list[LoopRef], last: LoopRef) -> None:
        """Let each warp take some rows, and its lanes what there is of a row."""
        sch = self.sch
        if rows and self.k.queries > 1:
            sch.bind(sch.split(flat(sch, rows), [None, self.warps])[-1], Y)
        if sch.extent(last) > 1:
            sch.bind(sch.split(last, [None, LANES])[-1], X)

    def spread_rest(self, parts: SoftmaxParts, at: LoopRef, host: str) -> None:
        """Divide the work of the last block of a head, which puts the parts together."""
        k, sch = self.k, self.sch
        for info in k.stages:
            if info.name in parts.partial:
                *rows, part = below(sch, info.name, at)
                self.reduce(rows, part)
            elif not is_full(k, info):
                self.reduce([], flat(sch, below(sch, info.name, at)))
        part, *rows = below(sch, parts.scale, at)
        self.reduce(rows, part)
        each, y, x = self.threads(flat(sch, below(sch, host, at)))
        sch.reorder(y, x, each)
        sch.compute_at(k.values.name, each)
        sch.unroll(each)

    def place(self, parts: SoftmaxParts, product: str) -> None:
        """Exchange values in shared memory, and keep a thread's own in registers."""
        k, sch = self.k, self.sch
        written = [b for b in (k.scores, *k.stages) if is_full(k, b)]
        last = [b.name for b in written if b.name != k.exponential][-1]
        for info in (*written, k.values):
            alone = info.name not in (last, k.exponential)
            sch.set_scope(info.name, 0, "register" if alone else "shared")
        rows = [b.name for b in k.stages if not is_full(k, b)]
        for name in (*rows, parts.scale, product):
            sch.set_scope(name, 0, "shared")

    def multiply(self, name: str, inside: LoopRef) -> None:
        """Add up a thread's products of exponentials and values key by key, in registers."""
        sch = self.sch
        warp, *rows, lane, column, key = below(sch, name, inside)
        rows = [*rows, column]
        sch.reorder(warp, lane, key, *rows)
        store = sch.cache_write(name, 0, "shared")
        sch.reverse_compute_at(store, lane)
        sch.set_scope(name, 0, "register")
        init = sch.decompose_reduction(name, key)
        for loop in (*rows, *below(sch, init, lane), *below(sch, store, lane)):
            sch.unroll(loop)
