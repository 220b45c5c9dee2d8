"""Warp operations in LLVM IR: ``ldmatrix``, reductions across threads, and matrix products.

What each thread deposited are addresses: ``slots`` is the first thread's, ``stride`` bytes lie
between one thread's and the next. The first two are functions of the runtime; a product is written
out for the modules that use it, its index maps taken from ``intrinsics.Matrix``.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from ...ir.dtypes import bf16, f16, s8
from ...ir.loop.intrinsics import WARP, Matrix


def text() -> str:
    """The runtime's functions."""
    return _LDMATRIX + _ALL_REDUCE


_LDMATRIX = """
define internal ptr @slot(ptr %slots, i64 %stride, i64 %thread, i64 %offset) alwaysinline {
  %at = mul i64 %thread, %stride
  %both = add i64 %at, %offset
  %slot_p = getelementptr i8, ptr %slots, i64 %both
  %slot = load ptr, ptr %slot_p
  ret ptr %slot
}

; Element ``half`` of word ``w`` of a lane: see intrinsics.ldmatrix_source. Slots: result, row.
define internal i16 @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 %half,
                                    i1 %trans) alwaysinline {
  %row = lshr i64 %lane, 2
  %four = and i64 %lane, 3
  %two = shl i64 %four, 1
  %column = add i64 %two, %half
  %whose = select i1 %trans, i64 %column, i64 %row
  %which = select i1 %trans, i64 %row, i64 %column
  %first = shl i64 %w, 3
  %source = add i64 %first, %whose
  %from = call ptr @slot(ptr %slots, i64 %stride, i64 %source, i64 8)
  %element_p = getelementptr i16, ptr %from, i64 %which
  %element = load i16, ptr %element_p
  ret i16 %element
}

define void @nw_sim_ldmatrix(ptr %slots, i64 %stride, i64 %words, i1 %trans) {
entry:
  br label %next
next:
  %lane = phi i64 [ 0, %entry ], [ %lane1, %done ]
  %to = call ptr @slot(ptr %slots, i64 %stride, i64 %lane, i64 0)
  br label %word
word:
  %w = phi i64 [ 0, %next ], [ %w1, %word ]
  %low = call i16 @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 0, i1 %trans)
  %high = call i16 @matrix_element(ptr %slots, i64 %stride, i64 %lane, i64 %w, i64 1, i1 %trans)
  %low_p = getelementptr [2 x i16], ptr %to, i64 %w
  %high_p = getelementptr i8, ptr %low_p, i64 2
  store i16 %low, ptr %low_p
  store i16 %high, ptr %high_p
  %w1 = add i64 %w, 1
  %more_words = icmp ult i64 %w1, %words
  br i1 %more_words, label %word, label %done
done:
  %lane1 = add i64 %lane, 1
  %more = icmp ult i64 %lane1, 32
  br i1 %more, label %next, label %out
out:
  ret void
}
"""

_ALL_REDUCE = """
; Neighbours first, then pairs of pairs, and so on, up to groups of ``tree``; what these come to is
; combined from the first to the last. What the first thread has then goes to all.
define void @nw_sim_all_reduce(ptr %slots, i64 %stride, i64 %count, i64 %group, i64 %tree,
                               ptr %combine, ptr %spread) {
entry:
  br label %groups
groups:
  %first = phi i64 [ 0, %entry ], [ %first1, %spreaded ]
  %at = mul i64 %first, %stride
  %mine = getelementptr i8, ptr %slots, i64 %at
  br label %level_test
level_test:
  %distance = phi i64 [ 1, %groups ], [ %distance1, %level_done ]
  %wide = icmp ult i64 %distance, %tree
  br i1 %wide, label %level, label %chain
chain:
  %c = phi i64 [ %tree, %level_test ], [ %c1, %link ]
  %more_c = icmp ult i64 %c, %group
  br i1 %more_c, label %link, label %spreads
link:
  %link_at = mul i64 %c, %stride
  %next = getelementptr i8, ptr %mine, i64 %link_at
  call void %combine(ptr %mine, ptr %next)
  %c1 = add i64 %c, %tree
  br label %chain
level:
  %step = shl i64 %distance, 1
  br label %pair
pair:
  %i = phi i64 [ 0, %level ], [ %i1, %pair_done ]
  %j = add i64 %i, %distance
  %both = icmp ult i64 %j, %group
  br i1 %both, label %combine_pair, label %pair_done
combine_pair:
  %left_at = mul i64 %i, %stride
  %right_at = mul i64 %j, %stride
  %left = getelementptr i8, ptr %mine, i64 %left_at
  %right = getelementptr i8, ptr %mine, i64 %right_at
  call void %combine(ptr %left, ptr %right)
  br label %pair_done
pair_done:
  %i1 = add i64 %i, %step
  %more_pairs = icmp ult i64 %i1, %group
  br i1 %more_pairs, label %pair, label %level_done
level_done:
  %distance1 = shl i64 %distance, 1
  br label %level_test
spreads:
  %k = phi i64 [ 1, %chain ], [ %k1, %spread_one ]
  %more_k = icmp ult i64 %k, %group
  br i1 %more_k, label %spread_one, label %spreaded
spread_one:
  %to_at = mul i64 %k, %stride
  %to = getelementptr i8, ptr %mine, i64 %to_at
  call void %spread(ptr %mine, ptr %to)
  %k1 = add i64 %k, 1
  br label %spreads
spreaded:
  %first1 = add i64 %first, %group
  %more = icmp ult i64 %first1, %count
  br i1 %more, label %groups, label %out
out:
  ret void
}
"""


