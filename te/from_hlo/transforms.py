"""Fourier transforms: one block, whose instances are strips of rows."""

from __future__ import annotations

from ...ir.hlo.nodes import Instruction
from ...ir.loop.notes import OPAQUE
from .. import blocks
from ..fourier.rows import Rows
from ..fourier.strip import Strip
from ..fourier.transform import transformed
from .emitter import leaf
from .stages import Draft
from .storage import stored_as


def dft(d: Draft, x: Instruction) -> None:
    """HLO ``dft``: the lanes of a vector are rows."""
    name = d.fresh("dft")
    out = d.target((x, 0), name, *stored_as(x.array))
    source, *tables = (d.emitter.buffers[leaf(o)] for o in x.operands)
    rows = Rows.of(x, source, out)
    strips = -(-rows.count // rows.lanes)
    axes = d.emitter.spatial((rows.outer * strips,))
    outer, number = d.emitter.divided(axes[0].var, strips)
    body = transformed(Strip(d, rows, outer, number), name, *tables)
    d.body.append(blocks.nest(name, axes, body, notes=OPAQUE.alone(1)))
    d.done((x, 0), out)
