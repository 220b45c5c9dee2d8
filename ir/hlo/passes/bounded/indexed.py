"""``pad_dynamic`` for ``gather`` and ``scatter``, and for operations on batches of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....dtypes import DType, s64, to_numpy
from ...live_sizes import is_whole
from ...meaning.values import simple_op
from ...nodes import Instruction, Shape, TupleShape
from ...patterns import build
from ...rewrite import make
from .moves import reapply
from .reduce import refuse
from .values import (
    Padded,
    Scalar,
    Tree,
    arithmetic,
    live_mask,
    masked,
    neutral,
    scalar,
    smallest_sizes,
    static,
    varying,
    zeroed,
)


def gather(i: Instruction, operands: list[Padded]) -> Padded:
    """Clamp starts so that slices lie in the live part; whole dimensions keep their live size."""
    x, indices = operands
    attrs, vector = i.attrs, i.attrs["index_vector_dim"]
    if vector in indices.sizes:
        raise refuse(i, "the length of its index vectors is bounded")
    extents, batching = attrs["slice_sizes"], attrs.get("operand_batching_dims", ())
    gone = {*attrs["collapsed_slice_dims"], *batching}
    kept = [d for d in range(len(x.dims)) if d not in gone]
    inner = dict(zip(kept, attrs["offset_dims"], strict=True))
    outer = [d for d in range(i.array.rank) if d not in attrs["offset_dims"]]
    batch = dict(zip((d for d in range(len(indices.dims)) if d != vector), outer, strict=True))
    parts = [{batch[d]: s for d, s in indices.sizes.items()}]
    pairs = zip(batching, attrs.get("start_indices_batching_dims", ()), strict=True)
    parts += [{batch[b]: x.sizes[d]} for d, b in pairs if d in x.sizes]
    whole = [d for d in kept if is_whole(0, extents[d], 1, x.dims[d])]
    parts.append({inner[d]: x.sizes[d] for d in whole if d in x.sizes})
    moved = [d for d in x.sizes if d not in batching and d not in whole]
    last = {d: _last_start(x.sizes[d], extents[d]) for d in moved}
    limits = [last.get(d) for d in attrs["start_index_map"]]
    at = indices.value
    if any(n is not None for n in limits):
        at = build.pointwise("minimum", at, _along(limits, at, vector))
    return Padded(reapply(i, zeroed(x, moved), at), smallest_sizes(parts))


def _last_start(size: Scalar, extent: int) -> Scalar:
    """Return the last start at which a slice lies in a dimension of this size, at least 0."""
    return arithmetic("maximum", arithmetic("subtract", size, extent), 0)


def _along(limits: Sequence[Scalar | None], at: Instruction, vector: int) -> Instruction:
    """Broadcast a limit for each component of the index vectors to the shape of the indices."""
    dtype, dims = at.array.dtype, at.array.dims
    most = int(np.iinfo(to_numpy(dtype)).max)
    values = [build.scalar(most, dtype) if n is None else _as_index(n, dtype) for n in limits]
    if vector == len(dims):
        return build.broadcast(values[0], (), dims)
    rows = [build.reshape(v, (1,)) for v in values]
    shape = Shape(dtype, (len(rows),))
    joined = make("concatenate", shape, rows, dimensions=(0,)) if len(rows) > 1 else rows[0]
    return build.broadcast(joined, (vector,), dims)


def _as_index(size: Scalar, dtype: DType) -> Instruction:
    """Convert a size to an index type, limited to its largest value."""
    most = min(int(np.iinfo(to_numpy(dtype)).max), (1 << 31) - 1)
    return build.convert(scalar(arithmetic("minimum", size, most)), dtype)


def scatter(i: Instruction, operands: list[Padded]) -> Tree:
    """Give rows of padding, and windows that leave the live part, an index out of bounds.

    Where windows vary by themselves, their padding changes nothing; it is 0 if they replace what
    is there.
    """
    n = len(operands) // 2
    arrays, indices, updates = operands[:n], operands[n], operands[n + 1 :]
    sizes = smallest_sizes(a.sizes for a in arrays)
    rows = _update_rows(i, indices, smallest_sizes(u.sizes for u in updates), sizes, arrays[0].dims)
    kept = window_dims(i, len(arrays[0].dims))
    windows = zip(kept, (updates[0].dims[w] for w in i.attrs["update_window_dims"]), strict=True)
    at = _valid(i, indices.value, rows, sizes, dict(windows))
    spans = list(zip(i.attrs["update_window_dims"], kept, strict=True))
    own = [[w for w, d in spans if u.sizes.get(w) is not sizes.get(d)] for u in updates]
    parts = [_filled(i, u, axes) for u, axes in zip(updates, own, strict=True)]
    value = reapply(i, *(a.value for a in arrays), at, *parts)
    if not isinstance(i.shape, TupleShape):
        return Padded(value, sizes)
    return tuple(
        Padded(make("get-tuple-element", static(e), (value,), index=k), sizes)
        for k, e in enumerate(i.shape.elements)
    )


def _filled(i: Instruction, update: Padded, axes: Sequence[int]) -> Instruction:
    """Return an update with the combiner's neutral element in its padding, 0 if there is none."""
    dtype = update.value.array.dtype
    op = simple_op(i.attrs["to_apply"]) if isinstance(i.shape, Shape) else None
    fill = neutral(op, dtype) if op is not None else None
    sizes = {w: update.sizes[w] for w in axes if w in update.sizes}
    return masked(update.value, sizes, build.scalar(0, dtype) if fill is None else fill)


