"""Sizes that depend on values: torch's symbols (``u0``) as bounds and as scalars of the graph.

The operator that makes a symbol gives an array of bounded size, or a number; from there on every
expression of symbols in the shapes that torch declares has a bound and a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from ...dtypes import f64, s32, s64
from ...errors import UnsupportedError, VerifyError
from ...hlo.nodes import Shape
from ..lax import bounded
from ..lax.arithmetic import floor_divide, remainder
from ..lax.graph import Graph
from ..lax.shaping import full, reshape
from ..lax.term import Term
from .dtypes import element_type
from .operators.call import NO_BOUND


def is_open(value: Any) -> bool:
    """True for a number or tensor of torch's whose value or shape depends on values of tensors."""
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(value, torch.Tensor):
        return any(isinstance(d, torch.SymInt) and is_open(d) for d in value.shape)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(free_unbacked_symbols(value))
    return False


def is_symbol(value: Any) -> bool:
    """True for a number of torch's that is an expression, whatever decides its value."""
    import torch

    numbers = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(value, numbers) and bool(value.node.expr.free_symbols)


def plain(value: Any) -> Any:
    """Return a number of torch's that is no expression as one of Python's; others as they are."""
    import torch

    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    kind = kinds.get(type(value))
    return value if kind is None or is_symbol(value) else kind(value.node.expr)


@dataclass(slots=True)
class OpenSizes:
    """The bounds and values of torch's symbols, and the values of expressions, in one graph."""

    graph: Graph
    bounds: dict[Any, int] = field(default_factory=dict)
    values: dict[Any, Term] = field(default_factory=dict)

    def shape(self, value: Any) -> Shape | None:
        """Return the shape of a fake tensor, open sizes at their bounds; None for anything else.

        A size that the operator itself decides has the bound that torch knows, or ``NO_BOUND``.
        """
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            return None
        dtype = element_type(value.dtype)
        if dtype is None:
            raise UnsupportedError("cannot compile a tensor", f"HLO has no type {value.dtype}")
        return Shape(dtype, tuple(self.bound(d) for d in value.shape))

    def bound(self, size: Any) -> int:
        """Return the largest value of a size, at least ``bounded.LEAST`` if it is open."""
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

        if not is_symbol(size):
            return int(size)
        expr = size.node.expr
        ranges = {}
        for s in expr.free_symbols:
            known = size.node.shape_env.bound_sympy(s)
            upper = min(known.upper, self.bounds.get(s, NO_BOUND), NO_BOUND)
            ranges[s] = ValueRanges(min(known.lower, upper), upper)
        most = bound_sympy(expr, ranges).upper
        return max(int(min(most, NO_BOUND)), bounded.LEAST)

    def open_sizes(self, value: Any) -> dict[int, Term]:
        """Return the sizes of a fake tensor that are open and known, by dimension."""
        return {
            k: self.number(d)
            for k, d in enumerate(getattr(value, "shape", ()))
            if is_open(d) and self.is_known(d)
        }

    def is_known(self, size: Any) -> bool:
        """True if the operators before have decided all symbols of an expression."""
        return all(s in self.values for s in size.node.expr.free_symbols)

    def number(self, size: Any) -> Term:
        """Return the value of an expression as a scalar: s32 or s64, f64 or pred.

        ``UnsupportedError`` if a symbol is not known or there is no rule for a function in it.
        """
        return self._value(size.node.expr)

    def learn_number(self, value: Any, term: Term) -> None:
        """Take the symbol of a number that an operator has made of a tensor."""
        expr = value.node.expr
        name = type(expr).__name__
        if name in ("Equality", "Unequality") and expr.args[0].is_symbol:  # of a truth value
            expr = expr.args[0]
            term = term.to(s64)
        if expr.is_symbol and expr not in self.values:
            self.bounds[expr] = NO_BOUND
            self.values[expr] = reshape(term, ())

    def declared(self, term: Term, value: Any) -> Term:
        """Return the result of an operator in the shape that torch declares.

        Its open sizes come from its operands if they vary there; where they do not, they are set.
        Symbols that the operator decides become known.
        """
        for axis, size in enumerate(value.shape):
            varies = axis in bounded.varying(term)
            if not is_symbol(size):
                if varies:
                    term = bounded.settled(bounded.fitted(term, axis, int(size)), axis)
                continue
            fresh = not self.is_known(size)
            if fresh and not size.node.expr.is_symbol:
                why = f"torch gives it the size `{size}`, of which an operator decides but a part"
                raise UnsupportedError("cannot compile a tensor", why)
            wanted = self._bound_of_result(size, term.dims[axis], fresh)
            if fresh and not varies:
                raise VerifyError("the row of an operator does not tell a size", f"it is `{size}`")
            if term.dims[axis] != wanted:
                held = bounded.size(term, axis) if fresh or varies else self._size(size)
                term = bounded.resized(bounded.fitted(term, axis, wanted), axis, held)
            if fresh:
                self.values[size.node.expr] = bounded.size(term, axis)
            elif axis not in bounded.varying(term):
                term = bounded.resized(term, axis, self._size(size))
        return term

    def _bound_of_result(self, size: Any, have: int, fresh: bool) -> int:
        """Return the bound of a size: that of its expression, or what the result has if less."""
        symbol, bound = size.node.expr, self.bound(size)
        if fresh or (bound == NO_BOUND and symbol.is_symbol):
            bound = min(bound, max(have, bounded.LEAST))
            self.bounds[symbol] = bound
        if bound == NO_BOUND:
            raise UnsupportedError(
                "cannot compile a tensor",
                f"its size `{size}` has no bound",
                hint="tell one in the model: torch._check(n <= 100)",
            )
        return bound

    def _size(self, size: Any) -> Term:
        """The value of a size as s32."""
        found = self.number(size)
        return found if found.dtype == s32 else clamped(found)

    def _value(self, expr: Any) -> Term:
        if expr not in self.values:
            self.values[expr] = self._computed(expr)
        return self.values[expr]

    def _computed(self, expr: Any) -> Term:
        if expr.is_number:
            whole = expr.is_integer
            return full(self.graph, int(expr) if whole else float(expr), s64 if whole else f64)
        rule = _RULES.get(type(expr).__name__)
        if rule is None:
            why = f"it has the size or number `{expr}`, which is not computed here"
            raise UnsupportedError("cannot compile an expression", why)
        terms = [self._value(a) for a in expr.args]
        return rule([t.to(s64) if t.dtype == s32 else t for t in terms])


