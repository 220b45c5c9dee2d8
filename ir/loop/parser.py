"""Loop IR text -> Func. The text is Python syntax; nothing of it is executed.

Names are scoped as in the tree: a loop variable, a block axis or a ``let`` is known in the body it
governs. ``x = let(...)`` and ``T = alloc(...)`` govern the rest of their suite, the same after
``with ... as`` the indented one; leading ``alloc``s of a function are its intermediate buffers.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from ..dtypes import BY_NAME
from ..errors import ParseError
from .expressions import ExpressionReader, callee, items
from .nodes import (
    Alloc,
    AllReduce,
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Intrinsic,
    Kind,
    Let,
    NoteValue,
    Region,
    Scope,
    Stmt,
    Store,
    Var,
)
from .notes import of_function
from .visit import seq

MAX_TEXT = 16 << 20
_KINDS = {k.value: k for k in Kind}
_AXES = {k.value: k for k in AxisKind}


def parse(text: str, source: str = "<text>") -> Func:
    """Return the function that a text describes.

    ``ParseError`` with line and column if it describes none.
    """
    if len(text) > MAX_TEXT:
        raise ParseError("the text is too long", f"more than {MAX_TEXT} characters", source)
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        where = f"{source}:{e.lineno or 1}:{e.offset or 1}"
        raise ParseError("not Python syntax", e.msg, where) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise ParseError("unreadable text", str(e), f"{source}:1:1") from None
    reader = _FunctionReader(source)
    match tree.body:
        case [ast.FunctionDef() as f]:
            try:
                return reader.func(f)
            except RecursionError:
                raise ParseError("nested too deeply", where=f"{source}:{f.lineno}:1") from None
        case _:
            raise ParseError("one function is expected", where=f"{source}:1:1")


@dataclass(slots=True)
class _BlockHead:
    """The lines at the head of a block, as far as they are read."""

    axes: tuple[BlockAxis, ...] = ()
    predicate: Expr | None = None
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    init: Stmt | None = None


class _FunctionReader(ExpressionReader):
    """Reads one function: its statements, blocks and buffers."""

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
        return Func(str(name), params, outputs, inner, allocs, symbols, of_function(notes))

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
                    callee(call) == "alloc"
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
                known = scope in [x.value for x in Scope] and not notes and len(align) <= 1
                if known and isinstance(swizzle, int):
                    buffer = self.buffer(name, kind, Scope(scope))
                    return replace(buffer, align=align[0] if align else None, swizzle=swizzle)
        scopes = ", ".join(x.value for x in Scope)
        self.fail(call, "not an allocation", hint=f'alloc(f32[64], scope="...") of {scopes}')

    def triple(self, node: ast.expr) -> tuple[int, int, int]:
        match [self.integer(x) for x in items(node)]:
            case [a, b, c]:
                return a, b, c
        self.fail(node, "an alignment is (dimension, factor, offset)")

    def buffer(self, name: str, kind: ast.Subscript, scope: Scope = Scope.GLOBAL) -> Buffer:
        shape = tuple(self.integer(x) for x in items(kind.slice))
        if any(n < 0 for n in shape):
            self.fail(kind, "a negative extent")
        return Buffer(name, shape, self.dtype(kind.value), scope)

    def notes(self, keywords: Sequence[ast.keyword]) -> dict[str, NoteValue]:
        result: dict[str, NoteValue] = {}
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

    def note(self, node: ast.expr) -> NoteValue:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Tuple(elts=items):
                with self.names(node):
                    return cast("NoteValue", tuple(map(self.note, items)))
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
        """Return a ``let`` or ``alloc`` called ``name`` over ``body``."""
        match callee(call), call.args:
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
                    case None if callee(call) == "block":
                        return self.block(s, call)
            case ast.Expr(value=ast.Call(keywords=[]) as call) if callee(call) == "intrinsic":
                return self.intrinsic(call)
            case ast.Expr(value=ast.Call(keywords=[]) as call) if callee(call) == "all_reduce":
                return self.all_reduce(call)
        self.fail(s, "not a statement of the loop IR", f"`{ast.unparse(s)[:60]}`")

    def loop(self, s: ast.For, name: str, call: ast.Call) -> For:
        kind, args, thread = _KINDS.get(callee(call)), call.args, ""
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
                lists = {callee(p): p.args for p in parts if isinstance(p, ast.Call)}
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
            combined = tuple(map(self.expr, [body] if n == 1 else items(body)))
        return AllReduce(buffers, new[:n], new[n:], combined, self.integer(threads))

    def block(self, s: ast.With, call: ast.Call) -> Block:
        match call.args:
            case [ast.Constant(value=str(name))]:
                notes = self.notes(call.keywords)
            case _:
                self.fail(call, "a block has a name", hint='with block("C"):')
        parts = _BlockHead()
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
        """Return the axes on the first line of a block; none if the line is something else."""
        targets, values = items(target), items(value)
        calls = [v for v in values if isinstance(v, ast.Call) and callee(v) in _AXES]
        if not calls:
            return ()
        if len(calls) != len(values) or len(targets) != len(values):
            self.fail(target, "each axis has one spatial(...) or reduce(...)")
        result = []
        for t, call in zip(targets, calls, strict=True):
            if not isinstance(t, ast.Name) or len(call.args) != 2 or call.keywords:
                self.fail(call, "not an axis", hint="vi = spatial(64, i)")
            extent, e = self.integer(call.args[0]), self.expr(call.args[1])
            result.append(BlockAxis(Var(t.id), extent, _AXES[callee(call)], e))
        return tuple(result)

    def head(self, s: ast.stmt, parts: _BlockHead) -> bool:
        """Read ``s`` into ``parts`` if it is a line at the head of a block; False if it is not."""
        match s:
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if (
                callee(call) == "init" and parts.init is None
            ):
                parts.init = self.suite(s.body)
            case ast.Expr(value=ast.Call(args=[cond]) as call) if callee(call) == "where":
                parts.predicate = self.expr(cond)
            case ast.Expr(value=ast.Call() as call) if callee(call) == "reads":
                parts.reads = tuple(map(self.region, call.args))
            case ast.Expr(value=ast.Call() as call) if callee(call) == "writes":
                parts.writes = tuple(map(self.region, call.args))
            case _:
                return False
        return True