def _update_rows(
    i: Instruction,
    indices: Padded,
    given: dict[int, Instruction],
    sizes: dict[int, Instruction],
    dims: tuple[int, ...],
) -> dict[int, Scalar]:
    """Return the live sizes of the indices' dimensions: the smaller of indices and updates.

    ``UnsupportedError`` if index vectors have a bounded length, or windows a bounded size where the
    operand has none.
    """
    vector, window = i.attrs["index_vector_dim"], i.attrs["update_window_dims"]
    if vector in indices.sizes:
        raise refuse(i, "the length of its index vectors is bounded")
    for w, d in zip(window, window_dims(i, len(dims)), strict=True):
        if w in given and d not in sizes:
            raise refuse(i, "its windows have a bounded size that is not the operand's")
    rank = len(indices.dims) + len(window) - (vector < len(indices.dims))
    outer = [d for d in range(rank) if d not in window]
    inner = [d for d in range(len(indices.dims)) if d != vector]
    of_updates = {b: {0: given[d]} for d, b in zip(outer, inner, strict=True) if d in given}
    rows: dict[int, Scalar] = {}
    for b in inner:
        of_indices = {0: indices.sizes[b]} if b in indices.sizes else {}
        if both := smallest_sizes((of_indices, of_updates.get(b, {}))):
            rows[b] = both[0]
    return rows


def window_dims(i: Instruction, rank: int) -> list[int]:
    """Return the operand's dimensions that a scatter's update windows span."""
    gone = {*i.attrs["inserted_window_dims"], *i.attrs.get("input_batching_dims", ())}
    return [d for d in range(rank) if d not in gone]


def _valid(
    i: Instruction,
    at: Instruction,
    rows: dict[int, Scalar],
    sizes: dict[int, Instruction],
    extent: dict[int, int],
) -> Instruction:
    """Return the indices as s64, replaced by -1 where nothing is to be scattered."""
    indexed, vector = i.attrs["scatter_dims_to_operand_dims"], i.attrs["index_vector_dim"]
    limits = [
        arithmetic("subtract", sizes[d], extent.get(d, 1)) if d in sizes else None for d in indexed
    ]
    inside = live_mask(at.array.dims, rows)
    if inside is None and all(n is None for n in limits):
        return at
    if not indexed:
        raise refuse(i, "it has no index by which padding could be skipped")
    wide = build.convert(at, s64)
    if any(n is not None for n in limits):
        fits = build.pointwise("compare", wide, _along(limits, wide, vector), direction="LE")
        inside = fits if inside is None else build.pointwise("and", inside, fits)
    assert inside is not None
    return build.pointwise("select", inside, wide, build.full(-1, s64, wide.array.dims))


def batches(i: Instruction, operands: list[Padded]) -> Padded:
    """Pad batch dimensions; ``UnsupportedError`` if a dimension of a matrix or transform varies."""
    inner = len(i.attrs["fft_length"]) if i.opcode == "fft" else 2
    sizes = smallest_sizes(o.sizes for o in operands)
    if any(d >= len(operands[0].dims) - inner for d in sizes):
        raise refuse(i, "a dimension that it works along is bounded")
    return Padded(reapply(i, *(o.value for o in operands)), varying(i.array.dims, sizes))


def batch_norm(i: Instruction, operands: list[Padded]) -> Padded:
    """Pad the input; ``UnsupportedError`` if the number of features is bounded."""
    x, *vectors = operands
    if i.attrs["feature_index"] in x.sizes or any(v.sizes for v in vectors):
        raise refuse(i, "the number of its features is bounded")
    return Padded(reapply(i, *(o.value for o in operands)), x.sizes)


RULES = {
    "gather": gather,
    "scatter": scatter,
    "fft": batches,
    "cholesky": batches,
    "triangular-solve": batches,
    "batch-norm-inference": batch_norm,
}
