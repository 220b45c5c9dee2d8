"""Arguments smaller than their bounds, fitted to each other: ``live_sizes`` has the rules.

An operation's function computes on what it gets. Where its attributes speak of bounds, or operands
of different live sizes must agree, arguments and attributes are fitted before it sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..live_sizes import is_whole, marks, reshape_runs
from ..nodes import Instruction, Shape
from ..rewrite import with_attrs
from ..signatures import window_positions
from .values import Array, Run, Value


def meet(arrays: Sequence[Array]) -> list[Array]:
    """Arrays cut to the smallest size in each dimension; scalars stay."""
    ranks = [a for a in arrays if a.ndim]
    dims = [min(ns) for ns in zip(*(a.shape for a in ranks), strict=True)]
    return [a[tuple(map(slice, dims))] if a.ndim else a for a in arrays]


def grown(a: Array, dims: Sequence[int]) -> Array:
    """``a`` with zeros up to at least these sizes."""
    more = [(0, max(0, n - m)) for n, m in zip(dims, a.shape, strict=True)]
    if not any(after for _, after in more):
        return a
    out = np.zeros([m + after for m, (_, after) in zip(a.shape, more, strict=True)], a.dtype)
    out[tuple(map(slice, a.shape))] = a
    return out


def all_operands(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    return i, meet(args)


def inputs(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    half = len(args) // 2
    return i, [*meet(args[:half]), *args[half:]]


def concatenate(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    axis = i.attrs["dimensions"][0]
    least = [min(ns) for ns in zip(*(a.shape for a in args), strict=True)]
    return i, [a[tuple(slice(None if d == axis else n) for d, n in enumerate(least))] for a in args]


def slice_(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    (a,) = args
    bounds, fixed = i.operands[0].array.dims, [0] * a.ndim
    for d, c in enumerate(i.attrs["slice"]):
        whole = is_whole(c.start, c.limit, c.stride, bounds[d])
        if i.array.dims[d] == 1 and not whole and not marks(i.array)[d]:
            fixed[d] = c.limit
    return i, [grown(a, fixed)]


def dynamic_slice(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    a, *starts = args
    sizes = _extents(i.attrs["dynamic_slice_sizes"], i.operands[0].array, a)
    return with_attrs(i, dynamic_slice_sizes=sizes), [grown(a, sizes), *starts]


def _extents(sizes: Sequence[int], bound: Shape, a: Array) -> tuple[int, ...]:
    """Sizes of a slice; those of a whole dimension are its live size."""
    rows = zip(sizes, bound.dims, a.shape, strict=True)
    return tuple(live if size == n else size for size, n, live in rows)


def dynamic_update_slice(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    a, update, *starts = args
    return i, [a, update[tuple(map(slice, a.shape))], *starts]


def gather(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
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
    return new, [grown(a, least), indices]


def scatter(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Rows of indices and updates meet; windows end where the operand does."""
    n = len(args) // 2
    arrays, indices, updates = meet(args[:n]), args[n], meet(args[n + 1 :])
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
    pairs: list[tuple[int, int]] = []
    for what in ("batch", "contracting"):
        left, right = i.attrs.get(f"lhs_{what}_dims", ()), i.attrs.get(f"rhs_{what}_dims", ())
        pairs += zip(left, right, strict=True)
    return i, list(_agree(args[0], args[1], pairs))


def _agree(a: Array, b: Array, pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    left, right = list(a.shape), list(b.shape)
    for p, q in pairs:
        left[p] = right[q] = min(left[p], right[q])
    return a[tuple(map(slice, left))], b[tuple(map(slice, right))]


def convolution(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    labels = i.attrs["dim_labels"]
    groups = i.attrs.get("feature_group_count", 1)
    pairs = [(labels.lhs_feature, labels.rhs_input)] if groups == 1 else []
    x, w = _agree(args[0], args[1], pairs)
    dims = [0] * x.ndim
    dims[labels.out_batch] = x.shape[labels.lhs_batch] // i.attrs.get("batch_group_count", 1)
    dims[labels.out_feature] = w.shape[labels.rhs_output]
    for d, to, window in zip(
        labels.lhs_spatial, labels.out_spatial, i.attrs["window"], strict=True
    ):
        dims[to] = window_positions(x.shape[d], window)
    return replace(i, shape=replace(i.array, dims=tuple(dims), dynamic=())), [x, w]


def select_and_scatter(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    a, source, init = args
    fits = map(window_positions, a.shape, i.attrs["window"])
    return i, [a, source[tuple(map(slice, fits))], init]


def set_dimension_size(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """The new size is between 0 and the bound."""
    bound = i.operands[0].array.dims[i.attrs["dimensions"][0]]
    return i, [args[0], np.clip(args[1], 0, bound)]


def reshape(i: Instruction, args: list[Value]) -> tuple[Instruction, list[Value]]:
    """Each run of dimensions is cut or filled up to the sizes that it gets."""
    (a,) = args
    bounds = i.operands[0].array.dims
    runs = reshape_runs(i, [d for d in range(a.ndim) if a.shape[d] != bounds[d]])
    dims = list(i.array.dims)
    for r in runs:
        if r.live is not None:
            rest = prod(dims[d] for d in r.new if d != r.live)
            dims[r.live] = prod(a.shape[d] for d in r.old) // rest if rest else dims[r.live]
    flat = a.reshape([prod(a.shape[d] for d in r.old) for r in runs])
    wanted = [prod(dims[d] for d in r.new) for r in runs]
    flat = grown(flat[tuple(map(slice, wanted))], wanted)
    return replace(i, shape=replace(i.array, dims=tuple(dims), dynamic=())), [flat]


def dynamic_reshape(i: Instruction, args: list[Value], run: Run) -> Value:
    """All elements in order under given sizes, cut or filled up with zeros."""
    a, *sizes = args
    rows = zip(sizes, i.array.dims, marks(i.array), strict=True)
    dims = [min(max(int(s), 0), n) if marked else n for s, n, marked in rows]
    return grown(a.reshape(-1)[: prod(dims)], [prod(dims)]).reshape(dims)