def product_symbol(name: str) -> str:
    """The function of a matrix product."""
    return f"nw_sim_{name.replace('.', '_')}"


def product_text(name: str, x: Matrix) -> str:
    """A matrix product of one warp; each thread's slots: result, sums, a, b.

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
    body = [
        *_gather(symbol, "c", 8, words[2], 1, number, _plain(number)),
        *_gather(symbol, "a", 16, words[0], x.per_word, number, _unpacked(x)),
        *_gather(symbol, "b", 24, words[1], x.per_word, number, _unpacked(x)),
    ]
    names = {
        "symbol": symbol, "number": number, "a": str(x.m * x.k), "b": str(x.k * x.n),
        "c": str(x.m * x.n), "m": str(x.m), "n": str(x.n), "k": str(x.k),
        "gather": "\n".join(f"  {line}" for line in body),
        "scatter": "\n".join(f"  {line}" for line in _scatter(symbol, words[2], number)),
        "mul": "mul" if number == "i32" else "fmul", "add": "add" if number == "i32" else "fadd",
    }  # fmt: skip
    return "\n".join(tables) + Template(_PRODUCT).substitute(names)


def _table(name: str, place: Callable[[int, int], tuple[int, int]], count: int, width: int) -> str:
    """Where in a matrix of so many columns the elements of each lane belong."""
    pairs = (place(lane, e) for lane in range(WARP) for e in range(count))
    items = ", ".join(f"i32 {row * width + column}" for row, column in pairs)
    return f"@{name} = private constant [{WARP * count} x i32] [{items}]\n"


def _plain(number: str) -> list[str]:
    return [f"%$w.e0 = bitcast i32 %$w to {number}"]


def _unpacked(x: Matrix) -> list[str]:
    """The elements of the word ``%$w`` as ``%$w.e0``, ``%$w.e1``, ..."""
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
    return [  # f32, rounded to tf32: see intrinsics.tf32
        "%$w.exp = and i32 %$w, 2139095040",
        "%$w.odd = icmp eq i32 %$w.exp, 2139095040",
        "%$w.up = add i32 %$w, 4096",
        "%$w.cut = and i32 %$w.up, -8192",
        "%$w.bits = select i1 %$w.odd, i32 %$w, i32 %$w.cut",
        "%$w.e0 = bitcast i32 %$w.bits to float",
    ]


def _gather(
    symbol: str, part: str, slot: int, words: int, per_word: int, number: str, unpack: list[str]
) -> list[str]:
    """A lane's words of one operand, into the matrix ``%m.{part}``."""
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


_PRODUCT = """
define internal ptr @${symbol}_slot(ptr %slots, i64 %stride, i64 %lane, i64 %offset) alwaysinline {
  %at = mul i64 %lane, %stride
  %both = add i64 %at, %offset
  %p = getelementptr i8, ptr %slots, i64 %both
  %slot = load ptr, ptr %p
  ret ptr %slot
}

define internal void @$symbol(ptr %slots, i64 %stride) {
entry:
  %m.a = alloca [$a x $number], align 64
  %m.b = alloca [$b x $number], align 64
  %m.c = alloca [$c x $number], align 64
  br label %gather
gather:
  %lane = phi i64 [ 0, %entry ], [ %lane1, %gather ]
$gather
  %lane1 = add i64 %lane, 1
  %more = icmp ult i64 %lane1, 32
  br i1 %more, label %gather, label %rows
rows:
  %row = phi i64 [ 0, %gather ], [ %row1, %row.done ]
  %c.row = mul i64 %row, $n
  %c.p = getelementptr $number, ptr %m.c, i64 %c.row
  %c.old = load <$n x $number>, ptr %c.p, align 4
  %a.row = mul i64 %row, $k
  %a.p = getelementptr $number, ptr %m.a, i64 %a.row
  br label %step
step:
  %k = phi i64 [ 0, %rows ], [ %k1, %step ]
  %sum = phi <$n x $number> [ %c.old, %rows ], [ %sum1, %step ]
  %a.q = getelementptr $number, ptr %a.p, i64 %k
  %x = load $number, ptr %a.q
  %x.one = insertelement <$n x $number> poison, $number %x, i64 0
  %x.all = shufflevector <$n x $number> %x.one, <$n x $number> poison, <$n x i32> zeroinitializer
  %b.row = mul i64 %k, $n
  %b.p = getelementptr $number, ptr %m.b, i64 %b.row
  %y = load <$n x $number>, ptr %b.p, align 4
  %xy = $mul <$n x $number> %x.all, %y
  %sum1 = $add <$n x $number> %sum, %xy
  %k1 = add i64 %k, 1
  %k.more = icmp ult i64 %k1, $k
  br i1 %k.more, label %step, label %row.done
row.done:
  store <$n x $number> %sum1, ptr %c.p, align 4
  %row1 = add i64 %row, 1
  %row.more = icmp ult i64 %row1, $m
  br i1 %row.more, label %rows, label %scatter
scatter:
  %out.lane = phi i64 [ 0, %row.done ], [ %out.lane1, %scatter ]
$scatter
  %out.lane1 = add i64 %out.lane, 1
  %out.more = icmp ult i64 %out.lane1, 32
  br i1 %out.more, label %scatter, label %out
out:
  ret void
}
"""
