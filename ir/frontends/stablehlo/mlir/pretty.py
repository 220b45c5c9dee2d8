"""The forms that operations print in when they do not print generically.

Most are operands and ``name = value`` pairs between commas, then attributes and types. The names
of those pairs become the attribute names of the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .lexer import unquoted
from .parser import Parser, Values
from .syntax import Dense, Dialect, FunctionType, MlirOp, MlirRegion, Symbol, Type, Word
from .types import parse_type

KEYS: Mapping[tuple[str, str], str] = {
    ("broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("dynamic_broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("transpose", "dims"): "permutation",
    ("reverse", "dims"): "dimensions",
    ("iota", "dim"): "iota_dimension",
    ("dynamic_iota", "dim"): "iota_dimension",
    ("concatenate", "dim"): "dimension",
    ("get_dimension_size", "dim"): "dimension",
    ("set_dimension_size", "dim"): "dimension",
    ("broadcast", "sizes"): "broadcast_sizes",
    ("dynamic_slice", "sizes"): "slice_sizes",
    ("pad", "low"): "edge_padding_low",
    ("pad", "high"): "edge_padding_high",
    ("pad", "interior"): "interior_padding",
    ("fft", "type"): "fft_type",
    ("fft", "length"): "fft_length",
    ("rng", "distribution"): "rng_distribution",
    ("rng_bit_generator", "algorithm"): "rng_algorithm",
    ("dot", "precision"): "precision_config",
    ("dot_general", "precision"): "precision_config",
    ("einsum", "config"): "einsum_config",
    ("unary_einsum", "config"): "einsum_config",
    ("convolution", "dim_numbers"): "dimension_numbers",
    ("dynamic_conv", "dim_numbers"): "dimension_numbers",
}
"""Attribute names by operation and the key of its own form; other keys are the name itself."""

WINDOW: Mapping[str, str] = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}

_INTEGER = re.compile(r"-?\d+")
_FORMAT = re.compile(r"e(\d{1,3})m(\d{1,3})")
_WORD = re.compile(r"[A-Za-z_][\w$]*")


def pretty(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """The operation ``name``, whose own form stands here."""
    if name in ("call", "return"):
        name = f"func.{name}"
    if name.startswith("sdy."):
        return _shardy(p, name, results, place)
    return FORMS.get(name.partition(".")[2], _plain)(p, name, results, place)


def _plain(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``%a, %b, key = value, .. {attributes} : types``, the first part perhaps in parentheses"""
    operands: list[str] = []
    attrs: dict[str, Any] = {}
    grouped = p.tokens.take("(")
    if grouped:
        _items(p, name, operands, attrs)
        p.tokens.expect(")", f"after the operands of `{name}`")
    if not (grouped and p.tokens.next.startswith("%")):  # which is the next operation's result
        _items(p, name, operands, attrs)
    return _finish(p, name, operands, attrs, (), results, place)


def _items(p: Parser, name: str, operands: list[str], attrs: dict[str, Any]) -> None:
    tokens, short = p.tokens, name.partition(".")[2]
    while True:
        if tokens.next.startswith("%"):
            operands.append(p.value())
        elif tokens.ahead() == "=" and _WORD.fullmatch(tokens.next):
            _keyword(p, short, attrs)
        elif short == "compare" and _WORD.fullmatch(tokens.next):
            key = "compare_type" if operands else "comparison_direction"
            attrs[key] = Word(tokens.advance())
        else:
            return
        if not tokens.take(","):
            return


def _keyword(p: Parser, short: str, attrs: dict[str, Any]) -> None:
    """``key = value``"""
    tokens = p.tokens
    key = tokens.advance()
    tokens.advance()
    match key:
        case "contracting_dims" | "batching_dims":
            kind = "contracting" if key == "contracting_dims" else "batching"
            attrs[f"lhs_{kind}_dimensions"] = p.attributes.list()
            tokens.expect("x", "between the dimensions of both sides")
            attrs[f"rhs_{kind}_dimensions"] = p.attributes.list()
        case "dim_numbers":
            attrs[KEYS.get((short, key), key)] = p.attributes.labels()
        case "window":
            for field, value in p.attributes.dictionary().items():
                attrs[WINDOW.get(field, field)] = value
        case "format":
            found = _FORMAT.fullmatch(tokens.next)
            if found is None:
                tokens.fail("expected a format such as `e5m10`")
            tokens.advance()
            attrs["exponent_bits"], attrs["mantissa_bits"] = map(int, found.groups())
        case "algorithm" if tokens.next == "<":
            attrs["algorithm"] = Dialect("stablehlo.dot_algorithm", p.attributes.fields())
        case _:
            attrs[KEYS.get((short, key), key)] = _bare(p)


