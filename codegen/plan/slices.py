"""Trees of slices: where the parts of a value are, of a tuple or of an array with its sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...ir.hlo.fuse.kinds import part_start, piece_steps, start_of_piece
from ...ir.hlo.nodes import AnyShape, Instruction, Shape, TokenShape, TupleShape
from .nodes import BufferSlice, PieceStart

Slices: TypeAlias = BufferSlice | tuple["Slices", ...]


def leaves(tree: Slices) -> Iterator[BufferSlice]:
    """Yield the slices of a tree, left to right."""
    if isinstance(tree, BufferSlice):
        yield tree
    else:
        for branch in tree:
            yield from leaves(branch)


def spread(shape: AnyShape, make: Callable[[Shape], Slices]) -> Slices:
    """Return a tree with what ``make`` gives for each array of a shape."""
    match shape:
        case Shape():
            return make(shape)
        case TupleShape(elements=elements):
            return tuple(spread(e, make) for e in elements)
        case TokenShape():
            return ()


def sizes_of(shape: Shape, tree: Slices) -> dict[int, Slices]:
    """Return the slices of the sizes of an array with bounded dimensions, which follow it in its
    tree.
    """
    return dict(zip(shape.bounded, tree[1:] if isinstance(tree, tuple) else (), strict=True))


def resized(i: Instruction, tree: Slices, size: Slices) -> Slices:
    """Emit ``set-dimension-size``: the array stays where it is, with one size added or dropped."""
    (d,) = i.attrs["dimensions"]
    sizes = {**sizes_of(i.operands[0].array, tree), d: size}
    data = tree[0] if isinstance(tree, tuple) else tree
    kept = [sizes[k] for k in i.array.bounded]
    return (data, *kept) if kept else data


def part_of(i: Instruction, whole: Slices) -> Slices:
    """Return the piece of a buffer that a slice outside of groups is."""
    assert isinstance(whole, BufferSlice)
    return replace(whole, offset=whole.offset + part_start(i), bytes=i.array.bytes)


def piece_of(i: Instruction, operands: Sequence[Slices]) -> Slices:
    """Return the piece of a buffer that a dynamic slice outside of groups is."""
    start = start_of_piece(i)
    assert start is not None
    whole, place = operands[0], operands[i.operands.index(start, 1)]
    assert isinstance(whole, BufferSlice) and isinstance(place, BufferSlice)
    signed = start.array.dtype.kind == "signed"
    return replace(whole, bytes=i.array.bytes, start=PieceStart(place, *piece_steps(i), signed))
