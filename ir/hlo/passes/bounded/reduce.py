"""``pad_dynamic`` for operations that combine elements: products, reductions, windows, sorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....dtypes import BY_NAME, DType, pred
from ....elementwise import identity
from ....errors import UnsupportedError
from ...meaning.values import simple_op
from ...nodes import Computation, ConvLabels, Instruction, Shape, TupleShape, WindowDim
from ...patterns import build
from ...rewrite import assemble, make, parameter, with_attrs
from ..prepare.inline_calls import inline
from .moves import reapply
from .values import (
    Padded,
    Scalar,
    Sizes,
    Tree,
    arithmetic,
    flags,
    masked,
    neutral,
    scalar,
    smallest_sizes,
    static,
    varying,
    zeroed,
)


def refuse(i: Instruction, why: str) -> UnsupportedError:
    """Return the error for an instruction that cannot be padded."""
    return UnsupportedError(f"cannot compile {i.opcode} `{i.name}`", why)


def dot(i: Instruction, operands: list[Padded]) -> Padded:
    """Zero the padding of contracted dimensions, in both operands because 0 times NaN is NaN."""
    a, b = operands
    batch = _pairs(i, "lhs_batch_dims", "rhs_batch_dims")
    a, b = _match_sizes(a, b, batch + _pairs(i, "lhs_contracting_dims", "rhs_contracting_dims"))
    summed = _pairs(i, "lhs_contracting_dims", "rhs_contracting_dims")
    left, right = zeroed(a, (p for p, _ in summed)), zeroed(b, (q for _, q in summed))
    free = [p for p, _ in batch]
    free += [d for d in range(len(a.dims)) if d not in free and d not in [p for p, _ in summed]]
    places: list[tuple[Padded, int]] = [(a, d) for d in free]
    taken = [q for _, q in batch + summed]
    places += [(b, d) for d in range(len(b.dims)) if d not in taken]
    sizes = {k: x.sizes[d] for k, (x, d) in enumerate(places) if d in x.sizes}
    return Padded(reapply(i, left, right), sizes)


def _pairs(i: Instruction, left: str, right: str) -> list[tuple[int, int]]:
    return list(zip(i.attrs.get(left, ()), i.attrs.get(right, ()), strict=True))


def _match_sizes(a: Padded, b: Padded, pairs: Sequence[tuple[int, int]]) -> tuple[Padded, Padded]:
    """Give paired dimensions of two arrays the smaller of their live sizes."""
    left, right = dict(a.sizes), dict(b.sizes)
    for p, q in pairs:
        both = smallest_sizes(
            ({0: x.sizes[d]} if d in x.sizes else {}) for x, d in ((a, p), (b, q))
        )
        if both:
            left[p] = right[q] = both[0]
    return replace(a, sizes=left), replace(b, sizes=right)


def convolution(i: Instruction, operands: list[Padded]) -> Padded:
    """Zero the padding and compute as many windows as fit the live image.

    ``UnsupportedError`` if the kernel's window is bounded, or a bounded dimension is grouped.
    """
    labels: ConvLabels = i.attrs["dim_labels"]
    x, w = operands
    x, w = _match_sizes(x, w, [(labels.lhs_feature, labels.rhs_input)])
    if any(d in w.sizes for d in labels.rhs_spatial):
        raise refuse(i, "the window of its kernel has a bounded size")
    groups = i.attrs.get("feature_group_count", 1) * i.attrs.get("batch_group_count", 1)
    grouped = {labels.lhs_batch, labels.lhs_feature} & x.sizes.keys()
    if groups > 1 and (grouped or w.sizes):
        raise refuse(i, "a bounded dimension would be divided into groups")
    sizes: dict[int, Scalar] = {}
    if labels.lhs_batch in x.sizes:
        sizes[labels.out_batch] = x.sizes[labels.lhs_batch]
    if labels.rhs_output in w.sizes:
        sizes[labels.out_feature] = w.sizes[labels.rhs_output]
    for d, to, window in zip(
        labels.lhs_spatial, labels.out_spatial, i.attrs["window"], strict=True
    ):
        if d in x.sizes:
            sizes[to] = positions(x.sizes[d], window)
    left = zeroed(x, (labels.lhs_feature, *labels.lhs_spatial))
    value = reapply(i, left, zeroed(w, (labels.rhs_input,)))
    return Padded(value, varying(i.array.dims, sizes))


def positions(size: Scalar, w: WindowDim) -> Scalar:
    """Return ``signatures.window_positions`` of a live size."""
    gaps = arithmetic("maximum", arithmetic("subtract", size, 1), 0)
    padded = arithmetic("add", size, arithmetic("multiply", gaps, w.lhs_dilate - 1))
    extent = (w.size - 1) * w.rhs_dilate + 1 if w.size > 0 else 0
    slack = w.pad_low + w.pad_high - extent + w.stride
    room = arithmetic("maximum", arithmetic("add", padded, slack), 0)
    return arithmetic("divide", room, w.stride)


def _results(value: Instruction, sizes: Sizes, count: int) -> Tree:
    """Return the first ``count`` elements of a tuple."""
    assert isinstance(value.shape, TupleShape)
    elements = value.shape.elements[:count]
    return tuple(
        Padded(make("get-tuple-element", e, (value,), index=n), sizes)
        for n, e in enumerate(elements)
    )


def reduce(i: Instruction, operands: list[Padded]) -> Tree:
    """Exclude padding: fill it with the reducer's neutral element, or else flag live elements."""
    half = len(operands) // 2
    axes = i.attrs["dimensions"]
    all_sizes = smallest_sizes(o.sizes for o in operands[:half])
    kept = [d for d in range(len(operands[0].dims)) if d not in axes]
    sizes = {k: all_sizes[d] for k, d in enumerate(kept) if d in all_sizes}
    inside = {d: s for d, s in all_sizes.items() if d in axes}
    return _reduced(i, operands, inside, sizes)


