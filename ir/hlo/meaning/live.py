"""Fitting arguments that are smaller than their bounds to each other, by ``live_sizes``' rules.

A handler computes on whatever sizes its arguments have. Where an operation's attributes refer to
bounds, or operands of different live sizes must agree, a function of this file changes instruction
and arguments before the handler sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ...arrays import Array
from ..live_sizes import is_whole, reshape_groups
from ..nodes import Instruction, Shape
from ..rewrite import with_attrs
from ..signatures import window_positions
from .values import CallEvaluator, Value


def crop_to_smallest(arrays: Sequence[Array]) -> list[Array]:
    """Crop arrays to their smallest size in each dimension; scalars stay."""
    ranks = [a for a in arrays if a.ndim]
    dims = [min(ns) for ns in zip(*(a.shape for a in ranks), strict=True)]
    return [a[tuple(map(slice, dims))] if a.ndim else a for a in arrays]


def zero_extend(a: Array, dims: Sequence[int]) -> Array:
    """Append zeros to ``a`` up to at least these sizes; ``a`` itself if it is large enough."""
    more = [(0, max(0, n - m)) for n, m in zip(dims, a.shape, strict=True)]
    if not any(after for _, after in more):
        return a
    out = np.zeros([m + after for m, (_, after) in zip(a.shape, more, strict=True)], a.dtype)
    out[tuple(map(slice, a.shape))] = a
    return out


def all_operands(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop all operands to their smallest size in each dimension."""
    return i, crop_to_smallest(args)


