"""Loop IR text: golden text, exact round trips of random functions, refusals with their place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir import dtypes
from nestwright.ir.dtypes import DType, f32, index, pred
from nestwright.ir.elementwise import TABLE
from nestwright.ir.errors import ParseError
from nestwright.ir.loop import build
from nestwright.ir.loop.nodes import (
    Alloc,
    AllReduce,
    AxisKind,
    Block,
    BlockAxis,
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
    Range,
    Region,
    Scope,
    Stmt,
    Store,
    Var,
)
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import CALLS, lines, show
from nestwright.ir.loop.visit import equal, map_stmt, seq, substitute, walk

MATMUL = """\
@func(outputs=1)
def matmul(A: f32[64, 32], B: f32[32, 48], C: f32[64, 48]):
    T = alloc(f32[64, 48], scope="register")
    for i in parallel(8, grain=2):
        for j in range(48):
            for k in range(32):
                with block("C"):
                    vi, vj, vk = spatial(64, i * 8), spatial(48, j), reduce(32, k)
                    where(i * 8 + j < 61)
                    reads(A[vi, vk], B[vk, 0 : 4], T[vi - 1 : vi + 1, vj])
                    writes(T[vi, vj])
                    with init():
                        T[vi, vj] = f32(0.0)
                    T[vi, vj] = T[vi, vj] + A[vi, vk] * B[vk, vj]
"""

FLAT = """\
@func(outputs=1, name="add.2", key=3, pair=((0, 1), (2, 0)), **{"x.y": ("z",)})
def add_2(A: f32[64], C: f32[()], n: s64):
    with alloc(f32[8]) as U:
        for i in range(n):
            if i - 3 < n // 2 and not (n > 2 or i < 4):
                x = let(f32, exp(A[i]) + max(A[i + 1], f32(-inf)) * -A[i])
                C[()] = select(x < f32(nan), x, cast(f32, bitcast(s32, x) << s32(2)))
            else:
                with let(s64, subtract(n, 3)) as y:
                    U[y] = f32(0.0)
                for t in thread("blockIdx.x", 32):
                    for v in vectorize(4):
                        for u in unroll(2):
                            V = alloc(c64[2], scope="shared")
                            V[u] = c64(0.0, -1.5)
                            pass
"""


GPU = """\
@func(outputs=1)
def rows(A: f32[4, 32], C: f32[4]):
    for b in thread("blockIdx.x", 4):
        for t in thread("threadIdx.x", 32):
            S = alloc(bf16[2, 64], scope="shared", align=(0, 64, 8), swizzle=8)
            T = alloc(u32[4], scope="warp")
            R = alloc(f32[1], scope="register")
            N = alloc(s32[1], scope="register")
            R[0] = A[b, t]
            N[0] = s32(1)
            intrinsic("copy_async", writes(S[0, t : t + 8]), reads(S[1, t : t + 8]), args(16))
            intrinsic("wait_async", args(0))
            intrinsic("barrier")
            all_reduce(32, R, lambda x, y: max(x, y))
            all_reduce(16, R, N, lambda l, m, r, s: (select(l < r, r, l), m + s))
            C[b] = R[0]
