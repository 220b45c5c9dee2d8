"""Products with sums in tensor memory: columns, the thread that begins them, the waits for them.

A launch's sums are columns of one buffer, which its first warp allocates and frees. The first
thread begins products: the first ones on a tile that was zeroed leave out what was there. A group's
end is an arrival at one of two barriers in turn; each thread counts groups for itself, so it knows
the barrier and the phase that it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from .....ir.dtypes import DType, index, s32, u32
from .....ir.errors import UnsupportedError
from .....ir.loop.affine import Interval
from .....ir.loop.build import (
    add,
    as_int,
    cast,
    compare,
    floordiv,
    floormod,
    iteration,
    lt,
    mul,
    number_of,
    point,
)
from .....ir.loop.intrinsics import WARP
from .....ir.loop.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Let,
    Load,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from .....ir.loop.simplify import simplify
from .....ir.loop.tensor_memory import LANES, MOST_COLUMNS, allocated
from .....ir.loop.visit import children, seq, walk
from ...passes.launches import BARRIER, closed, each_launch, opened
from .groups import OF_TENSORS, grouped, is_group_product
from .mbarriers import PATTERN_BYTES, mbarriers, wait_for_phase
from .panels import PanelRewriter, find_panels

BEFORE, AFTER = Intrinsic("tensor_fence_before"), Intrinsic("tensor_fence_after")
_FENCED = (BEFORE, BARRIER, AFTER)
_WAITS = ("mbarrier_wait", "named_barrier")
_ENDS = 2  # barriers of groups: one group may be under way while the next one begins


def lower_tensor_memory(func: Func) -> Func:
    """Return the function with columns for tensor memory, and products begun by single threads."""
    return each_launch(func, lambda s: _in_launch(s, func.name))


def _in_launch(s: For, name: str) -> Stmt:
    buffers = dict.fromkeys(_sums(s))
    if not buffers:
        return s
    chain, body = opened(s)
    lanes = _TensorLanes.of(body, chain, list(buffers), name)
    ranges = {x.var: (0, (as_int(x.extent) or 1) - 1) for x in chain}
    return closed(chain, lanes.whole_launch(lanes.stmt(grouped(body), ranges)))


def _sums(s: Stmt) -> Iterator[Buffer]:
    for x in walk(s):
        for r in (*x.writes, *x.reads) if isinstance(x, Intrinsic) else ():
            if r.buffer.scope is Scope.TENSOR:
                yield r.buffer


def _columns(b: Buffer, name: str) -> int:
    *lead, m, n = b.shape
    if m % LANES:
        why = f"tensor memory has tiles of {LANES} rows"
        raise UnsupportedError(f"buffer {b.name}{list(b.shape)}", why, f"function {name}")
    return prod(lead) * (m // LANES) * n


@dataclass(frozen=True, slots=True)
class _Place:
    """The first column of a buffer, and the number of its first tile of 128 rows."""

    column: int
    tile: int


def _placed(s: Stmt, at: _Place, places: dict[Buffer, _Place], name: str) -> _Place:
    """Place the buffers that ``s`` allocates; those that are never there at once share columns.

    Returns what is taken at most.
    """
    if isinstance(s, Alloc) and s.buffer.scope is Scope.TENSOR:
        places[s.buffer] = at
        count = _columns(s.buffer, name)
        at = _Place(at.column + count, at.tile + count // s.buffer.shape[-1])
    found = [at, *(_placed(c, at, places, name) for c in children(s))]
    return _Place(max(x.column for x in found), max(x.tile for x in found))


@dataclass(frozen=True)
class _State:
    """The state of a block and its threads: where the columns begin (in shared memory and in each
    thread), barriers of groups, groups begun, and for each tile whether there are sums."""

    slot: Buffer
    ends: Buffer
    base: Buffer
    begun: Buffer
    flags: Buffer
    tensor: Buffer

    @staticmethod
    def of(columns: int, tiles: int, dtype: DType) -> _State:
        """Return the state for so many columns."""
        return _State(
            Buffer("columns", (PATTERN_BYTES // u32.bytes,), u32, Scope.SHARED),
            mbarriers("ends", _ENDS),
            Buffer("base", (1,), u32, Scope.REGISTER),
            Buffer("begun", (1,), s32, Scope.REGISTER),
            Buffer("summed", (tiles,), s32, Scope.REGISTER),
            Buffer("tensor", (columns,), dtype, Scope.TENSOR),
        )

    def around(self, s: Stmt) -> Stmt:
        """Return ``s`` where all of it is allocated."""
        for b in (self.tensor, self.flags, self.begun, self.base, self.ends, self.slot):
            s = Alloc(b, s)
        return s


@dataclass(frozen=True)
class _TensorLanes(PanelRewriter):
    """Rewrites a launch. ``thread`` is the thread's place in its group, ``number`` that in the
    block; ``places`` say where buffers begin."""

    thread: Var
    number: Expr
    places: Mapping[Buffer, _Place]
    state: _State

    @staticmethod
    def of(s: Stmt, chain: list[For], buffers: list[Buffer], name: str) -> _TensorLanes:
        """Return what rewrites a launch's body under its thread loops."""
        threads = sorted((x for x in chain if x.over_threads), key=lambda x: x.thread)
        wide = [as_int(x.extent) or 1 for x in threads if x.thread == "threadIdx.x"]
        if not wide or wide[0] % LANES:
            what = f"tensor memory in a launch without {LANES} threads in x"
            raise UnsupportedError(what, "each has a row of a tile", f"function {name}")
        number = iteration(threads[::-1])
        types = {b.dtype for b in buffers}
        if len(types) > 1:
            raise UnsupportedError("sums of two types in tensor memory", "", f"function {name}")
        places: dict[Buffer, _Place] = {}
        most = _placed(s, _Place(0, 0), places, name)
        if most.column > MOST_COLUMNS:
            why = f"a block has at most {MOST_COLUMNS}"
            hint = "smaller tiles"
            what = f"{most.column} columns of tensor memory"
            raise UnsupportedError(what, why, f"function {name}", hint)
        state = _State.of(allocated(most.column), most.tile, types.pop())
        return _TensorLanes(name, *find_panels(s, name), threads[0].var, number, places, state)

    # The launch

    def whole_launch(self, body: Stmt) -> Stmt:
        """Return the launch's body between the allocation of columns and their end."""
        st, count = self.state, self.state.tensor.shape[0]
        first, slot = lt(self.number, WARP), point(st.slot, (Const(0),))
        ends = (
            Intrinsic("mbarrier_init", (point(st.ends, (Const(n),)),), (), (1,))
            for n in range(_ENDS)
        )
        start = (
            self.by_one(seq(*ends, Intrinsic("fence_mbarrier_init"))),
            If(first, Intrinsic("tensor_alloc", (slot,), (), (count,))),
            *_FENCED,
            Store(st.base, (Const(0),), Load(st.slot, (Const(0),))),
            Store(st.begun, (Const(0),), Const(0, s32)),
        )
        free = If(first, Intrinsic("tensor_free", (), (point(st.base, (Const(0),)),), (count,)))
        return st.around(seq(*start, body, *_FENCED, free))

    def by_one(self, s: Stmt) -> Stmt:
        """Return ``s`` by the first thread."""
        return If(compare("eq", self.number, 0), s)

    # Statements

    def stmt(self, s: Stmt, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the statement with columns of tensor memory."""
        if isinstance(s, Alloc) and s.buffer in self.places:
            return self.stmt(s.body, ranges)
        if isinstance(s, If) and isinstance(s.then, Intrinsic) and s.orelse is None:
            return self.by_some(s.cond, s.then, ranges)
        return PanelRewriter.stmt(self, s, ranges)

    def by_some(self, cond: Expr, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return an operation under a condition. All threads note whether there are sums, so that
        this is the same for a warp, which begins products as one."""
        made, cond = self.intrinsic(s, ranges), self.expr(cond, ranges)
        if s.name == "zero_tensor":
            return made
        if is_group_product(s) and isinstance(made, Seq):
            product, note = made.stmts
            return seq(If(cond, product), note)
        return If(cond, made)

    def intrinsic(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return what a thread does of a tile's operation."""
        if is_group_product(s):
            return self.product(s, ranges)
        match s.name:
            case "zero_tensor":
                return Store(self.state.flags, (self.tile(s.writes[0], ranges),), Const(0, s32))
            case "load_tensor":
                return self.load(s.writes[0], s.reads[0], ranges)
            case "tensor_commit":
                return self.commit()
            case "tensor_landed":
                return self.landed(s.args[0])
        made = PanelRewriter.intrinsic(self, s, ranges)
        if s == BARRIER:
            return seq(BEFORE, made, AFTER)
        return seq(BEFORE, made, AFTER) if s.name in _WAITS else made

    def product(self, s: Intrinsic, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return a product, and what is there from then on."""
        starts, args = self.operands(s, ranges)
        flag = self.tile(s.writes[0], ranges)
        sums = self.column(s.writes[0], ranges)
        reads = (point(self.state.flags, (flag,)), point(self.state.base, (Const(0),)), *starts)
        made = Intrinsic(s.name, (sums,), reads, args)
        return seq(made, Store(self.state.flags, (flag,), Const(1, s32)))

    def load(self, to: Region, of: Region, ranges: Mapping[Var, Interval]) -> Stmt:
        """Return the thread's own row, which it waits for."""
        row = simplify(of.ranges[-2].start, ranges)
        if simplify(floormod(add(row, mul(self.thread, -1)), LANES), ranges) != Const(0):
            raise UnsupportedError(
                f"a row of {of.buffer.name} is loaded by a thread that has another",
                f"thread t of {LANES} has rows t, {LANES} + t, ..",
                f"function {self.name}",
                "split the rows by 128 and bind the inner loop to threadIdx.x",
            )
        count = as_int(of.ranges[-1].extent)
        first = Range(simplify(add(row, mul(self.thread, -1)), ranges), Const(1))
        tile = Region(of.buffer, (*of.ranges[:-2], first, of.ranges[-1]))
        reads = (self.column(tile, ranges), point(self.state.base, (Const(0),)))
        return seq(
            Intrinsic(f"tensor_load.x{count}", (to,), reads),
            Intrinsic("tensor_wait", (to,), (to,)),
        )

    # Groups

    def commit(self) -> Stmt:
        """Return the end of a group, which each thread counts."""
        st, now = self.state, Var("groups")
        at = point(st.ends, (floormod(now, _ENDS),))
        count = Store(st.begun, (Const(0),), cast(add(now, 1), s32))
        end = self.by_one(Intrinsic(OF_TENSORS.commit.name, (at,)))
        return Let(now, cast(Load(st.begun, (Const(0),)), index), seq(end, count))

    def landed(self, left: int) -> Stmt:
        """Return the wait until at most so many groups are under way."""
        if left >= _ENDS:
            why = f"there are {_ENDS} barriers of groups"
            raise UnsupportedError(f"{left} groups of products", why, f"function {self.name}")
        st, now = self.state, Var("groups")
        last = add(now, -1 - left)
        bar = point(st.ends, (floormod(last, _ENDS),))
        some = If(compare("gt", now, left), wait_for_phase(bar, floordiv(last, _ENDS)))
        return seq(Let(now, cast(Load(st.begun, (Const(0),)), index), some), AFTER)

    # Places

    def tile(self, r: Region, ranges: Mapping[Var, Interval]) -> Expr:
        """Return the number of a product's tile among those of the launch."""
        before = self.places[r.buffer].tile
        return simplify(add(self.strip(r, ranges), before), ranges)

    def strip(self, r: Region, ranges: Mapping[Var, Interval]) -> Expr:
        """Return the number of 128 rows in a buffer in which a box lies."""
        *lead, m, _ = (simplify(x.start, ranges) for x in r.ranges)
        *sizes, rows, _ = r.buffer.shape
        strip = number_of((*lead, floordiv(m, LANES)), (*sizes, rows // LANES))
        return simplify(strip, ranges)

    def column(self, r: Region, ranges: Mapping[Var, Interval]) -> Region:
        """Return the column at which a box begins."""
        place = mul(self.strip(r, ranges), r.buffer.shape[-1])
        start = add(add(place, r.ranges[-1].start), self.places[r.buffer].column)
        return point(self.state.tensor, (simplify(start, ranges),))
