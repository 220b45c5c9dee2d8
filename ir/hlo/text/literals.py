"""Parsing and printing the values of ``constant``: ``{{1, 2}, {3, 4}}`` <-> NumPy array."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import DType, to_numpy
from ..lexer import MAX_DEPTH, Cursor
from ..nodes import AnyShape, Raw, Shape, TupleShape
from ..shape_text import show_shape

Literal: TypeAlias = "Array | Raw | tuple[Literal, ...]"

ELIDED = Raw("{...}")
"""The unknown value of a constant that was elided from the text."""

MANTISSAS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Stored bits of the mantissa, which hold the payload of a NaN."""

MAX_SPLAT = 1 << 24
MAX_FILLED = 1 << 28  # bytes of all constants of a text that are one number for many elements
MAX_BRACES = 1 << 12  # in the text of an empty constant; beyond that it is `{}`

_SIMPLE = re.compile(r"\([^()\"'/]*\)")
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_TOKEN = re.compile(r"[^\s{},]+")
_COMPLEX = re.compile(r"\(\s*([^\s,()]+)\s*,\s*([^\s,()]+)\s*\)")
_PAYLOAD = re.compile(r"nan\((0x[0-9a-fA-F]{1,16})\)")
_GAP = re.compile(r"\s+")


def parse_literal(cursor: Cursor, shape: AnyShape) -> Literal:
    """Parse ``(literal)``, the parentheses of ``constant`` included, as a value of ``shape``.

    ``ParseError`` if it does not fit the shape or its element type.
    """
    start = cursor.pos
    if found := cursor.match(_SIMPLE):
        body = found.group()
    else:
        body = _COMMENT.sub("", cursor.balanced("constant"))
    return _read(cursor, body[1:-1], shape, start, 0)


def _read(cursor: Cursor, body: str, shape: AnyShape, start: int, depth: int) -> Literal:
    match shape:
        case TupleShape(elements=elements):
            parts = _split(cursor, body, start)
            if len(parts) != len(elements) or depth > MAX_DEPTH:
                why = f"{len(parts)} values for {len(elements)} elements"
                cursor.fail("tuple constant does not fit its shape", why, at=start)
            return tuple(
                _read(cursor, p, e, start, depth + 1) for p, e in zip(parts, elements, strict=True)
            )
        case Shape():
            return _array(cursor, body, shape, start)
        case _:
            cursor.fail("a token has no literal", at=start)


def _split(cursor: Cursor, body: str, start: int) -> list[str]:
    body = body.strip()
    if not (body.startswith("(") and body.endswith(")")):
        cursor.fail("expected a tuple constant `( .., .. )`", at=start)
    parts, depth, begin = [], 0, 1
    for found in re.finditer(r"[(){},]", body):
        match found.group():
            case "(" | "{":
                depth += 1
            case ")" | "}":
                depth -= 1
            case _ if depth == 1:
                parts.append(body[begin : found.start()])
                begin = found.end()
            case _:
                pass
    last = body[begin:-1]
    return [*parts, last] if last.strip() or parts else []


def _array(cursor: Cursor, body: str, shape: Shape, start: int) -> Array | Raw:
    if body.strip() == "{...}":
        return ELIDED
    if "_" in body or not body.isascii():  # Python's numbers may have both
        why = "it has characters that no number has"
        cursor.fail(f"not a constant of type {shape.dtype}", why, at=start)
    body = _PAYLOAD.sub(r"nan:\1", body)
    is_complex = shape.dtype.kind == "complex"
    tokens: list[Any] = _COMPLEX.findall(body) if is_complex else _TOKEN.findall(body)
    skeleton = _COMPLEX.sub("", body) if is_complex else _TOKEN.sub("", body)
    skeleton = _GAP.sub("", skeleton)
    one = len(tokens) == 1 and not skeleton and shape.rank > 0
    splat = one and 0 < shape.size <= MAX_SPLAT
    if splat:  # one number for all elements
        _count_filled(cursor, shape, start)
    elif len(tokens) != shape.size or not _fits(skeleton, shape.dims, len(tokens)):
        why = f"{len(tokens)} values in {body.count('{')} braces for {show_shape(shape)}"
        cursor.fail("constant does not fit its shape", why, at=start)
    try:
        values = _values(tokens, shape.dtype)
    except (ValueError, OverflowError, KeyError) as error:
        cursor.fail(f"not a constant of type {shape.dtype}", str(error), at=start)
    return np.full(shape.dims, values[0]) if splat else values.reshape(shape.dims)


def _count_filled(cursor: Cursor, shape: Shape, start: int) -> None:
    """Count the bytes of a constant given as one number; ``ParseError`` beyond ``MAX_FILLED``."""
    cursor.filled += shape.bytes
    if cursor.filled > MAX_FILLED:
        why = f"{show_shape(shape)} brings them to {cursor.filled} bytes, over {MAX_FILLED}"
        hint = "broadcast a scalar constant"
        cursor.fail("constants of one number each are too large", why, hint, at=start)


def _fits(skeleton: str, dims: tuple[int, ...], tokens: int) -> bool:
    """True if braces and commas are those of an array of these dims.

    XLA prints an empty array's dimensions up to the first that is zero. ``{}`` alone denotes any
    empty array.
    """
    if tokens == 0 and skeleton == "{}":
        return True
    if 0 in dims:
        dims = dims[: dims.index(0) + 1]
    expected = ""
    for d in reversed(dims):
        if d * (len(expected) + 1) > len(skeleton):
            return False
        expected = "{" + ",".join([expected] * d) + "}"
    return expected == skeleton


