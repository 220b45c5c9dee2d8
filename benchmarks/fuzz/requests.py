"""Random requests to a schedule: any primitive, sensible often enough to go deep."""

from __future__ import annotations

import random
from collections.abc import Callable

from nestwright.ir.loop.nodes import AxisKind, Kind
from nestwright.ir.loop.verify import verify
from nestwright.schedule.cursor import LoopRef, nest
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.legality import bound_vars


class Draw:
    """Random requests to a schedule, sensible often enough to go deep."""

    def __init__(self, sch: Schedule, rng: random.Random) -> None:
        self.sch = sch
        self.rng = rng

    def block(self) -> str:
        """Return the name of a random block."""
        return self.rng.choice(list(nest(self.sch.func).blocks))

    def reductions(self) -> list[str]:
        """Return the names of all blocks that have an init."""
        index = nest(self.sch.func)
        return [n for n in index.blocks if index.block(n).init is not None]

    def loops(self) -> list[LoopRef]:
        """Return the loops around a random block."""
        return self.sch.get_loops(self.block())

    def loop(self) -> LoopRef:
        """Return a random loop around a block, or any loop."""
        for _ in range(5):
            if found := self.loops():
                return self.rng.choice(found)
        return LoopRef(next(iter(nest(self.sch.func).loops)))

    def split(self) -> None:
        """Split a loop in two or three, one factor inferred."""
        n = self.rng.choice((2, 2, 3))
        factors: list[int | None] = [self.rng.choice((1, 2, 3, 4)) for _ in range(n)]
        factors[self.rng.randrange(n)] = None
        self.sch.split(self.loop(), factors)

    def fuse(self) -> None:
        """Fuse two or three adjacent loops."""
        found = self.loops()
        start = self.rng.randrange(len(found)) if found else 0
        self.sch.fuse(*found[start : start + self.rng.choice((2, 2, 3))])

    def reorder(self) -> None:
        """Reorder two to four loops of a block."""
        found = self.loops()
        some = self.rng.sample(found, min(len(found), self.rng.choice((2, 2, 3, 4))))
        self.sch.reorder(*some)

    def tile(self) -> None:
        """Tile two adjacent loops by 2 and 2 or 3."""
        found = self.loops()
        if len(found) > 1:
            start = self.rng.randrange(len(found) - 1)
            self.sch.tile(*found[start : start + 2], 2, self.rng.choice((2, 3)))

    def parallel(self) -> None:
        """Make a loop parallel."""
        self.sch.parallel(self.loop())

    def vectorize(self) -> None:
        """Vectorize a loop."""
        self.sch.vectorize(self.loop())

    def unroll(self) -> None:
        """Unroll a loop."""
        self.sch.unroll(self.loop())

    def compute_at(self) -> None:
        """Move a block to a loop, mostly one around a consumer."""
        block = self.block()
        users = self.sch.get_consumers(block)
        near = self.sch.get_loops(self.rng.choice(users)) if users else []
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.compute_at(block, at, self.rng.random() < 0.3)

    def reverse_compute_at(self) -> None:
        """Move a block to a loop, mostly one around a producer."""
        block = self.block()
        users = self.sch.get_producers(block)
        near = self.sch.get_loops(self.rng.choice(users)) if users else []
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.reverse_compute_at(block, at, self.rng.random() < 0.3)

    def compute_inline(self) -> None:
        """Inline a block into its consumers."""
        self.sch.compute_inline(self.block())

    def reverse_compute_inline(self) -> None:
        """Inline a block into its producer."""
        self.sch.reverse_compute_inline(self.block())

    def cache_read(self) -> None:
        """Cache one of the first three buffers that a block reads."""
        self.sch.cache_read(self.block(), self.rng.randrange(3))

    def cache_write(self) -> None:
        """Cache the buffer that a block writes."""
        self.sch.cache_write(self.block(), 0, self.rng.choice(("global", "register")))

    def set_scope(self) -> None:
        """Set the scope of a block's buffer."""
        self.sch.set_scope(self.block(), 0, self.rng.choice(("global", "register")))

    def transform_layout(self) -> None:
        """Permute, and perhaps pack, the dimensions of a block's buffer."""
        block = self.block()
        rank = len(self.sch.block(block).writes[0].ranges)
        pack = [(self.rng.randrange(rank), self.rng.choice((2, 3, 4)))] if rank else []
        order = list(range(rank + len(pack)))
        self.rng.shuffle(order)
        self.sch.transform_layout(block, 0, order, pack)

    def decompose_reduction(self) -> None:
        """Split the init off a block, mostly a reduction."""
        some = self.reductions()
        block = self.rng.choice(some) if some and self.rng.random() < 0.9 else self.block()
        found = self.sch.get_loops(block)
        self.sch.decompose_reduction(block, self.rng.choice(found) if found else self.loop())

    def rfactor(self) -> None:
        """Factor a loop, mostly one of a reduction, into partial results."""
        over = {
            v for b in self.reductions() for v in bound_vars(self.sch.block(b), AxisKind.REDUCE)
        }
        near = [LoopRef(v) for v in nest(self.sch.func).loops if v in over]
        at = self.rng.choice(near) if near and self.rng.random() < 0.9 else self.loop()
        self.sch.rfactor(at, self.rng.choice((0, 0, 1, -1, 5)))

    def merge(self) -> None:
        """Merge the outer loops of two blocks, the earlier one first."""
        names = list(nest(self.sch.func).blocks)
        both = sorted(self.rng.sample(range(len(names)), min(2, len(names))))
        outer = [x[0] for x in (self.sch.get_loops(names[n]) for n in both) if x]
        if len(outer) == 2:
            self.sch.merge(*outer)

    def cut(self) -> None:
        """Cut a loop in two."""
        self.sch.cut(self.loop(), self.rng.randrange(1, 6))

    def duplicate(self) -> None:
        """Compute a block again, mostly for one that reads it."""
        block = self.block()
        users = self.sch.get_consumers(block)
        self.sch.duplicate(block, self.rng.choice(users) if users else self.block())

    def pad(self) -> None:
        """Round up the extents of a block."""
        block = self.block()
        count = len(self.sch.block(block).axes)
        self.sch.pad(block, [self.rng.choice((1, 2, 3, 4)) for _ in range(count)])

    def in_pieces(self) -> None:
        """Write a product of f32 as one of bf16."""
        self.sch.in_pieces(self.block(), self.rng.choice((2, 3)))

    def add_unit_loop(self) -> None:
        """Add a loop of extent 1 around a block."""
        self.sch.add_unit_loop(self.block())

    def annotate(self) -> None:
        """Annotate a loop with a hint that nothing reads."""
        self.sch.annotate(self.loop(), "hint", self.rng.randrange(3))

    # GPU requests. Some try several steps, each of which may be refused.

    def index(self, *more: str) -> str:
        """Return a random thread index, or one of ``more``."""
        return self.rng.choice(("threadIdx.x", "threadIdx.x", "threadIdx.y", *more))

    def bind(self) -> None:
        """Bind a loop to a block or thread index."""
        self.sch.bind(self.loop(), self.index("blockIdx.x", "blockIdx.y"))

    def launch(self) -> None:
        """Split a block's outer loops and bind them: one to the grid, two to threads."""
        block, sch = self.block(), self.sch
        for index in ("blockIdx.x", self.index(), self.index()):
            free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
            if free and self.rng.random() < 0.8:
                sizes = [None, self.rng.choice((1, 2, 3, 4))]
                attempt(sch, lambda at=free[0], n=sizes: self.sch.split(at, n))
                free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
                attempt(sch, lambda at=free[0], to=index: self.sch.bind(at, to))

    def cooperate(self) -> None:
        """Fuse, split and bind a block's inner loops to threads."""
        block, sch = self.block(), self.sch
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        count = self.rng.choice((1, 1, 2, 3))
        if len(free) >= count > 1:
            attempt(sch, lambda: sch.fuse(*free[-count:]))
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        if free and self.rng.random() < 0.6:
            attempt(sch, lambda: sch.split(free[-1], [None, self.rng.choice((2, 3, 4))]))
        free = [x for x in sch.get_loops(block) if sch.loop(x).kind is Kind.SERIAL]
        if free:
            attempt(sch, lambda: sch.bind(free[-1], self.index()))

    def stage(self) -> None:
        """Cache a buffer in shared memory or registers, near the block that uses it."""
        block, sch = self.block(), self.sch
        read, scope = self.rng.random() < 0.7, self.rng.choice(("shared", "shared", "register"))
        before = set(nest(sch.func).blocks)
        if read:
            attempt(sch, lambda: sch.cache_read(block, self.rng.randrange(2), scope))
        else:
            attempt(sch, lambda: sch.cache_write(block, 0, scope))
        near = sch.get_loops(block)
        for copy in set(nest(sch.func).blocks) - before:
            move = sch.compute_at if read else sch.reverse_compute_at
            if near:
                attempt(sch, lambda move=move, c=copy: move(c, self.rng.choice(near)))

    def rescope(self) -> None:
        """Set the scope of a block's buffer, GPU scopes included."""
        scopes = ("global", "register", "shared", "shared", "warp")
        self.sch.set_scope(self.block(), 0, self.rng.choice(scopes))

    def storage_align(self) -> None:
        """Align the rows of a buffer."""
        self.sch.storage_align(self.block(), 0, self.rng.randrange(2), 8, self.rng.randrange(8))

    def swizzle(self) -> None:
        """Swizzle a buffer."""
        self.sch.swizzle(self.block(), 0, self.rng.choice((2, 4, 8, 3)))

    def hint(self) -> None:
        """Set a pipelining, occupancy or asynchronous-copy hint."""
        key = self.rng.choice(("pipeline", "min_blocks", "async"))
        at = self.block() if key == "async" else self.loop()
        self.sch.annotate(at, key, self.rng.choice((1, 2, 3)))