def inputs(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop the inputs of a reduction, the first half of its operands; initial values stay."""
    half = len(args) // 2
    return i, [*crop_to_smallest(args[:half]), *args[half:]]


def concatenate(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop operands to their smallest size in all dimensions but the concatenated one."""
    axis = i.attrs["dimensions"][0]
    least = [min(ns) for ns in zip(*(a.shape for a in args), strict=True)]
    return i, [a[tuple(slice(None if d == axis else n) for d, n in enumerate(least))] for a in args]


def slice_(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Append zeros up to an element that is taken singly, so that the result has its fixed size."""
    (a,) = args
    bounds, fixed = i.operands[0].array.dims, [0] * a.ndim
    for d, c in enumerate(i.attrs["slice"]):
        whole = is_whole(c.start, c.limit, c.stride, bounds[d])
        if i.array.dims[d] == 1 and not whole and not i.array.marks[d]:
            fixed[d] = c.limit
    return i, [zero_extend(a, fixed)]


def dynamic_slice(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Slice whole dimensions at their live size, and append zeros where the slice is larger."""
    a, *starts = args
    sizes = _extents(i.attrs["dynamic_slice_sizes"], i.operands[0].array, a)
    return with_attrs(i, dynamic_slice_sizes=sizes), [zero_extend(a, sizes), *starts]


def _extents(sizes: Sequence[int], bound: Shape, a: Array) -> tuple[int, ...]:
    """Return a slice's sizes, with the live size for every dimension that is taken whole."""
    rows = zip(sizes, bound.dims, a.shape, strict=True)
    return tuple(live if size == n else size for size, n, live in rows)


def dynamic_update_slice(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop the update to the operand's live sizes."""
    a, update, *starts = args
    return i, [a, update[tuple(map(slice, a.shape))], *starts]


def gather(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Slice whole dimensions at their live size, and crop indices to the operand's batches.

    The operand gets zeros where a slice is larger than its live size.
    """
    a, indices = args
    gone = {*i.attrs["collapsed_slice_dims"], *i.attrs.get("operand_batching_dims", ())}
    whole = _extents(i.attrs["slice_sizes"], i.operands[0].array, a)
    given = zip(whole, i.attrs["slice_sizes"], strict=True)
    sizes = tuple(n if d in gone else live for d, (live, n) in enumerate(given))
    batching = i.attrs.get("operand_batching_dims", ())
    least = [0 if d in batching else n for d, n in enumerate(sizes)]
    keep = list(indices.shape)
    for d, b in zip(batching, i.attrs.get("start_indices_batching_dims", ()), strict=True):
        keep[b] = min(keep[b], a.shape[d])
    indices = indices[tuple(map(slice, keep))]
    offsets = i.attrs["offset_dims"]
    inner = iter(n for d, n in enumerate(sizes) if d not in gone)
    outer = iter(n for d, n in enumerate(keep) if d != i.attrs["index_vector_dim"])
    dims = tuple(next(inner) if d in offsets else next(outer) for d in range(i.array.rank))
    new = replace(with_attrs(i, slice_sizes=sizes), shape=replace(i.array, dims=dims, dynamic=()))
    return new, [zero_extend(a, least), indices]


def scatter(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop indices and updates to as many rows as both have, and windows to the operand."""
    n = len(args) // 2
    arrays, indices = crop_to_smallest(args[:n]), args[n]
    updates = crop_to_smallest(args[n + 1 :])
    window, vector = i.attrs["update_window_dims"], i.attrs["index_vector_dim"]
    rows = [d for d in range(indices.ndim) if d != vector]
    outer = [d for d in range(updates[0].ndim) if d not in window]
    have, take = list(indices.shape), list(updates[0].shape)
    for r, u in zip(rows, outer, strict=True):
        have[r] = take[u] = min(have[r], take[u])
    gone = {*i.attrs["inserted_window_dims"], *i.attrs.get("input_batching_dims", ())}
    kept = [d for d in range(arrays[0].ndim) if d not in gone]
    for w, d in zip(window, kept, strict=True):
        if d not in i.attrs["scatter_dims_to_operand_dims"]:
            take[w] = min(take[w], arrays[0].shape[d])
    batching = i.attrs.get("input_batching_dims", ())
    for d, b in zip(batching, i.attrs.get("scatter_indices_batching_dims", ()), strict=True):
        u = outer[rows.index(b)]
        have[b] = take[u] = min(have[b], arrays[0].shape[d])
    cut = tuple(map(slice, take))
    return i, [*arrays, indices[tuple(map(slice, have))], *(u[cut] for u in updates)]


def dot(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop batch and contracting dimensions to the smaller of both operands."""
    pairs: list[tuple[int, int]] = []
    for what in ("batch", "contracting"):
        left, right = i.attrs.get(f"lhs_{what}_dims", ()), i.attrs.get(f"rhs_{what}_dims", ())
        pairs += zip(left, right, strict=True)
    return i, list(_crop_pairs(args[0], args[1], pairs))


def _crop_pairs(a: Array, b: Array, pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Crop pairs of dimensions, one of each array, to the smaller size."""
    left, right = list(a.shape), list(b.shape)
    for p, q in pairs:
        left[p] = right[q] = min(left[p], right[q])
    return a[tuple(map(slice, left))], b[tuple(map(slice, right))]


def convolution(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop the input features to those of both operands, and set the result's live sizes."""
    labels = i.attrs["dim_labels"]
    groups = i.attrs.get("feature_group_count", 1)
    pairs = [(labels.lhs_feature, labels.rhs_input)] if groups == 1 else []
    x, w = _crop_pairs(args[0], args[1], pairs)
    dims = [0] * x.ndim
    dims[labels.out_batch] = x.shape[labels.lhs_batch] // i.attrs.get("batch_group_count", 1)
    dims[labels.out_feature] = w.shape[labels.rhs_output]
    for d, to, window in zip(
        labels.lhs_spatial, labels.out_spatial, i.attrs["window"], strict=True
    ):
        dims[to] = window_positions(x.shape[d], window)
    return replace(i, shape=replace(i.array, dims=tuple(dims), dynamic=())), [x, w]


def select_and_scatter(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop the source to the windows that fit the operand's live sizes."""
    a, source, init = args
    fits = map(window_positions, a.shape, i.attrs["window"])
    return i, [a, source[tuple(map(slice, fits))], init]


def set_dimension_size(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Clamp the new size to between 0 and the bound."""
    bound = i.operands[0].array.dims[i.attrs["dimensions"][0]]
    return i, [args[0], np.clip(args[1], 0, bound)]


def reshape(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Crop or zero-extend each group of dimensions to the new sizes that it gets."""
    (a,) = args
    bounds = i.operands[0].array.dims
    groups = reshape_groups(i, [d for d in range(a.ndim) if a.shape[d] != bounds[d]])
    dims = list(i.array.dims)
    for g in groups:
        if g.live is not None:
            rest = prod(dims[d] for d in g.new if d != g.live)
            dims[g.live] = prod(a.shape[d] for d in g.old) // rest if rest else dims[g.live]
    flat = a.reshape([prod(a.shape[d] for d in g.old) for g in groups])
    wanted = [prod(dims[d] for d in g.new) for g in groups]
    flat = zero_extend(flat[tuple(map(slice, wanted))], wanted)
    return replace(i, shape=replace(i.array, dims=tuple(dims), dynamic=())), [flat]


def dynamic_reshape(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Reshape to sizes given as operands; elements in order, cropped or zero-extended to fit."""
    a, *sizes = args
    rows = zip(sizes, i.array.dims, i.array.marks, strict=True)
    dims = [min(max(int(s), 0), n) if marked else n for s, n, marked in rows]
    return zero_extend(a.reshape(-1)[: prod(dims)], [prod(dims)]).reshape(dims)
