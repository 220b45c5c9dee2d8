"""Steps seen less often: fusions, maps, collectives of one device, library calls, bounded sizes."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, listed, shape_of
from .control import grown
from .moves import value
from .patterns import constant_like, one, two
from .pointwise import any_value
from .registry import step


@step(2)
def fusion(b: Builder) -> object:
    """Return a computation that is called as XLA's own fusions are."""
    x = any_value(b, "isf" if b.exact else "f")
    by = grown(b, [x], x.dims, x.dtype, x.bound)
    kind = b.pick(("kLoop", "kInput", "kOutput", "kCustom"))
    return b.emit(x.dtype, x.dims, f"fusion({x.name}), kind={kind}, calls={by}", max(x.bound, 1.0))


@step(1, smooth=False)
def mapped(b: Builder) -> object:
    """Return a scalar function of two arrays."""
    x = any_value(b, "if")
    y = b.like(x)
    by = b.combiner(
        [x.dtype, x.dtype],
        [f"a = {x.dtype}[] maximum(q1, q0)", f"r = {x.dtype}[] minimum(a, q0)"],
    )
    every = listed(range(len(x.dims)))
    text = f"map({x.name}, {y.name}), dimensions={every}, to_apply={by}"
    return b.emit(x.dtype, x.dims, text, max(x.bound, y.bound))


@step(1)
def collective(b: Builder) -> object:
    """Append a collective operation over a single device."""
    x = value(b)
    if not x.dims or x.kind == "complex":
        return None
    d = b.number(0, len(x.dims) - 1)
    match b.number(0, 6):
        case 0:
            op = "and" if x.kind == "pred" else "add"
            text = f"all-reduce({x.name}), replica_groups={{}}, to_apply={b.simple(x.dtype, op)}"
        case 1:
            text = f"all-gather({x.name}), replica_groups={{}}, dimensions={{{d}}}"
        case 2:
            op = "or" if x.kind == "pred" else "add"
            by = b.simple(x.dtype, op)
            text = (
                f"reduce-scatter({x.name}), replica_groups={{}}, dimensions={{{d}}}, to_apply={by}"
            )
        case 3:
            text = f"all-to-all({x.name}), replica_groups={{}}, dimensions={{{d}}}"
        case 4:
            text = f"collective-permute({x.name}), source_target_pairs={{{{0,0}}}}"
        case 5:
            text = f"collective-broadcast({x.name}), replica_groups={{{{0}}}}"
        case _:
            return b.emit("u32", (), b.pick(("replica-id()", "partition-id()")), 0.0)
    return b.emit(x.dtype, x.dims, text, x.bound)


@step(2, exact=False)
def inverse_function(b: Builder) -> object:
    """Of what lies well inside the domain."""
    x = b.floats()
    half = two(b, "multiply", one(b, "tanh", x, 1.0), constant_like(b, x, "0.5"))
    op = b.pick(("acos", "asin", "atanh", "acosh", "erfc"))
    if op == "acosh":
        half = two(b, "add", half, constant_like(b, x, "2.5"))
    return one(b, op, half, 4.0)


@step(1, smooth=False)
def finite(b: Builder) -> object:
    """Return the predicate "is finite"."""
    x = b.floats()
    return b.emit("pred", x.dims, f"is-finite({x.name})", 1.0)