def reduce_window(i: Instruction, operands: list[Padded]) -> Tree:
    """Reduce as many windows as fit the live array, without the padding."""
    half = len(operands) // 2
    all_sizes = smallest_sizes(o.sizes for o in operands[:half])
    window = i.attrs["window"]
    found = {d: positions(s, window[d]) for d, s in all_sizes.items()}
    wide = {d: s for d, s in all_sizes.items() if window[d] != WindowDim(size=1)}
    return _reduced(i, operands, wide, varying(_dims(i), found))


def _dims(i: Instruction) -> tuple[int, ...]:
    shape = i.shape.elements[0] if isinstance(i.shape, TupleShape) else i.shape
    assert isinstance(shape, Shape)
    return shape.dims


def _reduced(i: Instruction, operands: list[Padded], inside: Sizes, sizes: Sizes) -> Tree:
    """Reduce without the padding: ``inside`` are live sizes of reduced dimensions, ``sizes`` those
    of the result."""
    half = len(operands) // 2
    values = [o.value for o in operands]
    single = half == 1 and isinstance(i.shape, Shape)
    if not inside:
        value = reapply(i, *values)
        return Padded(value, sizes) if single else _results(value, sizes, half)
    op = simple_op(i.attrs["to_apply"]) if single else None
    same = {p.array.dtype for p in i.attrs["to_apply"].parameters} == {values[0].array.dtype}
    fill = neutral(op, values[0].array.dtype) if op is not None and same else None
    if fill is not None:
        return Padded(reapply(i, masked(values[0], inside, fill), values[1]), sizes)
    flag = flags(replace(operands[0], sizes=inside))
    inputs = (*values[:half], flag, *values[half:], build.scalar(True, pred))
    shapes = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
    counted = Shape(pred, _dims(i))
    value = with_attrs(
        replace(i, operands=inputs, shape=static(TupleShape((*shapes, counted)))),
        to_apply=_flagged(i.attrs["to_apply"], half),
    )
    found = _results(value, sizes, half)
    assert isinstance(found, tuple)
    return found[0] if single else found


def _flagged(reducer: Computation, n: int) -> Computation:
    """Extend a reducer of n values by a flag: where one side does not count, take the other."""
    old = [p.shape for p in reducer.parameters]
    flag = Shape(pred)
    shapes = [*old[:n], flag, *old[n:], flag]
    parameters = [parameter(k, s, f"p{k}") for k, s in enumerate(shapes)]
    left, a, right, b = parameters[:n], parameters[n], parameters[n + 1 : -1], parameters[-1]
    joined = _scalars_of(inline(reducer, (*left, *right)), n)
    both = build.pointwise("and", a, b)
    chosen = []
    for j, x, y in zip(joined, left, right, strict=True):
        dtype = j.array.dtype
        either = build.pointwise("select", a, build.convert(x, dtype), build.convert(y, dtype))
        chosen.append(build.pointwise("select", both, j, either))
    chosen.append(build.pointwise("or", a, b))
    root = build.tuple_of(chosen)
    return assemble(f"{reducer.name}.live", parameters, root)