def _bare(p: Parser) -> Any:
    """A value without a type of its own: the colon that may follow is the operation's."""
    if _INTEGER.fullmatch(p.tokens.next):
        return p.tokens.integer("an attribute")
    if p.tokens.next.startswith('"'):
        return unquoted(p.tokens.advance())
    return p.attributes.value()


def _finish(
    p: Parser,
    name: str,
    operands: list[str],
    attrs: dict[str, Any],
    regions: tuple[MlirRegion, ...],
    results: Values,
    place: int,
) -> MlirOp:
    """Attributes and types, which every form ends with."""
    attrs.update(p.optional_attributes())
    return p.op(name, tuple(operands), attrs, regions, p.signature(), results, place)


def _constant(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``dense<..> : type`` or, as it was once printed, ``() {value = ..} : () -> type``"""
    tokens = p.tokens
    if tokens.take("("):
        tokens.expect(")", f"after `{name}(`")
        return _finish(p, name, [], {}, (), results, place)
    attrs = dict(p.optional_attributes())
    value = attrs["value"] = p.attributes.value()
    if not isinstance(value, Dense):
        tokens.fail("expected a literal such as `dense<0> : tensor<i32>`")
    return p.op(name, (), attrs, (), (value.type,), results, place)


def _slice(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``%a [0:2, 4:8:2]``"""
    tokens = p.tokens
    operand = p.value()
    tokens.expect("[", "before the ranges of a slice")
    rows: list[tuple[int, int, int]] = []
    while not tokens.take("]"):
        if rows:
            tokens.expect(",", "or `]` between ranges")
        start = tokens.integer("the start of a range")
        tokens.expect(":", "in a range")
        limit = tokens.integer("the end of a range")
        rows.append((start, limit, tokens.integer("a step") if tokens.take(":") else 1))
    names = ("start_indices", "limit_indices", "strides")
    attrs: dict[str, Any] = {n: tuple(r[k] for r in rows) for k, n in enumerate(names)}
    return _finish(p, name, [operand], attrs, (), results, place)


def _get_tuple_element(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``%a[0]``"""
    operand = p.value()
    p.tokens.expect("[", "before the number of an element")
    index = p.tokens.integer("the number of an element")
    p.tokens.expect("]", "after the number of an element")
    return _finish(p, name, [operand], {"index": index}, (), results, place)


def _named(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``@target(%a, ..)`` of a call, ``"name" %a, ..`` of a composite"""
    tokens, short = p.tokens, name.partition(".")[2]
    token = tokens.next
    if not token.startswith(("@", '"')):
        tokens.fail("expected the name of what is called")
    target = unquoted(tokens.advance()) if token[0] == '"' else p.symbol()
    key = {"call": "callee", "custom_call": "call_target_name"}.get(short, "name")
    operands: list[str] = []
    if tokens.take("("):
        operands += p.values()
        tokens.expect(")", "after the operands of a call")
    else:
        operands += p.values()
        if tokens.next == "(":
            tokens.refuse_at(place, "a composite with regions", "their meaning is not known")
    return _finish(p, name, operands, {key: Symbol(target)}, (), results, place)


def _reduce(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``(%a init: %b), .. applies op across dimensions = [..]``, or with a reducer after it"""
    tokens = p.tokens
    arrays: list[str] = []
    inits: list[str] = []
    while tokens.take("("):
        arrays.append(p.value())
        tokens.expect("init", "after a reduced array")
        tokens.expect(":", "after `init`")
        inits.append(p.value())
        tokens.expect(")", "after an initial value")
        tokens.take(",")
    applied = tokens.advance() if tokens.take("applies") else ""
    tokens.expect("across", "before the dimensions of a reduction")
    tokens.expect("dimensions", "after `across`")
    tokens.expect("=", "after `dimensions`")
    attrs: dict[str, Any] = {"dimensions": p.attributes.list()}
    attrs.update(p.optional_attributes())
    kind = p.signature()
    if applied:
        attrs["applies"] = Word(unquoted(applied) if applied.startswith('"') else applied)
        return p.op(name, (*arrays, *inits), attrs, (), kind, results, place)
    region = _reducer(p)
    return p.op(name, (*arrays, *inits), attrs, (region,), kind, results, place)


def _reducer(p: Parser) -> MlirRegion:
    """``reducer(%a: t, %b: t) (%c: t, %d: t) { .. }``: pairs of what was and what comes"""
    tokens = p.tokens
    tokens.expect("reducer", "or `applies` in a reduction")
    pairs: list[tuple[tuple[str, Type], ...]] = []
    while tokens.take("("):
        pairs.append(p.block_arguments())
        if len(pairs[-1]) != 2:
            tokens.fail("a reducer takes its arguments in pairs")
    p.location()
    return p.region((*(a for a, _ in pairs), *(b for _, b in pairs)))


def _while(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``(%state = %init, ..) : types cond { .. } do { .. }``"""
    tokens = p.tokens
    names: list[str] = []
    operands: list[str] = []
    tokens.expect("(", "after `while`")
    while not tokens.take(")"):
        if names:
            tokens.expect(",", "or `)` between the values of a loop")
        names.append(p.value())
        tokens.expect("=", "after the name of a loop's value")
        operands.append(p.value())
        p.location()
    kind = p.signature()
    types = kind.results if isinstance(kind, FunctionType) else kind
    if len(types) != len(names):
        tokens.fail("the types of a loop do not fit", f"{len(names)} values, {len(types)} types")
    attrs: dict[str, Any] = {}
    if tokens.take("attributes"):
        attrs.update(p.attributes.dictionary())
    arguments = tuple(zip(names, types, strict=True))
    tokens.expect("cond", "before the condition of a loop")
    condition = p.region(arguments)
    tokens.expect("do", "before the body of a loop")
    body = p.region(arguments)
    return p.op(name, tuple(operands), attrs, (condition, body), types, results, place)


def _scan(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``(%a, ..) inits (%b, ..) dimension=0 attributes {..} { .. } : types``"""
    tokens = p.tokens
    groups: list[Values] = []
    for word in ("", "inits"):
        if word:
            tokens.expect(word, "after the inputs of a scan")
        tokens.expect("(", "before the values of a scan")
        groups.append(p.values())
        tokens.expect(")", "after the values of a scan")
    tokens.expect("dimension", "of a scan")
    tokens.expect("=", "after `dimension`")
    attrs: dict[str, Any] = {"dimension": tokens.integer("a dimension")}
    if tokens.take("attributes"):
        attrs.update(p.attributes.dictionary())
    inputs, inits = groups
    attrs["operandSegmentSizes"] = (len(inputs), len(inits))
    attrs["resultSegmentSizes"] = (len(results) - len(inits), len(inits))
    region = p.region()
    return p.op(name, (*inputs, *inits), attrs, (region,), p.signature(), results, place)


def _return(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``%a, %b : types``"""
    operands = p.values()
    attrs = p.optional_attributes()
    return p.op(name, operands, attrs, (), p.signature(), results, place)


def _cast(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """``%a : type to type``"""
    operand = p.value()
    attrs = p.optional_attributes()
    p.tokens.expect(":", "before the types of a cast")
    before = parse_type(p.tokens, p.types)
    p.tokens.expect("to", "between the types of a cast")
    kind = FunctionType((before,), (parse_type(p.tokens, p.types),))
    return p.op(name, (operand,), attrs, (), kind, results, place)


def _shardy(p: Parser, name: str, results: Values, place: int) -> MlirOp:
    """Any operation of Shardy: what it says of shardings is kept as text."""
    tokens = p.tokens
    if name == "sdy.mesh":
        target = p.symbol()
        tokens.expect("=", "after the name of a mesh")
        text = tokens.balanced("mesh")
        p.optional_attributes()
        return p.op(name, (), {"name": target, "mesh": text}, (), (), results, place)
    if name == "sdy.return":
        return _return(p, name, results, place)
    if name == "sdy.constant":
        return _constant(p, name, results, place)
    if tokens.next == "<":
        tokens.balanced("name")
    operands = p.values()
    if tokens.take("("):
        operands = p.values()
        tokens.expect(")", f"after the operands of `{name}`")
    attrs: dict[str, Any] = {}
    key = ""
    while tokens.next not in (":", "(", "{", ""):
        if tokens.next in ("<", "["):
            attrs[key] = tokens.balanced("sharding")
        elif (word := tokens.advance()) != "=":
            key = word
        elif tokens.next == "{":
            tokens.balanced("axes")
    regions: tuple[MlirRegion, ...] = ()
    if tokens.take("("):
        regions = (p.region(p.block_arguments()),)
    return _finish(p, name, list(operands), attrs, regions, results, place)


FORMS: Mapping[str, Callable[[Parser, str, Values, int], MlirOp]] = {
    "constant": _constant,
    "slice": _slice,
    "get_tuple_element": _get_tuple_element,
    "call": _named,
    "custom_call": _named,
    "composite": _named,
    "reduce": _reduce,
    "while": _while,
    "scan": _scan,
    "return": _return,
    "cast": _cast,
}
"""The forms that are not plain, by the operation's name in its dialect."""
