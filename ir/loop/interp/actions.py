"""Statements of the loop IR as closures: what the interpreter runs, element by element.

A statement becomes an action on an environment, which has a slot for each variable; an expression
becomes a closure that gives its value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import product
from typing import TypeAlias, assert_never

import numpy as np

from ...dtypes import index, to_numpy
from ..affine import Interval, Linear, bounds, linear, loop_range
from ..build import add, as_int
from ..forms import Meaning
from ..intrinsics import TABLE
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
    Kind,
    Let,
    Load,
    Op,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
)
from ..visit import free_vars
from .indices import compiled, maker, source, text_of
from .memory import Memory
from .races import UndefinedError, Watch
from .scalar import (
    Closure,
    Env,
    Value,
    boxed,
    constant,
    conversion,
    operation,
    reinterpretation,
    with_literal,
)

Action: TypeAlias = Callable[[Env], None]
Data: TypeAlias = list[Value]
Box: TypeAlias = Callable[[Env], list[int]]
_NONE: frozenset[Var] = frozenset()


class Compiler:
    """Turns statements into actions on an environment: a list with a slot for each variable."""

    def __init__(
        self, memory: dict[Buffer, Memory], watch: Watch | None, order: random.Random | None
    ) -> None:
        self.memory, self.watch, self.order = memory, watch, order
        self.data: dict[Buffer, Data] = {}
        self.slots: dict[Var, int] = {}
        self.ranges: dict[Var, Interval] = {}
        self.size = 0
        self.where = ""
        self.at_once: dict[Var, frozenset[Var]] = {}  # the loops over threads or lanes it hangs on
        self.sums: Mapping[Buffer, frozenset[Var]] = {}  # those that add up what a block writes

    def run(self, s: Stmt, symbols: Mapping[Var, int]) -> None:
        """Run one statement with the given values of symbols."""
        for v, n in symbols.items():
            self.bind(v, (n, n))
        action = self.stmt(s)
        action([*symbols.values(), *[0] * (self.size - len(symbols))])

    def items(self, buffer: Buffer) -> Data:
        """Return the elements of a buffer: one of the function's, or made by an ``Alloc``."""
        if buffer not in self.data:
            self.data[buffer] = self.memory[buffer].items()
        return self.data[buffer]

    def bind(self, var: Var, values: Interval | None = None) -> int:
        """Return a new slot for a variable, whose ``values`` are noted where they are known."""
        self.slots[var] = self.size
        if values is not None:
            self.ranges[var] = values
        self.size += 1
        return self.size - 1

    def bind_loop(self, s: For) -> tuple[int, Closure]:
        """Return the slot of a loop's variable, and its extent."""
        extent = self.expr(s.extent)
        together = s.kind in (Kind.THREAD, Kind.VECTOR)
        self.at_once[s.var] = frozenset((s.var,)) if together else _NONE
        return self.bind(s.var, loop_range(s.extent, self.ranges)), extent

    def bind_let(self, var: Var, value: Expr) -> tuple[int, Closure]:
        """Return the slot of a name, and its value."""
        v = self.expr(value)
        self.at_once[var] = self.depends_on(value)
        return self.bind(var, bounds(value, self.ranges) if var.dtype == index else None), v

    # Statements

    def stmt(self, s: Stmt) -> Action:
        """Return the action of a statement."""
        match s:
            case Store():
                return self.store(s)
            case Seq(stmts=stmts):
                return _in_order([self.stmt(x) for x in stmts])
            case For():
                return self.loop(s)
            case Block():
                return self.block(s)
            case If(cond=cond, then=then, orelse=orelse):
                c, t = self.expr(cond), self.stmt(then)
                return _branch(c, t, _in_order([]) if orelse is None else self.stmt(orelse))
            case Let(var=var, value=value, body=body):
                slot, v = self.bind_let(var, value)
                return _assign(slot, v, self.stmt(body))
            case Alloc(buffer=buffer, body=body):
                return self.alloc(buffer, body)
            case Intrinsic():
                return self.intrinsic(s)
            case AllReduce():
                raise UndefinedError("all_reduce outside of a GPU launch", "", self.where)
            case _:
                assert_never(s)

    def store(self, s: Store) -> Action:
        """Return the action of a store, boxed to the buffer's element type."""
        data, dtype = self.items(s.buffer), s.buffer.dtype
        at, value = self.offset(s.buffer, s.index), self.expr(s.value)
        if self.watch is not None:
            at = self.watch.writing(s.buffer, at, self.where, self.sums.get(s.buffer, _NONE))
        place = text_of(at) or "at(env)"
        if _plain(s.value):
            return maker("data, at, value", f"data[{place}] = value(env)")(data, at, value)
        stored = f"data[{place}] = boxed(value(env), dtype)"
        return maker("data, at, value, boxed, dtype", stored)(data, at, value, boxed, dtype)

    def alloc(self, buffer: Buffer, body: Stmt) -> Action:
        """Return the action of a body in which ``buffer`` starts unwritten."""
        size = math.prod(buffer.shape)
        data = self.data[buffer] = [None] * size
        action, watch = self.stmt(body), self.watch

        def run(env: Env) -> None:
            data[:] = [None] * size
            if watch is not None:
                watch.forget(buffer)
            action(env)

        return run

    def loop(self, s: For) -> Action:
        """Return the action of a loop, watched where its iterations may run at once."""
        slot, extent = self.bind_loop(s)
        body = self.stmt(s.body)
        values = _numbers(extent, self.order if s.kind is Kind.PARALLEL else None)
        if self.watch is not None and s.kind in (Kind.PARALLEL, Kind.VECTOR, Kind.THREAD):
            return self.watch.loop(s, slot, values, body)

        def run(env: Env) -> None:
            for i in values(env):
                env[slot] = i
                body(env)

        return run

    def intrinsic(self, s: Intrinsic) -> Action:
        """Return a tile form: matrices in, a matrix out."""
        row = TABLE.get(s.name)
        if row is None or row.tile is None or row.tile.meaning is None or len(s.writes) != 1:
            raise UndefinedError(f"intrinsic {s.name} is outside of a GPU launch", "", self.where)
        reads = [self.matrix(r) for r in s.reads]
        return self.written(s.writes[0], reads, row.tile.meaning, s.args)

    def written(
        self, r: Region, reads: list[Closure], meaning: Meaning, args: tuple[int, ...]
    ) -> Action:
        """Return the action that writes ``meaning`` of the values of ``reads`` into a box."""
        data, box, watch, where = self.items(r.buffer), self.box(r), self.watch, self.where
        dtype, sums = to_numpy(r.buffer.dtype), self.sums.get(r.buffer, _NONE)

        def run(env: Env) -> None:
            result = meaning(*(read(env) for read in reads), *args).astype(dtype)
            places = box(env)
            values = result.reshape(-1) if result.size > 1 else result.repeat(len(places))
            for i, value in zip(places, values, strict=True):
                if watch is not None:
                    watch.write(r.buffer, i, where, sums)
                data[i] = value

        return run

    def matrix(self, r: Region) -> Closure:
        """Return the contents of a box, without the dimensions of extent 1 in front of the last
        two.
        """
        data, box, watch, where = self.items(r.buffer), self.box(r), self.watch, self.where
        shape, dtype = extents_of(r, where)[-2:], to_numpy(r.buffer.dtype)
        sums = self.sums.get(r.buffer, _NONE)

        def run(env: Env) -> Value:
            places = box(env)
            values = [data[i] for i in places]
            for i, value in zip(places, values, strict=True):
                if watch is not None:
                    watch.read(r.buffer, i, where, sums)
                if value is None:
                    raise unwritten(r.buffer, i, where)
            return np.array(values, dtype).reshape(shape)

        return run

    def box(self, r: Region) -> Box:
        """Return the positions of a box of constant extents, in row-major order."""
        extents = extents_of(r, self.where)
        ends = [add(x.start, n - 1) for x, n in zip(r.ranges, extents, strict=True)]
        first = self.offset(r.buffer, tuple(x.start for x in r.ranges))
        last = self.offset(r.buffer, tuple(ends))  # for its checks
        strides = [math.prod(r.buffer.shape[d + 1 :]) for d in range(len(extents))]
        steps = [
            sum(i * k for i, k in zip(at, strides, strict=True))
            for at in product(*map(range, extents))
        ]

        def run(env: Env) -> list[int]:
            last(env)
            start = first(env)
            return [start + step for step in steps]

        return run

    def block(self, s: Block) -> Action:
        """Return the action of one instance of a block, its axes bound."""
        outside, self.where = self.where, f"block {s.name}"
        around = self.sums
        binds: list[tuple[int, Closure]] = []
        checks: list[tuple[int, int, str]] = []
        reduce: list[int] = []
        for a in s.axes:
            known = bounds(a.value, self.ranges)
            if isinstance(a.value, Var):
                slot = self.slots[a.var] = self.slots[a.value]
            else:
                value = self.expr(a.value)
                slot = self.bind(a.var)
                binds.append((slot, value))
            self.ranges[a.var] = known
            self.at_once[a.var] = self.depends_on(a.value)
            if known[0] < 0 or known[1] >= a.extent:
                checks.append((slot, a.extent, a.var.name))
            if a.kind is AxisKind.REDUCE:
                reduce.append(slot)
        guard = None if s.predicate is None else self.expr(s.predicate)
        for a in s.axes:
            self.ranges[a.var] = _meet(self.ranges[a.var], (0, a.extent - 1))
        across = [self.at_once[a.var] for a in s.axes if a.kind is AxisKind.REDUCE]
        self.sums = dict.fromkeys((r.buffer for r in s.writes), frozenset().union(*across))
        action = self.stmt(s.body)
        if s.init is not None:
            action = _initialized(self.stmt(s.init), action, reduce)
        if checks:
            action = _in_range(checks, self.where, action)
        if guard is not None:
            action = _branch(guard, action, _in_order([]))
        self.where, self.sums = outside, around
        return _bound(binds, action)

    def depends_on(self, e: Expr) -> frozenset[Var]:
        """Return the variables of concurrent loops that a value depends on."""
        return frozenset().union(*(self.at_once.get(v, _NONE) for v in free_vars(e)))

    # Expressions

    def expr(self, e: Expr) -> Closure:
        """Return the closure that computes an expression."""
        match e:
            case Var():
                return _fetch(self.slots[e])
            case Const(value=value, dtype=dtype):
                held = constant(value, dtype)
                return lambda env: held
            case Load(buffer=buffer, index=ix):
                return self.load(buffer, ix)
            case Cast(value=value, dtype=dtype, bits=bits):
                make = reinterpretation if bits else conversion
                return make(value.dtype, dtype, self.expr(value))
            case Op() if text := source(e, self.slots):
                return compiled(text)
            case Op(name="add" | "subtract" | "multiply", dtype=dtype) if (
                dtype == index and (form := linear(e)).atom() is not e  # not a product of variables
            ):
                return self.affine(form)
            case Op(name=name, args=(a, Const(value=int(c), dtype=d))) if d == index:
                return with_literal(name, self.expr(a), c)
            case Op(name=name, args=args):
                return operation(name, tuple(a.dtype for a in args), tuple(map(self.expr, args)))
            case _:
                assert_never(e)

    def load(self, buffer: Buffer, ix: tuple[Expr, ...]) -> Closure:
        """Return the closure that reads an element; ``UndefinedError`` if nothing wrote it."""
        data, at, where = self.items(buffer), self.offset(buffer, ix), self.where
        if self.watch is not None:
            at = self.watch.reading(buffer, at, where, self.sums.get(buffer, _NONE))

        def missing(i: int) -> None:
            raise unwritten(buffer, i, where)

        lines = f"i = {text_of(at) or 'at(env)'}", "x = data[i]", "if x is None: missing(i)"
        return maker("data, at, missing", *lines, "return x")(data, at, missing)

    def offset(self, buffer: Buffer, ix: tuple[Expr, ...]) -> Closure:
        """Return the row-major position of an element; dimensions not provably in range are
        checked.
        """
        form, stride = Linear({}), 1
        checked: list[tuple[Closure, int, int]] = []
        for d in reversed(range(len(ix))):
            low, high = bounds(ix[d], self.ranges)
            if low >= 0 and high < buffer.shape[d]:
                form = form.plus(linear(ix[d]), stride)
            else:
                checked.append((self.expr(ix[d]), buffer.shape[d], stride))
            stride *= buffer.shape[d]
        plain = self.affine(form)
        if not checked:
            return plain
        where = self.where

        def run(env: Env) -> Value:
            total = plain(env)
            for value, size, step in checked:
                i = value(env)
                if not 0 <= i < size:
                    why = f"{buffer.name} has {size} elements there, the index is {i}"
                    raise UndefinedError("an index is out of bounds", why, where)
                total += i * step
            return total

        return run

    def affine(self, form: Linear) -> Closure:
        """Return the value of a linear form."""
        texts = {a: source(a, self.slots) for a in form.terms}
        told = (f"{texts[a]} * {k}" for a, k in form.terms.items() if texts[a])
        total = compiled(" + ".join([*told, f"({form.constant})"]))
        for a, k in form.terms.items():
            if not texts[a]:
                total = _plus(total, self.expr(a), k)
        return total


