"""Expressions, regions and literals of the loop IR, read from Python syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from ..dtypes import BY_NAME, DType, index, pred
from ..elementwise import TABLE
from ..errors import ParseError
from . import build
from .affine import HIGH, LOW, linear
from .nodes import Buffer, Cast, Const, Expr, Load, Op, Range, Region, Scalar, Var
from .printer import CALLS, INFIX

N = TypeVar("N", Var, Buffer)

MAX_DEPTH = 200
_NAMED = {call: name for name, call in CALLS.items()}
_SIGNS = {sign: name for name, (sign, _) in INFIX.items()}
_BINARY: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_WORDS = {"inf": float("inf"), "nan": float("nan")}


class ExpressionReader:
    """Reads expressions; knows which names are visible."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.scope: dict[str, Var | Buffer] = {}
        self.depth = 0

    def fail(self, node: ast.AST, what: str, why: str = "", hint: str = "") -> NoReturn:
        """Raise ``ParseError`` at a node."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        raise ParseError(what, why, f"{self.source}:{line}:{column}", hint)

    @contextmanager
    def names(self, node: ast.AST, *new: tuple[str, Var | Buffer]) -> Iterator[None]:
        """Make ``new`` names visible; the text may nest no deeper than ``MAX_DEPTH``."""
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

    def element(self, node: ast.Subscript) -> tuple[Buffer, tuple[Expr, ...]]:
        """Return the buffer and the indices of ``A[i, j]``."""
        return self.lookup(node.value, Buffer), tuple(map(self.expr, items(node.slice)))

    def lookup(self, node: ast.expr, kind: type[N]) -> N:
        """Return the variable or buffer that a name refers to here."""
        name = node.id if isinstance(node, ast.Name) else ""
        found = self.scope.get(name)
        if not isinstance(found, kind):
            word = "variable" if kind is Var else "buffer"
            self.fail(node, f"{ast.unparse(node)[:40]} is not a {word} that is known here")
        return found

    def expr(self, node: ast.expr) -> Expr:
        """Return the expression that a syntax tree describes."""
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
        """Return an integer literal, which has to fit in s64."""
        if not LOW <= value <= HIGH:
            self.fail(node, "the integer does not fit", f"{dtype} holds {LOW} to {HIGH}")
        return Const(value, dtype)

    def logic(self, node: ast.expr, name: str, values: Sequence[ast.expr]) -> Expr:
        """Return ``a and b and ...`` or ``a or b or ...``, combined from the left."""
        first, *rest = map(self.expr, values)
        for x in rest:
            first = self.op(node, name, first, x)
        return first

    def binary(self, node: ast.expr, sign: ast.AST, left: ast.expr, right: ast.expr) -> Expr:
        """Return ``left sign right``; an index less a literal is a sum with its negation."""
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
        """Return an operation, its number of operands checked."""
        if len(args) != TABLE[name].arity:
            self.fail(node, f"{CALLS[name]} takes {TABLE[name].arity} operands, not {len(args)}")
        return build.op(name, *args)

    def call(self, node: ast.Call) -> Expr:
        """Return a conversion, a typed literal or an operation written as a call."""
        name = callee(node)
        match name, node.args:
            case "cast" | "bitcast", [dtype, value]:
                return Cast(self.expr(value), self.dtype(dtype), name == "bitcast")
            case _, args if name in BY_NAME and args:
                return Const(self.scalar(node, BY_NAME[name]), BY_NAME[name])
            case _, args if name in _NAMED:
                return self.op(node, _NAMED[name], *map(self.expr, args))
        self.fail(node, f"{name or ast.unparse(node.func)[:40]} is not an operation")

    def scalar(self, node: ast.Call, dtype: DType) -> Scalar:
        """Return the value in ``f32(1.0)``, ``c64(0.0, 1.0)`` or ``u8(7)``."""
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
        """Return a plain number, ``inf`` and ``nan`` included."""
        match node:
            case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
                return value
            case ast.Name(id=name) if name in _WORDS:
                return _WORDS[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.number(operand)
            case _:
                self.fail(node, "a number is expected")

    # Regions, types and integers

    def region(self, node: ast.expr) -> Region:
        """Return the box ``A[i, 0 : 4]``."""
        if not isinstance(node, ast.Subscript):
            self.fail(node, "not a region", hint="A[vi, 0 : 4]")
        ranges = tuple(map(self.range, items(node.slice)))
        return Region(self.lookup(node.value, Buffer), ranges)

    def range(self, node: ast.expr) -> Range:
        """Return ``start : stop``, or one element."""
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

    def dtype(self, node: ast.expr) -> DType:
        """Return the element type of a name."""
        if isinstance(node, ast.Name) and node.id in BY_NAME:
            return BY_NAME[node.id]
        self.fail(node, f"{ast.unparse(node)[:40]} is not an element type")

    def integer(self, node: ast.expr) -> int:
        """Return an integer literal."""
        match node:
            case ast.Constant(value=value) if type(value) is int:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.integer(operand)
            case _:
                self.fail(node, "an integer is expected")


def callee(call: ast.Call) -> str:
    """Return the name that is called; an empty text if it is not a plain name."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def items(node: ast.expr) -> list[ast.expr]:
    """Return the items of ``a, b``; of a lone ``a``, itself; of ``()``, none."""
    return node.elts if isinstance(node, ast.Tuple) else [node]
