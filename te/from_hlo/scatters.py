"""Writes to places known at run time: scatter, and the gradient of a window maximum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dtypes import index as index_type
from ...ir.dtypes import pred
from ...ir.hlo.nodes import Computation, Instruction, Shape, TupleShape, WindowDim
from ...ir.loop.build import TRUE, add, both, cast, compare, const, mul, op, select
from ...ir.loop.nodes import Buffer, Expr, If, Load, Op, Stmt, Store, Var
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import lets, seq
from .. import blocks
from ..blocks import Axis, variables
from .emitter import always, as_index
from .indexed import component
from .scalars import apply, simple_combiner
from .stages import Draft, copy_of


@dataclass(frozen=True, slots=True)
class _Target:
    """The destination of the update at an instance of ``axes``.

    ``update`` is its place among the updates, ``place`` the one in the operand, over the variables
    that ``starts`` binds; it is ``valid`` when its whole window lies inside.
    """

    axes: tuple[Axis, ...]
    update: tuple[Expr, ...]
    place: tuple[Expr, ...]
    starts: list[tuple[Var, Expr]]
    valid: Expr


def scatter(d: Draft, x: Instruction) -> None:
    """A copy of the operand, then the updates in order; those that leave the array are dropped."""
    count = len(x.operands) // 2
    operands, updates = x.operands[:count], x.operands[count + 1 :]
    shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    name = d.fresh("scatter")
    out: list[Buffer] = []
    for n, (shape, operand) in enumerate(zip(shapes, operands, strict=True)):
        assert isinstance(shape, Shape)
        out.append(d.target((x, n), f"{name}_{n}" if n else name, shape.dims, shape.dtype))
        copy_of(d, operand, out[n])
    t = _target(d, x, x.operands[count], updates[0].array.dims)
    new = [d.emitter.element(u, t.update) for u in updates]
    values = combined(x.attrs["to_apply"], [Load(b, t.place) for b in out], new)
    body: Stmt = blocks.stores(out, t.place, values)
    body = lets(t.starts, body if t.valid == TRUE else If(t.valid, body))
    d.body.append(blocks.nest(name, t.axes, body, notes=OPAQUE.alone(1)))
    for n, b in enumerate(out):
        d.done((x, n), b)


def _target(d: Draft, x: Instruction, indices: Instruction, extents: tuple[int, ...]) -> _Target:
    """Axes over the updates, one window after the other.

    Window dimensions as wide as the operand's never collide, nor do batches: spatial.
    """
    dims = x.operands[0].array.dims
    batching = x.attrs.get("input_batching_dims", ())
    skipped = {*x.attrs.get("inserted_window_dims", ()), *batching}
    windows = dict(
        zip(
            (n for n in range(len(dims)) if n not in skipped),
            sorted(x.attrs.get("update_window_dims", ())),
            strict=True,
        )
    )
    vector = x.attrs["index_vector_dim"]
    scattered = [u for u in range(len(extents)) if u not in windows.values()]
    among = x.attrs.get("scatter_indices_batching_dims", ())
    batches = [scattered[b if b < vector else b - 1] for b in among]
    whole = batches + [u for n, u in windows.items() if extents[u] == dims[n]]
    inside = [u for u in windows.values() if u not in whole]
    rest = [u for u in scattered if u not in batches] + inside
    axes = (
        *d.emitter.spatial([extents[u] for u in whole]),
        *d.emitter.reducing([extents[u] for u in rest]),
    )
    found = dict(zip((*whole, *rest), variables(axes), strict=True))
    batch = [found[u] for u in scattered]
    place: list[Expr] = [found[windows[n]] if n in windows else const(0) for n in range(len(dims))]
    starts: list[tuple[Var, Expr]] = []
    conditions: list[Expr | None] = []
    for k, n in enumerate(x.attrs["scatter_dims_to_operand_dims"]):
        element = d.emitter.element(indices, component(indices, batch, vector, k))
        start = Var(f"start{k}")
        starts.append((start, as_index(element)))
        place[n] = add(place[n], start)
        size = extents[windows[n]] if n in windows else 1
        conditions.append(d.emitter.inside(start, dims[n] - size + 1))
    for n, u in zip(batching, batches, strict=True):
        place[n] = found[u]
    update = tuple(found[u] for u in range(len(extents)))
    return _Target(axes, update, tuple(place), starts, always(both(*conditions)))


def combined(
    computation: Computation, old: Sequence[Expr], new: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Return ``computation(old, new)``, as one operation where it is one."""
    simple = simple_combiner(computation) if len(old) == 1 else None
    if simple is not None:
        return (op(simple, old[0], cast(new[0], old[0].dtype)),)
    made = apply(computation, (*old, *new))
    return tuple(cast(v, o.dtype) for v, o in zip(made, old, strict=True))