def unwritten(buffer: Buffer, position: int, where: str) -> UndefinedError:
    """Return the error of reading what nothing wrote."""
    place = [int(x) for x in np.unravel_index(position, buffer.shape)]
    why = f"nothing wrote {buffer.name}{place} before"
    return UndefinedError("an element is read that has no value", why, where)


def extents_of(r: Region, where: str) -> tuple[int, ...]:
    """Return the extents of a box, which must be constant."""
    extents = [as_int(x.extent) for x in r.ranges]
    if None in extents:
        raise UndefinedError(f"a box of {r.buffer.name} has no constant extents", "", where)
    return tuple(n for n in extents if n is not None)


def _plain(e: Expr) -> bool:
    """True if the value of ``e`` is always a NumPy scalar of its own type."""
    match e:
        case Load():
            return True
        case Op(name="add" | "subtract" | "multiply", dtype=dtype):
            return dtype.kind == "float" and dtype.bits >= 32
        case _:
            return False


def _meet(a: Interval, b: Interval) -> Interval:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else b


def _plus(total: Closure, value: Closure, k: int) -> Closure:
    return lambda env: total(env) + value(env) * k


def _fetch(slot: int) -> Closure:
    return lambda env: env[slot]


def _numbers(extent: Closure, order: random.Random | None) -> Closure:
    if order is None:
        return lambda env: range(extent(env))

    def run(env: Env) -> list[int]:
        numbers = list(range(extent(env)))
        order.shuffle(numbers)
        return numbers

    return run


