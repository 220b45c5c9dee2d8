"""Elements by computed places: gathers, scatters, and slices that start where an array says.

A place outside an array is moved to its nearest edge by reads (as HLO's ``gather`` does) and left
out by writes (as its ``scatter`` does). Negative places count from the end only after ``wrap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...dtypes import DType, s64
from ...hlo.nodes import Computation, Instruction
from .reductions import combiner
from .shaping import (
    concatenate,
    expand_dims,
    full,
    iota,
    reshape,
    slice_,
    transpose,
)
from .term import Term, innermost

Update = Callable[[Term, Term], Term]


def wrap(indices: Term, size: Term | int) -> Term:
    """Indices that count from the end where they are negative."""
    if indices.dtype.kind == "unsigned":
        return indices
    return (indices < 0).select(indices + size, indices)


def take(x: Term, indices: Term, axis: int) -> Term:
    """Parts of ``x`` by their index along a dimension: ``x[.., indices, ..]``."""
    along = axis % x.rank
    offsets = [k if k < along else k + indices.rank - 1 for k in range(x.rank) if k != along]
    return gather(
        x,
        indices,
        offset_dims=offsets,
        collapsed=[along],
        start_map=[along],
        vector=indices.rank,
        sizes=[1 if k == along else d for k, d in enumerate(x.dims)],
    )


def windows(x: Term, axis: int, size: int, step: int) -> Term:
    """Stretches of ``size`` along a dimension, ``step`` apart: ``[.., count, size, ..]``."""
    along = axis % x.rank
    count = 1 + (x.dims[along] - size) // step
    return gather(
        x,
        iota(x.site, s64, (count,), 0) * step,
        offset_dims=[k for k in range(x.rank + 1) if k != along],
        collapsed=[],
        start_map=[along],
        vector=1,
        sizes=[size if k == along else d for k, d in enumerate(x.dims)],
    )


def gather(
    x: Term,
    indices: Term,
    *,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    start_map: Sequence[int],
    vector: int,
    sizes: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Term:
    """HLO's ``gather``: slices of ``sizes`` that start at the vectors of ``indices``.

    Where there are no vectors, slices may be larger than ``x``.
    """
    site = innermost([x, indices])
    if any(size > d for size, d in zip(sizes, x.dims, strict=True)):
        outer = [d for k, d in enumerate(indices.dims) if k != vector]
        gone = {*collapsed, *batching[0]}
        inner = [size for k, size in enumerate(sizes) if k not in gone]
        if not prod(outer):
            for at, size in zip(offset_dims, inner, strict=True):
                outer.insert(at, size)
            return full(site, 0, x.dtype, tuple(outer))
    attrs: dict[str, object] = {
        "offset_dims": tuple(offset_dims),
        "collapsed_slice_dims": tuple(collapsed),
        "start_index_map": tuple(start_map),
        "index_vector_dim": vector,
        "slice_sizes": tuple(sizes),
    }
    if batching[0]:
        attrs["operand_batching_dims"] = tuple(batching[0])
        attrs["start_indices_batching_dims"] = tuple(batching[1])
    return Term(site, site.infer("gather", [x.value, indices.value], **attrs))


def take_along_axis(x: Term, indices: Term, axis: int) -> Term:
    """``x[i, indices[i, j, k], k]`` for every ``i, j, k`` of ``indices``.

    ``indices`` may be smaller than ``x`` in the other dimensions: then its first elements count.
    """
    along = axis % x.rank
    limits = [d if k == along else indices.dims[k] for k, d in enumerate(x.dims)]
    others = [k for k in range(x.rank) if k != along]
    part = slice_(x, [0] * x.rank, limits)
    if (rows := _one_for_all(indices, along)) is not None:
        return take(part, rows, along)
    return gather(
        part,
        indices,
        offset_dims=[],
        collapsed=[along],
        start_map=[along],
        vector=indices.rank,
        sizes=[1] * x.rank,
        batching=(others, others),
    )


def gather_nd(x: Term, indices: Term, batch: int = 0) -> Term:
    """``x[b, indices[b, .., :]]``: its last dimension holds places in those after batch."""
    count, outer = indices.dims[-1], indices.rank - 1
    mapped = list(range(batch, batch + count))
    rest = range(batch + count, x.rank)
    return gather(
        x,
        indices,
        offset_dims=[outer + n for n in range(len(rest))],
        collapsed=mapped,
        start_map=mapped,
        vector=outer,
        sizes=[1] * (batch + count) + [x.dims[k] for k in rest],
        batching=(range(batch), range(batch)),
    )


def scatter_nd(
    x: Term, indices: Term, updates: Term, update: Update | None = None, unique: bool = False
) -> Term:
    """``x`` with ``x[indices[.., :]]`` replaced by ``updates``, or combined: ``update(old, new)``.

    ``unique`` promises that no place is written twice.
    """
    return _scatter(x, indices, updates, range(indices.dims[-1]), update, unique=unique)


def _scatter(
    x: Term,
    indices: Term,
    updates: Term,
    placed: Sequence[int],
    update: Update | None,
    batches: Sequence[int] = (),
    unique: bool = False,
) -> Term:
    """HLO's ``scatter``: the last dimension of ``indices`` holds places in the ``placed`` ones.

    ``batches`` are dimensions of ``x`` and, by the same numbers, of ``indices``; windows are whole.
    """
    outer, windows = indices.rank - 1, x.rank - len(placed) - len(batches)
    site = innermost([x, indices, updates])
    attrs: dict[str, object] = {
        "update_window_dims": tuple(range(outer, outer + windows)),
        "inserted_window_dims": tuple(placed),
        "scatter_dims_to_operand_dims": tuple(placed),
        "index_vector_dim": outer,
        "unique_indices": unique,
        "to_apply": _updater(x.dtype, update),
    }
    if batches:
        attrs["input_batching_dims"] = attrs["scatter_indices_batching_dims"] = tuple(batches)
    operands = [x.value, indices.value, updates.value]
    return Term(site, site.infer("scatter", operands, **attrs))


def put_along_axis(
    x: Term, indices: Term, updates: Term, axis: int, update: Update | None = None
) -> Term:
    """``x`` with ``x[i, indices[i, j, k], k]`` replaced by ``updates[i, j, k]``, or combined."""
    along = axis % x.rank
    site = innermost([x, indices, updates])
    batches = [k for k, d in enumerate(x.dims) if k != along and indices.dims[k] == d]
    rows = _one_for_all(indices, along)
    if rows is not None and len(batches) == x.rank - 1:
        return put(x, rows, updates, along, update)
    placed = [k for k in range(x.rank) if k not in batches]
    places = [indices if k == along else iota(site, indices.dtype, indices.dims, k) for k in placed]
    vectors = concatenate([expand_dims(p, [-1]) for p in places], -1)
    return _scatter(x, vectors, updates, placed, update, batches)


def _one_for_all(indices: Term, axis: int) -> Term | None:
    """The vector along a dimension that all others repeat, for which whole parts are moved."""
    match indices.value:
        case Instruction(opcode="broadcast", operands=(vector,), attrs={"dimensions": (k,)}):
            return Term(indices.site, vector) if k == axis and indices.rank > 1 else None
        case _:
            return None


def put(x: Term, indices: Term, updates: Term, axis: int, update: Update | None = None) -> Term:
    """``x`` with its parts ``x[.., indices, ..]`` along a dimension replaced, or combined."""
    along = axis % x.rank
    order = [along, *(k for k in range(x.rank) if k != along)]
    front = list(range(along, along + indices.rank))
    rest = [k for k in range(updates.rank) if k not in front]
    moved = scatter_nd(
        transpose(x, order), expand_dims(indices, [-1]), transpose(updates, front + rest), update
    )
    return transpose(moved, [order.index(k) for k in range(x.rank)])


def _updater(dtype: DType, update: Update | None) -> Computation:
    chosen = update or (lambda old, new: new)
    return combiner([dtype], lambda old, new: [chosen(old[0], new[0])])


def dynamic_slice(x: Term, starts: Sequence[Term | int], sizes: Sequence[int]) -> Term:
    """Elements from ``starts`` on; a start is moved so that the slice lies inside."""
    places = _starts(x, starts)
    site = innermost([x, *places])
    operands = [t.value for t in (x, *places)]
    value = site.infer("dynamic-slice", operands, dynamic_slice_sizes=tuple(sizes))
    return Term(site, value)


def dynamic_update_slice(x: Term, update: Term, starts: Sequence[Term | int]) -> Term:
    """``x`` with a part replaced; a start is moved so that the part lies inside."""
    places = _starts(x, starts)
    terms = [x, update, *places]
    site = innermost(terms)
    return Term(site, site.infer("dynamic-update-slice", [t.value for t in terms]))


def _starts(x: Term, starts: Sequence[Term | int]) -> list[Term]:
    """Scalars of one integer type."""
    given = [s for s in starts if isinstance(s, Term)]
    dtype = given[0].dtype if given else s64
    return [
        reshape(s, ()).to(dtype) if isinstance(s, Term) else full(x.site, s, dtype) for s in starts
    ]
