"""Is a loop function well formed? The first thing wrong is reported, with its block or loop.

Checked: names are introduced once and used where they are known; ranks, bounds that can be proven
wrong, element types; that a block's declared regions cover what its body touches; block names;
constant extents of vector and unrolled loops; that an init has a reduction to begin; thread
indices; notes against their declarations, intrinsics against their table. A block may touch a tile
of a warp element by element, until an intrinsic takes its place; other code may not.
"""

from __future__ import annotations

from functools import cache
from typing import NoReturn, assert_never

from ..dtypes import DType, index, pred
from ..elementwise import TABLE
from ..errors import VerifyError
from .affine import Interval, bounds, bounds_of, linear
from .build import as_int
from .intrinsics import SPREAD, misfit
from .intrinsics import TABLE as INTRINSICS
from .nodes import (
    THREADS,
    Alloc,
    AllReduce,
    AxisKind,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    Load,
    Op,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from .notes import FROZEN, UPDATES
from .notes import misfit as misfit_note
from .printer import show
from .regions import Spans, accesses, loop_ranges

_SCALARS: dict[str, type | tuple[type, ...]] = {
    "pred": (bool, int),
    "signed": int,
    "unsigned": int,
    "float": (int, float),
    "complex": (int, float, complex),
}


def verify(func: Func, *, on_threads: bool = False) -> None:
    """Raise ``VerifyError`` at the first violation, in program order.

    ``on_threads`` is for a function whose launches are complete: an operation of a warp is then
    in the loop over its threads.
    """
    if not 0 <= func.outputs <= len(func.params):
        raise VerifyError(f"{func.name} has {len(func.params)} parameters", "too few for outputs")
    checker = _Checker(func.name, on_threads)
    for b in (*func.params, *func.allocs):
        checker.declare(b)
    for b in func.params:
        if b.scope is not Scope.GLOBAL:
            checker.fail(f"parameter {b.name} is in scope {b.scope.value}", "not in memory")
        if b.align:
            checker.fail(f"parameter {b.name} has an alignment", "its caller laid it out")
    for v in func.symbols:
        checker.introduce(v)
    checker.notes(func)
    checker.numbers(func)
    checker.stmt(func.body)


class _Checker:
    """Walks a function; knows what is visible and in which block or loop it is."""

    def __init__(self, name: str, on_threads: bool) -> None:
        self.path = [name]
        self.on_threads = on_threads
        self.known: set[Var | Buffer] = set()
        self.introduced: set[Var | Buffer] = set()
        self.ranges: dict[Var, Interval] = {}
        self.blocks: set[str] = set()
        self.threads: dict[str, Expr] = {}  # extents of the thread indices around
        self.inside = 0  # blocks
        self.guarded = 0  # inside a condition, an index need not be in bounds for all iterations

    def fail(self, what: str, why: str = "", hint: str = "") -> NoReturn:
        raise VerifyError(what, why, " > ".join(self.path[-3:]), hint)

    def declare(self, b: Buffer) -> None:
        if b in self.introduced:
            self.fail(f"buffer {b.name} is declared twice")
        if any(n < 0 for n in b.shape):
            self.fail(f"buffer {b.name} has a negative extent", str(list(b.shape)))
        if b.swizzle and b.scope is not Scope.SHARED:
            self.fail(f"buffer {b.name} is laid out for shared memory", f"it is {b.scope.value}")
        if b.align and b.scope not in (Scope.SHARED, Scope.GLOBAL):
            self.fail(f"buffer {b.name} has an alignment", f"it is {b.scope.value}")
        if b.align and not (0 <= b.align[0] < len(b.shape) and 0 <= b.align[2] < b.align[1]):
            self.fail(f"buffer {b.name} has no alignment {b.align}", "(dimension, factor, offset)")
        if b.swizzle not in (0, 2, 4, 8):
            self.fail(f"buffer {b.name} has swizzle {b.swizzle}", "it is 2, 4 or 8, or none")
        self.introduced.add(b)
        self.known.add(b)

    def introduce(self, v: Var, values: Interval | None = None) -> None:
        if v in self.introduced:
            self.fail(f"variable {v.name} is introduced twice", "", "give each loop its own Var")
        self.introduced.add(v)
        self.known.add(v)
        if values is not None:
            self.ranges[v] = values

    def notes(self, node: Func | For | Block) -> None:
        for key, value in node.notes.items():
            if why := misfit_note(node, key, value):
                self.fail(why[0], hint=why[1])

    def numbers(self, func: Func) -> None:
        """The parameters that the function's notes name by number are there."""
        inputs = len(func.params) - func.outputs
        updates = UPDATES.of(func) or ()
        named = (*(FROZEN.of(func) or ()), *(i for _, i in updates))
        if any(n >= inputs for n in named) or any(o >= func.outputs for o, _ in updates):
            self.fail("a note names a parameter that is not there", f"inputs: {inputs}")

    # Statements

    def stmt(self, s: Stmt) -> None:
        match s:
            case Store():
                self.store(s)
            case Seq(stmts=stmts):
                for x in stmts:
                    if isinstance(x, Seq):
                        self.fail("a Seq is directly in a Seq", "", "build it with visit.seq")
                    self.stmt(x)
            case For():
                self.loop(s)
            case Block():
                self.block(s)
            case If(cond=cond, then=then, orelse=orelse):
                self.typed(cond, pred, "the condition of an If")
                self.guarded += 1
                self.stmt(then)
                if orelse is not None:
                    self.stmt(orelse)
                self.guarded -= 1
            case Let(var=var, value=value, body=body):
                self.typed(value, var.dtype, f"the value of {var.name}")
                whole = var.dtype == index
                self.introduce(var, bounds(value, self.ranges) if whole else None)
                self.stmt(body)
                self.known.discard(var)
            case Alloc(buffer=buffer, body=body):
                self.declare(buffer)
                self.stmt(body)
                self.known.discard(buffer)
            case Intrinsic():
                self.intrinsic(s)
            case AllReduce():
                self.all_reduce(s)
            case _:
                assert_never(s)

    def intrinsic(self, s: Intrinsic) -> None:
        self.path.append(f"intrinsic {s.name}")
        row = INTRINSICS.get(s.name)
        for r in (*s.writes, *s.reads):
            self.region(r)
            if row is not None and row.clips and r.buffer.scope is Scope.GLOBAL:
                continue
            for x, size in zip(r.ranges, r.buffer.shape, strict=True):
                low, high = bounds(x.start, self.ranges)
                if not self.guarded and (high < 0 or low + (as_int(x.extent) or 0) > size):
                    self.fail(f"{show_region(r)} is out of bounds", f"not within 0 to {size - 1}")
        why = misfit(s)
        if why:
            self.fail(f"intrinsic {s.name} is called incorrectly", why)
        form = INTRINSICS[s.name].form(s)
        together = form is INTRINSICS[s.name].tile and form is not None and form.threads > 1
        if together and not self.on_threads and "threadIdx.x" in self.threads:
            self.fail("it is in a loop over threadIdx.x", "a whole warp does it together")
        self.path.pop()

    def all_reduce(self, s: AllReduce) -> None:
        self.path.append("all_reduce")
        dtypes = [b.dtype for b in s.values]
        for b in s.values:
            self.visible(b)
            if b.scope is not Scope.REGISTER:
                self.fail(
                    f"{b.name} is in scope {b.scope.value}", "each thread holds its own value"
                )
        if not dtypes or any(
            [x.dtype for x in part] != dtypes for part in (s.left, s.right, s.combined)
        ):
            self.fail("values and their combination differ in number or type")
        extent = as_int(self.threads.get("threadIdx.x", Const(1)))
        if s.threads < 1 or (extent is not None and extent % s.threads):
            self.fail(f"it takes groups of {s.threads} threads", f"threadIdx.x has {extent}")
        own = {*s.left, *s.right}
        if len(own) < 2 * len(dtypes) or not own.isdisjoint(self.known):
            self.fail("its names are not its own", "", "give each value a Var of its own")
        self.known |= own
        for e, dtype in zip(s.combined, dtypes, strict=True):
            self.typed(e, dtype, "a combined value")
        self.known -= own
        self.path.pop()

    def store(self, s: Store) -> None:
        self.element(s.buffer, s.index)
        self.typed(s.value, s.buffer.dtype, f"the value stored to {s.buffer.name}")

    def loop(self, s: For) -> None:
        self.path.append(f"loop {s.var.name}")
        self.notes(s)
        self.typed(s.extent, index, "the extent")
        if s.var.dtype != index:
            self.fail(f"the loop variable is {s.var.dtype}", f"indices are {index}")
        if s.kind in (Kind.VECTOR, Kind.UNROLLED) and as_int(s.extent) is None:
            self.fail(f"a loop of kind {s.kind.value} needs a constant extent", show(s.extent))
        if (s.kind is Kind.THREAD) != bool(s.thread):
            self.fail("a loop names a thread index exactly if it is bound to one")
        if s.thread and s.thread not in THREADS:
            self.fail(f"unknown thread index {s.thread!r}", "", f"one of {', '.join(THREADS)}")
        low, high = bounds(s.extent, self.ranges)
        if high < 0 or (isinstance(s.extent, Const) and low < 0):
            self.fail("the extent is negative", show(s.extent))
        self.introduce(s.var, (0, max(high - 1, 0)))
        never = high == 0  # then no index is out of bounds
        self.guarded += never
        around = self.threads
        if s.thread:
            self.threads = {s.thread: s.extent, **around}
        self.stmt(s.body)
        self.guarded -= never
        self.threads = around
        self.known.discard(s.var)
        self.path.pop()

    def block(self, s: Block) -> None:
        self.path.append(f"block {s.name}")
        if s.name in self.blocks:
            self.fail("another block has this name")
        self.blocks.add(s.name)
        self.notes(s)
        for a in s.axes:
            self.typed(a.value, index, f"the value of axis {a.var.name}")
            if a.extent < 0:
                self.fail(f"axis {a.var.name} has a negative extent")
            low, high = bounds(a.value, self.ranges)
            if low >= a.extent > 0 or high < 0:
                self.fail(f"axis {a.var.name} is always out of range", f"{low} to {high}")
        for a in s.axes:
            self.introduce(a.var, (0, max(a.extent - 1, 0)))
        if s.predicate is not None:
            self.typed(s.predicate, pred, "the predicate")
            self.guarded += 1
        for r in (*s.reads, *s.writes):
            self.region(r)
        self.inside += 1
        self.init(s)
        self.stmt(s.body)
        self.covers(s)
        self.inside -= 1
        for a in s.axes:
            self.known.discard(a.var)
        self.guarded -= s.predicate is not None
        self.path.pop()

    def init(self, s: Block) -> None:
        if s.init is None:
            return
        reduced = [a.var for a in s.axes if a.kind is AxisKind.REDUCE]
        if not reduced:
            self.fail("it has an init but no reduce axis", "", "an init begins a reduction")
        self.stmt(s.init)

    def covers(self, s: Block) -> None:
        """The regions declared by ``s`` contain each box that init and body touch."""
        for part in (s.body, s.init):
            if part is None:
                continue
            spans = Spans(loop_ranges(part, self.ranges), self.ranges)
            for write, region in {(a.write, a.region): None for a in accesses(part)}:
                known = [r for r in (s.writes if write else s.reads) if r.buffer is region.buffer]
                if region in known:  # then it sweeps what is declared, too
                    continue
                box = spans.box(region)
                if box in known or any(self.contains(r, box) for r in known):
                    continue
                swept = (spans.box(r) for r in known)
                if not any(r == box or self.contains(r, box) for r in swept):
                    verb = "writes" if write else "reads"
                    self.fail(f"its body {verb} {show_region(box)}", f"not among its {verb}")

    def contains(self, outer: Region, inner: Region) -> bool:
        """True if the box lies in the declared region; a whole dimension contains anything."""
        for x, y, size in zip(outer.ranges, inner.ranges, outer.buffer.shape, strict=True):
            if as_int(x.start) == 0 and as_int(x.extent) == size:
                continue
            if y.start == x.start and y.extent == x.extent:
                continue
            before = linear(y.start) - linear(x.start)
            after = before + linear(y.extent) - linear(x.extent)
            if bounds_of(before, self.ranges)[0] < 0 or bounds_of(after, self.ranges)[1] > 0:
                return False
        return True

    def region(self, r: Region) -> None:
        self.visible(r.buffer)
        self.rank(r.buffer, len(r.ranges))
        for x in r.ranges:
            self.typed(x.start, index, f"the start of a range of {r.buffer.name}")
            self.typed(x.extent, index, f"the extent of a range of {r.buffer.name}")

    # Expressions

    def visible(self, x: Var | Buffer) -> None:
        if x not in self.known:
            word = "buffer" if isinstance(x, Buffer) else "variable"
            self.fail(f"{word} {x.name} is not defined here")

    def rank(self, b: Buffer, n: int) -> None:
        if n != len(b.shape):
            self.fail(f"{b.name} has {len(b.shape)} dimensions, {n} indices are given")

    def element(self, b: Buffer, ix: tuple[Expr, ...]) -> None:
        self.visible(b)
        self.rank(b, len(ix))
        if b.scope in SPREAD and not self.inside and not self.on_threads:
            self.fail(f"an element of {b.name} is accessed", "tiles of a warp are for intrinsics")
        if b.scope is Scope.COUNTER:
            self.fail(f"an element of {b.name} is accessed", "only arrivals change counters")
        for i, size in zip(ix, b.shape, strict=True):
            self.expr(i)
            if i.dtype != index:
                self.mistyped(i, index, f"an index of {b.name}")
            if self.guarded or not size:
                continue
            low, high = bounds(i, self.ranges)
            if low >= size or high < 0:
                self.fail(
                    f"index {show(i)} of {b.name} is out of bounds", f"not within 0 to {size - 1}"
                )

    def typed(self, e: Expr, dtype: DType, role: str) -> None:
        self.expr(e)
        if e.dtype != dtype:
            self.mistyped(e, dtype, role)

    def mistyped(self, e: Expr, dtype: DType, role: str) -> NoReturn:
        self.fail(f"{role} is {e.dtype}, not {dtype}", show(e)[:80])

    def expr(self, e: Expr) -> None:
        match e:
            case Var():
                self.visible(e)
            case Const(value=value, dtype=dtype):
                if not isinstance(value, _SCALARS[dtype.kind]):
                    self.fail(f"literal {value!r} is not an {dtype}")
            case Load(buffer=buffer, index=ix):
                self.element(buffer, ix)
            case Cast(value=value, dtype=dtype, bits=bits):
                self.expr(value)
                if bits and value.dtype.bits != dtype.bits:
                    self.fail(f"bits of {value.dtype} taken as {dtype}", "the widths differ")
            case Op():
                self.op(e)
            case _:
                assert_never(e)

    def op(self, e: Op) -> None:
        chooses = e.name == "select"
        self.guarded += chooses
        for a in e.args:
            self.expr(a)
        self.guarded -= chooses
        if _result_dtype(e.name, tuple([a.dtype for a in e.args])) is not e.dtype:
            self.misfit(e)

    def misfit(self, e: Op) -> NoReturn:
        row = TABLE.get(e.name)
        if row is None:
            self.fail(f"there is no operation {e.name!r}", "", "see ir.elementwise.TABLE")
        if len(e.args) != row.arity:
            self.fail(f"{e.name} takes {row.arity} operands, not {len(e.args)}", show(e)[:80])
        dtypes = [a.dtype for a in e.args]
        if e.name == "select" and dtypes[0] != pred:
            self.fail(f"select by a {dtypes[0]}", show(e)[:80])
        same = dtypes[1:] if e.name == "select" else dtypes
        if same.count(same[-1]) != len(same):
            self.fail(f"{e.name} of {' and '.join(map(str, same))}", show(e)[:80])
        if same[-1].kind[0] not in row.kinds:
            self.fail(f"{e.name} of {same[-1]}", f"it takes kinds {row.kinds}")
        self.fail(f"{e.name} gives {row.result_dtype(*dtypes)}, not {e.dtype}", show(e)[:80])


@cache
def _result_dtype(name: str, dtypes: tuple[DType, ...]) -> DType | None:
    """Return the element type that an operation gives; None if it does not take these."""
    row = TABLE.get(name)
    if row is None or len(dtypes) != row.arity or (name == "select" and dtypes[0] != pred):
        return None
    same = dtypes[1:] if name == "select" else dtypes
    fits = same.count(same[-1]) == len(same) and same[-1].kind[0] in row.kinds
    return row.result_dtype(*dtypes) if fits else None


def show_region(r: Region) -> str:
    """Return ``A[i, 0 : 4]`` for a message."""
    parts = [
        show(x.start) if as_int(x.extent) == 1 else f"{show(x.start)} : + {show(x.extent)}"
        for x in r.ranges
    ]
    return f"{r.buffer.name}[{', '.join(parts)}]"
