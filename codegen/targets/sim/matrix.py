"""Warp operations in LLVM IR: ``ldmatrix``, ``stmatrix``, reductions, and matrix products.

What each thread deposited are addresses: ``slots`` is the first thread's, ``stride`` bytes lie
between one thread's and the next. The first two are in ``matrix.ll``; a product is written
out for the modules that use it, its index maps taken from ``fragments.Matrix``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....ir.dtypes import DType, bf16, f16, s8, to_numpy
from ....ir.formats import is_narrow
from ....ir.loop.fragments import Matrix
from ....ir.loop.intrinsics import WARP
from ...emit.llvm.template import render


def product_symbol(name: str) -> str:
    """Return the name of the function of a matrix product."""
    return f"nw_sim_{name.replace('.', '_')}"


def product_text(name: str, x: Matrix) -> str:
    """Return the function of a warp's matrix product; slots are result, sums, a, b.

    Operands are spread out as sums' type, row by row; then one vector of n sums for each row is
    accumulated in order of k, products rounded once.
    """
    number = "i32" if x.operands == s8 else "float"
    words = x.words
    symbol = product_symbol(name)
    parts = (("a", x.a, words[0] * x.per_word, x.k), ("b", x.b, words[1] * x.per_word, x.n))
    tables = [
        _table(f"{symbol}_{part}", place, count, width)
        for part, place, count, width in (*parts, ("c", x.c, words[2], x.n))
    ]
    for part, dtype in zip("ab", x.types, strict=True) if is_narrow(x.operands) else ():
        tables.append(f"@{symbol}_values_{part} = private constant {values_of_bytes(dtype)}\n")
    body = [
        *_gather(symbol, "c", 8, words[2], 1, number, _plain(number)),
        *_gather(symbol, "a", 16, words[0], x.per_word, number, _unpacked(x, f"{symbol}_values_a")),
        *_gather(symbol, "b", 24, words[1], x.per_word, number, _unpacked(x, f"{symbol}_values_b")),
    ]
    whole = number == "i32"
    names = {
        "symbol": symbol,
        "number": number,
        "a": x.m * x.k,
        "b": x.k * x.n,
        "c": x.m * x.n,
        "m": x.m,
        "n": x.n,
        "k": x.k,
        "gather": "\n".join(f"  {line}" for line in body),
        "scatter": "\n".join(f"  {line}" for line in _scatter(symbol, words[2], number)),
        "mul": "mul" if whole else "fmul",
        "add": "add" if whole else "fadd",
    }
    return "\n".join([*tables, render(__package__, "product.ll", names=names)])


def _table(name: str, place: Callable[[int, int], tuple[int, int]], count: int, width: int) -> str:
    """Return where the elements of each lane belong in a matrix of so many columns."""
    pairs = (place(lane, e) for lane in range(WARP) for e in range(count))
    items = ", ".join(f"i32 {row * width + column}" for row, column in pairs)
    return f"@{name} = private constant [{WARP * count} x i32] [{items}]\n"


def _plain(number: str) -> list[str]:
    return [f"%$w.e0 = bitcast i32 %$w to {number}"]


def _unpacked(x: Matrix, table: str) -> list[str]:
    """Return code for the elements of the word ``%$w`` as ``%$w.e0``, ``%$w.e1``, ..."""
    if x.operands == f16:
        lines = ["%$w.h = bitcast i32 %$w to <2 x half>"]
        for e in (0, 1):
            lines.append(f"%$w.h{e} = extractelement <2 x half> %$w.h, i64 {e}")
            lines.append(f"%$w.e{e} = fpext half %$w.h{e} to float")
        return lines
    if x.operands == bf16:
        high = ["%$w.b0 = shl i32 %$w, 16", "%$w.b1 = and i32 %$w, -65536"]
        return [*high, *(f"%$w.e{e} = bitcast i32 %$w.b{e} to float" for e in (0, 1))]
    if x.operands == s8:
        lines = ["%$w.v = bitcast i32 %$w to <4 x i8>"]
        for e in range(4):
            lines.append(f"%$w.b{e} = extractelement <4 x i8> %$w.v, i64 {e}")
            lines.append(f"%$w.e{e} = sext i8 %$w.b{e} to i32")
        return lines
    if is_narrow(x.operands):
        return _narrow_floats(x, table)
    return [  # f32 as tf32: see intrinsics.tf32
        "%$w.cut = and i32 %$w, -8192",
        "%$w.e0 = bitcast i32 %$w.cut to float",
    ]


def values_of_bytes(dtype: DType) -> str:
    """Return a constant of the sums' type for each byte of an operand, as ``i32``."""
    numbers = np.arange(256, dtype=np.uint8).view(to_numpy(dtype))
    wide = numbers.astype(np.int32 if dtype == s8 else np.float32).view(np.int32)
    items = ", ".join(f"i32 {n}" for n in wide.tolist())
    return f"[256 x i32] [{items}]"


def _narrow_floats(x: Matrix, table: str) -> list[str]:
    """Return code that looks up the four numbers of a word."""
    lines = []
    for e in range(x.per_word):
        lines += [
            f"%$w.s{e} = lshr i32 %$w, {8 * e}",
            f"%$w.b{e} = and i32 %$w.s{e}, 255",
            f"%$w.v{e} = getelementptr float, ptr @{table}, i32 %$w.b{e}",
            f"%$w.e{e} = load float, ptr %$w.v{e}",
        ]
    return lines


def _gather(
    symbol: str, part: str, slot: int, words: int, per_word: int, number: str, unpack: list[str]
) -> list[str]:
    """Return code that puts a lane's words of one operand into the matrix ``%m.{part}``."""
    lines = [f"%{part} = call ptr @{symbol}_slot(ptr %slots, i64 %stride, i64 %lane, i64 {slot})"]
    count = words * per_word
    lines.append(f"%{part}.first = mul i64 %lane, {count}")
    for word in range(words):
        w = f"{part}{word}"
        lines.append(f"%{w}.p = getelementptr i32, ptr %{part}, i64 {word}")
        lines.append(f"%{w} = load i32, ptr %{w}.p")
        lines += [line.replace("$w", w) for line in unpack]
        for e in range(per_word):
            at = word * per_word + e
            lines += [
                *_place(symbol, part, f"{w}.{e}", at),
                f"%{w}.{e}.q = getelementptr {number}, ptr %m.{part}, i32 %{w}.{e}.at",
                f"store {number} %{w}.e{e}, ptr %{w}.{e}.q",
            ]
    return lines


def _place(symbol: str, part: str, name: str, element: int) -> list[str]:
    return [
        f"%{name}.t = getelementptr i32, ptr @{symbol}_{part}, i64 %{part}.first",
        f"%{name}.tp = getelementptr i32, ptr %{name}.t, i64 {element}",
        f"%{name}.at = load i32, ptr %{name}.tp",
    ]


def _scatter(symbol: str, words: int, number: str) -> list[str]:
    lines = [f"%d = call ptr @{symbol}_slot(ptr %slots, i64 %stride, i64 %out.lane, i64 0)"]
    lines.append(f"%c.first2 = mul i64 %out.lane, {words}")
    for word in range(words):
        place = [x.replace("%c.first", "%c.first2") for x in _place(symbol, "c", f"d{word}", word)]
        lines += [
            *place,
            f"%d{word}.q = getelementptr {number}, ptr %m.c, i32 %d{word}.at",
            f"%d{word}.x = load {number}, ptr %d{word}.q",
            f"%d{word}.p = getelementptr {number}, ptr %d, i64 {word}",
            f"store {number} %d{word}.x, ptr %d{word}.p",
        ]
    return lines
