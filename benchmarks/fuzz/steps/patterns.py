"""Parts of models as JAX writes them: softmax, norms, GELU, attention, and gradients."""

from __future__ import annotations

from ..builder import Builder, Value, listed
from .registry import step


def over_rows(b: Builder, x: Value, op: str, start: int) -> Value:
    """Return a reduction of the last dimension, spread over it again."""
    last = len(x.dims) - 1
    init = b.scalar(x.dtype, start)
    by = b.simple(x.dtype, op)
    bound = x.bound * (x.dims[-1] if op == "add" else 1)
    text = f"reduce({x.name}, {init.name}), dimensions={{{last}}}, to_apply={by}"
    r = b.emit(x.dtype, x.dims[:-1], text, bound)
    return b.emit(x.dtype, x.dims, f"broadcast({r.name}), dimensions={listed(range(last))}", bound)


def constant_like(b: Builder, x: Value, number: str) -> Value:
    """Return a constant of x's shape."""
    one = b.emit(x.dtype, (), f"constant({number})", abs(float(number)))
    return b.emit(x.dtype, x.dims, f"broadcast({one.name}), dimensions={{}}", one.bound)


def rows(b: Builder) -> Value | None:
    """Floats with a last dimension."""
    x = b.floats()
    return x if x.dims and x.dims[-1] and x.bound < 100 else None


def bound_of(x: Value, op: str, y: Value) -> float:
    """Of a sum or product."""
    return x.bound * y.bound if op == "multiply" else x.bound + y.bound


def two(b: Builder, op: str, x: Value, y: Value, bound: float | None = None) -> Value:
    """One arithmetic operation."""
    return b.emit(
        x.dtype, x.dims, f"{op}({x.name}, {y.name})", bound_of(x, op, y) if bound is None else bound
    )


def one(b: Builder, op: str, x: Value, bound: float) -> Value:
    """One function."""
    return b.emit(x.dtype, x.dims, f"{op}({x.name})", bound)


@step(3, exact=False)
def softmax(b: Builder) -> object:
    """Of the last dimension; or its logarithm."""
    x = rows(b)
    if x is None:
        return None
    shifted = two(b, "subtract", x, over_rows(b, x, "maximum", -1000), 2 * x.bound)
    e = one(b, "exponential", shifted, 1.0)
    total = over_rows(b, e, "add", 0)
    if b.chance(0.5):
        return two(b, "divide", e, total, 1.0)
    return two(b, "subtract", shifted, one(b, "log", total, 8.0), 2 * x.bound + 8)


@step(3, exact=False)
def layer_norm(b: Builder) -> object:
    """Mean and variance of the last dimension, in a wider type now and then."""
    x = rows(b)
    if x is None:
        return None
    narrow = x.dtype
    if narrow in ("bf16", "f16") and b.chance(0.6):
        x = b.emit("f32", x.dims, f"convert({x.name})", x.bound)
    count = constant_like(b, x, str(x.dims[-1]))
    mean = two(b, "divide", over_rows(b, x, "add", 0), count, x.bound)
    centered = two(b, "subtract", x, mean, 2 * x.bound)
    square = two(b, "multiply", centered, centered)
    spread = two(b, "divide", over_rows(b, square, "add", 0), count, square.bound)
    safe = two(b, "add", spread, constant_like(b, x, "0.01"))
    y = two(b, "multiply", centered, one(b, "rsqrt", safe, 10.0), 30.0)
    return b.emit(narrow, y.dims, f"convert({y.name})", y.bound) if narrow != y.dtype else y


@step(3, exact=False)
def gelu(b: Builder) -> object:
    """By erf or by tanh."""
    x = b.floats()
    if x.bound > 50:
        return None
    if b.chance(0.5):
        inner = two(b, "multiply", x, constant_like(b, x, "0.7071"))
        phi = one(b, "erf", inner, 1.0)
    else:
        cube = two(b, "multiply", x, two(b, "multiply", x, x))
        inner = two(b, "add", x, two(b, "multiply", cube, constant_like(b, x, "0.0447")))
        phi = one(b, "tanh", two(b, "multiply", inner, constant_like(b, x, "0.7979")), 1.0)
    half = two(b, "multiply", x, constant_like(b, x, "0.5"))
    return two(b, "multiply", half, two(b, "add", phi, constant_like(b, x, "1")), x.bound)


