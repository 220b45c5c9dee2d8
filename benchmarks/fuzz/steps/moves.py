"""Steps that move elements: broadcasts, transposes, slices, pads, concatenations, indices."""

from __future__ import annotations

import math

from ..builder import ELEMENTS, Builder, listed, range_of
from .pointwise import any_value
from .registry import step

KINDS = ("pisfnc", "fc")  # of exact and of smooth programs


def value(b: Builder):  # type: ignore[no-untyped-def]
    """Anything that may be moved."""
    return any_value(b, KINDS[not b.exact])


@step(5)
def broadcast(b: Builder) -> object:
    """New dimensions anywhere."""
    x = value(b)
    if len(x.dims) > 3:
        return None
    rank = len(x.dims) + b.number(0, 2)
    kept = sorted(b.shuffled(rank)[: len(x.dims)])
    dims = [b.extent() for _ in range(rank)]
    for n, d in zip(x.dims, kept, strict=True):
        dims[d] = n
    if math.prod(dims) > ELEMENTS:
        return None
    return b.emit(x.dtype, dims, f"broadcast({x.name}), dimensions={listed(kept)}", x.bound)


@step(4)
def reshape(b: Builder) -> object:
    """Other dimensions of as many elements."""
    x = value(b)
    dims: list[int] = []
    left = x.size
    if not left:
        dims = [b.pick((0, 1, 3)) for _ in range(b.number(1, 3))]
        dims[b.number(0, len(dims) - 1)] = 0
    while left > 1 and len(dims) < 4:
        some = [f for f in range(2, min(left, 64) + 1) if left % f == 0]
        f = b.pick(some) if some and b.chance(0.7) else left
        dims.append(f)
        left //= f
    if left > 1:
        dims.append(left)
    while b.chance(0.25):
        dims.insert(b.number(0, len(dims)), 1)
    if x.size == 1 and math.prod(dims) != 1:
        return None
    return b.emit(x.dtype, dims, f"reshape({x.name})", x.bound)


@step(4)
def transpose(b: Builder) -> object:
    """Return a value with its dimensions in another order."""
    x = value(b)
    order = b.shuffled(len(x.dims))
    dims = [x.dims[d] for d in order]
    return b.emit(x.dtype, dims, f"transpose({x.name}), dimensions={listed(order)}", x.bound)


@step(4)
def strided_slice(b: Builder) -> object:
    """Return a strided slice of every dimension."""
    x = value(b)
    rows, dims = [], []
    for n in x.dims:
        low = b.number(0, n)
        high = b.number(low, n) if b.chance(0.7) else n
        by = b.pick((1, 1, 1, 2, 3))
        rows.append(f"[{low}:{high}:{by}]")
        dims.append((high - low + by - 1) // by)
    return b.emit(x.dtype, dims, f"slice({x.name}), slice={{{', '.join(rows)}}}", x.bound)


@step(4)
def pad(b: Builder) -> object:
    """Around, between and, with negative numbers, away; also what a slice's gradient is."""
    x = value(b)
    if not x.dims:
        return None
    rows, dims = [], []
    for n in x.dims:
        low, high, inside = (b.number(-1, 2) for _ in range(3))
        inside = max(inside, 0) if b.chance(0.5) else 0
        wide = n + max(n - 1, 0) * inside
        low, high = max(low, -(wide // 2)), max(high, -(wide // 2))
        rows.append(f"{low}_{high}_{inside}")
        dims.append(wide + low + high)
    if math.prod(dims) > ELEMENTS:
        return None
    filler = b.scalar(x.dtype, b.number(0, 1)) if x.dtype != "pred" else b.fresh("pred", ())
    text = f"pad({x.name}, {filler.name}), padding={'x'.join(rows)}"
    return b.emit(x.dtype, dims, text, max(x.bound, 1.0))


@step(3)
def concatenate(b: Builder) -> object:
    """Several values of one type along a dimension."""
    x = value(b)
    if not x.dims:
        return None
    d = b.number(0, len(x.dims) - 1)
    others = [x]
    for _ in range(b.number(0, 2)):
        dims = [b.extent() if k == d else n for k, n in enumerate(x.dims)]
        found = b.some(lambda v: v.dtype == x.dtype and _but(v.dims, d) == _but(x.dims, d))
        others.append(found if found and b.chance(0.6) else b.fresh(x.dtype, dims))
    total = sum(v.dims[d] for v in others)
    dims = [total if k == d else n for k, n in enumerate(x.dims)]
    if math.prod(dims) > ELEMENTS:
        return None
    names = ", ".join(v.name for v in others)
    bound = max(v.bound for v in others)
    return b.emit(x.dtype, dims, f"concatenate({names}), dimensions={{{d}}}", bound)


def _but(dims: tuple[int, ...], d: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return len(dims), dims[:d], dims[d + 1 :]


@step(1)
def reverse(b: Builder) -> object:
    """Some dimensions from the end."""
    x = value(b)
    some = b.subset(len(x.dims))
    return b.emit(x.dtype, x.dims, f"reverse({x.name}), dimensions={listed(some)}", x.bound)


@step(2, smooth=False)
def iota(b: Builder) -> object:
    """Numbers along a dimension."""
    dtype = b.dtype("isf")
    dims = b.dims(b.number(1, 3))
    d = b.number(0, len(dims) - 1)
    if dims[d] > range_of(dtype):
        return None
    return b.emit(dtype, dims, f"iota(), iota_dimension={d}", float(dims[d]))


def starts(b: Builder, dims: tuple[int, ...], far: int = 1) -> str:
    """Indices of a dynamic slice, one a dimension, some out of bounds."""
    dtype = b.pick(("s32", "s64", "u32", "s8"))
    names = []
    for n in dims:
        low = 0 if dtype == "u32" else -far
        names.append(b.scalar(dtype, b.number(low, min(n + far, 120))).name)
    return ", ".join(names)


@step(2)
def dynamic_slice(b: Builder) -> object:
    """From an index that is known when the program runs."""
    x = value(b)
    if not x.dims:
        return None
    sizes = [b.number(min(n, 1), n) for n in x.dims]
    text = f"dynamic-slice({x.name}, {starts(b, x.dims)}), dynamic_slice_sizes={listed(sizes)}"
    return b.emit(x.dtype, sizes, text, x.bound)


@step(2)
def dynamic_update(b: Builder) -> object:
    """Return a value with a part replaced, in place where that is safe."""
    x = value(b)
    if not x.dims:
        return None
    sizes = [b.number(min(n, 1), n) for n in x.dims]
    found = b.some(lambda v: v.dtype == x.dtype and v.dims == tuple(sizes))
    y = found or b.fresh(x.dtype, sizes)
    text = f"dynamic-update-slice({x.name}, {y.name}, {starts(b, x.dims)})"
    return b.emit(x.dtype, x.dims, text, max(x.bound, y.bound))
