"""Data movement with places known at run time: gather, dynamic slices and updates of them."""

from __future__ import annotations

from ...ir.hlo.nodes import Instruction
from ...ir.loop.build import add, both, const, select, sub
from ...ir.loop.nodes import Expr
from .emitter import ElementEmitter, Index, Rule, as_index


def starts(e: ElementEmitter, operands: tuple[Instruction, ...], rank: int) -> list[Expr]:
    """Start indices given as scalars, or (old style) as one array of ``rank`` elements."""
    if len(operands) == 1 and operands[0].array.rank == 1:
        values = [e.element(operands[0], (n,)) for n in range(rank)]
    else:
        values = [e.scalar(o) for o in operands]
    return [as_index(v) for v in values]


def clamped_starts(
    e: ElementEmitter,
    operands: tuple[Instruction, ...],
    dims: tuple[int, ...],
    sizes: tuple[int, ...],
) -> list[Expr]:
    """Start indices moved so that the whole slice lies inside the array, as HLO says."""
    found = starts(e, operands, len(dims))
    return [e.clamped(s, d - n) for s, d, n in zip(found, dims, sizes, strict=True)]


def dynamic_slice(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return ``operand[start + i]``, the start clamped so that the slice lies inside."""
    source = x.operands[0]
    first = clamped_starts(e, x.operands[1:], source.array.dims, x.array.dims)
    return e.element(source, tuple(add(i, s) for i, s in zip(at, first, strict=True)))


def dynamic_update_slice(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return the update where the place lies in its window, else the operand."""
    operand, update = x.operands[:2]
    if update.array.size == 0:
        return e.element(operand, at)
    dims = update.array.dims
    first = clamped_starts(e, x.operands[2:], operand.array.dims, dims)
    places = [sub(i, s) for i, s in zip(at, first, strict=True)]
    condition = both(*(e.inside(p, n) for p, n in zip(places, dims, strict=True)))
    value = e.element(update, tuple(e.clamped(p, n - 1) for p, n in zip(places, dims, strict=True)))
    return value if condition is None else select(condition, value, e.element(operand, at))


def gather(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Return ``operand[start(batch) + offset]``, clamped so that the slice lies inside.

    A slice without elements, in a dimension that is collapsed, is zero, as in XLA.
    """
    source, indices = x.operands
    offset_dims = x.attrs.get("offset_dims", ())
    batching = x.attrs.get("operand_batching_dims", ())
    dropped = {*x.attrs.get("collapsed_slice_dims", ()), *batching}
    sizes = x.attrs["slice_sizes"]
    if 0 in sizes:
        return const(0, x.array.dtype)
    batch = [i for n, i in enumerate(at) if n not in offset_dims]
    offsets = iter([at[n] for n in offset_dims])
    places: list[Expr] = [const(0) if d in dropped else next(offsets) for d in range(len(sizes))]
    vector = x.attrs["index_vector_dim"]
    for k, d in enumerate(x.attrs["start_index_map"]):
        start = as_index(e.element(indices, component(indices, batch, vector, k)))
        places[d] = add(places[d], e.clamped(start, source.array.dims[d] - sizes[d]))
    for d, n in zip(batching, x.attrs.get("start_indices_batching_dims", ()), strict=True):
        places[d] = batch[n if n < vector else n - 1]
    return e.element(source, tuple(places))


def component(indices: Instruction, batch: list[Expr], vector: int, k: int) -> tuple[Expr, ...]:
    """Return the index of component ``k`` of an index vector in the array of indices."""
    if vector == indices.array.rank:
        return tuple(batch)
    return (*batch[:vector], const(k), *batch[vector:])


RULES: dict[str, Rule] = {
    "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": dynamic_update_slice,
    "gather": gather,
}