@step(1, exact=False)
def transform(b: Builder) -> object:
    """Return a Fourier transform of the last dimension and its inverse."""
    x = b.some(lambda v: v.dtype in ("f32", "f64") and bool(v.dims) and v.size > 0)
    if x is None or x.bound > 100:
        return None
    n = x.dims[-1]
    to = "c64" if x.dtype == "f32" else "c128"
    y = b.row(
        shape_of(to, (*x.dims[:-1], n // 2 + 1)),
        f"fft({x.name}), fft_type=RFFT, fft_length={{{n}}}",
    )
    return b.emit(x.dtype, x.dims, f"fft({y}), fft_type=IRFFT, fft_length={{{n}}}", x.bound)


@step(1, exact=False, inner=False)
def solve(b: Builder) -> object:
    """Return a Cholesky factor and a triangular system."""
    n, m, dtype = b.number(1, 6), b.number(1, 4), b.pick(("f32", "f64"))
    a = b.fresh(dtype, (n, n))
    drawn = b.rng.standard_normal((n, n))
    b.arguments[-1] = np.asarray(drawn @ drawn.T + n * np.eye(n)).astype(b.arguments[-1].dtype)
    right = b.fresh(dtype, (n, m))
    factor = b.row(shape_of(dtype, (n, n)), f"cholesky({a.name}), lower=true")
    text = (
        f"triangular-solve({factor}, {right.name}), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    )
    return b.emit(dtype, (n, m), text, 10.0)


@step(1, exact=False)
def batch_norm_gradient(b: Builder) -> object:
    """For the operand, the scale and the offset."""
    x = b.floats()
    if not x.dims or not x.size or x.bound > 50:
        return None
    d = b.number(0, len(x.dims) - 1)
    vector = (x.dims[d],)
    scale, mean, spread = (b.fresh(x.dtype, vector) for _ in range(3))
    variance = two(b, "multiply", spread, spread)
    g = b.like(x)
    names = ", ".join(v.name for v in (x, scale, mean, variance, g))
    shape = f"({x.shape}, {shape_of(x.dtype, vector)}, {shape_of(x.dtype, vector)})"
    three = b.row(shape, f"batch-norm-grad({names}), epsilon=0.1, feature_index={d}")
    return b.emit(x.dtype, x.dims, f"get-tuple-element({three}), index=0", 1e3)


@step(1, smooth=False)
def bounded_sum(b: Builder) -> object:
    """Return a dimension made shorter, and what is left of it summed."""
    x = any_value(b, "i")
    if not x.dims or not x.size:
        return None
    d = b.number(0, len(x.dims) - 1)
    size = b.scalar("s32", b.number(0, x.dims[d]))
    dims = ",".join(f"<={n}" if k == d else str(n) for k, n in enumerate(x.dims))
    cut = b.row(
        f"{x.dtype}[{dims}]", f"set-dimension-size({x.name}, {size.name}), dimensions={{{d}}}"
    )
    zero = b.scalar(x.dtype, 0)
    kept = [n for k, n in enumerate(x.dims) if k != d]
    by = b.simple(x.dtype, "add")
    text = f"reduce({cut}, {zero.name}), dimensions={{{d}}}, to_apply={by}"
    b.emit("s32", (), f"get-dimension-size({cut}), dimensions={{{d}}}", 0.0)
    return b.emit(x.dtype, kept, text, 0.0)


@step(1, smooth=False)
def running(b: Builder) -> object:
    """HLO's own scan: sums along a dimension, and the last of them."""
    x = any_value(b, "i")
    if not x.dims or math.prod(x.dims) > 2000 or x.dtype in ("s2", "s4", "u2", "u4"):
        return None
    d = b.number(0, len(x.dims) - 1)
    kept = tuple(n for k, n in enumerate(x.dims) if k != d)
    carry = b.fresh(x.dtype, kept)
    row = shape_of(x.dtype, kept)
    inner = b.inner()
    inner.rows = [
        f"x = {row} parameter(0)",
        f"k = {row} parameter(1)",
        f"s = {row} add(x, k)",
        f"r = ({row}, {row}) tuple(s, s)",
    ]
    by = b.close(inner)
    both = b.row(
        f"({x.shape}, {row})",
        f"scan({x.name}, {carry.name}), dimensions={{{d}}}, num_carries=1, to_apply={by}",
    )
    return b.emit(x.dtype, x.dims, f"get-tuple-element({both}), index=0", 0.0)
