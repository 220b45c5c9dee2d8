"""``compute`` makes a tensor from a rule for its elements; reductions are rules with axes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from ..ir.elementwise import identity as identity_of
from ..ir.errors import ArgumentError
from ..ir.loop import affine
from ..ir.loop.nodes import Buffer, Const, Load, Var
from .sharing import postorder
from .tensor import (
    ComputeOp,
    DTypeLike,
    Number,
    ReduceAxis,
    Scalar,
    Tensor,
    Value,
    as_dtype,
    build_value,
    constant,
    extents,
)

Axes: TypeAlias = ReduceAxis | Sequence[ReduceAxis]
Combiner: TypeAlias = Callable[[tuple[Value, ...], tuple[Value, ...]], tuple[Value, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reduction of ``terms`` over ``axes``, as a ``compute`` rule returns it."""

    terms: tuple[Value, ...]
    axes: tuple[ReduceAxis, ...]
    identity: tuple[Const, ...]
    combine: Combiner

    def _refuse(self, *_: Any) -> NoReturn:
        raise ArgumentError(
            "a reduction is used as a value",
            "it must be the whole rule of a compute",
            hint="compute the reduction first, then use elements of its result",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __getitem__ = __lt__ = __gt__ = _refuse


def _folded(op: str) -> Combiner:
    return lambda old, new: (build_value(op, (old[0], new[0])),)


def _reduction(op: str, term: Value, axis: Axes) -> Reduction:
    if not isinstance(term, Value):
        raise ArgumentError(f"cannot reduce {term!r}", hint="the term is a te value")
    start = constant(identity_of(op, term.dtype), term.dtype)
    return Reduction((term,), _axes(axis), (start,), _folded(op))


def sum(term: Value, axis: Axes) -> Reduction:
    """Return the sum of ``term`` over one or more reduce axes."""
    return _reduction("add", term, axis)


def prod(term: Value, axis: Axes) -> Reduction:
    """Return the product of ``term`` over one or more reduce axes."""
    return _reduction("multiply", term, axis)


def max(term: Value, axis: Axes) -> Reduction:
    """Return the largest ``term`` over one or more reduce axes; NaN if one is."""
    return _reduction("maximum", term, axis)


def min(term: Value, axis: Axes) -> Reduction:
    """Return the smallest ``term`` over one or more reduce axes; NaN if one is."""
    return _reduction("minimum", term, axis)


def reduce(
    combine: Combiner, identity: Sequence[Number]
) -> Callable[[Sequence[Value], Axes], Reduction]:
    """Return a reduction of several values at once, for ``compute_many``.

    ``combine(old, new)`` takes two tuples of values to one, and is associative; ``identity`` holds
    its neutral elements. An arg-max over ``k``::

        best = te.reduce(lambda a, b: (te.maximum(a[0], b[0]),
                                       te.select(a[0] >= b[0], a[1], b[1])), (float("-inf"), -1))
        V, I = te.compute_many((M,), lambda i: best((A[i, k], te.cast(k, "s32")), axis=k))
    """

    def reducer(terms: Sequence[Value], axis: Axes) -> Reduction:
        if len(terms) != len(identity):
            what = f"{len(terms)} terms are reduced with {len(identity)} neutral elements"
            raise ArgumentError(what)
        starts = tuple(constant(i, t.dtype) for i, t in zip(identity, terms, strict=True))
        return Reduction(tuple(terms), _axes(axis), starts, combine)

    return reducer


def compute(
    shape: Sequence[int],
    rule: Callable[..., Scalar | Reduction],
    name: str = "T",
    dtype: DTypeLike = "f32",
) -> Tensor:
    """Return a tensor whose element at ``i, j, ..`` is ``rule(i, j, ..)``, a value or a reduction.

    Axes are named after the rule's parameters. ``dtype`` is only for a rule that returns a plain
    number. ``ArgumentError`` for a rank that does not fit the rule, a reduce axis outside its
    reduction, or an index that leaves a tensor.
    """
    result = _computed(shape, rule, (name,), dtype)
    return result[0]


def compute_many(
    shape: Sequence[int],
    rule: Callable[..., Reduction | Sequence[Scalar]],
    names: Sequence[str] = (),
    dtype: DTypeLike = "f32",
) -> tuple[Tensor, ...]:
    """Return tensors of one shape that are computed together; ``rule`` returns a value for each.

    ``names`` and errors are as for ``compute``; the rule may be a reduction made by ``reduce``.
    """
    return _computed(tuple(shape), rule, tuple(names), dtype)


def _computed(
    shape: Sequence[int], rule: Callable[..., Any], names: tuple[str, ...], dtype: DTypeLike
) -> tuple[Tensor, ...]:
    shown = names[0] if names else "T"
    shape = extents(shape, shown)
    if not callable(rule):
        what = f"the rule of `{shown}` is of type {type(rule).__name__}"
        raise ArgumentError(what, "it is a function of the axes", hint="lambda i, j: a[i, j] * 2")
    axes = tuple(Var(n) for n in _axis_names(rule, len(shape), shown))
    made = rule(*(Value(v) for v in axes))
    if isinstance(made, Reduction):
        values, reduced = made.terms, made.axes
    else:
        several = made if isinstance(made, tuple | list) else (made,)
        values, reduced = tuple(_value(v, shown, dtype) for v in several), ()
    named = names or tuple(f"T{n}" for n in range(len(values)))
    if len(named) != len(values):
        raise ArgumentError(f"`{shown}`: {len(values)} values for {len(named)} names")
    _check_axes(shown, values, axes, reduced)
    ranges = dict(zip(axes, shape, strict=True)) | {a.var: a.extent for a in reduced}
    _check_places(shown, values, ranges)
    buffers = tuple(Buffer(n, shape, v.dtype) for n, v in zip(named, values, strict=True))
    if isinstance(made, Reduction):
        how = ComputeOp(axes, values, buffers, reduced, made.identity, made.combine)
    else:
        how = ComputeOp(axes, values, buffers)
    return tuple(Tensor(b, how) for b in buffers)


def _axis_names(rule: Callable[..., Any], rank: int, name: str) -> tuple[str, ...]:
    """Return the names of a rule's parameters; ``*i`` takes any number."""
    names: list[str] = []
    for p in inspect.signature(rule).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            return (*names, *(f"{p.name}{n}" for n in range(rank - len(names))))
        names.append(p.name)
    if len(names) != rank:
        what = f"the rule of `{name}` takes {len(names)} indices, its shape has {rank} dimensions"
        raise ArgumentError(what)
    return tuple(names)


def _axes(axis: Axes) -> tuple[ReduceAxis, ...]:
    axes = (axis,) if isinstance(axis, ReduceAxis) else tuple(axis)
    if not axes or not all(isinstance(a, ReduceAxis) for a in axes):
        raise ArgumentError("a reduction needs reduce axes", hint="k = te.reduce_axis(K, 'k')")
    return axes


def _value(v: Any, name: str, dtype: DTypeLike) -> Value:
    if isinstance(v, Value):
        return v
    if isinstance(v, Reduction):
        v._refuse()
    if isinstance(v, int | float | bool):
        return Value(constant(v, as_dtype(dtype)))
    raise ArgumentError(f"the rule of `{name}` returns {type(v).__name__}", "expected te values")


def _check_axes(
    name: str, values: Iterable[Value], axes: tuple[Var, ...], reduced: tuple[ReduceAxis, ...]
) -> None:
    known = {*axes, *(a.var for a in reduced)}
    for e in postorder([v.expr for v in values]):
        if isinstance(e, Var) and e not in known:
            raise ArgumentError(
                f"`{name}` uses the axis `{e.name}` outside a reduction over it",
                hint=f"reduce over it: te.sum(.., axis={e.name})",
            )


def _check_places(name: str, values: Iterable[Value], extent: dict[Var, int]) -> None:
    """Refuse an index that leaves its tensor, as far as the index does not depend on data."""
    ranges = {v: (0, n - 1) for v, n in extent.items()}
    if 0 in extent.values():
        return
    for e in postorder([v.expr for v in values]):
        if not isinstance(e, Load):
            continue
        for n, (i, size) in enumerate(zip(e.index, e.buffer.shape, strict=True)):
            low, high = affine.bounds(i, ranges)
            data = any(
                not isinstance(x, Var | Const) and x.dtype != i.dtype for x in postorder((i,))
            )
            if (low < 0 or high >= size) and low > affine.LOW and high < affine.HIGH and not data:
                why = f"the index takes values {low}..{high}, dimension {n} has {size} elements"
                hint = "bound it: te.minimum(te.maximum(i, 0), n - 1)"
                raise ArgumentError(f"`{name}` reads outside `{e.buffer.name}`", why, hint=hint)
