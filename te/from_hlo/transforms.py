"""Fourier transforms: one block, whose instances are strips of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.hlo.nodes import Instruction
from ...ir.loop.nodes import Buffer
from ...ir.loop.notes import OPAQUE
from .. import blocks
from ..fourier.rows import Element, Rows
from ..fourier.strip import Strip
from ..fourier.transform import transformed
from .emitter import leaf
from .stages import Draft
from .storage import stored_as


def dft(d: Draft, x: Instruction) -> None:
    """HLO ``dft``: the lanes of a vector are rows."""
    name = d.fresh("dft")
    out = d.target((x, 0), name, *stored_as(x.array))
    tables = [d.emitter.buffers[leaf(o)] for o in x.operands[1:]]
    rows = Rows.of(x, _source(d, x.operands[0]), out)
    strips = -(-rows.count // rows.lanes)
    axes = d.emitter.spatial((rows.outer * strips,))
    outer, number = d.emitter.divided(axes[0].var, max(strips, 1))
    body = transformed(Strip(d, rows, outer, number), name, *tables)
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))
    d.done((x, 0), out)


def _source(d: Draft, x: Instruction) -> Buffer | Sequence[Element]:
    """Return the buffer of complex rows, or the elements of rows as they are computed, by part."""
    source = leaf(x)
    if x.array.dtype.kind != "complex":
        return (partial(d.emitter.element, x),)
    if (buffer := d.emitter.buffers.get(source)) is not None:
        return buffer
    return tuple(partial(d.emitter.element, part) for part in source[0].operands)
