"""Arrays of other shapes: sizes, reshaped, transposed, cut, joined, padded and repeated."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import mul

import numpy as np

from ....dtypes import s64
from ....hlo.limits import require_bytes
from ...lax import bounded
from ...lax.indexing import take, take_along_axis
from ...lax.shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    iota,
    pad,
    reshape,
    reverse,
    slice_,
    slice_in_dim,
    squeeze,
    stack,
    tile,
    transpose,
    tril,
    triu,
)
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator

MAX_INDICES = 1 << 24  # of a padding that repeats elements of the array


@operator("Shape", sized=True)
def _shape(node: Node) -> Term:
    x = node.input(0)
    end = node.int_("end", x.rank) if node.gives("end") else None
    chosen = range(x.rank)[node.int_("start", 0) : end]
    if not any(k in chosen for k in bounded.varying(x)):
        return node.constant(np.asarray([x.dims[k] for k in chosen], np.int64))
    return stack([bounded.size(x, k).to(s64) for k in chosen])


@operator("Size", sized=True)
def _size(node: Node) -> Term:
    x = node.input(0)
    if not bounded.varying(x):
        return node.constant(np.asarray(x.shape.size, np.int64))
    return reduce(mul, (bounded.size(x, k).to(s64) for k in range(x.rank)))


@operator("Reshape", since=5, sized=True)
def _reshape(node: Node) -> Term:
    x, (sizes, live) = node.input(0), node.sizes(1)
    if not node.int_("allowzero", 0):
        if any(d == 0 and k >= x.rank for k, d in enumerate(sizes)):
            node.malformed(f"the sizes {sizes} name a dimension that {list(x.dims)} has not")
        live.update({k: bounded.size(x, k) for k in bounded.varying(x) if sizes[k : k + 1] == [0]})
        sizes = [x.dims[k] if d == 0 else d for k, d in enumerate(sizes)]
    if len(live) == 1 and -1 not in sizes:
        sizes[next(iter(live))] = -1
    if sizes.count(-1) > 1 or any(d < -1 for d in sizes):
        node.malformed(f"the sizes are {sizes}")
    rest = prod(d for d in sizes if d != -1)
    if -1 in sizes and (not rest or x.shape.size % rest):
        node.malformed(f"{list(x.dims)} cannot be reshaped to {sizes}")
    dims = [x.shape.size // rest if d == -1 else d for d in sizes]
    if live and prod(dims) != x.shape.size:
        node.known(1)
    return _reshaped(x, dims, sizes.index(-1) if -1 in sizes else None, live)


def _reshaped(x: Term, dims: list[int], left: int | None, live: dict[int, Term]) -> Term:
    """Under other sizes, of which those in ``live`` vary; that of the dimension ``left``, if any,
    is what the others leave."""
    found = reshape(x, dims)
    varies = bounded.varying(found)
    if not bounded.varying(x) or (set(varies) == set(live) if live else varies or left is None):
        return found
    count = bounded.count(x, range(x.rank))
    if left is not None and left not in live and isinstance(count, Term):
        fixed = prod(d for k, d in enumerate(dims) if k != left and k not in live)
        others = reduce(mul, (t.to(s64) for t in live.values()), count.to(s64) * 0 + max(fixed, 1))
        live = {**live, left: count.to(s64) / others.do("maximum", 1)}
    return bounded.reshape(x, dims, live)


@operator("Flatten", sized=True)
def _flatten(node: Node) -> Term:
    x = node.input(0)
    axis = node.int_("axis", 1)
    axis = axis if axis == x.rank else node.dimension(axis, x.rank)
    return reshape(x, (prod(x.dims[:axis]), prod(x.dims[axis:])))


@operator("Squeeze", since=13, sized=True)
def _squeeze(node: Node) -> Term:
    return squeeze(node.input(0), node.known_ints(1) if node.has(1) else None)


@operator("Squeeze", sized=True)
def _squeeze_by_attribute(node: Node) -> Term:
    return squeeze(node.input(0), node.ints("axes"))


@operator("Unsqueeze", since=13, sized=True)
def _unsqueeze(node: Node) -> Term:
    return expand_dims(node.input(0), node.known_ints(1))


@operator("Unsqueeze", sized=True)
def _unsqueeze_by_attribute(node: Node) -> Term:
    return expand_dims(node.input(0), node.ints("axes") or [])


@operator("Transpose", sized=True)
def _transpose(node: Node) -> Term:
    x, order = node.input(0), node.ints("perm")
    order = list(range(x.rank))[::-1] if order is None else order
    if sorted(order) != list(range(x.rank)):
        node.malformed(f"{order} is no order of {x.rank} dimensions")
    return transpose(x, order)


@operator("Expand", sized=True)
def _expand(node: Node) -> Term:
    x, (sizes, live) = node.input(0), node.sizes(1)
    own = {k - len(sizes): d for k, d in enumerate(x.dims, len(sizes) - x.rank)}
    given = {k - len(sizes): size for k, size in live.items()}
    wide = {k: size for k, size in given.items() if own.get(k, 1) == 1}
    dims = [1 if k in given and k not in wide else d for k, d in enumerate(sizes, -len(sizes))]
    return bounded.cut(broadcast_to(x, np.broadcast_shapes(x.dims, tuple(dims))), wide)


@operator("Concat", sized=True)
def _concat(node: Node) -> Term:
    return concatenate(node.arrays(), node.int_("axis", 1))


@operator("Split", sized=True)
def _split(node: Node) -> tuple[Term, ...]:
    x = node.input(0)
    axis = node.axis("axis", x.rank, 0)
    node.fixed(x, [axis])
    size = x.dims[axis]
    sizes = node.known_ints(1) if node.has(1) else node.ints("split")
    if sizes is None:
        count = node.int_("num_outputs", len(node.outputs))
        if count != len(node.outputs):
            node.malformed(f"it has {len(node.outputs)} outputs, and its num_outputs is {count}")
        part = -(-size // max(count, 1))
        sizes = [max(min(part, size - n * part), 0) for n in range(count)]
    if sum(sizes) != size or any(n < 0 for n in sizes):
        node.malformed(f"the parts {sizes} are not the {size} of dimension {axis}")
    ends = np.cumsum(sizes).tolist()
    return tuple(slice_in_dim(x, b - n, b, axis) for n, b in zip(sizes, ends, strict=True))


@operator("Slice", since=10, sized=True)
def _slice(node: Node) -> Term:
    x, (starts, first), (ends, last) = node.input(0), node.sizes(1), node.sizes(2)
    axes = node.known_ints(3) if node.has(3) else list(range(len(starts)))
    steps = node.known_ints(4) if node.has(4) else [1] * len(starts)
    for k in {**first, **last}:
        if steps[k] < 1:
            node.known_ints(1 if k in first else 2)
        axis = node.dimension(axes[k], x.rank)
        end = last.get(k, min(ends[k], x.dims[axis]))
        x = bounded.slice_between(x, axis, first.get(k, starts[k]), end, steps[k])
    rest = [k for k in range(len(starts)) if k not in first and k not in last]
    parts = ([values[k] for k in rest] for values in (starts, ends, axes, steps))
    return sliced(node, x, *parts)


@operator("Slice", sized=True)
def _slice_by_attributes(node: Node) -> Term:
    starts, ends = node.ints("starts") or [], node.ints("ends") or []
    axes = node.ints("axes") or list(range(len(starts)))
    return sliced(node, node.input(0), starts, ends, axes, [1] * len(starts))


def sliced(
    node: Node, x: Term, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Term:
    """Return ``x[start:end:step]`` of some dimensions, as in NumPy; but backwards from before the
    first element is from the first."""
    low, high, stride = [0] * x.rank, list(x.dims), [1] * x.rank
    backwards = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        k = node.dimension(axis, x.rank)
        if step == 0:
            node.malformed("it has a step of 0")
        if k in bounded.varying(x) and step > 0:
            x = bounded.slice_between(x, k, start, min(end, x.dims[k]), step)
            high[k] = x.dims[k]
            continue
        start = max(start, -x.dims[k]) if step < 0 else start
        part = range(x.dims[k])[slice(start, _end(end, step, x.dims[k]), step)]
        if step < 0:
            backwards.append(k)
            part = part[::-1]
            if len(part) < x.dims[k]:
                node.fixed(x, [k])
        low[k], stride[k] = (part[0], part.step) if part else (0, 1)
        high[k] = part[-1] + 1 if part else 0
    return reverse(slice_(x, low, high, stride), backwards)


def _end(end: int, step: int, size: int) -> int | None:
    """An end of ONNX as one of Python, where -1 cannot mean the place before the first."""
    return None if step < 0 and end < -size else end


@operator("Tile", sized=True)
def _tile(node: Node) -> Term:
    x, repeats = node.input(0), node.known_ints(1)
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        node.malformed(f"{repeats} are no repeats of {x.rank} dimensions")
    return tile(x, repeats)


@operator("Pad", since=11, sized=True)
def _pad(node: Node) -> Term:
    x, pads = node.input(0), node.known_ints(1)
    axes = node.known_ints(3) if node.has(3) else list(range(x.rank))
    filler = reshape(node.input(2), ()) if node.has(2) else None
    return padded(node, x, pads, axes, filler)


@operator("Pad", sized=True)
def _pad_by_attributes(node: Node) -> Term:
    x = node.input(0)
    filler = node.constant(node.float_("value", 0.0), x.dtype)
    return padded(node, x, node.ints("pads") or [], list(range(x.rank)), filler)


def padded(node: Node, x: Term, pads: list[int], axes: list[int], filler: Term | None) -> Term:
    """Return ``x`` with ``pads``, all lows and then all highs, in the node's mode."""
    if len(pads) != 2 * len(axes):
        node.malformed(f"it has {len(pads)} paddings for {len(axes)} dimensions")
    low, high = [0] * x.rank, [0] * x.rank
    for n, axis in enumerate(axes):
        k = node.dimension(axis, x.rank)
        low[k], high[k] = pads[n], pads[len(axes) + n]
    mode = node.string("mode", "constant")
    if any(a + d + b < 0 for a, d, b in zip(low, x.dims, high, strict=True)):
        node.malformed(f"the paddings {pads} take more than there is of {list(x.dims)}")
    total = prod(a + d + b for a, d, b in zip(low, x.dims, high, strict=True))
    require_bytes(total * x.dtype.bytes, "the result", node.place)
    if mode == "constant":
        return pad(x, 0 if filler is None else filler, low, high)
    node.fixed(x, [k for k, pair in enumerate(zip(low, high, strict=True)) if pair != (0, 0)])
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        x = _padded_by_itself(node, x, k, a, b, mode)
    return x


