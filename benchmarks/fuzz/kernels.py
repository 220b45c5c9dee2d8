"""Small models of one large operation or a few, with what models put around it.

Products, convolutions and attention in the types of tensor cores, rows, sums and places of the
largest, as sketches look for them. Extents are whole tiles, one beside them, or anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from .builder import Builder, Value, listed
from .programs import Program
from .steps import moves, patterns, pointwise, reductions
from .steps.patterns import constant_like, one, over_rows, two

Rule: TypeAlias = Callable[[Builder], object]

NARROW = ("f16", "bf16", "bf16", "f8e4m3fn", "f8e5m2", "s8")
SUMS = {"f16": "f32", "bf16": "f32", "f8e4m3fn": "f32", "f8e5m2": "f32", "s8": "s32"}
WORK = 1 << 20  # multiplications of one product
LARGE = 1 << 15  # elements of one operand
AFTER: Sequence[Rule] = (
    *(pointwise.function, pointwise.relu, pointwise.selected, pointwise.binary),
    *(pointwise.converted, patterns.gelu, moves.transpose, moves.broadcast),
    *(patterns.softmax, patterns.layer_norm, reductions.reduce),
)


def draw(seed: int, number: int) -> Program:
    """Return the model of a number."""
    rng = np.random.default_rng([seed, number, 1])
    b = Builder(rng, exact=False)
    wanted = b.pick((1, 1, 1, 2, 3))
    while wanted > 0 or len(b.values) == len(b.arguments):  # not every draw is taken
        b.pick(KINDS)(b)
        wanted -= 1
    for _ in range(b.number(0, 3)):
        b.pick(AFTER)(b)
    made = [v for v in b.values if not any(r.startswith(f"{v.name} = ") for r in _given(b))]
    results = [made[-1], *(v for v in made[:-1] if not _read(b, v) or b.chance(0.05))]
    return Program(b.text(results[:6]), tuple(b.arguments), False)


def _given(b: Builder) -> list[str]:
    return [r for r in b.rows if " parameter(" in r]


def _read(b: Builder, v: Value) -> bool:
    return any(f"({v.name}," in r or f" {v.name}," in r or f"{v.name})" in r for r in b.rows)


def extent(b: Builder, most: int = 260) -> int:
    """Return the extent of one side of a product or a table of rows."""
    match b.number(0, 5):
        case 0:
            return b.number(1, 15)
        case 1:
            return b.pick((16, 32, 64, 96, 128))
        case 2:
            return b.pick((15, 17, 31, 33, 63, 65, 127, 129))
        case 3:
            return b.pick((1, 2, 8))
        case _:
            return b.number(16, most)


def product(b: Builder) -> object:
    """Return a product of matrices, any side contracted, of several types."""
    m, n, k = (extent(b) for _ in range(3))
    if b.chance(0.3):  # few rows, and weights
        m, n, k = b.number(1, 15), b.number(32, 300), b.number(32, 600)
    batch = [b.number(1, 3) for _ in range(b.pick((0, 0, 0, 1, 2)))]
    while m * n * k * math.prod(batch) > WORK or max(m, n) * k * math.prod(batch) > LARGE:
        m, n, k = (max(1, x * 3 // 4) for x in (m, n, k))
    dtype = b.pick(NARROW) if b.chance(0.7) else "f32"
    x, left = _operand(b, dtype, batch, m, k)
    y, right = _operand(b, dtype, batch, n, k)
    to = SUMS.get(dtype, dtype) if dtype not in ("f16", "bf16") or b.chance(0.5) else dtype
    places = listed(range(len(batch)))
    text = f"dot({x.name}, {y.name}), lhs_batch_dims={places}, rhs_batch_dims={places}, "
    text += f"lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}"
    return _epilogue(b, b.emit(to, [*batch, m, n], text, 20.0), dtype)


def _operand(b: Builder, dtype: str, batch: list[int], rows: int, k: int) -> tuple[Value, int]:
    """Return an operand and its contracted dimension; now and then it is computed."""
    turned = b.chance(0.5)
    dims = [*batch, k, rows] if turned else [*batch, rows, k]
    at = len(batch) + (0 if turned else 1)
    if dtype not in ("f32", "f16", "bf16") or b.chance(0.7):
        return b.fresh(dtype, dims), at
    match b.number(0, 2):
        case 0:
            stored = b.fresh(b.pick(("s8", "f32", "f8e4m3fn")), dims)
            return b.emit(dtype, dims, f"convert({stored.name})", 3.0), at
        case 1:
            return one(b, "tanh", b.fresh(dtype, dims), 1.0), at
        case _:
            x = b.fresh(dtype, dims[::-1])
            order = listed(range(len(dims))[::-1])
            return b.emit(dtype, dims, f"transpose({x.name}), dimensions={order}", 3.0), at


def _epilogue(b: Builder, x: Value, dtype: str) -> Value:
    """Return what layers do to sums: a scale per row or column, a bias, a residual, less bits."""
    if x.kind != "float":
        x = b.emit("f32", x.dims, f"convert({x.name})", x.bound) if b.chance(0.7) else x
    if x.kind != "float":
        return x
    for _ in range(b.number(0, 2)):
        dims = b.subset(len(x.dims), 0.4)
        y = b.fresh(x.dtype, [x.dims[d] for d in dims])
        wide = b.emit(x.dtype, x.dims, f"broadcast({y.name}), dimensions={listed(dims)}", 3.0)
        x = two(b, b.pick(("add", "multiply")), x, wide, 20.0)
    if b.chance(0.2):
        x = two(b, "add", x, b.fresh(x.dtype, x.dims), 20.0)
    if b.chance(0.3):
        pointwise.relu(b)
        x = b.values[-1]
    to = b.pick(("f16", "bf16", dtype))
    if b.chance(0.3) and not to.startswith("s"):
        x = b.emit(to, x.dims, f"convert({x.name})", x.bound)
    return x


def coded(b: Builder) -> object:
    """Return a product of codes of eight bits with scales: for all of an operand, or per row."""
    m, n, k = (extent(b, 100) for _ in range(3))
    wide, codes = b.pick(("f32", "f32", "bf16")), b.pick((*NARROW[3:], "u8", "f8e5m2fnuz"))
    other = codes if b.chance(0.7) else b.pick((*NARROW[3:], "u8"))
    x, y = _decoded(b, codes, wide, (m, k)), _decoded(b, other, wide, (n, k))
    text = f"dot({x.name}, {y.name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
    return _epilogue(b, b.emit(wide, (m, n), text, 20.0), wide)


def _decoded(b: Builder, codes: str, wide: str, dims: tuple[int, int]) -> Value:
    x = b.emit(wide, dims, f"convert({b.fresh(codes, dims).name})", 3.0)
    if b.chance(0.3):  # a zero point
        x = two(b, "subtract", x, constant_like(b, x, str(b.number(-2, 3))))
    for _ in range(b.number(0, 2)):
        rows = (0,) if b.chance(0.3) else ()
        if b.chance(0.5):
            scale = b.scalar(wide, b.number(1, 4)) if not rows else b.fresh(wide, dims[:1])
        else:
            scale = b.fresh(wide, [dims[d] for d in rows])
        wider = b.emit(wide, dims, f"broadcast({scale.name}), dimensions={listed(rows)}", 3.0)
        x = two(b, "multiply", x, wider)
    return x


def convolution(b: Builder) -> object:
    """Return one with strides, holes, groups and padding, in one to three dimensions."""
    rank = b.pick((1, 2, 2, 2, 3))
    space = [b.number(2, 40 if rank == 1 else 14 if rank == 2 else 6) for _ in range(rank)]
    groups, batch = b.pick((1, 1, 1, 2, 3)), b.number(1, 3)
    each, results = b.pick((1, 3, 8, 16, 20)), b.pick((1, 4, 8, 16, 17, 40))
    ws = reductions.sides(b, tuple(space), b.chance(0.3), reversal=0)
    out = [s.places(n) or 0 for n, s in zip(space, ws, strict=True)]
    terms = each * math.prod(s.size for s in ws)
    if batch * math.prod(out) * results * groups * terms > WORK or not math.prod(out):
        return None
    full = {"b": batch, "f": each * groups, **{str(d): n for d, n in enumerate(space)}}
    kernel = {"i": each, "o": results * groups, **{str(d): s.size for d, s in enumerate(ws)}}
    made = {"b": batch, "f": results * groups, **{str(d): n for d, n in enumerate(out)}}
    axes = [str(d) for d in range(rank)]
    first, last = ["b", "f", *axes], ["b", *axes, "f"]
    xs, zs = (b.pick((first, last)) for _ in range(2))
    ks = b.pick((["o", "i", *axes], [*axes, "i", "o"]))
    dtype = b.pick(("f32", "f16", "bf16", "s8"))
    to = SUMS.get(dtype, dtype) if dtype == "s8" or b.chance(0.5) else dtype
    x, y = b.fresh(dtype, [full[a] for a in xs]), b.fresh(dtype, [kernel[a] for a in ks])
    text = f"convolution({x.name}, {y.name}), {reductions.window(ws)}"
    text += f"dim_labels={''.join(xs)}_{''.join(ks)}->{''.join(zs)}, feature_group_count={groups}"
    return _epilogue(b, b.emit(to, [made[a] for a in zs], text, 20.0), dtype)


def attention(b: Builder) -> object:
    """Return attention, of groups of queries that share keys, causal, masked, or of one query."""
    dtype = b.pick(("f32", "f16", "bf16", "bf16"))
    heads, shared = [b.number(1, 2) for _ in range(b.number(1, 2))], b.pick((0, 0, 1, 2, 3))
    n, m = b.pick((1, b.number(2, 9), b.number(10, 70), 64)), b.pick((b.number(1, 140), 64, 128))
    d, width = b.pick((8, 16, 32, 64, b.number(1, 40))), 0
    width = d if b.chance(0.7) else b.pick((8, 16, b.number(1, 40)))
    rank = len(heads)
    inner = [shared, n] if shared else [n]
    q = b.fresh(dtype, [*heads, *inner, d])
    k, v = b.fresh(dtype, [*heads, m, d]), b.fresh(dtype, [*heads, m, width])
    batch = f"lhs_batch_dims={listed(range(rank))}, rhs_batch_dims={listed(range(rank))}, "
    wide = "f32" if b.chance(0.6) else dtype
    by = f"lhs_contracting_dims={{{len(q.dims) - 1}}}, rhs_contracting_dims={{{rank + 1}}}"
    s = b.emit(wide, [*heads, *inner, m], f"dot({q.name}, {k.name}), {batch}{by}", 9.0)
    if b.chance(0.7):
        s = two(b, "multiply", s, constant_like(b, s, "0.25"), 9.0)
    if b.chance(0.6):
        s = _masked(b, s)
    e = one(b, "exponential", two(b, "subtract", s, over_rows(b, s, "maximum", -3000), 9.0), 1.0)
    late = b.chance(0.2)
    p = e if late else two(b, "divide", e, over_rows(b, e, "add", 0), 1.0)
    if p.dtype != dtype:
        p = b.emit(dtype, p.dims, f"convert({p.name})", 1.0)
    by = f"lhs_contracting_dims={{{len(p.dims) - 1}}}, rhs_contracting_dims={{{rank}}}"
    return b.emit(dtype, [*heads, *inner, width], f"dot({p.name}, {v.name}), {batch}{by}", 3.0)


def _masked(b: Builder, s: Value) -> Value:
    rows, columns = len(s.dims) - 2, len(s.dims) - 1
    low = constant_like(b, s, b.pick(("-1000", "-3000", "-inf") if s.dims[-1] > 1 else ("-1000",)))
    if b.chance(0.6):  # causal, the last query sees every key
        i, j = (b.emit("s32", s.dims, f"iota(), iota_dimension={d}", 0.0) for d in (rows, columns))
        more = constant_like(b, i, str(max(0, s.dims[columns] - s.dims[rows])))
        i = b.emit("s32", s.dims, f"add({i.name}, {more.name})", 0.0)
        seen = b.emit("pred", s.dims, f"compare({j.name}, {i.name}), direction=LE", 1.0)
    else:
        dims = sorted({*b.subset(len(s.dims), 0.4), columns})
        flag = b.fresh("pred", [s.dims[d] for d in dims])
        seen = b.emit("pred", s.dims, f"broadcast({flag.name}), dimensions={listed(dims)}", 1.0)
        low = constant_like(b, s, "-1000")
    return b.emit(s.dtype, s.dims, f"select({seen.name}, {s.name}, {low.name})", 9.0)


def table(b: Builder) -> Value:
    """Return rows of floats, many or few, long or short, of one block or of several."""
    long = b.pick((extent(b), b.number(200, 5000), b.pick((1024, 1025, 2048, 4096))))
    dims = [b.number(1, max(1, min(260, LARGE // long))), long]
    dims = dims[::-1] if b.chance(0.2) else dims
    dims = [b.number(1, 3), *dims] if b.chance(0.2) else dims
    return b.fresh(b.pick(("f32", "f32", "f16", "bf16")), dims)


def rows(b: Builder) -> object:
    """Return softmax, a norm, or a sum of whatever dimensions, of a table."""
    x = table(b)
    if b.chance(0.3):
        x = two(b, "add", x, b.fresh(x.dtype, x.dims))
    b.pick((patterns.softmax, patterns.layer_norm, reductions.reduce, reductions.reduce))(b)
    return x


def running(b: Builder) -> object:
    """Return running sums or maxima along a dimension, from either end, of long rows or many."""
    x = table(b)
    if b.chance(0.4):
        x = b.fresh(b.pick(("f32", "s32", "bf16")), (b.number(1, 2), b.number(2000, 16000)))
    d = len(x.dims) - 1 if b.chance(0.8) else b.number(0, len(x.dims) - 1)
    ws, n = [reductions.Side() for _ in x.dims], x.dims[d]
    ahead, own = b.chance(0.5), b.chance(0.7)  # own: the element itself is in its sum
    low, high = (0, n - 1) if ahead else (n - 1, 0)
    ws[d] = reductions.Side(n, low=low, high=high)
    if not own and n > 1:
        ws[d] = reductions.Side(n, low=low - 1, high=high + 1) if ahead else ws[d]
        ws[d] = reductions.Side(n, low=low + 1, high=high - 1) if not ahead else ws[d]
    by = b.simple(x.dtype, b.pick(("add", "add", "maximum")))
    text = f"reduce-window({x.name}, {b.scalar(x.dtype, 0).name}), {reductions.window(ws)}"
    return b.emit(x.dtype, x.dims, f"{text}to_apply={by}", 90.0)


def places(b: Builder) -> object:
    """Return the largest of each row and its place, or of all."""
    table(b)
    return reductions.arg_reduce(b)


def moved(b: Builder) -> object:
    """Return a table that is turned, cut, padded or joined."""
    table(b)
    return b.pick((moves.transpose, moves.pad, moves.concatenate, moves.strided_slice))(b)


KINDS: Sequence[Rule] = (
    *(product, product, product, product, coded, coded, convolution, convolution),
    *(attention, attention, attention, rows, rows, running, places, moved),
)