"""


def test_statements_of_gpus_are_their_own_text() -> None:
    func = parse(GPU)
    assert show(func) == GPU
    assert equal(parse(GPU), func)
    assert not equal(parse(GPU.replace("swizzle=8", "swizzle=4")), func)
    assert not equal(parse(GPU.replace("64, 8)", "64, 0)")), func)
    assert not equal(parse(GPU.replace("x, y: max(x, y)", "x, y: max(y, x)")), func)


def test_a_copy_of_a_reduction_across_threads_may_keep_its_names() -> None:
    func = parse(GPU)

    def twice(s: Stmt) -> Stmt:
        return seq(s, s) if isinstance(s, AllReduce) else map_stmt(s, twice, lambda e: e)

    again = replace(func, body=twice(func.body))
    assert equal(parse(show(again)), again)
    assert not equal(again, func)


def test_matmul_is_its_own_text() -> None:
    func = parse(MATMUL)
    assert show(func) == MATMUL
    assert [b.scope for b in func.allocs] == [Scope.REGISTER]


def test_every_kind_of_statement_is_its_own_text() -> None:
    text = FLAT.replace("                            pass\n", "")
    assert show(parse(FLAT)) == show(parse(text)) == text


def test_names_are_made_unique() -> None:
    i, j = Var("i"), Var("i")
    c = Buffer("max", (4, 4), f32)
    body = For(i, Const(4), For(j, Const(4), Store(c, (i, j), Const(0.0, f32))))
    text = show(Func("f", (c,), 1, body))
    assert "for i_1 in range(4)" in text and "max_1[i, i_1] = f32(0.0)" in text


def test_lines_know_their_statements() -> None:
    func = parse(MATMUL)
    nodes = {id(s) for s in walk(func.body)}
    found = [node for _, node in lines(func) if node is not None and node is not func]
    assert {id(n) for n in found} == nodes
    assert "".join(f"{text}\n" for text, _ in lines(func)) == MATMUL


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operation_reads_back(name: str) -> None:
    letters = {"p": pred, "s": dtypes.s32, "u": dtypes.u8, "f": f32, "c": dtypes.c64}
    for kind in TABLE[name].kinds:
        b = Buffer("b", (4,), letters[kind])
        args: list[Expr] = [Load(b, (Const(n),)) for n in range(TABLE[name].arity)]
        if name == "select":
            args[0] = Const(True, pred)
        e = build.op(name, *args)
        for value in (e, build.op(CALLS_BACK[CALLS[name]], *args)):
            func = Func("f", (b, c := Buffer("c", (), e.dtype)), 1, Store(c, (), value))
            assert equal(parse(show(func)), func), show(func)


CALLS_BACK = {call: name for name, call in CALLS.items()}


class Draw:
    """Random functions, valid or not: what counts is that they print and read back."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.vars: list[Var] = []
        self.buffers = [self.buffer() for _ in range(3)]

    def name(self) -> str:
        return self.random.choice(["i", "j", "x", "max", "for", "a.b", "", "1", "f32", "i_1"])

    def dtype(self) -> DType:
        return self.random.choice([f32, index, pred, dtypes.c64, dtypes.bf16, dtypes.u8, index])

    def buffer(self) -> Buffer:
        shape = tuple(self.random.choices([1, 3, 4, 16], k=self.random.randrange(3)))
        return Buffer(self.name(), shape, self.dtype())

    def const(self, d: DType) -> Const:
        r = self.random
        floats = [0.0, -0.0, 1.5, -2.25, 1e-30, float("inf"), float("-inf"), float("nan")]
        match d.kind:
            case "pred":
                return Const(r.random() < 0.5, d)
            case "float":
                return Const(r.choice([*floats, 3]), d)
            case "complex":
                return Const(complex(r.choice(floats[:7]), r.choice(floats[:7])), d)
            case _:
                return Const(r.randrange(0 if d.kind == "unsigned" else -100, 100), d)

    def load(self) -> Load:
        b = self.random.choice(self.buffers)
        return Load(b, tuple(self.expr(1, index) for _ in b.shape))

    def expr(self, depth: int, d: DType) -> Expr:
        r = self.random
        names = [n for n, o in TABLE.items() if d.kind[0] in o.kinds and o.result == "same"]
        known: list[Expr] = [v for v in self.vars if v.dtype == d]
        if depth <= 0 or r.random() < 0.2:
            load = self.load() if depth > 0 else None
            if load is not None and load.dtype == d:
                return load
            return r.choice([*known, self.const(d)])
        if d == pred and r.random() < 0.5:
            inner = self.dtype()
            name = r.choice(["eq", "ne"] if inner.kind == "complex" else ["lt", "eq", "ge"])
            return Op(name, (self.expr(depth - 1, inner), self.expr(depth - 1, inner)), pred)
        if r.random() < 0.1:
            return Cast(self.expr(depth - 1, self.dtype()), d, r.random() < 0.5)
        if d == index and r.random() < 0.5:
            a = self.expr(depth - 1, d)
            if r.random() < 0.3:
                return r.choice([build.floordiv, build.floormod])(a, r.randrange(1, 9))
            return r.choice([build.add, build.sub, build.mul])(a, self.expr(depth - 1, d))
        name = r.choice(names)
        args = [self.expr(depth - 1, d) for _ in range(TABLE[name].arity)]
        if name == "select":
            args[0] = self.expr(depth - 1, pred)
        return Op(name, tuple(args), d)

    def notes(self) -> dict[str, int | str]:
        keys = self.random.sample(["grain", "a b", "for", "name", "outputs", "x"], 2)
        values: list[int | str] = [3, -1, 'say "hi"\n', ""]
        return {k: self.random.choice(values) for k in keys if self.random.random() < 0.2}

    def region(self) -> Region:
        b = self.random.choice(self.buffers)
        extent = [Const(1), Const(4), self.expr(1, index)]
        pairs = [(self.expr(2, index), self.random.choice(extent)) for _ in b.shape]
        return Region(b, tuple(Range(s, x) for s, x in pairs))

    def stmt(self, depth: int) -> Stmt:
        r = self.random
        if depth <= 0 or r.random() < 0.2:
            b = r.choice(self.buffers)
            return Store(b, tuple(self.expr(2, index) for _ in b.shape), self.expr(4, b.dtype))
        match r.randrange(9):
            case 0:
                return seq(*(self.stmt(depth - 1) for _ in range(r.randrange(4))))
            case 1:
                orelse = self.stmt(depth - 1) if r.random() < 0.5 else None
                return If(self.expr(3, pred), self.stmt(depth - 1), orelse)
            case 2:
                var = Var(self.name(), self.dtype())
                value = self.expr(3, var.dtype)
                return Let(var, value, self.under(depth, var))
            case 3:
                b = replace(self.buffer(), scope=r.choice(list(Scope)), swizzle=r.choice([0, 4]))
                b = replace(b, align=r.choice([None, (0, 32, r.randrange(9))]))
                self.buffers.append(b)
                body = self.stmt(depth - 1)
                self.buffers.remove(b)
                return Alloc(b, body)
            case 4:
                return self.block(depth)
            case 5:
                boxes = tuple(self.region() for _ in range(r.randrange(4)))
                cut = r.randrange(len(boxes) + 1)
                args = tuple(r.randrange(-2, 9) for _ in range(r.randrange(3)))
                return Intrinsic(r.choice(["barrier", "a b"]), boxes[:cut], boxes[cut:], args)
            case 6:
                return self.all_reduce()
            case _:
                var, kind = Var(self.name()), r.choice(list(Kind))
                thread = "threadIdx.x" if kind is Kind.THREAD else ""
                extent = self.expr(2, index)
                return For(var, extent, self.under(depth, var), kind, thread, self.notes())

    def all_reduce(self) -> AllReduce:
        values = tuple(self.random.sample(self.buffers, self.random.randrange(1, 3)))
        left, right = (tuple(Var(self.name(), b.dtype) for b in values) for _ in range(2))
        self.vars.extend((*left, *right))
        combined = tuple(self.expr(2, b.dtype) for b in values)
        del self.vars[len(self.vars) - 2 * len(values) :]
        return AllReduce(values, left, right, combined, self.random.randrange(1, 64))

    def under(self, depth: int, *new: Var) -> Stmt:
        self.vars.extend(new)
        body = self.stmt(depth - 1)
        del self.vars[len(self.vars) - len(new) :]
        return body

    def block(self, depth: int) -> Block:
        r = self.random
        values = [self.expr(2, index) for _ in range(r.randrange(3))]
        axes = tuple(
            BlockAxis(Var(self.name()), r.randrange(9), r.choice(list(AxisKind)), v) for v in values
        )
        new = [a.var for a in axes]
        self.vars.extend(new)
        reads, writes = (tuple(self.region() for _ in range(r.randrange(3))) for _ in range(2))
        predicate = self.expr(2, pred) if r.random() < 0.3 else None
        del self.vars[len(self.vars) - len(new) :]
        init = self.under(depth, *new) if r.random() < 0.3 else None
        body = self.under(depth, *new)
        name = r.choice(["b", "conv.1"])
        return Block(name, axes, reads, writes, body, init, predicate, self.notes())

    def func(self) -> Func:
        allocs = tuple(replace(self.buffer(), scope=s) for s in (Scope.GLOBAL, Scope.REGISTER))
        params, n = tuple(self.buffers), Var("n")
        self.buffers.extend(allocs)
        body = self.under(5, n)
        name = self.random.choice(["main", "fused.3", "for"])
        return Func(name, params, 1, body, allocs, (n,), self.notes())


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_random_functions_round_trip(seed: int) -> None:
    func = Draw(seed).func()
    text = show(func)
    again = parse(text)
    assert equal(again, func), text
    assert show(again) == text


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_equality_is_up_to_renaming_only(seed: int) -> None:
    func = Draw(seed).func()
    renamed = replace(func, body=_renamed(func.body))
    assert equal(func, renamed)
    more = Store(func.params[0], (), Const(0.0, f32))
    assert not equal(func, replace(func, body=seq(func.body, more)))
    bumped = _negated(func.body)
    assert equal(func, replace(func, body=bumped)) == (show(func.body) == show(bumped))