WEIGHTS: dict[str, int] = {
    "split": 6,
    "fuse": 4,
    "reorder": 6,
    "tile": 2,
    "parallel": 2,
    "vectorize": 2,
    "unroll": 1,
    "compute_at": 6,
    "reverse_compute_at": 5,
    "compute_inline": 1,
    "reverse_compute_inline": 1,
    "cache_read": 2,
    "cache_write": 3,
    "set_scope": 1,
    "transform_layout": 1,
    "decompose_reduction": 3,
    "rfactor": 3,
    "annotate": 1,
    "merge": 2,
    "add_unit_loop": 1,
    "cut": 3,
    "duplicate": 3,
    "pad": 2,
    "in_pieces": 1,
}


ON_THREADS: dict[str, int] = {
    "launch": 5,
    "bind": 4,
    "cooperate": 8,
    "stage": 4,
    "rescope": 4,
    "split": 3,
    "fuse": 2,
    "reorder": 4,
    "compute_at": 8,
    "reverse_compute_at": 6,
    "compute_inline": 1,
    "reverse_compute_inline": 1,
    "cache_read": 1,
    "cache_write": 1,
    "transform_layout": 1,
    "decompose_reduction": 2,
    "rfactor": 2,
    "vectorize": 1,
    "unroll": 1,
    "parallel": 1,
    "storage_align": 1,
    "swizzle": 1,
    "hint": 1,
    "merge": 2,
    "add_unit_loop": 1,
}


def attempt(sch: Schedule, request: Callable[[], None]) -> bool:
    """Make a request; return True if it was accepted. A refused one must change nothing and have a
    reason."""
    before, steps = sch.func, len(sch.trace.steps)
    try:
        request()
    except ScheduleError as e:
        text = str(e)
        assert e.what and e.why and text.startswith(f"cannot {e.what}: {e.why}")
        assert sch.func is before
        looked = [s for s in sch.trace.steps[steps:] if s.name != "get_loops"]
        assert not looked
        return False
    verify(sch.func)
    return True