@step(2, exact=False)
def cross_entropy(b: Builder) -> object:
    """Against labels that an iota compares with, and the gradient for the logits."""
    x = rows(b)
    if x is None or len(x.dims) != 2 or b.outer is not None:
        return None
    n, classes = x.dims
    labels = b.fresh("s32", (n,))
    b.arguments[-1] = b.rng.integers(0, classes, (n,)).astype("int32")
    wide = b.emit("s32", x.dims, f"broadcast({labels.name}), dimensions={{0}}", 0.0)
    at = b.emit("s32", x.dims, "iota(), iota_dimension=1", 0.0)
    hot = b.emit("pred", x.dims, f"compare({wide.name}, {at.name}), direction=EQ", 1.0)
    target = b.emit(x.dtype, x.dims, f"convert({hot.name})", 1.0)
    e = one(b, "exponential", two(b, "subtract", x, over_rows(b, x, "maximum", -1000)), 1.0)
    p = two(b, "divide", e, over_rows(b, e, "add", 0), 1.0)
    return two(b, "subtract", p, target, 1.0)


@step(2)
def slice_gradient(b: Builder) -> object:
    """Return a strided slice, something done to it, and padded back onto what it was cut from."""
    x = b.some(lambda v: v.kind == "float" and len(v.dims) in (1, 2) and v.size > 0)
    if x is None or x.dtype.startswith("f8"):
        return None
    cuts, pads, dims = [], [], []
    for n in x.dims:
        by = b.pick((1, 2, 3))
        low = b.number(0, n - 1)
        high = b.number(low + 1, n)
        count = (high - low + by - 1) // by
        cuts.append(f"[{low}:{high}:{by}]")
        pads.append(f"{low}_{n - (low + (count - 1) * by + 1)}_{by - 1}")
        dims.append(count)
    y = b.emit(x.dtype, dims, f"slice({x.name}), slice={{{', '.join(cuts)}}}", x.bound)
    y = one(b, "negate", y, x.bound)
    zero = b.scalar(x.dtype, 0)
    z = b.emit(x.dtype, x.dims, f"pad({y.name}, {zero.name}), padding={'x'.join(pads)}", x.bound)
    if not b.holds(x.dtype, x.bound + z.bound):
        return z
    return two(b, "add", x, z)


@step(2, exact=False)
def attention(b: Builder) -> object:
    """softmax(q k^T + mask) v, for a batch of heads."""
    heads, n, m, d = b.number(1, 3), b.number(1, 17), b.number(1, 33), b.pick((1, 3, 8, 16, 17))
    dtype = b.pick(("f32", "f32", "bf16", "f16"))
    if b.outer is not None:
        return None
    q, k, v = (b.fresh(dtype, (heads, r, d)) for r in (n, m, m))
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
    s = b.emit(
        dtype, (heads, n, m), f"dot({q.name}, {k.name}), {batch}, rhs_contracting_dims={{2}}", 50.0
    )
    s = two(b, "multiply", s, constant_like(b, s, "0.25"), 12.0)
    i = b.emit("s32", s.dims, "iota(), iota_dimension=1", 0.0)
    j = b.emit("s32", s.dims, "iota(), iota_dimension=2", 0.0)
    seen = b.emit("pred", s.dims, f"compare({j.name}, {i.name}), direction=LE", 1.0)
    low = constant_like(b, s, "-1000")
    s = b.emit(dtype, s.dims, f"select({seen.name}, {s.name}, {low.name})", 1000.0)
    e = one(b, "exponential", two(b, "subtract", s, over_rows(b, s, "maximum", -2000)), 1.0)
    p = two(b, "divide", e, over_rows(b, e, "add", 0), 1.0)
    text = f"dot({p.name}, {v.name}), {batch}, rhs_contracting_dims={{1}}"
    return b.emit(dtype, (heads, n, d), text, 4.0)
