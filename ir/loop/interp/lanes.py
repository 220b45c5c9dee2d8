"""A loop nest run on whole arrays: its outer loops become lanes, the rest runs in order.

Lanes are the loops that every store's index depends on. Nothing is assumed of them: while the nest
runs, each element of a written buffer is owned by the first lane that touches it, and another lane
that touches it ends the attempt, as does anything undefined. The nest is then run element by
element, which says exactly what is wrong, if anything is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, TypeAlias, assert_never

import numpy as np

from ...conversion import convert
from ...dtypes import index, pred, to_numpy
from ...elementwise import TABLE
from ..affine import Interval, bounds
from ..build import as_int
from ..nodes import (
    Alloc,
    AllReduce,
    AxisKind,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    Op,
    Seq,
    Stmt,
    Store,
    Var,
)
from ..regions import loop_ranges
from ..visit import (
    buffers_read,
    buffers_written,
    children,
    free_vars,
    loads_in,
    substitute_expr,
    walk,
)
from .memory import Memory
from .scalar import boxed

Array: TypeAlias = Any  # a NumPy array that broadcasts to the grid of lanes, or a NumPy scalar
MAX_LANES = 1 << 21
MIN_LANES = 128  # fewer are quicker one by one
MIN_STEPS = 4096
_BY_ELEMENT = (Alloc, Intrinsic, AllReduce)


class _NotLanes(Exception):
    """Lanes meet, or something is undefined: element by element, then."""


def run_as_lanes(s: Stmt, memory: Mapping[Buffer, Memory], symbols: Mapping[Var, int]) -> bool:
    """Run a nest on arrays, if that is worth it and lanes never meet; else change nothing.

    Returns whether it was run.
    """
    chain: list[tuple[Var, int]] = []
    inner = s
    while isinstance(inner, For) and (n := as_int(inner.extent)) is not None:
        chain.append((inner.var, n))
        inner = inner.body
    if not chain or _steps(s) < MIN_STEPS or any(isinstance(x, _BY_ELEMENT) for x in walk(inner)):
        return False
    written = buffers_written(inner)
    common = _store_variables(inner, {})
    lanes = [(v, n) for v, n in chain if v in common]
    while lanes and math.prod(n for _, n in lanes) > MAX_LANES:
        lanes.pop(0)
    if math.prod(n for _, n in lanes) < MIN_LANES:
        return False
    for x in written | buffers_read(inner):
        memory[x].to_array()
    before = {b: memory[b].copy() for b in written}
    ranges = {v: (n, n) for v, n in symbols.items()} | loop_ranges(s)
    runner = _Runner(memory, written, lanes, {v: np.int64(n) for v, n in symbols.items()}, ranges)
    serial = [(v, n) for v, n in chain if (v, n) not in lanes]
    try:
        for point in product(*(range(n) for _, n in serial)):
            for (v, _), i in zip(serial, point, strict=True):
                runner.env[v] = np.int64(i)
            runner.stmt(inner, None)
    except _NotLanes:
        for b, m in before.items():
            memory[b].values, memory[b].known = m.values, m.known
        return False
    return True


def _steps(s: Stmt) -> int:
    """About how many elements ``s`` stores."""
    here = sum(map(_steps, children(s))) or 1
    return here * (as_int(s.extent) or 1) if isinstance(s, For) else here


def _store_variables(s: Stmt, values: Mapping[Var, Expr]) -> frozenset[Var]:
    """Return the variables that the index of every store under ``s`` depends on."""
    match s:
        case Store(index=ix):
            return frozenset().union(*(free_vars(substitute_expr(i, values)) for i in ix))
        case Block(axes=axes):
            values = {**values, **{a.var: substitute_expr(a.value, values) for a in axes}}
        case Let(var=var, value=value):
            values = {**values, var: substitute_expr(value, values)}
    found = [_store_variables(x, values) for x in children(s)]
    return frozenset.intersection(*found) if found else frozenset()


class _Runner:
    """The state of one nest: variables, masks of active lanes, owners of elements."""

    def __init__(
        self,
        memory: Mapping[Buffer, Memory],
        written: frozenset[Buffer],
        lanes: list[tuple[Var, int]],
        env: dict[Var, Array],
        ranges: dict[Var, Interval],
    ) -> None:
        self.memory, self.env, self.ranges = memory, env, ranges
        self.grid = tuple(n for _, n in lanes)
        self.lane = np.arange(math.prod(self.grid), dtype=np.int32).reshape(self.grid)
        self.owners = {b: np.full(memory[b].values.size, -1, np.int32) for b in written}
        for d, (v, n) in enumerate(lanes):
            shape = [1] * len(lanes)
            shape[d] = n
            env[v] = np.arange(n).reshape(shape)
        self.fixed = {*env}  # variables whose values never change; what hangs on them is kept
        self.kept: dict[object, tuple[object, Array]] = {}
        self.owned: set[int] = set()

    # Statements; ``mask`` says which lanes are active, None for all

    def stmt(self, s: Stmt, mask: Array | None) -> None:
        match s:
            case Store(buffer=buffer, index=ix, value=value):
                self.store(buffer, self.place(buffer, ix, mask), self.expr(value, mask), mask)
            case Seq(stmts=stmts):
                for x in stmts:
                    self.stmt(x, mask)
            case For(var=var, extent=extent, body=body):
                n = self.expr(extent, mask)
                if np.ndim(n):
                    raise _NotLanes
                for i in range(int(n)):
                    self.env[var] = np.int64(i)
                    self.stmt(body, mask)
            case Block():
                self.block(s, mask)
            case If(cond=cond, then=then, orelse=orelse):
                c = self.expr(cond, mask)
                self.under(then, c, mask)
                if orelse is not None:
                    self.under(orelse, np.logical_not(c), mask)
            case Let(var=var, value=value, body=body):
                self.env[var] = self.expr(value, mask)
                if var.dtype == index:
                    self.ranges[var] = bounds(value, self.ranges)
                self.stmt(body, mask)
            case Alloc() | Intrinsic() | AllReduce():
                raise _NotLanes
            case _:
                assert_never(s)

    def under(self, s: Stmt, cond: Array, mask: Array | None) -> None:
        """``s`` in the lanes where ``cond`` holds too."""
        if np.all(cond):
            self.stmt(s, mask)
        elif np.any(cond):
            self.stmt(s, _both(mask, cond))

    def block(self, s: Block, mask: Array | None) -> None:
        for a in s.axes:
            self.env[a.var] = self.keeping(a.value, mask)
            self.ranges[a.var] = bounds(a.value, self.ranges)
            if self.is_fixed(a.value):
                self.fixed.add(a.var)
        if s.predicate is not None:
            holds = self.expr(s.predicate, mask)
            if not np.any(holds):
                return
            mask = mask if np.all(holds) else _both(mask, holds)
        first: Array | None = None
        for a in s.axes:
            low, high = self.ranges[a.var]
            value = self.env[a.var]
            if low < 0 or high >= a.extent:
                self.require((value >= 0) & (value < a.extent), mask)
            self.ranges[a.var] = max(low, 0), min(high, a.extent - 1)
            if a.kind is AxisKind.REDUCE:
                first = _both(first, value == 0)
        if s.init is not None:
            self.under(s.init, np.bool_(True) if first is None else first, mask)
        self.stmt(s.body, mask)

    def store(self, buffer: Buffer, at: Array, value: Array, mask: Array | None) -> None:
        m = self.memory[buffer]
        if mask is None:
            m.values[at] = value
            m.known[at] = True
            return
        active = np.broadcast_to(mask, self.grid)
        places = np.broadcast_to(at, self.grid)[active]
        m.values[places] = np.broadcast_to(value, self.grid)[active]
        m.known[places] = True

    # Expressions

    def is_fixed(self, e: Expr) -> bool:
        return free_vars(e) <= self.fixed and not any(loads_in(e))

    def keeping(self, e: Expr, mask: Array | None) -> Array:
        """Return the value of ``e``, computed once if it never changes."""
        known = self.kept.get(id(e))
        if known is not None:
            return known[1]
        value = self.expr(e, mask)
        if self.is_fixed(e):
            self.kept[id(e)] = e, value
        return value

    def expr(self, e: Expr, mask: Array | None) -> Array:
        match e:
            case Var():
                return self.env[e]
            case Const(value=value, dtype=dtype):
                return boxed(value, dtype)
            case Load(buffer=buffer, index=ix):
                return self.load(buffer, ix, mask)
            case Cast(value=value, dtype=dtype, bits=bits):
                x = self.expr(value, mask)
                if bits:
                    return np.ascontiguousarray(x).reshape(np.shape(x)).view(to_numpy(dtype))
                return convert(x, to_numpy(dtype))
            case Op(name="select", args=(cond, a, b)):
                c = self.expr(cond, mask)
                if np.all(c) or not np.any(c):
                    return self.expr(a if np.all(c) else b, mask)
                x = self.expr(a, _both(mask, c))
                return np.where(c, x, self.expr(b, _both(mask, np.logical_not(c))))
            case Op(name="and" | "or", args=(a, b), dtype=dtype) if dtype == pred:
                x = self.expr(a, mask)
                needed = x if e.name == "and" else np.logical_not(x)
                if not np.any(needed):
                    return x
                y = self.expr(b, _both(mask, needed))
                return np.logical_and(x, y) if e.name == "and" else np.logical_or(x, y)
            case Op(name=name, args=args):
                return TABLE[name].numpy(*(self.expr(a, mask) for a in args))
            case _:
                assert_never(e)

    def load(self, buffer: Buffer, ix: tuple[Expr, ...], mask: Array | None) -> Array:
        m, at = self.memory[buffer], self.place(buffer, ix, mask)
        self.require(m.known[at], mask)
        return m.values[at]

    def place(self, buffer: Buffer, ix: tuple[Expr, ...], mask: Array | None) -> Array:
        """Positions in row-major order; of inactive lanes, any position there is."""
        fixed = all(map(self.is_fixed, ix))
        key = (id(buffer), *map(id, ix))
        at: Array = np.int64(0)
        if mask is None and fixed and key in self.kept:
            at = self.kept[key][1]
        else:
            for i, n in zip(ix, buffer.shape, strict=True):
                x, (low, high) = self.expr(i, mask), bounds(i, self.ranges)
                if low < 0 or high >= n:
                    self.require((x >= 0) & (x < n), mask)
                if mask is not None and n:
                    x = np.clip(x, 0, n - 1)
                at = at * n + x
            if mask is None and fixed:
                self.kept[key] = (buffer, ix), at
        if buffer in self.owners:
            self.own(buffer, at, mask, fixed and mask is None)
        return at

    def own(self, buffer: Buffer, at: Array, mask: Array | None, fixed: bool) -> None:
        """Each lane takes the elements it touches; two lanes at one element end the attempt."""
        if fixed and id(at) in self.owned:
            return
        owners, lane = self.owners[buffer], self.lane
        places = np.broadcast_to(at, self.grid)
        if mask is not None:
            active = np.broadcast_to(mask, self.grid)
            places, lane = places[active], lane[active]
        now = owners[places]
        if ((now >= 0) & (now != lane)).any():
            raise _NotLanes
        owners[places] = lane
        if (owners[places] != lane).any():
            raise _NotLanes
        if fixed:
            self.owned.add(id(at))

    def require(self, cond: Array, mask: Array | None) -> None:
        """All active lanes must pass."""
        if not np.all(cond if mask is None else cond | ~mask):
            raise _NotLanes


def _both(a: Array | None, b: Array) -> Array:
    return b if a is None else a & b