def _scalars_of(root: Instruction, n: int) -> list[Instruction]:
    if not isinstance(root.shape, TupleShape):
        return [root]
    if root.opcode == "tuple":
        return list(root.operands)
    elements = root.shape.elements
    return [make("get-tuple-element", elements[k], (root,), index=k) for k in range(n)]


def select_and_scatter(i: Instruction, operands: list[Padded]) -> Padded:
    """Fill padding with a value that is never selected; windows beyond the live ones scatter
    neutral elements. ``UnsupportedError`` if there are no such values."""
    x, source, init = operands
    window = i.attrs["window"]
    fits = {d: scalar(positions(s, window[d])) for d, s in x.sizes.items()}
    live_source = smallest_sizes((source.sizes, varying(source.dims, fits)))
    dtype = x.value.array.dtype
    loser = _selected_reduction(i.attrs["select"], dtype.name)
    op = simple_op(i.attrs["scatter"])
    nothing = neutral(op, dtype) if op is not None else None
    if (x.sizes and loser is None) or (live_source and nothing is None):
        raise refuse(i, "its `select` is not GE or LE, or its `scatter` has no neutral element")
    value, given = x.value, source.value
    if x.sizes:
        assert loser is not None
        value = masked(value, x.sizes, build.scalar(identity(loser, dtype), dtype))
    if live_source:
        assert nothing is not None
        given = masked(given, live_source, nothing)
    return Padded(reapply(i, value, given, init.value), x.sizes)


def _selected_reduction(select: Computation, name: str) -> str | None:
    """Return the reduction that ``select`` performs (``maximum`` or ``minimum``), or None.

    Its neutral element is never selected.
    """
    root = select.root
    if root.opcode != "compare" or root.operands != select.parameters:
        return None
    return {"GE": "maximum", "LE": "minimum"}.get(root.attrs["direction"])


def sort(i: Instruction, operands: list[Padded]) -> Tree:
    """Sort a flag of live elements along, so that padding comes last."""
    (axis,) = i.attrs["dimensions"]
    sizes = smallest_sizes(o.sizes for o in operands)
    values = [o.value for o in operands]
    single = len(operands) == 1
    if axis not in sizes:
        value = reapply(i, *values)
        return Padded(value, sizes) if single else _results(value, sizes, len(values))
    flag = flags(Padded(values[0], {axis: sizes[axis]}))
    shape = TupleShape((*(static(v.shape) for v in values), flag.shape))
    value = with_attrs(
        replace(i, operands=(*values, flag), shape=shape),
        to_apply=_padding_last(i.attrs["to_apply"]),
    )
    found = _results(value, sizes, len(values))
    assert isinstance(found, tuple)
    return found[0] if single else found


def _padding_last(before: Computation) -> Computation:
    """Extend a comparator by two flags: a live element precedes padding, and live elements are
    ordered by ``before``."""
    n = len(before.parameters)
    shapes = [*(p.shape for p in before.parameters), Shape(pred), Shape(pred)]
    parameters = [parameter(k, s, f"p{k}") for k, s in enumerate(shapes)]
    precedes = inline(before, parameters[:n])
    a, b = parameters[n:]
    either = build.pointwise("or", make("not", Shape(pred), (b,)), precedes)
    root = build.pointwise("and", a, either)
    return assemble(f"{before.name}.live", parameters, root)


def topk(i: Instruction, operands: list[Padded]) -> Tree:
    """Fill padding with the value that comes last; ``min(live size, k)`` results are live."""
    (x,) = operands
    axis = len(x.dims) - 1
    sizes: dict[int, Scalar] = dict(x.sizes)
    value = x.value
    if axis in x.sizes:
        last = _last_value(x.value.array.dtype, bool(i.attrs.get("largest", True)))
        value = masked(value, {axis: x.sizes[axis]}, last)
        sizes[axis] = arithmetic("minimum", x.sizes[axis], _dims(i)[-1])
    return _results(reapply(i, value), varying(_dims(i), sizes), 2)


def _last_value(dtype: DType, largest: bool) -> Instruction:
    """Return the value that comes last: for floats, which are in total order, a NaN."""
    if not dtype.is_float:
        return build.scalar(identity("maximum" if largest else "minimum", dtype), dtype)
    bits = BY_NAME[f"u{dtype.bits}"]
    ones = (1 << dtype.bits) - 1
    ends = build.scalar(ones if largest else ones >> 1, bits)
    return make("bitcast-convert", Shape(dtype), (ends,))


RULES = {
    "dot": dot,
    "convolution": convolution,
    "reduce": reduce,
    "reduce-window": reduce_window,
    "select-and-scatter": select_and_scatter,
    "sort": sort,
    "topk": topk,
}