def _assign(slot: int, value: Closure, body: Action) -> Action:
    line = f"env[{slot}] = {text_of(value) or 'value(env)'}"
    return maker("value, body", line, "body(env)")(value, body)


def _in_order(actions: list[Action]) -> Action:
    if len(actions) == 1:
        return actions[0]

    def run(env: Env) -> None:
        for action in actions:
            action(env)

    return run


def _branch(cond: Closure, then: Action, orelse: Action) -> Action:
    line = f"then(env) if {text_of(cond) or 'cond(env)'} else orelse(env)"
    return maker("cond, then, orelse", line)(cond, then, orelse)


def _bound(binds: list[tuple[int, Closure]], body: Action) -> Action:
    if not binds:
        return body
    values = [value for _, value in binds]
    lines = (
        f"env[{slot}] = {text_of(value) or f'values[{n}](env)'}"
        for n, (slot, value) in enumerate(binds)
    )
    return maker("values, body", *lines, "body(env)")(values, body)


def _initialized(init: Action, body: Action, reduce: list[int]) -> Action:
    first = " and ".join(["True", *(f"env[{slot}] == 0" for slot in reduce)])
    return maker("init, body", f"if {first}: init(env)", "body(env)")(init, body)


def _in_range(checks: list[tuple[int, int, str]], where: str, body: Action) -> Action:
    def wrong(env: Env, n: int) -> None:
        slot, extent, name = checks[n]
        why = f"{name} is {env[slot]}, its extent is {extent}"
        raise UndefinedError("a block axis is out of range", why, where)

    lines = (
        f"if not 0 <= env[{slot}] < {extent}: wrong(env, {n})"
        for n, (slot, extent, _) in enumerate(checks)
    )
    return maker("wrong, body", *lines, "body(env)")(wrong, body)
