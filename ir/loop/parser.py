"""Loop IR text -> Func. The text is Python syntax; nothing of it is executed.

Names are scoped as in the tree: a loop variable, a block axis or a ``let`` is known in the body it
governs. ``x = let(...)`` and ``T = alloc(...)`` govern the rest of their suite, the same after
``with ... as`` the indented one; leading ``alloc``s of a function are its intermediate buffers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

from ..dtypes import BY_NAME, DType, index, pred
from ..elementwise import TABLE
from ..errors import ParseError
from . import build
from .affine import HIGH, LOW, linear
from .nodes import (
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
    Scalar,
    Scope,
    Stmt,
    Store,
    Var,
)
from .printer import CALLS, INFIX
from .visit import seq

N = TypeVar("N", Var, Buffer)

MAX_TEXT = 16 << 20
MAX_DEPTH = 200
_NAMED = {call: name for name, call in CALLS.items()}
_SIGNS = {sign: name for name, (sign, _) in INFIX.items()}
_BINARY: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_KINDS = {k.value: k for k in Kind}
_AXES = {k.value: k for k in AxisKind}
_WORDS = {"inf": float("inf"), "nan": float("nan")}


def parse(text: str, source: str = "<text>") -> Func:
    """The function that ``text`` describes. ``ParseError`` with line and column if it does not."""
    if len(text) > MAX_TEXT:
        raise ParseError("the text is too long", f"more than {MAX_TEXT} characters", source)
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        where = f"{source}:{e.lineno or 1}:{e.offset or 1}"
        raise ParseError("not Python syntax", e.msg, where) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise ParseError("unreadable text", str(e), f"{source}:1:1") from None
    reader = _Reader(source)
    match tree.body:
        case [ast.FunctionDef() as f]:
            try:
                return reader.func(f)
            except RecursionError:
                raise ParseError("nested too deeply", where=f"{source}:{f.lineno}:1") from None
        case _:
            raise ParseError("one function is expected", where=f"{source}:1:1")


@dataclass(slots=True)
class _Parts:
    """What the lines at the head of a block say."""

    axes: tuple[BlockAxis, ...] = ()
    predicate: Expr | None = None
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    init: Stmt | None = None


class _Reader:
    """Reads one function; knows which names are visible."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.scope: dict[str, Var | Buffer] = {}
        self.depth = 0

    def fail(self, node: ast.AST, what: str, why: str = "", hint: str = "") -> NoReturn:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        raise ParseError(what, why, f"{self.source}:{line}:{column}", hint)

    @contextmanager
    def names(self, node: ast.AST, *new: tuple[str, Var | Buffer]) -> Iterator[None]:
        """``new`` names are visible, and the text nests no deeper than it may."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(node, "nested too deeply", f"more than {MAX_DEPTH} levels")
        for name, value in new:
            if name in self.scope:
                self.fail(node, f"{name} is already defined", hint="rename one of the two")
            self.scope[name] = value
        yield
        for name, _ in new:
            del self.scope[name]
        self.depth -= 1

    # Functions

    def func(self, f: ast.FunctionDef) -> Func:
        match f.decorator_list:
            case [ast.Call(func=ast.Name(id="func"), args=[], keywords=keywords)]:
                own = self.notes([k for k in keywords if k.arg in ("outputs", "name")])
                notes = self.notes([k for k in keywords if k.arg not in ("outputs", "name")])
            case _:
                self.fail(f, "a function starts with @func(outputs=N)")
        outputs, name = own.get("outputs", 1), own.get("name", f.name)
        new = [(a.arg, self.param(a)) for a in f.args.args]
        params = tuple(b for _, b in new if isinstance(b, Buffer))
        symbols = tuple(v for _, v in new if isinstance(v, Var))
        if not isinstance(outputs, int) or not 0 <= outputs <= len(params):
            self.fail(f, f"outputs={outputs} is not a number of parameters")
        allocs, body = self.allocs(f.body)
        with self.names(f, *new, *((b.name, b) for b in allocs)):
            inner = self.suite(body)
        return Func(str(name), params, outputs, inner, allocs, symbols, notes)

    def param(self, a: ast.arg) -> Buffer | Var:
        match a.annotation:
            case ast.Name(id=name) if name in BY_NAME:
                return Var(a.arg, BY_NAME[name])
            case ast.Subscript() as kind:
                return self.buffer(a.arg, kind)
            case _:
                self.fail(a, f"{a.arg} needs a type", hint="such as f32[64, 32], or s64 (a symbol)")

    def allocs(self, body: Sequence[ast.stmt]) -> tuple[tuple[Buffer, ...], Sequence[ast.stmt]]:
        found: list[Buffer] = []
        for n, s in enumerate(body):
            match s:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                    _callee(call) == "alloc"
                ):
                    found.append(self.alloc(name, call))
                case _:
                    return tuple(found), body[n:]
        self.fail(body[-1], "the function has no body", hint="write pass")

    def alloc(self, name: str, call: ast.Call) -> Buffer:
        match call:
            case ast.Call(args=[ast.Subscript() as kind], keywords=keywords):
                align = [self.triple(k.value) for k in keywords if k.arg == "align"]
                notes = self.notes([k for k in keywords if k.arg != "align"])
                scope, swizzle = notes.pop("scope", Scope.GLOBAL.value), notes.pop("swizzle", 0)
                known = scope in [x.value for x in Scope] and isinstance(swizzle, int)
                if known and not notes and len(align) <= 1:
                    buffer = self.buffer(name, kind, Scope(scope))
                    return replace(buffer, align=align[0] if align else None, swizzle=int(swizzle))
        scopes = ", ".join(x.value for x in Scope)
        self.fail(call, "not an allocation", hint=f'alloc(f32[64], scope="...") of {scopes}')

    def triple(self, node: ast.expr) -> tuple[int, int, int]:
        match [self.integer(x) for x in _items(node)]:
            case [a, b, c]:
                return a, b, c
        self.fail(node, "an alignment is (dimension, factor, offset)")

    def buffer(self, name: str, kind: ast.Subscript, scope: Scope = Scope.GLOBAL) -> Buffer:
        shape = tuple(self.integer(x) for x in _items(kind.slice))
        if any(n < 0 for n in shape):
            self.fail(kind, "a negative extent")
        return Buffer(name, shape, self.dtype(kind.value), scope)

    def dtype(self, node: ast.expr) -> DType:
        if isinstance(node, ast.Name) and node.id in BY_NAME:
            return BY_NAME[node.id]
        self.fail(node, f"{ast.unparse(node)[:40]} is not an element type")

    def integer(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=value) if type(value) is int:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.integer(operand)
            case _:
                self.fail(node, "an integer is expected")

    def notes(self, keywords: Sequence[ast.keyword]) -> dict[str, int | str]:
        result: dict[str, int | str] = {}
        for k in keywords:
            match k:
                case ast.keyword(arg=str(name), value=value):
                    result[name] = self.note(value)
                case ast.keyword(arg=None, value=ast.Dict(keys=keys, values=values)):
                    for key, value in zip(keys, values, strict=True):
                        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                            self.fail(value, "a note's name is a string")
                        result[key.value] = self.note(value)
                case _:
                    self.fail(k, "notes are written key=value")
        return result

    def note(self, node: ast.expr) -> int | str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case _:
                return self.integer(node)

    # Statements

    def suite(self, body: Sequence[ast.stmt]) -> Stmt:
        done: list[Stmt] = []
        for n, s in enumerate(body):
            match s:
                case ast.Pass():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    done.append(self.named(s, name, call, body[n + 1 :]))
                    break
                case _:
                    done.append(self.stmt(s))
        return seq(*done)

    def named(self, s: ast.stmt, name: str, call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        """A ``let`` or ``alloc`` called ``name`` over ``body``."""
        match _callee(call), call.args:
            case "let", [dtype, value] if not call.keywords:
                var, e = Var(name, self.dtype(dtype)), self.expr(value)
                with self.names(s, (name, var)):
                    return Let(var, e, self.suite(body))
            case "alloc", _:
                buffer = self.alloc(name, call)
                with self.names(s, (name, buffer)):
                    return Alloc(buffer, self.suite(body))
            case _:
                self.fail(s, f"{name} = ... must be a let or an alloc", hint="let(f32, value)")

    def stmt(self, s: ast.stmt) -> Stmt:
        match s:
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                buffer, ix = self.element(target)
                return Store(buffer, ix, self.expr(value))
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]):
                return self.loop(s, name, call)
            case ast.If(test=test, body=then, orelse=orelse):
                cond = self.expr(test)
                with self.names(s):
                    return If(cond, self.suite(then), self.suite(orelse) if orelse else None)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=to)]):
                match to:
                    case ast.Name(id=name):
                        return self.named(s, name, call, s.body)
                    case None if _callee(call) == "block":
                        return self.block(s, call)
            case ast.Expr(value=ast.Call(keywords=[]) as call) if _callee(call) == "intrinsic":
                return self.intrinsic(call)
            case ast.Expr(value=ast.Call(keywords=[]) as call) if _callee(call) == "all_reduce":
                return self.all_reduce(call)
        self.fail(s, "not a statement of the loop IR", f"`{ast.unparse(s)[:60]}`")

    def loop(self, s: ast.For, name: str, call: ast.Call) -> For:
        kind, args, thread = _KINDS.get(_callee(call)), call.args, ""
        if kind is Kind.THREAD and len(args) == 2:
            thread, args = str(self.note(args[0])), args[1:]
        if kind is None or len(args) != 1:
            self.fail(s, "not a loop", hint="for i in range(8): also parallel, vectorize, unroll")
        extent, notes, var = self.expr(args[0]), self.notes(call.keywords), Var(name)
        with self.names(s, (name, var)):
            return For(var, extent, self.suite(s.body), kind, thread, notes)

    def intrinsic(self, call: ast.Call) -> Intrinsic:
        match call.args:
            case [ast.Constant(value=str(name)), *parts]:
                lists = {_callee(p): p.args for p in parts if isinstance(p, ast.Call)}
            case _:
                self.fail(call, "an intrinsic has a name", hint='intrinsic("barrier")')
        if len(lists) != len(parts) or not lists.keys() <= {"writes", "reads", "args"}:
            self.fail(call, "not an intrinsic", hint="writes(...), reads(...), args(...)")
        writes, reads = (tuple(map(self.region, lists.get(w, ()))) for w in ("writes", "reads"))
        return Intrinsic(name, writes, reads, tuple(map(self.integer, lists.get("args", ()))))

    def all_reduce(self, call: ast.Call) -> AllReduce:
        match call.args:
            case [threads, *values, ast.Lambda(args=ast.arguments(args=names) as given, body=body)]:
                buffers = tuple(self.lookup(v, Buffer) for v in values)
            case _:
                self.fail(call, "not a reduction", hint="all_reduce(32, S, lambda a, b: a + b)")
        n = len(buffers)
        if len(names) != 2 * n or ast.unparse(given) != ", ".join(a.arg for a in names):
            self.fail(call, f"the lambda has {len(names)} plain names", "two for each buffer")
        new = tuple(Var(a.arg, b.dtype) for a, b in zip(names, 2 * buffers, strict=True))
        with self.names(call, *((v.name, v) for v in new)):
            combined = tuple(map(self.expr, [body] if n == 1 else _items(body)))
        return AllReduce(buffers, new[:n], new[n:], combined, self.integer(threads))

    def block(self, s: ast.With, call: ast.Call) -> Block:
        match call.args:
            case [ast.Constant(value=str(name))]:
                notes = self.notes(call.keywords)
            case _:
                self.fail(call, "a block has a name", hint='with block("C"):')
        parts = _Parts()
        rest = list(s.body)
        match rest[0]:
            case ast.Assign(targets=[target], value=value) if not isinstance(target, ast.Subscript):
                axes = self.axes(target, value)
                if axes:
                    parts.axes, rest = axes, rest[1:]
        with self.names(s, *((a.var.name, a.var) for a in parts.axes)):
            while rest and self.head(rest[0], parts):
                rest.pop(0)
            if parts.reads is None or parts.writes is None:
                self.fail(s, f"block {name} lacks reads(...) or writes(...)")
            body = self.suite(rest)
        p = parts
        return Block(name, p.axes, p.reads or (), p.writes or (), body, p.init, p.predicate, notes)

    def axes(self, target: ast.expr, value: ast.expr) -> tuple[BlockAxis, ...]:
        """The axes on the first line of a block; none if the line is something else."""
        targets, values = _items(target), _items(value)
        calls = [v for v in values if isinstance(v, ast.Call) and _callee(v) in _AXES]
        if not calls:
            return ()
        if len(calls) != len(values) or len(targets) != len(values):
            self.fail(target, "each axis has one spatial(...) or reduce(...)")
        result = []
        for t, call in zip(targets, calls, strict=True):
            if not isinstance(t, ast.Name) or len(call.args) != 2 or call.keywords:
                self.fail(call, "not an axis", hint="vi = spatial(64, i)")
            extent, e = self.integer(call.args[0]), self.expr(call.args[1])
            result.append(BlockAxis(Var(t.id), extent, _AXES[_callee(call)], e))
        return tuple(result)

    def head(self, s: ast.stmt, parts: _Parts) -> bool:
        """Whether ``s`` is one of the lines at the head of a block, which then go to ``parts``."""
        match s:
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if (
                _callee(call) == "init" and parts.init is None
            ):
                parts.init = self.suite(s.body)
            case ast.Expr(value=ast.Call(args=[cond]) as call) if _callee(call) == "where":
                parts.predicate = self.expr(cond)
            case ast.Expr(value=ast.Call() as call) if _callee(call) == "reads":
                parts.reads = tuple(map(self.region, call.args))
            case ast.Expr(value=ast.Call() as call) if _callee(call) == "writes":
                parts.writes = tuple(map(self.region, call.args))
            case _:
                return False
        return True

    def region(self, node: ast.expr) -> Region:
        if not isinstance(node, ast.Subscript):
            self.fail(node, "not a region", hint="A[vi, 0 : 4]")
        ranges = tuple(map(self.range, _items(node.slice)))
        return Region(self.lookup(node.value, Buffer), ranges)

    def range(self, node: ast.expr) -> Range:
        if not isinstance(node, ast.Slice):
            return Range(self.expr(node), Const(1))
        if node.lower is None or node.upper is None or node.step is not None:
            self.fail(node, "not a range", hint="start : start + extent")
        start, stop = self.expr(node.lower), self.expr(node.upper)
        match stop:
            case Op(name="add", args=(again, extent)) if again == start:
                return Range(start, extent)
        form = linear(stop) - linear(start)
        if form.terms:
            self.fail(node, "the extent of a range is not clear", hint="start : start + extent")
        return Range(start, Const(form.constant))

    # Expressions

    def element(self, node: ast.Subscript) -> tuple[Buffer, tuple[Expr, ...]]:
        return self.lookup(node.value, Buffer), tuple(map(self.expr, _items(node.slice)))

    def lookup(self, node: ast.expr, kind: type[N]) -> N:
        name = node.id if isinstance(node, ast.Name) else ""
        found = self.scope.get(name)
        if not isinstance(found, kind):
            word = "variable" if kind is Var else "buffer"
            self.fail(node, f"{ast.unparse(node)[:40]} is not a {word} that is known here")
        return found

    def expr(self, node: ast.expr) -> Expr:
        with self.names(node):
            return self._expr(node)

    def _expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool(value)):
                return Const(value, pred)
            case ast.Constant(value=int(value)):
                return self.literal(node, index, value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return self.literal(node, index, -value)
            case ast.Name():
                return self.lookup(node, Var)
            case ast.Subscript():
                return Load(*self.element(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.op(node, "negate", self.expr(operand))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return self.op(node, "not", self.expr(operand))
            case ast.BoolOp(op=word, values=values):
                return self.logic(node, "and" if isinstance(word, ast.And) else "or", values)
            case ast.BinOp(left=left, op=sign, right=right):
                return self.binary(node, sign, left, right)
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self.binary(node, sign, left, right)
            case ast.Call(keywords=[]):
                return self.call(node)
        self.fail(node, "not an expression of the loop IR", f"`{ast.unparse(node)[:60]}`")

    def literal(self, node: ast.AST, dtype: DType, value: int) -> Const:
        if not LOW <= value <= HIGH:
            self.fail(node, "the integer does not fit", f"{dtype} holds {LOW} to {HIGH}")
        return Const(value, dtype)

    def logic(self, node: ast.expr, name: str, values: Sequence[ast.expr]) -> Expr:
        first, *rest = map(self.expr, values)
        for x in rest:
            first = self.op(node, name, first, x)
        return first

    def binary(self, node: ast.expr, sign: ast.AST, left: ast.expr, right: ast.expr) -> Expr:
        name = _SIGNS.get(_BINARY.get(type(sign), ""))
        if name is None:
            self.fail(node, f"no such operator: {type(sign).__name__}")
        match name, right:
            case "subtract", ast.Constant(value=int(value)) if type(value) is int:
                a = self.expr(left)
                if a.dtype == index:
                    return self.op(node, "add", a, self.literal(right, index, -value))
        return self.op(node, name, self.expr(left), self.expr(right))

    def op(self, node: ast.expr, name: str, *args: Expr) -> Expr:
        if len(args) != TABLE[name].arity:
            self.fail(node, f"{CALLS[name]} takes {TABLE[name].arity} operands, not {len(args)}")
        return build.op(name, *args)

    def call(self, node: ast.Call) -> Expr:
        name = _callee(node)
        match name, node.args:
            case "cast" | "bitcast", [dtype, value]:
                return Cast(self.expr(value), self.dtype(dtype), name == "bitcast")
            case _, args if name in BY_NAME and args:
                return Const(self.scalar(node, BY_NAME[name]), BY_NAME[name])
            case _, args if name in _NAMED:
                return self.op(node, _NAMED[name], *map(self.expr, args))
        self.fail(node, f"{name or ast.unparse(node.func)[:40]} is not an operation")

    def scalar(self, node: ast.Call, dtype: DType) -> Scalar:
        """The value in ``f32(1.0)``, ``c64(0.0, 1.0)`` or ``u8(7)``."""
        values = [self.number(x) for x in node.args]
        match dtype.kind, values:
            case "complex", [real, imag]:
                return complex(real, imag)
            case "float", [value]:
                return value
            case "signed" | "unsigned", [int(value)]:
                low = 0 if dtype.kind == "unsigned" else -(1 << (dtype.bits - 1))
                if low <= value < low + (1 << dtype.bits):
                    return value
        self.fail(node, f"not a literal of {dtype}")

    def number(self, node: ast.expr) -> int | float:
        match node:
            case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
                return value
            case ast.Name(id=name) if name in _WORDS:
                return _WORDS[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case _:
                self.fail(node, "a number is expected")


def _callee(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _items(node: ast.expr) -> list[ast.expr]:
    """The items of ``a, b``; of a lone ``a``, itself; of ``()``, none."""
    return node.elts if isinstance(node, ast.Tuple) else [node]
