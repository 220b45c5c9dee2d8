"""Types of MLIR text: ``tensor<2x?xf32, #stablehlo.bounds<2, 8>>``, tuples, tokens, functions.

Integers without a sign are signed, ``i1`` is pred and ``index`` is s64. A dimension of unknown
size has size ``UNKNOWN``; with a bound it has the bound and a mark, as in HLO.
"""

from __future__ import annotations

import re

from ....dtypes import BY_NAME, DType
from ....hlo.nodes import Shape, TokenShape, TupleShape
from ....hlo.shape_text import UNKNOWN, show_shape, too_large
from .lexer import Tokens
from .syntax import ForeignType, FunctionType, Type

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(complex<\w+>|\w+)(?:,(.+))?>")
_UNRANKED = re.compile(r"tensor<\*x")
_SPACE = re.compile(r"\s+")
_BOUNDS = re.compile(r"#\w+\.(?:bounds<|type_extensions<bounds=\[)([\d?,]*)\]?>")
_INTEGER = re.compile(r"(i|si|ui)(\d{1,4})")
_COMPLEX = {"complex<f32>": "c64", "complex<f64>": "c128"}
_SCALAR = re.compile(r"(?:[su]?i\d+|b?f\d+\w*|tf32|index)")

Cache = dict[str, Type]


def element_type(name: str) -> DType | None:
    """The element type of an MLIR spelling, None if HLO has none."""
    if name == "i1":
        return BY_NAME["pred"]
    if name == "index":
        return BY_NAME["s64"]
    if name in _COMPLEX:
        return BY_NAME[_COMPLEX[name]]
    if found := _INTEGER.fullmatch(name):
        return BY_NAME.get(("u" if found.group(1) == "ui" else "s") + found.group(2))
    return BY_NAME.get(name.lower()) if name[:1] in "bf" else None


def is_scalar_type(word: str) -> bool:
    """True if a word is an element type on its own, as in ``1 : i64``."""
    return _SCALAR.fullmatch(word) is not None


def parse_type(tokens: Tokens, cache: Cache) -> Type:
    """Read one type. ``cache`` holds those already read, by their text."""
    token, place = tokens.next, tokens.place
    if (known := cache.get(token)) is not None:
        tokens.advance()
        return known
    if token.startswith("tensor<"):
        tokens.advance()
        known = cache[token] = _tensor(tokens, token, place)
        return known
    if token == "tuple":
        return _tuple(tokens, cache)
    if token == "(":
        return parse_function_type(tokens, cache)
    if token.startswith("!"):
        return _dialect_type(tokens)
    if is_scalar_type(token) or token == "none":
        tokens.advance()
        dtype = element_type(token)
        return Shape(dtype) if dtype else ForeignType(token)
    if token in ("complex", "vector", "memref", "tensor"):
        tokens.advance()
        text = token + tokens.balanced("type")
        dtype = element_type(_SPACE.sub("", text))
        return Shape(dtype) if dtype else ForeignType(text)
    tokens.fail("expected a type such as `tensor<2x3xf32>`")


def parse_types(tokens: Tokens, cache: Cache) -> tuple[Type, ...]:
    """``type, type, ..``, at least one."""
    found = [parse_type(tokens, cache)]
    while tokens.take(","):
        found.append(parse_type(tokens, cache))
    return tuple(found)


def parse_group(tokens: Tokens, cache: Cache) -> tuple[Type, ...]:
    """``(type, ..)``"""
    tokens.expect("(", "before types")
    if tokens.take(")"):
        return ()
    found = parse_types(tokens, cache)
    tokens.expect(")", "after types")
    return found


def parse_function_type(tokens: Tokens, cache: Cache) -> FunctionType:
    """``(types) -> type`` or ``(types) -> (types)``"""
    tokens.enter("type")
    inputs = parse_group(tokens, cache)
    tokens.expect("->", "in a function's type")
    group = tokens.next == "("
    results = parse_group(tokens, cache) if group else (parse_type(tokens, cache),)
    tokens.leave()
    return FunctionType(inputs, results)


def _tuple(tokens: Tokens, cache: Cache) -> Type:
    tokens.advance()
    tokens.expect("<", "after `tuple`")
    tokens.enter("tuple type")
    parts: tuple[Type, ...] = ()
    if not tokens.take(">"):
        parts = parse_types(tokens, cache)
        tokens.expect(">", "after the types of a tuple")
    tokens.leave()
    shapes = [p for p in parts if isinstance(p, Shape | TupleShape | TokenShape)]
    if len(shapes) != len(parts):
        return ForeignType("tuple of types that HLO does not have")
    return TupleShape(tuple(shapes))


def _dialect_type(tokens: Tokens) -> Type:
    name = tokens.advance()
    if name in ("!stablehlo.token", "!mhlo.token"):
        return TokenShape()
    text = tokens.balanced("type") if tokens.next == "<" else ""
    return ForeignType(name + text)


def _tensor(tokens: Tokens, text: str, place: int) -> Type:
    short = _SPACE.sub("", text)
    found = _TENSOR.fullmatch(short)
    if found is None:
        if _UNRANKED.match(short):
            hint = "export the model with the shapes of its arguments known"
            tokens.refuse_at(place, f"`{text}` has no rank", "only ranked tensors are read", hint)
        return ForeignType(text)
    dtype = element_type(found.group(2))
    if dtype is None:
        return ForeignType(text)
    sizes = found.group(1).split("x")[:-1]
    if any(len(d) > 20 for d in sizes):
        tokens.fail_at(place, f"`{text[:60]}` is too large", "a size does not fit 64 bits")
    dims = [UNKNOWN if d == "?" else int(d) for d in sizes]
    bounds: list[str] = []
    if found.group(3):
        encoding = _BOUNDS.fullmatch(found.group(3))
        if encoding is None:
            return ForeignType(text)
        bounds = encoding.group(1).split(",") if encoding.group(1) else []
        if len(bounds) != len(dims) or any(len(b) > 18 for b in bounds):
            tokens.fail_at(place, f"the bounds of `{text[:60]}` do not fit its dimensions")
    marks = [d == UNKNOWN for d in dims]
    for k, bound in enumerate(bounds):
        if bound != "?" and dims[k] == UNKNOWN:
            dims[k] = int(bound)
    if too_large(dims, dtype.bytes):
        tokens.fail_at(place, f"`{text[:60]}` is too large")
    return Shape(dtype, tuple(dims), None, tuple(marks) if any(marks) else ())


def show_type(kind: Type) -> str:
    """A type for a message, as HLO spells it where HLO has it."""
    match kind:
        case ForeignType(text=text):
            return text
        case FunctionType():
            return "a function"
        case shape:
            return show_shape(shape)
