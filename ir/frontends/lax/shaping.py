"""Arrays of other shapes: broadcast, reshaped, transposed, cut, padded and joined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...dtypes import DType, s64, to_numpy
from ...errors import VerifyError
from ...hlo.live_sizes import reshaped_marks
from ...hlo.nodes import PadDim, Shape, SliceDim
from .term import Dims, Number, Term, WriteSite, innermost


def full(site: WriteSite, value: Number, dtype: DType, dims: Sequence[int] = ()) -> Term:
    """An array of one number."""
    one = site.constant(np.asarray(value).astype(to_numpy(dtype)))
    return Term(site, one).like(Shape(dtype, tuple(dims)))


def literal(site: WriteSite, value: object, dtype: DType) -> Term:
    """A constant of an array's values, converted to ``dtype`` as NumPy does."""
    return Term(site, site.constant(np.asarray(value).astype(to_numpy(dtype))))


def iota(site: WriteSite, dtype: DType, dims: Sequence[int], axis: int = 0) -> Term:
    """An array whose elements are their index along ``axis``."""
    shape = Shape(dtype, tuple(dims))
    return Term(site, site.add("iota", shape, iota_dimension=_axis(axis, len(shape.dims))))


def broadcast_to(x: Term, dims: Sequence[int]) -> Term:
    """Broadcast as NumPy does: the last dimensions correspond."""
    return x.like(Shape(x.dtype, tuple(dims)))


def broadcast_in_dim(x: Term, dims: Sequence[int], mapped: Sequence[int]) -> Term:
    """Dimension ``k`` of ``x`` becomes dimension ``mapped[k]``; those rise."""
    wide = [1] * len(dims)
    for k, d in zip(mapped, x.dims, strict=True):
        wide[k] = d
    return broadcast_to(reshape(x, wide), dims)


