"""Operations that compute the indices they access: dynamic slices, gather, scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...arrays import Array
from ..nodes import Computation, Instruction
from .values import CallEvaluator, Value, simple_op


def _starts(args: Sequence[Array], dims: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return start indices, clamped so that the slice fits; given as scalars or one vector."""
    raw = args[0].tolist() if len(args) == 1 and args[0].ndim == 1 else [int(a) for a in args]
    return [min(max(s, 0), d - n) for s, d, n in zip(raw, dims, sizes, strict=True)]


def dynamic_slice(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Take a slice of ``dynamic_slice_sizes``; starts are clamped so that it fits."""
    a, sizes = args[0], i.attrs["dynamic_slice_sizes"]
    starts = _starts(args[1:], a.shape, sizes)
    return np.asarray(a[tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))])


def dynamic_update_slice(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Overwrite part of a copy with the update; starts are clamped so that it fits."""
    a, update = args[0], args[1]
    starts = _starts(args[2:], a.shape, update.shape)
    out = np.array(a)
    out[tuple(slice(s, s + n) for s, n in zip(starts, update.shape, strict=True))] = update
    return out


def _vectors(indices: Array, vector: int) -> Array:
    """Return the index vectors along a last dimension, as int64."""
    wide = indices.astype(np.int64) if indices.dtype.kind != "u" else _signed(indices)
    return wide[..., None] if vector == indices.ndim else np.moveaxis(wide, vector, -1)


def _signed(indices: Array) -> Array:
    return np.minimum(indices, np.uint64(1 << 62)).astype(np.int64)


def _batch_index(shape: Sequence[int], indices: Array, d: int, vector: int) -> Array:
    """Return each index vector's position in dimension ``d`` of the index array."""
    axis = d if d < vector else d - 1
    row = np.arange(indices.shape[d])
    return row.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def gather(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Collect slices of ``slice_sizes`` that start at the index vectors, clamped so that they fit.

    The result has the slices' kept dimensions at ``offset_dims`` and those of the index array in
    between, as in XLA's Gather.
    """
    a, indices, attrs = args[0], args[1], i.attrs
    sizes, vector = attrs["slice_sizes"], attrs["index_vector_dim"]
    batching = attrs.get("operand_batching_dims", ())
    vectors = _vectors(indices, vector)
    outer = vectors.shape[:-1]
    if 0 in sizes or 0 in outer:
        return np.zeros(i.array.dims, a.dtype)
    starts: list[Array | int] = [0] * a.ndim
    for k, d in enumerate(attrs["start_index_map"]):
        starts[d] = np.clip(vectors[..., k], 0, a.shape[d] - sizes[d])
    for d, b in zip(batching, attrs.get("start_indices_batching_dims", ()), strict=True):
        starts[d] = _batch_index(outer, indices, b, vector)
    kept = [d for d in range(a.ndim) if d not in attrs["collapsed_slice_dims"] + batching]
    rank = len(outer) + len(kept)
    places = []
    for d in range(a.ndim):
        start = np.broadcast_to(np.asarray(starts[d]), outer).reshape(outer + (1,) * len(kept))
        if d in kept:
            shape = [1] * rank
            shape[len(outer) + kept.index(d)] = sizes[d]
            start = start + np.arange(sizes[d]).reshape(shape)
        places.append(start)
    found = a[tuple(places)] if places else np.broadcast_to(a, outer)
    offsets = attrs["offset_dims"]
    return np.moveaxis(found, range(len(outer), rank), offsets) if offsets else found


def scatter(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Combine update windows into copies of the operands by ``to_apply``, in order.

    A window that does not fit at its index vector is skipped whole, as in XLA's Scatter.
    """
    n = len(args) // 2
    operands, indices, updates = args[:n], args[n], args[n + 1 :]
    attrs, shape = i.attrs, operands[0].shape
    vector, window = attrs["index_vector_dim"], attrs["update_window_dims"]
    batching = attrs.get("input_batching_dims", ())
    vectors = _vectors(indices, vector)
    outer = vectors.shape[:-1]
    order = [d for d in range(updates[0].ndim) if d not in window] + list(window)
    updates = [u.transpose(order) for u in updates]
    inner = updates[0].shape[len(outer) :]
    kept = [d for d in range(len(shape)) if d not in attrs["inserted_window_dims"] + batching]
    extent = [inner[kept.index(d)] if d in kept else 1 for d in range(len(shape))]
    flat = np.zeros(outer + inner, np.int64)
    inside = np.ones(outer, bool)
    for d in range(len(shape)):
        start = np.zeros(outer, np.int64)
        if d in attrs["scatter_dims_to_operand_dims"]:
            start = vectors[..., attrs["scatter_dims_to_operand_dims"].index(d)]
            inside &= (start >= 0) & (start <= shape[d] - extent[d])
        elif d in batching:
            b = attrs["scatter_indices_batching_dims"][batching.index(d)]
            start = np.broadcast_to(_batch_index(outer, indices, b, vector), outer)
        place = start.reshape(outer + (1,) * len(inner))
        if d in kept:
            spread = [1] * (len(outer) + len(inner))
            spread[len(outer) + kept.index(d)] = extent[d]
            place = place + np.arange(extent[d]).reshape(spread)
        flat = flat * shape[d] + place
    mask = np.broadcast_to(inside.reshape(outer + (1,) * len(inner)), flat.shape)
    targets = [o.reshape(-1).copy() for o in operands]
    combine_at(targets, flat[mask], [u[mask] for u in updates], attrs["to_apply"], run)
    out = tuple(t.reshape(shape) for t in targets)
    return out[0] if n == 1 else out


_AT: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "multiply": np.multiply.at,
    "maximum": np.maximum.at,
    "minimum": np.minimum.at,
}


def combine_at(
    targets: list[Array], at: Array, updates: list[Array], c: Computation, run: CallEvaluator
) -> None:
    """Do ``target[at[k]] = c(target[at[k]], update[k])`` for every k in order, in place.

    ``targets`` and ``updates`` are one-dimensional. In general this takes as many rounds as the
    most frequent place has updates: round r combines the r-th update of each place.
    """
    op = simple_op(c)
    kind, size = targets[0].dtype.kind, targets[0].dtype.itemsize
    if len(targets) == 1 and op in _AT and (kind in "iu" or (kind in "fc" and size >= 4)):
        _AT[op](targets[0], at, updates[0])
        return
    if c.root is c.parameters[-1] and len(targets) == 1:
        targets[0][at] = updates[0]
        return
    apply = run.lifted(c)
    order = np.argsort(at, kind="stable")
    places = at[order]
    first = np.searchsorted(places, places)  # where the updates of each place begin
    rank = np.arange(len(places)) - first
    for r in range(int(rank.max(initial=-1)) + 1):
        now = order[rank == r]
        into = at[now]
        result = apply(*(t[into] for t in targets), *(u[now] for u in updates))
        results = result if isinstance(result, tuple) else (result,)
        for target, value in zip(targets, results, strict=True):
            target[into] = value