def select_and_scatter(d: Draft, x: Instruction) -> None:
    """Per window, the place of the element that ``select`` keeps; then its source is added there.

    The first element inside the operand is kept until ``select(kept, candidate)`` fails.
    """
    _, source, start = x.operands
    window: Sequence[WindowDim] = x.attrs["window"]
    name = d.fresh("select_and_scatter")
    out = d.target((x, 0), name, x.array.dims, x.array.dtype)
    found = _selected(d, x, name, window)
    axes = d.emitter.spatial(out.shape)
    at = variables(axes)
    first = cast(d.emitter.scalar(start), out.dtype)
    d.body.append(blocks.nest(d.fresh("fill"), axes, blocks.store(out, at, first)))

    wide = [n for n, w in enumerate(window) if _reaches(w)]
    extents = source.array.dims
    flat = [n for n in range(len(extents)) if n not in wide]
    axes = (
        *d.emitter.spatial([extents[n] for n in flat]),
        *d.emitter.reducing([extents[n] for n in wide]),
    )
    index = dict(zip((*flat, *wide), variables(axes), strict=True))
    here = tuple(index[n] for n in range(len(extents)))
    names = {n: Var(f"place{n}") for n in wide}
    place = tuple(names.get(n, here[n]) for n in range(len(extents)))
    values = combined(x.attrs["scatter"], [Load(out, place)], [d.emitter.element(source, here)])
    body: Stmt = blocks.store(out, place, values[0])
    if wide:
        body = If(compare("ge", names[wide[0]], 0), body)
    body = lets([(names[n], Load(found[n], here)) for n in wide], body)
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))
    d.done((x, 0), out)


def _reaches(w: WindowDim) -> bool:
    """True if a window dimension looks at more than the place itself."""
    return w != WindowDim(size=1)


def _selected(
    d: Draft, x: Instruction, name: str, window: Sequence[WindowDim]
) -> dict[int, Buffer]:
    """Append a block that finds the kept element of each window; return its places, or -1."""
    operand, source, _ = x.operands
    extents = source.array.dims
    wide = [n for n, w in enumerate(window) if _reaches(w)]
    if not wide:
        return {}
    kept = d.alloc(f"{name}_kept", extents, operand.array.dtype)
    places = {n: d.alloc(f"{name}_place{n}", extents, index_type) for n in wide}
    space = d.emitter.spatial(extents)
    terms = d.emitter.reducing([window[n].size for n in wide])
    at, inner = variables(space), variables(terms)
    candidate: list[Expr] = list(at)
    for n, k in zip(wide, inner, strict=True):
        w = window[n]
        candidate[n] = add(add(mul(at[n], w.stride), mul(k, w.rhs_dilate)), -w.pad_low)
    limits = list(zip(candidate, operand.array.dims, strict=True))
    condition = both(*(d.emitter.inside(c, extent) for c, extent in limits))
    new = d.emitter.element(operand, [d.emitter.clamped(c, extent - 1) for c, extent in limits])
    body = _keep(x.attrs["select"], kept, places, at, candidate, new)
    init = seq(
        Store(kept, at, d.emitter.element(operand, [const(0)] * len(at))),
        *(Store(b, at, const(-1)) for b in places.values()),
    )
    body = body if condition is None else If(condition, body)
    d.body.append(blocks.nest(d.fresh("select"), (*space, *terms), body, init))
    return places


def _keep(
    decide: Computation,
    kept: Buffer,
    places: dict[int, Buffer],
    at: tuple[Expr, ...],
    candidate: Sequence[Expr],
    value: Expr,
) -> Stmt:
    """Take the candidate where nothing is kept yet, or where ``decide(kept, value)`` fails."""
    old, new, take = Var("old", kept.dtype), Var("new", kept.dtype), Var("take", pred)
    none = compare("lt", Load(next(iter(places.values())), at), 0)
    keeps = apply(decide, (old, new))[0]
    names: list[tuple[Var, Expr]] = [
        (old, Load(kept, at)),
        (new, value),
        (take, Op("or", (none, op("not", keeps)), pred)),
    ]
    writes: list[Stmt] = [Store(kept, at, select(take, new, old))]
    for n, b in places.items():
        moved = Var(f"place{n}")
        names.append((moved, select(take, candidate[n], Load(b, at))))
        writes.append(Store(b, at, moved))
    return lets(names, seq(*writes))
