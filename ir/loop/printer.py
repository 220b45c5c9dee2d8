"""Loop IR as text: a subset of Python syntax that ``parser.parse`` reads back.

Loops go by their roles (``names``). Every parameter, intermediate buffer and loop around blocks has
a name of its own: two called ``i`` print as ``i`` and ``i_1``, the older first, and by the name
that is printed a user may refer to a loop. What else is named has its name where it is known, and
after that the name is free again. ``show(parse(show(f))) == show(f)``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Collection, Iterable
from typing import TypeAlias, assert_never

from ..dtypes import BY_NAME, index
from ..elementwise import TABLE
from . import build
from .names import called
from .nodes import (
    Alloc,
    AllReduce,
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
    Notes,
    NoteValue,
    Op,
    Range,
    Region,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from .visit import children, walk

Node: TypeAlias = Func | Stmt | Expr
Line: TypeAlias = tuple[str, Func | Stmt | None]

SHORT: dict[str, str] = {
    "maximum": "max",
    "minimum": "min",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "log-plus-one": "log1p",
    "logistic": "sigmoid",
    "sine": "sin",
    "cosine": "cos",
    "power": "pow",
    "round-nearest-even": "rint",
    "round-nearest-afz": "round",
    "not": "invert",
    "and": "bitand",
    "or": "bitor",
}
CALLS: dict[str, str] = {name: SHORT.get(name, name.replace("-", "_")) for name in TABLE}
"""The function name under which each operation of the table can always be written."""

INFIX: dict[str, tuple[str, int]] = {
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "or": ("|", 5),
    "xor": ("^", 6),
    "and": ("&", 7),
    "shift-left": ("<<", 8),
    "add": ("+", 9),
    "subtract": ("-", 9),
    "multiply": ("*", 10),
    "divide": ("/", 10),
    "floordiv": ("//", 10),
    "floormod": ("%", 10),
}
"""Operations written between their operands, and how tightly they bind, as in Python."""

COMPARISON, UNARY, ATOM = 4, 11, 12
LOGIC: dict[str, tuple[str, int]] = {"or": ("or", 1), "and": ("and", 2)}

RESERVED = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, *BY_NAME, *CALLS.values(), *(k.value for k in Kind)}
    | {"func", "alloc", "block", "spatial", "reduce", "where", "reads", "writes", "init", "let"}
    | {"cast", "bitcast", "inf", "nan", "intrinsic", "args", "all_reduce"}
)


def show(node: Node) -> str:
    """Return the text of a function or statement (lines end in a newline), or of an expression."""
    if not isinstance(node, Expr):
        return "".join(f"{text}\n" for text, _ in lines(node))
    return _LoopPrinter().expr(node)


def lines(node: Func | Stmt) -> list[Line]:
    """Return the lines of ``show(node)``, each with the statement (or function) that it begins.

    A line that begins none, such as ``reads(...)`` or ``else:``, comes with None.
    """
    return _lines(node, _LoopPrinter())


def canonical(func: Func) -> str:
    """Return the text by which a function is known in logs: as ``show``, but for names.

    Every variable has the name that it was given, with a number in the order of first appearance.
    """
    return "".join(f"{text}\n" for text, _ in _lines(func, _LoopPrinter(by_role=False)))


def loop_names(func: Func, loops: Iterable[For] | None = None) -> dict[Var, str]:
    """Return the names of the loops around blocks, as ``show`` prints them.

    A caller that knows these ``loops`` spares the search for them.
    """
    writer = _LoopPrinter()
    for b in (*func.params, *func.allocs):
        writer.name(b)
    for v in func.symbols:
        writer.name(v)
    writer.name_loops(_around_blocks(func.body) if loops is None else loops)
    return {v: writer.names[v] for v in writer.kept}


def _lines(node: Func | Stmt, writer: _LoopPrinter) -> list[Line]:
    if isinstance(node, Func):
        writer.func(node)
    else:
        writer.name_loops(_around_blocks(node))
        writer.stmt(node, 0)
    return writer.lines


def _around_blocks(s: Stmt) -> list[For]:
    """Return the loops that a schedule can rewrite: there are none once blocks are lowered."""
    if not any(isinstance(x, Block) for x in walk(s)):
        return []
    found: list[For] = []

    def visit(s: Stmt) -> None:
        if isinstance(s, For):
            found.append(s)
        if not isinstance(s, Block):
            for child in children(s):
                visit(child)

    visit(s)
    return found


def _identifier(name: str) -> str:
    if name.isascii() and name.isidentifier():
        return name
    base = re.sub(r"[^0-9A-Za-z_]", "_", name) or "v"
    return f"_{base}" if base[0].isdigit() else base


class _LoopPrinter:
    """Collects lines; remembers the name of every variable and buffer.

    Without ``by_role``, names are given in the order of first appearance and never twice.
    """

    def __init__(self, by_role: bool = True) -> None:
        self.by_role = by_role
        self.kept: dict[Var, None] = {}
        self.lines: list[Line] = []
        self.names: dict[Var | Buffer, str] = {}
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}

    def name_loops(self, loops: Iterable[For]) -> None:
        """Name the loops around blocks, for as long as anything is printed."""
        for x in sorted(loops, key=lambda x: x.var.number) if self.by_role else ():
            self.kept[x.var] = None
            self.name(x.var, called(x))

    def forget(self, *known: Var | Buffer) -> None:
        """Others may have the names of what is not known any more."""
        for v in known if self.by_role else ():
            if v not in self.kept and v in self.names:
                self.taken.discard(self.names.pop(v))
                self.counts.clear()

    def name(self, x: Var | Buffer, wanted: str = "") -> str:
        known = self.names.get(x)
        if known is not None:
            return known
        name = base = _identifier(wanted or x.name)
        n = self.counts.get(base, 0)
        while name in self.taken or name in RESERVED:
            n += 1
            name = f"{base}_{n}"
        self.counts[base] = n
        self.taken.add(name)
        self.names[x] = name
        return name

    def put(self, depth: int, text: str, node: Func | Stmt | None = None) -> None:
        self.lines.append(("    " * depth + text, node))

    def func(self, f: Func) -> None:
        name = re.sub(r"[^0-9A-Za-z_]", "_", f.name) or "_"
        name = f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
        known: dict[str, NoteValue] = {"outputs": f.outputs}
        if name != f.name:
            known["name"] = f.name
        params = [f"{self.name(b)}: {buffer_type(b)}" for b in f.params]
        params += [f"{self.name(v)}: {v.dtype}" for v in f.symbols]
        self.put(
            0, f"@func({', '.join([*arguments(known), *keywords(f.notes, ('outputs', 'name'))])})"
        )
        self.put(0, f"def {name}({', '.join(params)}):", f)
        for b in f.allocs:
            self.put(1, f"{self.name(b)} = {_alloc(b)}")
        self.name_loops(_around_blocks(f.body))
        if isinstance(f.body, Alloc):  # a bare one would read as one of f.allocs
            self.scoped(f.body, f.body.body, 1)
        else:
            self.stmt(f.body, 1)

    def stmt(self, s: Stmt, depth: int, last: bool = True) -> None:
        """``last``: nothing follows in this suite, so what a name governs needs no own suite."""
        match s:
            case Store():
                self.put(depth, f"{self.element(s.buffer, s.index)} = {self.expr(s.value)}", s)
            case Seq(stmts=stmts):
                for n, x in enumerate(stmts, 1):
                    self.stmt(x, depth, last and n == len(stmts))
                if not stmts:
                    self.put(depth, "pass", s)
            case Let(body=body) | Alloc(body=body) if last:
                self.put(depth, f"{self.target(s)} = {self.source(s)}", s)
                self.stmt(body, depth)
                self.forget(s.var if isinstance(s, Let) else s.buffer)
            case Let(body=body) | Alloc(body=body):
                self.scoped(s, body, depth)
            case If():
                self.put(depth, f"if {self.expr(s.cond)}:", s)
                self.stmt(s.then, depth + 1)
                if s.orelse is not None:
                    self.put(depth, "else:")
                    self.stmt(s.orelse, depth + 1)
            case For():
                self.put(depth, self.loop(s), s)
                self.stmt(s.body, depth + 1)
                self.forget(s.var)
            case Block():
                self.block(s, depth)
            case Intrinsic():
                self.put(depth, self.intrinsic(s), s)
            case AllReduce():
                self.put(depth, self.all_reduce(s), s)
            case _:
                assert_never(s)

    def scoped(self, s: Let | Alloc, body: Stmt, depth: int) -> None:
        source = self.source(s)
        self.put(depth, f"with {source} as {self.target(s)}:", s)
        self.stmt(body, depth + 1)
        self.forget(s.var if isinstance(s, Let) else s.buffer)

    def target(self, s: Let | Alloc) -> str:
        return self.name(s.var if isinstance(s, Let) else s.buffer)

    def source(self, s: Let | Alloc) -> str:
        if isinstance(s, Alloc):
            return _alloc(s.buffer)
        return f"let({s.var.dtype}, {self.expr(s.value)})"

    def loop(self, s: For) -> str:
        extent = self.expr(s.extent)
        first = [quoted(s.thread)] if s.kind is Kind.THREAD else []
        args = ", ".join([*first, extent, *keywords(s.notes)])
        name = self.name(s.var, called(s) if self.by_role else "")
        return f"for {name} in {s.kind.value}({args}):"

    def block(self, s: Block, depth: int) -> None:
        self.put(depth, f"with block({', '.join([quoted(s.name), *keywords(s.notes)])}):", s)
        depth += 1
        if s.axes:
            values = [f"{a.kind.value}({a.extent}, {self.expr(a.value)})" for a in s.axes]
            names = [self.name(a.var) for a in s.axes]
            self.put(depth, f"{', '.join(names)} = {', '.join(values)}")
        if s.predicate is not None:
            self.put(depth, f"where({self.expr(s.predicate)})")
        self.put(depth, f"reads({', '.join(map(self.region, s.reads))})")
        self.put(depth, f"writes({', '.join(map(self.region, s.writes))})")
        if s.init is not None:
            self.put(depth, "with init():")
            self.stmt(s.init, depth + 1)
        self.stmt(s.body, depth)
        self.forget(*(a.var for a in s.axes))

    def intrinsic(self, s: Intrinsic) -> str:
        regions = (("writes", s.writes), ("reads", s.reads))
        parts = [f"{word}({', '.join(map(self.region, r))})" for word, r in regions if r]
        parts += [f"args({', '.join(map(str, s.args))})"] if s.args else []
        return f"intrinsic({', '.join([quoted(s.name), *parts])})"

    def all_reduce(self, s: AllReduce) -> str:
        values = [self.name(b) for b in s.values]
        names = ", ".join(self.name(v) for v in (*s.left, *s.right))
        combined = ", ".join(map(self.expr, s.combined))
        combined = combined if len(s.combined) == 1 else f"({combined})"
        return f"all_reduce({', '.join([str(s.threads), *values])}, lambda {names}: {combined})"

    def region(self, r: Region) -> str:
        return f"{self.name(r.buffer)}[{', '.join(map(self.range, r.ranges)) or '()'}]"

    def range(self, r: Range) -> str:
        match r:
            case Range(extent=Const(value=1)):
                return self.expr(r.start)
            case Range(start=start, extent=Const(value=int(n))):
                return f"{self.expr(start)} : {self.expr(build.add(start, n))}"
            case _:
                return f"{self.expr(r.start)} : {self.expr(r.start, 9)} + {self.expr(r.extent, 10)}"

    def element(self, buffer: Buffer, ix: tuple[Expr, ...]) -> str:
        return f"{self.name(buffer)}[{', '.join(map(self.expr, ix)) or '()'}]"

    def expr(self, e: Expr, at_least: int = 0) -> str:
        """Text of ``e``, in parentheses if it binds less tightly than ``at_least``."""
        match e:
            case Var():
                return self.name(e)
            case Const():
                text = literal(e)
                return f"({text})" if text[0] == "-" and at_least > UNARY else text
            case Load(buffer=buffer, index=ix):
                return self.element(buffer, ix)
            case Cast(value=value, dtype=dtype, bits=bits):
                return f"{'bitcast' if bits else 'cast'}({dtype}, {self.expr(value)})"
            case Op():
                text, binds = self.op(e)
                return f"({text})" if binds < at_least else text
            case _:
                assert_never(e)

    def op(self, e: Op) -> tuple[str, int]:
        match e:
            case Op(name="add", args=(a, Const(value=int(n)))) if e.dtype == index and n < 0:
                return f"{self.expr(a, 9)} - {-n}", 9  # what build.sub makes
            case Op(name="subtract", args=(a, Const())) if e.dtype == index:
                return self.call(e)
            case Op(name="and" | "or", args=(a, b)) if e.dtype.kind == "pred":
                word, binds = LOGIC[e.name]
                return f"{self.expr(a, binds)} {word} {self.expr(b, binds + 1)}", binds
            case Op(name="not", args=(a,)):
                return (
                    (f"not {self.expr(a, 3)}", 3)
                    if e.dtype.kind == "pred"
                    else (
                        f"~{self.expr(a, UNARY)}",
                        UNARY,
                    )
                )
            case Op(name="negate", args=(a,)) if not isinstance(a, Const):
                return f"-{self.expr(a, UNARY)}", UNARY
            case Op(args=(a, b)) if e.name in INFIX:
                sign, binds = INFIX[e.name]
                left = self.expr(a, binds + (binds == COMPARISON))
                return f"{left} {sign} {self.expr(b, binds + 1)}", binds
            case _:
                return self.call(e)

    def call(self, e: Op) -> tuple[str, int]:
        return f"{CALLS[e.name]}({', '.join(map(self.expr, e.args))})", ATOM


def literal(c: Const) -> str:
    """Text of a literal: bare for indices and truth values, else under its type."""
    value, dtype = c.value, c.dtype
    match dtype.kind:
        case "pred":
            return str(bool(value))
        case "complex":
            z = complex(value)
            return f"{dtype}({float(z.real)!r}, {float(z.imag)!r})"
        case "float" if not isinstance(value, int):
            assert not isinstance(value, complex)
            return f"{dtype}({float(value)!r})"
        case _:
            assert isinstance(value, int)
            return str(int(value)) if dtype == index else f"{dtype}({int(value)})"


def buffer_type(b: Buffer) -> str:
    """Return ``f32[64, 32]``; a scalar is ``f32[()]``."""
    return f"{b.dtype}[{', '.join(map(str, b.shape)) or '()'}]"


def _alloc(b: Buffer) -> str:
    scope = "" if b.scope is Scope.GLOBAL else f", scope={quoted(b.scope.value)}"
    align = "" if b.align is None else f", align=({', '.join(map(str, b.align))})"
    swizzle = f", swizzle={b.swizzle}" if b.swizzle else ""
    return f"alloc({buffer_type(b)}{scope}{align}{swizzle})"


def arguments(values: Notes) -> list[str]:
    """Keyword arguments."""
    return [f"{k}={quoted(v)}" for k, v in values.items()]


def quoted(value: NoteValue) -> str:
    """Return the text of an int, of a string in double quotes, or of a tuple of such."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(int(value))
        case (one,):
            return f"({quoted(one)},)"
        case _:
            return f"({', '.join(map(quoted, value))})"


def keywords(notes: Notes, taken: Collection[str] = ()) -> list[str]:
    """Notes as keyword arguments; those whose key is not a free identifier in one ``**{...}``."""
    plain = {
        k: v
        for k, v in notes.items()
        if k.isascii() and k.isidentifier() and not keyword.iskeyword(k) and k not in taken
    }
    rest = {k: v for k, v in notes.items() if k not in plain}
    entries = ", ".join(f"{quoted(k)}: {quoted(v)}" for k, v in rest.items())
    return [*arguments(plain), *([f"**{{{entries}}}"] if rest else [])]
