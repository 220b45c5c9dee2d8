"""Reductions of dimensions and of windows, and cumulative ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import inf

from ...dtypes import DType, s32
from ...hlo.nodes import Computation, Shape, Window, WindowDim
from .graph import Graph
from .shaping import expand_dims, full, iota, reverse, slice_in_dim
from .term import Number, Term, innermost

Combine = Callable[[Sequence[Term], Sequence[Term]], Sequence[Term]]


@cache
def reducer(opcode: str, dtype: DType) -> Computation:
    """Return the computation of an operation on two scalars."""
    graph = Graph(f"{opcode}_{dtype}")
    a, b = (graph.parameter(Shape(dtype), name) for name in ("a", "b"))
    return graph.finish([graph.infer(opcode, [a, b])])


def identity(opcode: str, dtype: DType) -> Number:
    """Return the number that an operation leaves others as they are with."""
    match opcode:
        case "add" | "or" | "xor":
            return 0
        case "multiply":
            return 1
        case "and":
            return highest(dtype) if dtype.kind != "signed" else -1
        case "maximum":
            return lowest(dtype)
        case "minimum":
            return highest(dtype)
        case _:
            raise KeyError(opcode)


def lowest(dtype: DType) -> Number:
    """Return the least number of a type; minus infinity for floats."""
    match dtype.kind:
        case "float":
            return -inf
        case "signed":
            return -(1 << (dtype.bits - 1))
        case _:
            return 0


def highest(dtype: DType) -> Number:
    """Return the largest number of a type; infinity for floats."""
    match dtype.kind:
        case "float":
            return inf
        case "pred":
            return 1
        case "signed":
            return (1 << (dtype.bits - 1)) - 1
        case _:
            return (1 << dtype.bits) - 1


def reduce_by(opcode: str, x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """Combine these dimensions, by default all, with an operation that has an identity."""
    along = _axes(x, axes)
    if not along:
        return x
    start = full(x.site, identity(opcode, x.dtype), x.dtype)
    value = x.site.infer(
        "reduce", [x.value, start.value], dimensions=along, to_apply=reducer(opcode, x.dtype)
    )
    found = Term(x.site, value)
    return expand_dims(found, along) if keep else found


def sum_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """The sum over dimensions, in the array's own type."""
    return reduce_by("add", x, axes, keep)


def prod_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """The product over dimensions, in the array's own type."""
    return reduce_by("multiply", x, axes, keep)


def max_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """The largest element; NaN where there is one."""
    return reduce_by("maximum", x, axes, keep)


def min_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """The smallest element; NaN where there is one."""
    return reduce_by("minimum", x, axes, keep)


def any_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """True where any element of a pred array is."""
    return reduce_by("or", x, axes, keep)


def all_(x: Term, axes: Sequence[int] | None = None, keep: bool = False) -> Term:
    """True where all elements of a pred array are."""
    return reduce_by("and", x, axes, keep)


def reduce(
    terms: Sequence[Term], starts: Sequence[Number], axes: Sequence[int], combine: Combine
) -> list[Term]:
    """Combine several arrays together: ``combine(accumulated, new)`` of scalars."""
    site = innermost(terms)
    first = [full(site, s, t.dtype) for s, t in zip(starts, terms, strict=True)]
    value = site.infer(
        "reduce",
        [t.value for t in (*terms, *first)],
        dimensions=_axes(terms[0], axes),
        to_apply=combiner([t.dtype for t in terms], combine),
    )
    if len(terms) == 1:
        return [Term(site, value)]
    return [
        Term(site, site.infer("get-tuple-element", [value], index=n)) for n in range(len(terms))
    ]


def combiner(dtypes: Sequence[DType], combine: Combine) -> Computation:
    """Return the computation of ``combine`` on scalars of these types, twice."""
    graph = Graph("combine")
    names = [f"{side}{n}" for side in "ab" for n in range(len(dtypes))]
    given = [
        Term(graph, graph.parameter(Shape(d), name))
        for d, name in zip([*dtypes, *dtypes], names, strict=True)
    ]
    made = combine(given[: len(dtypes)], given[len(dtypes) :])
    return graph.finish([t.value for t in made])


def argmax(x: Term, axis: int, index: DType = s32, keep: bool = False, last: bool = False) -> Term:
    """The index of the largest element: of the first one, or the ``last``; NaN is the largest."""
    return _extreme(x, axis, index, keep, last, "GT")


def argmin(x: Term, axis: int, index: DType = s32, keep: bool = False, last: bool = False) -> Term:
    """The index of the smallest element: of the first one, or the ``last``; NaN is the smallest."""
    return _extreme(x, axis, index, keep, last, "LT")


def _extreme(x: Term, axis: int, index: DType, keep: bool, last: bool, direction: str) -> Term:
    def better(held: Sequence[Term], new: Sequence[Term]) -> Sequence[Term]:
        (best, at), (value, number) = held, new
        wins, same = value.do("compare", best, direction=direction), value.equals(best)
        if value.dtype.is_float:
            nan, had = value.differs(value), best.differs(best)
            wins, same = wins | (nan & ~had), same | (nan & had)
        return (wins.select(value, best), (wins | (same & (number < at))).select(number, at))

    (along,) = _axes(x, [axis])
    if last:
        first = _extreme(reverse(x, [along]), along, index, keep, False, direction)
        return x.dims[along] - 1 - first
    worst = identity("maximum" if direction == "GT" else "minimum", x.dtype)
    numbers = iota(x.site, index, x.dims, along)
    found = reduce([x, numbers], [worst, 0], [along], better)[1]
    return expand_dims(found, [along]) if keep else found


def reduce_window(
    x: Term,
    opcode: str,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    dilation: Sequence[int] | None = None,
    start: Number | None = None,
) -> Term:
    """Combine the elements of every window; padding counts as the operation's identity."""
    ones = [1] * x.rank
    window: Window = tuple(
        WindowDim(n, s, low, high, 1, d)
        for n, s, (low, high), d in zip(
            size, strides or ones, padding or [(0, 0)] * x.rank, dilation or ones, strict=True
        )
    )
    first = full(x.site, identity(opcode, x.dtype) if start is None else start, x.dtype)
    value = x.site.infer(
        "reduce-window",
        [x.value, first.value],
        window=window,
        to_apply=reducer(opcode, x.dtype),
    )
    return Term(x.site, value)


def cumulative(
    x: Term, opcode: str, axis: int, backwards: bool = False, exclusive: bool = False
) -> Term:
    """Combine each element with all before it along a dimension, or all after it where
    ``backwards`` is set.

    ``exclusive`` leaves the element itself out.
    """
    (along,) = _axes(x, [axis])
    n = x.dims[along]
    if n == 0:
        return x
    size = [n if k == along else 1 for k in range(x.rank)]
    edge = (0, n - 1) if backwards else (n - 1, 0)
    if exclusive:
        edge = (0, n) if backwards else (n, 0)
    padding = [edge if k == along else (0, 0) for k in range(x.rank)]
    found = reduce_window(x, opcode, size, padding=padding)
    if not exclusive:
        return found
    return slice_in_dim(found, 1, n + 1, along) if backwards else slice_in_dim(found, 0, n, along)


def _axes(x: Term, axes: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(x.rank)) if axes is None else tuple(sorted(a % x.rank for a in axes))