def _renamed(s: Stmt) -> Stmt:
    s = map_stmt(s, _renamed, lambda e: e)
    if isinstance(s, For):
        fresh = Var("fresh")
        return replace(s, var=fresh, body=substitute(s.body, {s.var: fresh}))
    return s


def _negated(s: Stmt) -> Stmt:
    return map_stmt(s, _negated, lambda e: build.op("negate", e))


def test_equality_tells_programs_apart() -> None:
    i, j, c = Var("i"), Var("j"), Buffer("c", (4, 4), f32)
    zero = Const(0.0, f32)
    assert equal(Store(c, (i, j), zero), Store(Buffer("d", (4, 4), f32), (j, i), zero))
    assert not equal(Store(c, (i, i), zero), Store(c, (i, j), zero))
    assert not equal(Store(c, (i, j), zero), Store(c, (i, i), zero))
    assert not equal(zero, Const(-0.0, f32))
    assert equal(Const(float("nan"), f32), Const(float("nan"), f32))


HEAD = "@func(outputs=1)\ndef m(A: f32[8], C: f32[8]):\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    C[i] = A[0]\n", "<text>:3:7: i is not a variable that is known here"),
        ("    D[0] = A[0]\n", "<text>:3:5: D is not a buffer that is known here"),
        ("    C[0] = 1.5\n", "<text>:3:12: not an expression of the loop IR: `1.5`"),
        ("    C[0] = f32(1, 2)\n", "<text>:3:12: not a literal of f32"),
        ("    C[0] = exp(A[0], A[1])\n", "<text>:3:12: exp takes 1 operands, not 2"),
        ("    C[0] = foo(A[0])\n", "<text>:3:12: foo is not an operation"),
        ("    C[9223372036854775808] = A[0]\n", "<text>:3:7: the integer does not fit"),
        ("    while True:\n        pass\n", "<text>:3:5: not a statement of the loop IR"),
        ("    for i in walk(8):\n        pass\n", "<text>:3:5: not a loop"),
        ("    x = 3\n    C[0] = A[0]\n", "<text>:3:5: not a statement of the loop IR: `x = 3`"),
        ("    x = f32(3)\n", "<text>:3:5: x = ... must be a let or an alloc"),
        ("    with block('b'):\n        pass\n", "<text>:3:5: block b lacks reads(...)"),
        ("    for A in range(3):\n        pass\n", "<text>:3:5: A is already defined"),
        ("    C[0] = A[0] if A else A[1]\n", "<text>:3:12: not an expression"),
        ("    C[0] = (lambda: 3)()\n", "<text>:3:12: lambda: 3 is not an operation"),
        ("    intrinsic(barrier)\n", "<text>:3:5: an intrinsic has a name"),
        ("    intrinsic('x', other(A[0]))\n", "<text>:3:5: not an intrinsic"),
        ("    all_reduce(2, A, lambda x: x)\n", "<text>:3:5: the lambda has 1 plain names: two"),
        ("    all_reduce(2, A, lambda x, y=1: x)\n", "<text>:3:5: the lambda has 2 plain names"),
        ("    all_reduce(2, A, max)\n", "<text>:3:5: not a reduction"),
        ("    T = alloc(f32[8], align=(0, 8))\n", "<text>:3:29: an alignment is (dimension, "),
        ("    T = alloc(f32[8], swizzle='x')\n", "<text>:3:9: not an allocation"),
        ("    C[0] = A[0\n", "<text>:3:13: not Python syntax: '[' was never closed"),
    ],
)
def test_refusals_tell_the_place(body: str, message: str) -> None:
    with pytest.raises(ParseError) as e:
        parse(HEAD + body)
    assert str(e.value).startswith(message)


@pytest.mark.parametrize("text", ["", "x = 1", "def f(): pass", "\0", "@func(outputs=9)\n" + HEAD])
def test_what_is_no_function_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize(
    "body",
    [
        "    C[0] = " + "-" * 5000 + "A[0]\n",
        "    C[0] = " + "(" * 300 + "A[0]" + ")" * 300 + "\n",
        "    C[0] = " + "exp(" * 199 + "A[0]" + ")" * 199 + "\n",
        "    C[0] = A[0]" + " + A[0]" * 5000 + "\n",
        "".join("    " * (n + 1) + f"for i{n} in range(2):\n" for n in range(99))
        + "    " * 100
        + "exp(C[0]\n",
    ],
)
def test_too_deep_is_refused(body: str) -> None:
    with pytest.raises(ParseError) as e:
        parse(HEAD + body)
    assert "<text>:" in e.value.where


def test_depth_that_programs_have_is_read() -> None:
    deep = "exp(" * 60 + "A[0]" + ")" * 60
    assert show(parse(f"{HEAD}    C[0] = {deep}\n")) == f"{HEAD}    C[0] = {deep}\n"
