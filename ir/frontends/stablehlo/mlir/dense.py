"""Values of ``dense<..>``: numbers in nested lists, one number for all, or bytes as hex digits.

A list of numbers must have the shape of its type. A float may be written by its bits (``0x7FC0``),
an integer of any type as signed or unsigned. Bytes are little-endian; those of i1 are one bit or
one byte an element, as older and newer MLIR print them, told apart by their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....arrays import Array
from ....dtypes import BY_NAME, DType, to_numpy
from ....hlo.nodes import Shape
from ....hlo.shape_text import UNKNOWN, show_shape
from .lexer import Tokens, unquoted
from .syntax import Dense
from .types import show_type

_NUMBER = r"[^\s,()\[\]]+"
_ONE = re.compile(_NUMBER)
_PAIR = re.compile(rf"\(\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\)")
_SPACE = re.compile(r"\s+")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_REAL = re.compile(r"-?\d+\.\d*(?:[eE][+\-]?\d{1,6})?")
_BITS = re.compile(r"(-?)0x([0-9A-Fa-f]{1,16})")
_WHOLE = re.compile(r"-?\d{1,20}")
_BOOL = {"true": True, "false": False}


def dense_value(tokens: Tokens, dense: Dense, resources: Mapping[str, bytes]) -> Array:
    """The array that a literal means; an array without dimensions where one value is for all.

    ``ParseError`` where text and type do not fit.
    """
    kind = dense.type
    if not isinstance(kind, Shape) or UNKNOWN in kind.dims:
        what = f"a constant of type {show_type(kind)}"
        tokens.refuse_at(dense.place, what, "HLO has no such type")
    if dense.resource:
        return _bytes(tokens, dense, kind, _resource(tokens, dense, resources))
    text = dense.text.strip()
    if text.startswith('"'):
        inside = unquoted(text)
        if not inside.startswith("0x") or not _HEX.fullmatch(inside, 2):
            tokens.fail_at(dense.place, "a constant of strings", "HLO has no strings")
        return _bytes(tokens, dense, kind, bytes.fromhex(inside[2:]))
    try:
        return _numbers(text, kind)
    except (ValueError, OverflowError, KeyError) as error:
        what = f"not a constant of type {show_shape(kind)}"
        tokens.fail_at(dense.place, what, str(error).strip("'"))


def _resource(tokens: Tokens, dense: Dense, resources: Mapping[str, bytes]) -> bytes:
    if dense.resource not in resources:
        why = f"the text has no blob `{dense.resource}`"
        hint = "print the module with its large constants (large_elements_limit=None)"
        tokens.fail_at(dense.place, "the value of a constant is missing", why, hint)
    return resources[dense.resource]


def _bytes(tokens: Tokens, dense: Dense, kind: Shape, data: bytes) -> Array:
    dtype, size = to_numpy(kind.dtype), kind.size
    if kind.dtype.kind == "pred":
        flat = np.frombuffer(data, np.uint8) != 0
        if len(data) == -(-size // 8) != size:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            flat = bits[:size] != 0
    elif kind.dtype.bits < 8:
        flat = _narrow(data, kind.dtype)
    else:
        whole = data if len(data) % dtype.itemsize == 0 else b""
        flat = np.frombuffer(whole, _little(dtype))
    if flat.size == 1 and kind.size > 1:
        return np.asarray(flat.reshape(()))
    if flat.size != size:
        why = f"{len(data)} bytes for {show_shape(kind)}"
        tokens.fail_at(dense.place, "a constant does not fit its type", why)
    return np.asarray(flat.astype(dtype).reshape(kind.dims))


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype


def _narrow(data: bytes, dtype: DType) -> Array:
    """Integers under a byte, one in each byte; what the byte has above them does not count."""
    low: Array = np.frombuffer(data, np.uint8) & np.uint8((1 << dtype.bits) - 1)
    if dtype.is_float:
        return np.asarray(low.view(to_numpy(dtype)))
    wide: Array = low.astype(np.int16)
    if dtype.kind == "signed":
        wide = wide - ((wide >> (dtype.bits - 1)) << dtype.bits)
    return np.asarray(wide.astype(np.int8).astype(to_numpy(dtype)))


def _numbers(text: str, kind: Shape) -> Array:
    pairs = kind.dtype.kind == "complex" and "(" in text
    words: list[Any] = _PAIR.findall(text) if pairs else _ONE.findall(text)
    skeleton = _SPACE.sub("", (_PAIR if pairs else _ONE).sub("x", text))
    if skeleton == "x":
        return _values(words, kind.dtype).reshape(())
    if len(words) != kind.size or not _fits(skeleton, kind.dims):
        brackets = text.count("[")
        raise ValueError(f"{len(words)} numbers in {brackets} brackets")
    return _values(words, kind.dtype).reshape(kind.dims)


def _fits(skeleton: str, dims: tuple[int, ...]) -> bool:
    """True if the brackets and commas are those of an array of these dimensions."""
    if 0 in dims and not skeleton:
        return True
    expected = "x"
    for d in reversed(dims):
        if d * len(expected) > len(skeleton):
            return False
        expected = "[" + ",".join([expected] * d) + "]"
    return expected == skeleton


def _values(words: list[Any], dtype: DType) -> Array:
    match dtype.kind:
        case "pred":
            return np.array([_truth(w) for w in words], np.bool_)
        case "signed" | "unsigned":
            return _integers(words, dtype)
        case "complex":
            part = BY_NAME["f32" if dtype.bits == 64 else "f64"]
            if any(not isinstance(w, tuple) for w in words):
                raise ValueError("a complex number is a pair, as in (1.0,0.0)")
            sides = words
            out = np.empty(len(sides), to_numpy(dtype))
            out.real = _floats([s[0] for s in sides], part)
            out.imag = _floats([s[1] for s in sides], part)
            return out
        case _:
            return _floats(words, dtype)


def _truth(word: str) -> bool:
    if word in _BOOL:
        return _BOOL[word]
    if word not in ("0", "1", "-1"):
        raise ValueError(f"`{word[:20]}` is neither true nor false")
    return word != "0"


def _integers(words: list[str], dtype: DType) -> Array:
    numbers = [_integer(w) for w in words]
    low, high = -(1 << (dtype.bits - 1)), 1 << dtype.bits
    if numbers and (min(numbers) < low or max(numbers) >= high):
        raise ValueError(f"a value is out of the range of {dtype}")
    if dtype.kind == "signed":
        wrapped = [n - high if n >= high >> 1 else n for n in numbers]
        return np.array(wrapped, np.int64).astype(to_numpy(dtype))
    return np.array([n % high for n in numbers], np.uint64).astype(to_numpy(dtype))


def _integer(word: str) -> int:
    if found := _BITS.fullmatch(word):
        return int(found.group(1) + found.group(2), 16)
    if word in _BOOL:
        return int(_BOOL[word])
    if not _WHOLE.fullmatch(word):
        raise ValueError(f"`{word[:20]}` is not an integer")
    return int(word)


def _floats(words: list[str], dtype: DType) -> Array:
    kind = to_numpy(dtype)
    reals = [0.0 if w.startswith(("0x", "-0x")) else _real(w) for w in words]
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.array(reals, np.float64).astype(kind)
    for at, word in enumerate(words):
        if found := _BITS.fullmatch(word):
            bits = int(found.group(2), 16)
            if bits >> dtype.bits or found.group(1):
                raise ValueError(f"`{word}` does not fit {dtype}")
            out[at] = np.array(bits, f"u{kind.itemsize}").view(kind)
        elif word.startswith(("0x", "-0x")):
            raise ValueError(f"`{word[:20]}` does not fit {dtype}")
    return out


def _real(word: str) -> float:
    if not _REAL.fullmatch(word) or len(word) > 400:
        raise ValueError(f"`{word[:20]}` is not a number with a point, as 1.0")
    return float(word)
