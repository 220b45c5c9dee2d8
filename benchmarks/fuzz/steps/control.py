"""Control flow: calls, branches, loops that count, loops over slices, and random bits."""

from __future__ import annotations

from ..builder import Builder, Value
from .pointwise import any_value
from .registry import choices, step

BODY = 4  # steps of an inner computation, at most


def grown(b: Builder, given: list[Value], dims: tuple[int, ...], dtype: str, bound: float) -> str:
    """Return a computation of the given parameters whose result has a shape, and stays within a
    bound.
    """
    inner = b.inner()
    for n, v in enumerate(given):
        inner.emit(v.dtype, v.dims, f"parameter({n})", v.bound)
    return b.close(inner, result(inner, dims, dtype, bound).name)


def result(inner: Builder, dims: tuple[int, ...], dtype: str, bound: float) -> Value:
    """Return a few steps, and what of their values fits, if nothing else a constant."""
    some = choices(inner.exact, inner=True)
    for _ in range(inner.number(1, BODY)):
        inner.pick(some).rule(inner)
    fits = inner.some(
        lambda v: (
            v.dims == dims
            and v.dtype == dtype
            and (v.bound <= bound or v.kind in ("pred", "signed", "unsigned"))
        )
    )
    return fits or inner.fresh(dtype, dims, 1.0)


@step(2)
def call(b: Builder) -> object:
    """Return a computation of one or two values."""
    x = any_value(b, "isf" if b.exact else "f")
    given = [x, *([any_value(b, "f")] if b.chance(0.5) else [])]
    by = grown(b, given, x.dims, x.dtype, x.bound)
    names = ", ".join(v.name for v in given)
    return b.emit(x.dtype, x.dims, f"call({names}), to_apply={by}", max(x.bound, 1.0))


@step(2, inner=False)
def branch(b: Builder) -> object:
    """By a flag or by a number, which may be out of range."""
    x = any_value(b, "isf" if b.exact else "f")
    bound = max(x.bound, 1.0)
    if b.chance(0.5):
        flag = b.fresh("pred", ())
        yes, no = (grown(b, [x], x.dims, x.dtype, x.bound) for _ in range(2))
        text = (
            f"conditional({flag.name}, {x.name}, {x.name}), true_computation={yes}, "
            f"false_computation={no}"
        )
        return b.emit(x.dtype, x.dims, text, bound)
    at = b.scalar("s32", b.number(-1, 3))
    count = b.number(1, 3)
    every = [grown(b, [x], x.dims, x.dtype, x.bound) for _ in range(count)]
    text = (
        f"conditional({', '.join([at.name, *[x.name] * count])}), "
        f"branch_computations={{{', '.join(every)}}}"
    )
    return b.emit(x.dtype, x.dims, text, bound)


@step(2, inner=False)
def loop(b: Builder) -> object:
    """So many trips over a state of a counter and one or two arrays."""
    x = any_value(b, "isf" if b.exact else "f")
    y = any_value(b, "f")
    trips = b.pick((0, 1, 2, 3, 7))
    state = f"(s32[], {x.shape}, {y.shape})"
    cond = b.inner()
    cond.rows = [
        f"t = {state} parameter(0)",
        "i = s32[] get-tuple-element(t), index=0",
        f"n = s32[] constant({trips})",
        "r = pred[] compare(i, n), direction=LT",
    ]
    body = b.inner()
    body.rows = [f"t = {state} parameter(0)"]
    i = body.emit("s32", (), "get-tuple-element(t), index=0", 0.0)
    body.emit(x.dtype, x.dims, "get-tuple-element(t), index=1", max(x.bound, 1.0))
    body.emit(y.dtype, y.dims, "get-tuple-element(t), index=2", max(y.bound, 1.0))
    nx = result(body, x.dims, x.dtype, max(x.bound, 1.0))
    ny = result(body, y.dims, y.dtype, max(y.bound, 1.0))
    step_ = body.scalar("s32", 1)
    ni = body.row("s32[]", f"add({i.name}, {step_.name})")
    body.row(state, f"tuple({ni}, {nx.name}, {ny.name})")
    conditions, bodies = b.close(cond), b.close(body)
    zero = b.scalar("s32", 0)
    first = b.row(state, f"tuple({zero.name}, {x.name}, {y.name})")
    last = b.row(state, f"while({first}), condition={conditions}, body={bodies}")
    b.emit(y.dtype, y.dims, f"get-tuple-element({last}), index=2", max(y.bound, 1.0))
    return b.emit(x.dtype, x.dims, f"get-tuple-element({last}), index=1", max(x.bound, 1.0))