def _values(tokens: list[Any], dtype: DType) -> Array:
    match dtype.kind:
        case "pred":
            return np.array([_integer(t) != 0 for t in tokens], np.bool_)
        case "signed" | "unsigned":
            low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
            numbers = [_integer(t) for t in tokens]
            if dtype.bits == 64:  # XLA reads them with either sign
                numbers = [_wrapped(n, low) for n in numbers]
            if numbers and (min(numbers) < low or max(numbers) >= low + (1 << dtype.bits)):
                raise ValueError(f"a value is out of the range of {dtype}")
            wide = np.array(numbers, np.uint64 if low == 0 else np.int64)
            return wide.astype(to_numpy(dtype))
        case "complex":
            pairs = [complex(_float_of(re_), _float_of(im)) for re_, im in tokens]
            parts = [part for pair in tokens for part in pair]
            return _with_payloads(_rounded(np.array(pairs, np.complex128), dtype), parts)
        case _:
            floats = [_float_of(t) for t in tokens]
            return _with_payloads(_rounded(np.array(floats, np.float64), dtype), tokens)


def _rounded(wide: Array, dtype: DType) -> Array:
    """Return floats in their type; ``ValueError`` if a number is none there."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = wide.astype(to_numpy(dtype))
    if not np.array_equal(np.isfinite(found), np.isfinite(wide)):
        raise ValueError(f"a value is out of the range of {dtype}")
    return found


def _with_payloads(values: Array, tokens: list[str]) -> Array:
    """Return floats with the payloads of ``nan:0x1``; ``ValueError`` if a type has no such NaN."""
    given = [(n, int(t.partition(":")[2], 16)) for n, t in enumerate(tokens) if ":" in t]
    if given:
        bits, mantissa = _bits_of(values)
        for n, payload in given:
            if not 0 < payload < 1 << mantissa:
                raise ValueError(f"{payload:#x} is no payload of a NaN of {values.dtype}")
            bits[n] = bits[n] >> mantissa << mantissa | payload
    return values


def _bits_of(flat: Array) -> tuple[Array, int]:
    """Return the bits of floats, of complex numbers those of both parts, and how many of each are
    its mantissa: none of a type whose NaNs carry no payload."""
    real = flat.real.dtype
    mantissa = MANTISSAS.get(real.name, 0)
    return flat.view(f"u{real.itemsize}"), mantissa


def _wrapped(number: int, low: int) -> int:
    """Return an integer of 64 bits as the one of the other sign with the same bits, if it has to
    be."""
    if -(1 << 63) <= number < 1 << 64:
        return low + (number - low) % (1 << 64)
    return number


def _float_of(token: str) -> float:
    found = float(token.partition(":")[0])
    if math.isinf(found) and token[-1].isdigit():
        raise ValueError(f"{token} is out of range")
    return found


def _integer(token: str) -> int:
    if len(token) > 21:
        raise ValueError(f"`{token[:21]}...` is out of range")
    if token in ("true", "false"):
        return int(token == "true")
    return int(token)


def show_literal(value: Literal) -> str:
    """Return the text of a constant's value; floats in the fewest digits that parse to the same."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show_literal, value)) + ")"
    if isinstance(value, Raw):
        return value.text
    if not value.size:
        return _show_empty(value.shape)
    flat = _words(np.ascontiguousarray(value).reshape(-1))
    for d in reversed(value.shape):
        flat = ["{" + ", ".join(flat[i : i + d]) + "}" for i in range(0, len(flat), d)]
    return flat[0]


def _show_empty(dims: tuple[int, ...]) -> str:
    """Return ``{{}, {}}`` for [2,0,3]: braces down to the first zero dimension, as XLA prints."""
    outer = dims[: dims.index(0)]
    if math.prod(outer) > MAX_BRACES:
        return "{}"
    text = "{}"
    for d in reversed(outer):
        text = "{" + ", ".join([text] * d) + "}"
    return text


def _words(flat: Array) -> list[str]:
    match flat.dtype.kind:
        case "b":
            return ["true" if v else "false" for v in flat.tolist()]
        case "i" | "u":
            return list(map(str, flat.tolist()))
        case "c":
            parts = _words(flat.view(flat.real.dtype))
            return [f"({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
        case "f":
            return _float_words(flat.astype(np.float32) if flat.dtype.itemsize < 4 else flat, flat)
        case _:  # ml_dtypes' own kinds: narrow floats and integers
            if flat.dtype.name.startswith(("int", "uint")):
                return list(map(str, flat.astype(np.int32).tolist()))
            return _float_words(flat.astype(np.float32), flat)


def _float_words(wide: Array, flat: Array) -> list[str]:
    """Return the words of ``flat``, whose values are ``wide``. NaNs have their sign, if their type
    has both, and their payload, unless it is the usual one."""
    words = [_float(t) for t in wide.astype(str).tolist()]
    if "nan" in words:
        bits, mantissa = _bits_of(flat)
        signed = "fnu" not in flat.dtype.name  # f8e4m3fnuz has one NaN, f8e8m0fnu no sign
        for n in np.flatnonzero(np.isnan(wide)).tolist():
            word = int(bits[n])
            sign = "-" if signed and word >> (8 * bits.itemsize - 1) else ""
            payload = word & ((1 << mantissa) - 1)
            usual = not mantissa or payload == 1 << (mantissa - 1)
            words[n] = f"{sign}nan" if usual else f"{sign}nan({payload:#x})"
    return words


def _float(text: str) -> str:
    return text[:-2] if text.endswith(".0") else text