def clamped(size: Term) -> Term:
    """An s64 number as an s32 size, within 0 and the largest one."""
    return size.do("maximum", 0).do("minimum", NO_BOUND).to(s32)


_Rule = Callable[[list[Term]], Term]


def _folded(opcode: str) -> _Rule:
    return lambda terms: reduce(lambda a, b: _alike(opcode, a, b), terms)


def _alike(opcode: str, a: Term, b: Term, **attrs: Any) -> Term:
    """An operation on numbers, in f64 if one of them is."""
    dtype = f64 if f64 in (a.dtype, b.dtype) else a.dtype
    return a.to(dtype).do(opcode, b.to(dtype), **attrs)


def _compared(direction: str) -> _Rule:
    return lambda terms: _alike("compare", *terms, direction=direction)


def _power(terms: list[Term]) -> Term:
    base, exponent = terms
    known = exponent.known()
    if known is None or not 1 <= int(known) <= 8 or base.dtype == f64:
        why = "it has a power of a size, which is not computed here"
        raise UnsupportedError("cannot compile an expression", why)
    return reduce(lambda a, b: a * b, [base] * int(known))


_RULES: dict[str, _Rule] = {
    "Add": _folded("add"),
    "Mul": _folded("multiply"),
    "Max": _folded("maximum"),
    "Min": _folded("minimum"),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda terms: floor_divide(*terms),
    "CleanDiv": lambda terms: floor_divide(*terms),
    "Mod": lambda terms: remainder(*terms),
    "PythonMod": lambda terms: remainder(*terms),
    "ToFloat": lambda terms: terms[0].to(f64),
    "TruncToInt": lambda terms: terms[0].to(s64),
    "FloorToInt": lambda terms: terms[0].do("floor").to(s64),
    "CeilToInt": lambda terms: terms[0].do("ceil").to(s64),
    "OpaqueUnaryFn_sqrt": lambda terms: terms[0].to(f64).do("sqrt"),
    "IntTrueDiv": lambda terms: terms[0].to(f64) / terms[1].to(f64),
    "FloatTrueDiv": lambda terms: terms[0].to(f64) / terms[1].to(f64),
    "Equality": _compared("EQ"),
    "Unequality": _compared("NE"),
    "StrictLessThan": _compared("LT"),
    "LessThan": _compared("LE"),
    "StrictGreaterThan": _compared("GT"),
    "GreaterThan": _compared("GE"),
    "And": _folded("and"),
    "Or": _folded("or"),
    "Not": lambda terms: ~terms[0],
}
"""By the name of an expression's class."""


def leaves(value: Any) -> Iterator[Any]:
    """Yield what nested lists, tuples and dicts hold."""
    if isinstance(value, list | tuple):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value