@step(2, inner=False)
def scan(b: Builder) -> object:
    """Return a loop that takes a slice, carries a value and writes a slice, as JAX's scan."""
    carry = any_value(b, "isf" if b.exact else "f")
    count = b.number(0, 5)
    if carry.size * max(count, 1) > 4000:
        return None
    xs = b.fresh(carry.dtype, (count, *carry.dims))
    zero = b.scalar(carry.dtype, 0)
    ys = b.emit(carry.dtype, xs.dims, f"broadcast({zero.name}), dimensions={{}}", 0.0)
    if not count:
        return None
    state = f"(s32[], {carry.shape}, {xs.shape}, {ys.shape})"
    cond = b.inner()
    cond.rows = [
        f"t = {state} parameter(0)",
        "i = s32[] get-tuple-element(t), index=0",
        f"n = s32[] constant({count})",
        "r = pred[] compare(i, n), direction=LT",
    ]
    body = b.inner()
    body.rows = [f"t = {state} parameter(0)"]
    i = body.row("s32[]", "get-tuple-element(t), index=0")
    bound = max(carry.bound, xs.bound, 1.0)
    c = body.emit(carry.dtype, carry.dims, "get-tuple-element(t), index=1", bound)
    held = body.row(xs.shape, "get-tuple-element(t), index=2")
    made = body.row(ys.shape, "get-tuple-element(t), index=3")
    o = body.row("s32[]", "constant(0)")
    at = ", ".join([i, *[o] * len(carry.dims)])
    sizes = "{" + ",".join(map(str, (1, *carry.dims))) + "}"
    one = (1, *carry.dims)
    part = body.emit(
        carry.dtype, one, f"dynamic-slice({held}, {at}), dynamic_slice_sizes={sizes}", xs.bound
    )
    x = body.emit(carry.dtype, carry.dims, f"reshape({part.name})", xs.bound)
    body.emit(carry.dtype, carry.dims, f"maximum({c.name}, {x.name})", bound)
    new = result(body, carry.dims, carry.dtype, bound)
    kept = result(body, carry.dims, carry.dtype, bound)
    wide = body.emit(carry.dtype, one, f"reshape({kept.name})", bound)
    done = body.row(ys.shape, f"dynamic-update-slice({made}, {wide.name}, {at})")
    n = body.row("s32[]", "constant(1)")
    ni = body.row("s32[]", f"add({i}, {n})")
    body.row(state, f"tuple({ni}, {new.name}, {held}, {done})")
    conditions, bodies = b.close(cond), b.close(body)
    start = b.scalar("s32", 0)
    first = b.row(state, f"tuple({start.name}, {carry.name}, {xs.name}, {ys.name})")
    last = b.row(state, f"while({first}), condition={conditions}, body={bodies}")
    b.emit(carry.dtype, carry.dims, f"get-tuple-element({last}), index=1", bound)
    return b.emit(carry.dtype, ys.dims, f"get-tuple-element({last}), index=3", bound)


@step(1, smooth=False, inner=False)
def random_bits(b: Builder) -> object:
    """Threefry's or Philox's, which are functions of their state."""
    dims = b.dims(b.number(0, 2))
    dtype = b.pick(("u32", "u64", "u8", "u16"))
    state = b.fresh("u64", (2,))
    algorithm = b.pick(("rng_three_fry", "rng_philox"))
    both = b.row(
        f"(u64[2], {dtype}[{','.join(map(str, dims))}])",
        f"rng-bit-generator({state.name}), algorithm={algorithm}",
    )
    return b.emit(dtype, dims, f"get-tuple-element({both}), index=1", 0.0)


@step(1)
def barrier(b: Builder) -> object:
    """Two values that nothing is moved across."""
    x = any_value(b, "isfc" if b.exact else "f")
    both = b.row(f"({x.shape}, {x.shape})", f"tuple({x.name}, {x.name})")
    kept = b.row(f"({x.shape}, {x.shape})", f"opt-barrier({both})")
    return b.emit(x.dtype, x.dims, f"get-tuple-element({kept}), index=1", x.bound)
