"""Padded copies of a window operation's input, so that its inner loops have no condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.hlo.nodes import Instruction, WindowDim
from ...ir.loop.build import both, select
from ...ir.loop.nodes import Buffer, Expr
from .. import blocks
from ..blocks import variables
from .stages import Draft


def padded(
    d: Draft,
    operand: Instruction,
    window: Mapping[int, tuple[WindowDim, int]],
    fill: Expr,
) -> Buffer:
    """Return a block that copies ``operand`` between fill values: as far as windows reach, no
    further.

    ``window`` gives, by dimension of the operand, its window and how many places that takes. Space
    between the elements (``lhs_dilate``) is filled as well. Place 0 of the copy is the low end of
    the padding.
    """
    source = operand.array
    extents = list(source.dims)
    for n, (w, count) in window.items():
        reach = (w.size - 1) * w.rhs_dilate + 1
        extents[n] = (count - 1) * w.stride + reach if count else 0
    axes = d.emitter.spatial(extents)
    index = variables(axes)
    sizes = {n: w for n, (w, _) in window.items()}
    places, condition = unpadded(d, operand, index, sizes)
    value = fill if source.size == 0 else d.emitter.element(operand, places)
    if condition is not None:
        value = select(condition, value, fill)
    name = d.fresh("pad")
    buffer = d.alloc(name, extents, source.dtype)
    d.body.append(blocks.nest(name, axes, blocks.store(buffer, index, value)))
    return buffer


def unpadded(
    d: Draft, operand: Instruction, index: Sequence[Expr], window: Mapping[int, WindowDim]
) -> tuple[list[Expr], Expr | None]:
    """Return the place in ``operand`` of a place in its padded copy, and whether there is an
    element.

    Where there is none, the place is that of another element. None means always.
    """
    places = list(index)
    conditions: list[Expr | None] = []
    for n, w in window.items():
        extent = operand.array.dims[n]
        places[n], there = d.emitter.unpadded(places[n], w.pad_low, w.lhs_dilate, extent)
        conditions.append(there)
    return places, both(*conditions)