def reshape(x: Term, dims: Sequence[int]) -> Term:
    """The same elements in row-major order; one size may be -1.

    The size that varies of a bounded dimension is found where sizes alone tell it;
    ``bounded.reshape`` is told which one it is.
    """
    to = tuple(dims)
    if -1 in to:
        rest = prod(d for d in to if d != -1)
        to = tuple(x.shape.size // max(rest, 1) if d == -1 else d for d in to)
    if to == x.dims:
        return x
    if prod(to) != x.shape.size:
        raise VerifyError("shapes do not fit", f"{list(x.dims)} cannot be reshaped to {list(to)}")
    marks = reshaped_marks(x.shape, to) if any(x.shape.dynamic) else ()
    wide = Shape(x.dtype, to, None, marks if any(marks) else ())
    return Term(x.site, x.site.add("reshape", wide, [x.value]))


def expand_dims(x: Term, axes: Sequence[int]) -> Term:
    """Dimensions of one element, at these places of the result."""
    rank = x.rank + len(axes)
    new = {_axis(a, rank) for a in axes}
    old = iter(x.dims)
    return reshape(x, [1 if k in new else next(old) for k in range(rank)])


def per_channel(x: Term, rank: int) -> Term:
    """``x[c]`` so that it broadcasts against ``[n, c, ..]`` of this rank."""
    return reshape(x, (x.shape.size, *[1] * (rank - 2)))


def squeeze(x: Term, axes: Sequence[int] | None = None) -> Term:
    """``x`` without these dimensions, each of one element; by default without any such."""
    if axes is None:
        return reshape(x, [d for d in x.dims if d != 1])
    gone = {_axis(a, x.rank) for a in axes}
    if any(x.dims[k] != 1 for k in gone):
        raise VerifyError("shapes do not fit", f"{list(axes)} of {list(x.dims)} are not of size 1")
    return reshape(x, [d for k, d in enumerate(x.dims) if k not in gone])


def unreshaped(x: Term) -> Term | None:
    """Return what ``x`` is a reshaped form of, None if it is none."""
    return Term(x.site, x.value.operands[0]) if x.value.opcode == "reshape" else None


def transpose(x: Term, order: Sequence[int]) -> Term:
    """Dimension ``k`` of the result is dimension ``order[k]`` of ``x``."""
    to = tuple(_axis(k, x.rank) for k in order)
    if to == tuple(range(x.rank)):
        return x
    return Term(x.site, x.site.infer("transpose", [x.value], dimensions=to))


def swap_axes(x: Term, a: int, b: int) -> Term:
    """``x`` with two dimensions exchanged."""
    order = list(range(x.rank))
    order[a], order[b] = order[b], order[a]
    return transpose(x, order)


def move_axis(x: Term, source: int, to: int) -> Term:
    """``x`` with one dimension at another place, the others in order."""
    order = [k for k in range(x.rank) if k != _axis(source, x.rank)]
    order.insert(_axis(to, x.rank), _axis(source, x.rank))
    return transpose(x, order)


def concatenate(terms: Sequence[Term], axis: int) -> Term:
    """Arrays one after the other along a dimension."""
    if len(terms) == 1:
        return terms[0]
    site = innermost(terms)
    along = (_axis(axis, terms[0].rank),)
    return Term(site, site.infer("concatenate", [t.value for t in terms], dimensions=along))


def stack(terms: Sequence[Term], axis: int = 0) -> Term:
    """Arrays of one shape along a new dimension."""
    return concatenate([expand_dims(t, [axis]) for t in terms], axis)


def slice_(
    x: Term, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
) -> Term:
    """Elements ``start:limit:stride`` of every dimension; strides are positive."""
    steps = strides or [1] * x.rank
    parts = tuple(SliceDim(a, max(a, b), s) for a, b, s in zip(starts, limits, steps, strict=True))
    if all(p == SliceDim(0, d) for p, d in zip(parts, x.dims, strict=True)):
        return x
    return Term(x.site, x.site.infer("slice", [x.value], slice=parts))


def slice_in_dim(x: Term, start: int, limit: int, axis: int, stride: int = 1) -> Term:
    """Elements ``start:limit:stride`` of one dimension, all of the others."""
    along = _axis(axis, x.rank)
    starts = [start if k == along else 0 for k in range(x.rank)]
    limits = [limit if k == along else d for k, d in enumerate(x.dims)]
    return slice_(x, starts, limits, [stride if k == along else 1 for k in range(x.rank)])


def split(x: Term, sizes: Sequence[int], axis: int) -> list[Term]:
    """Parts of these sizes along a dimension."""
    found, at = [], 0
    for size in sizes:
        found.append(slice_in_dim(x, at, at + size, axis))
        at += size
    return found


def unstack(x: Term, axis: int = 0) -> list[Term]:
    """The parts of size 1 along a dimension, without that dimension."""
    count = x.dims[_axis(axis, x.rank)]
    return [squeeze(part, [axis]) for part in split(x, [1] * count, axis)]


def pad(
    x: Term,
    value: Term | Number,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Term:
    """``x`` with a number around it; negative counts cut, ``interior`` is between elements."""
    between = interior or [0] * x.rank
    parts = tuple(PadDim(a, b, i) for a, b, i in zip(low, high, between, strict=True))
    if all(p == PadDim(0, 0) for p in parts):
        return x
    filler = value if isinstance(value, Term) else full(x.site, value, x.dtype)
    site = innermost([x, filler])
    return Term(site, site.infer("pad", [x.value, filler.value], padding=parts))


def reverse(x: Term, axes: Sequence[int]) -> Term:
    """``x`` with these dimensions backwards."""
    along = tuple(sorted(_axis(a, x.rank) for a in axes))
    if all(x.dims[k] == 1 for k in along):
        return x
    return Term(x.site, x.site.infer("reverse", [x.value], dimensions=along))


def tile(x: Term, repeats: Sequence[int]) -> Term:
    """``x`` repeated as a whole, so often in each of its dimensions."""
    wide = [n for d in x.dims for n in (1, d)]
    to = [n for r, d in zip(repeats, x.dims, strict=True) for n in (r, d)]
    dims = [r * d for r, d in zip(repeats, x.dims, strict=True)]
    return reshape(broadcast_to(reshape(x, wide), to), dims)


def repeat(x: Term, counts: Sequence[int]) -> Term:
    """Each element of ``x`` so often in a row, along each dimension."""
    wide = [n for d in x.dims for n in (d, 1)]
    to = [n for d, r in zip(x.dims, counts, strict=True) for n in (d, r)]
    dims = [r * d for d, r in zip(x.dims, counts, strict=True)]
    return reshape(broadcast_to(reshape(x, wide), to), dims)


def tril(x: Term, k: Term | int = 0) -> Term:
    """The lower triangles of matrices ``[.., m, n]`` up to diagonal ``k``, zeros above; jax.numpy's
    ``tril``. ``k`` is an s64 scalar if it is a term."""
    rows, columns = (iota(x.site, s64, x.dims[-2:], axis) for axis in (0, 1))
    return (columns <= rows + k).select(x, 0)


def triu(x: Term, k: Term | int = 0) -> Term:
    """The upper triangles from diagonal ``k`` on, zeros below; else as ``tril``."""
    rows, columns = (iota(x.site, s64, x.dims[-2:], axis) for axis in (0, 1))
    return (columns >= rows + k).select(x, 0)


def flatten(x: Term, start: int = 0, end: int = -1) -> Term:
    """Dimensions ``start`` to ``end``, the last included, as one; of a scalar a vector."""
    if x.rank == 0:
        return reshape(x, (1,))
    first, last = _axis(start, x.rank), _axis(end, x.rank)
    dims: Dims = (*x.dims[:first], prod(x.dims[first : last + 1]), *x.dims[last + 1 :])
    return reshape(x, dims)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise VerifyError("shapes do not fit", f"dimension {axis} of an array of rank {rank}")
    return axis % rank