def _padded_by_itself(node: Node, x: Term, axis: int, low: int, high: int, mode: str) -> Term:
    """One dimension padded with elements of the array: edge, reflect or wrap."""
    size = x.dims[axis]
    x = slice_in_dim(x, max(-low, 0), size - max(-high, 0), axis)
    if low <= 0 and high <= 0:
        return x
    if mode not in ("edge", "reflect", "wrap"):
        node.malformed(f"its mode is `{mode}`")
    if max(low, 0) + max(high, 0) > MAX_INDICES or not x.dims[axis]:
        node.unsupported(f"it pads {x.dims[axis]} elements by {low} and {high} in mode {mode}")
    numbers = np.arange(x.dims[axis], dtype=np.int64)
    match mode:
        case "edge":
            places = np.pad(numbers, (max(low, 0), max(high, 0)), "edge")
        case "reflect":
            places = np.pad(numbers, (max(low, 0), max(high, 0)), "reflect")
        case _:
            places = np.pad(numbers, (max(low, 0), max(high, 0)), "wrap")
    return take(x, node.constant(places), axis)


@operator("DepthToSpace", sized=True)
def _depth_to_space(node: Node) -> Term:
    x, b = node.input(0), node.int_("blocksize")
    n, c, h, w = x.dims
    deep = c // (b * b)
    if node.string("mode", "DCR") == "CRD":
        parts = transpose(reshape(x, (n, deep, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        parts = transpose(reshape(x, (n, b, b, deep, h, w)), (0, 3, 4, 1, 5, 2))
    return reshape(parts, (n, deep, h * b, w * b))


@operator("SpaceToDepth", sized=True)
def _space_to_depth(node: Node) -> Term:
    x, b = node.input(0), node.int_("blocksize")
    n, c, h, w = x.dims
    parts = reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 1, 3, 5, 2, 4) if node.string("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return reshape(transpose(parts, order), (n, c * b * b, h // b, w // b))


@operator("Trilu", sized=True)
def _trilu(node: Node) -> Term:
    x = node.input(0)
    k = reshape(node.input(1), ()) if node.has(1) else 0
    return triu(x, k) if node.int_("upper", 1) else tril(x, k)


@operator("ReverseSequence")
def _reverse_sequence(node: Node) -> Term:
    """The first ``sequence_lens`` steps of each batch element backwards."""
    x, lengths = node.input(0), node.input(1).to(s64)
    time, batch = node.axis("time_axis", x.rank, 0), node.axis("batch_axis", x.rank, 1)
    dims = [d if k in (time, batch) else 1 for k, d in enumerate(x.dims)]
    wide = reshape(lengths, [d if k == batch else 1 for k, d in enumerate(dims)])
    step = iota(node.graph, s64, dims, time)
    places = (step < wide).select(broadcast_to(wide, dims) - 1 - step, step)
    return take_along_axis(x, broadcast_to(places, x.dims), time)
