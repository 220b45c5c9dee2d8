"""Reductions: over dimensions, over windows, and running ones (scans)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.dtypes import DType, accumulator
from ...ir.elementwise import identity
from ...ir.hlo.nodes import Computation, Instruction, Shape, TupleShape, WindowDim
from ...ir.loop.build import add, cast, const, mul, op, select, sub
from ...ir.loop.nodes import AxisKind, Buffer, Expr, For, Load
from ...ir.loop.notes import OPAQUE
from ...ir.loop.visit import seq
from .. import blocks
from ..blocks import Axis, variables
from .padding import padded, unpadded
from .plan import is_padded
from .scalars import apply, literal, simple_combiner
from .scans import Running, scan_rows
from .stages import Draft

ROLES = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "and": "all",
    "or": "any",
}
ADDING = frozenset({"add", "multiply"})


class _Reducer:
    """The combiner of a reduction, on expressions of the accumulators' types."""

    def __init__(self, x: Instruction) -> None:
        self.computation: Computation = x.attrs["to_apply"]
        self.count = len(x.operands) // 2
        self.inputs = x.operands[: self.count]
        self.starts = x.operands[self.count :]
        simple = simple_combiner(self.computation) if self.count == 1 else None
        self.simple = simple
        self.role = ROLES.get(simple or "", "reduce")
        shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
        self.shapes = tuple(s for s in shapes if isinstance(s, Shape))

    def dtype(self, n: int) -> DType:
        """Return the accumulator's type: sums of narrow floats are kept in f32 and rounded once."""
        own = self.shapes[n].dtype
        return accumulator(own) if self.simple in ADDING else own

    def combine(self, old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the new accumulators, from the old ones and the next terms."""
        if self.simple is not None:
            return (op(self.simple, old[0], new[0]),)
        made = apply(self.computation, (*old, *new))
        return tuple(cast(v, self.dtype(n)) for n, v in enumerate(made))

    def first(self, d: Draft) -> list[Expr]:
        """Return the initial values."""
        return [cast(d.emitter.scalar(s), self.dtype(n)) for n, s in enumerate(self.starts)]

    def neutral(self) -> Expr:
        """Return the identity, as which padding counts in a reduction by one operation."""
        assert self.simple is not None
        own = self.inputs[0].array.dtype
        return literal(identity(self.simple, own), own)

    def terms(self, d: Draft, index: Sequence[Expr]) -> list[Expr]:
        """Return the elements that are reduced, at one place of the inputs."""
        return [cast(d.emitter.element(x, index), self.dtype(n)) for n, x in enumerate(self.inputs)]

    def targets(self, d: Draft, x: Instruction, name: str) -> list[Buffer]:
        """Return the buffers of the accumulators."""
        return [
            d.target((x, n), name if n == 0 else f"{name}_{n}", s.dims, self.dtype(n))
            for n, s in enumerate(self.shapes)
        ]


def _emit(
    d: Draft,
    x: Instruction,
    r: _Reducer,
    axes: Sequence[Axis],
    terms: Sequence[Expr] | None,
    condition: Expr | None = None,
) -> None:
    """The block ``out[i] = combine(out[i], term[i, k])`` with the initial values as its init.

    Terms count where ``condition`` holds; without terms the initial values are all there is.
    """
    name = d.fresh(r.role)
    out = r.targets(d, x, name)
    at = variables([a for a in axes if a.kind is AxisKind.SPATIAL])
    init = blocks.stores(out, at, r.first(d))
    if terms is None:
        d.body.append(blocks.nest(name, axes, init))
    else:
        old = [Load(b, at) for b in out]
        new = r.combine(old, terms)
        if condition is not None:
            new = tuple(select(condition, n, o) for n, o in zip(new, old, strict=True))
        d.body.append(blocks.nest(name, axes, blocks.stores(out, at, new), init))
    for n, b in enumerate(out):
        d.done((x, n), b)


def reduce_(d: Draft, x: Instruction) -> None:
    """HLO ``reduce``: spatial axes in the order of the result, then the reduced dimensions."""
    r = _Reducer(x)
    extents, dims = r.inputs[0].array.dims, sorted(x.attrs["dimensions"])
    space = d.emitter.spatial(r.shapes[0].dims)
    terms = d.emitter.reducing([extents[n] for n in dims])
    inner, outer = iter(variables(terms)), iter(variables(space))
    place = [next(inner) if n in dims else next(outer) for n in range(len(extents))]
    _emit(d, x, r, (*space, *terms), r.terms(d, place))


def reduce_window(d: Draft, x: Instruction) -> None:
    """HLO ``reduce-window``: reduce axes for the window's dimensions that are not 1 wide."""
    r = _Reducer(x)
    window: tuple[WindowDim, ...] = x.attrs["window"]
    if (dim := scanned(window, r.inputs[0].array.dims)) is not None:
        return _scan(d, x, r, dim, backward=window[dim].pad_high > 0)
    space = d.emitter.spatial(r.shapes[0].dims)
    wide = [n for n, w in enumerate(window) if w.size != 1] or [0][: len(window)]
    terms = d.emitter.reducing([window[n].size for n in wide])
    inner = dict(zip(wide, variables(terms), strict=True))
    at = variables(space)
    places = [
        add(mul(i, w.stride), mul(inner.get(n, const(0)), w.rhs_dilate))
        for n, (i, w) in enumerate(zip(at, window, strict=True))
    ]
    if not is_padded(x):
        return _emit(d, x, r, (*space, *terms), r.terms(d, places))
    if r.simple is None:
        return _masked(d, x, r, (*space, *terms), places)
    reach = {
        n: (w, extent) for n, (w, extent) in enumerate(zip(window, r.shapes[0].dims, strict=True))
    }
    copy = padded(d, r.inputs[0], reach, r.neutral())
    return _emit(d, x, r, (*space, *terms), [cast(Load(copy, tuple(places)), r.dtype(0))])


def _masked(
    d: Draft, x: Instruction, r: _Reducer, axes: Sequence[Axis], places: Sequence[Expr]
) -> None:
    """A padded window of a reducer that need not have a neutral element: padding is passed over."""
    if r.inputs[0].array.size == 0:
        axes = [a for a in axes if a.kind is AxisKind.SPATIAL]
        return _emit(d, x, r, axes, None)
    source, condition = unpadded(d, r.inputs[0], places, dict(enumerate(x.attrs["window"])))
    _emit(d, x, r, axes, r.terms(d, source), condition)


def scanned(window: Sequence[WindowDim], extents: Sequence[int]) -> int | None:
    """Return the dimension along which a window reduction is a running one: a cumulative sum."""
    wide = [n for n, w in enumerate(window) if w.size != 1]
    if len(wide) != 1 or extents[wide[0]] != window[wide[0]].size:
        return None
    w, n = window[wide[0]], extents[wide[0]]
    plain = all(v.stride == v.lhs_dilate == v.rhs_dilate == 1 for v in window)
    flat = all(not (v.pad_low or v.pad_high) for i, v in enumerate(window) if i != wide[0])
    running = (w.pad_low, w.pad_high) in ((n - 1, 0), (0, n - 1))
    return wide[0] if plain and flat and running else None


def _scan(d: Draft, x: Instruction, r: _Reducer, dim: int, backward: bool) -> None:
    name = d.fresh(f"scan_{r.role}")
    out = r.targets(d, x, name)
    extents = r.shapes[0].dims
    if r.simple is not None and math.prod(extents[dim + 1 :]) == 1:
        s = Running(
            name=name,
            role=r.role,
            extents=extents,
            dim=dim,
            backward=backward,
            dtype=r.dtype(0),
            out=out[0],
            first=r.first(d)[0],
            term=lambda at: r.terms(d, at)[0],
            combine=lambda old, new: r.combine([old], [new])[0],
            neutral=cast(r.neutral(), r.dtype(0)),
        )
        scan_rows(d, s)
    else:
        _scan_in_order(d, x, r, name, out, dim, backward)
    for n, b in enumerate(out):
        d.done((x, n), b)


def _scan_in_order(
    d: Draft,
    x: Instruction,
    r: _Reducer,
    name: str,
    out: Sequence[Buffer],
    dim: int,
    backward: bool,
) -> None:
    """Rows in any order; inside a row one element after the other, from memory to memory."""
    extents = r.shapes[0].dims
    axes = d.emitter.spatial([e for n, e in enumerate(extents) if n != dim])
    (step,) = d.emitter.reducing((extents[dim] - 1,), "t")
    row = variables(axes)

    def place(t: Expr | int) -> tuple[Expr, ...]:
        along = sub(extents[dim] - 1, t) if backward else add(t, 0)
        return (*row[:dim], along, *row[dim:])

    def kept(at: tuple[Expr, ...]) -> list[Expr]:
        return [Load(b, at) for b in out]

    here, before = place(add(step.var, 1)), place(step.var)
    if backward and r.simple is None:  # the order of the terms matters: the initial value is first
        first = blocks.stores(out, place(0), r.terms(d, place(0)))
        next_ = blocks.stores(out, here, r.combine(r.terms(d, here), kept(before)))
        (each,) = d.emitter.reducing((extents[dim],), "e")
        started = r.combine(r.first(d), kept(place(each.var)))
        last = For(each.var, const(each.extent), blocks.stores(out, place(each.var), started))
        body = seq(first, For(step.var, const(step.extent), next_), last)
    else:
        first = blocks.stores(out, place(0), r.combine(r.first(d), r.terms(d, place(0))))
        next_ = blocks.stores(out, here, r.combine(kept(before), r.terms(d, here)))
        body = seq(first, For(step.var, const(step.extent), next_))
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))
