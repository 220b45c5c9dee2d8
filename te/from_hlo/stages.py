"""The function under construction, and the stages that need no reduction: element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.dtypes import DType
from ...ir.hlo.nodes import Instruction
from ...ir.loop.build import add, cast, const
from ...ir.loop.nodes import NO_NOTES, Buffer, Expr, Load, Scope, Stmt, Var
from ...ir.loop.notes import COPY
from ...ir.loop.printer import CALLS
from .. import blocks
from ..blocks import variables
from .emitter import ElementEmitter, Leaf, leaf
from .indexed import clamped_starts
from .storage import stored_as


@dataclass(slots=True)
class Draft:
    """A group under lowering.

    ``owned`` are the output buffers that no stage has written yet, by the leaf they hold.
    ``taken`` counts the uses of each block name. If ``vectors`` is true, threads have vector
    registers and a block may process several rows at once. ``launches`` counts the launches whose
    stages are blocks of their own (``STAGE_OF``).
    """

    emitter: ElementEmitter
    owned: dict[Leaf, Buffer]
    allocs: list[Buffer] = field(default_factory=list)
    body: list[Stmt] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    vectors: bool = True
    launches: int = 0

    def fresh(self, name: str) -> str:
        """Return a block name that is not taken; it depends on structure alone: traces replay."""
        return blocks.unique(name, self.taken)

    def loop(self, extent: int) -> Var:
        """Return the variable of a new loop below ``extent``."""
        return self.emitter.reducing((extent,), "s")[0].var

    def alloc(self, name: str, shape: Sequence[int], dtype: DType) -> Buffer:
        """Return a new intermediate buffer."""
        buffer = Buffer(name, tuple(shape), dtype)
        self.allocs.append(buffer)
        return buffer

    def register(self, name: str, shape: Sequence[int], dtype: DType) -> Buffer:
        """Return a new buffer in registers, which is only accessed at constant places."""
        buffer = Buffer(name, tuple(shape), dtype, Scope.REGISTER)
        self.allocs.append(buffer)
        return buffer

    def target(self, at: Leaf, name: str, shape: Sequence[int], dtype: DType) -> Buffer:
        """Return the buffer to write: the output if its type fits, else an intermediate."""
        out = self.owned.get(at)
        if out is not None and out.dtype == dtype:
            del self.owned[at]
            return out
        return self.alloc(name, shape, dtype)

    def done(self, at: Leaf, buffer: Buffer) -> None:
        """Record that ``buffer`` holds a leaf, which is read from there from now on."""
        self.emitter.buffers[at] = buffer


def opcode_name(opcode: str) -> str:
    """Return an opcode as the name of a block."""
    return CALLS.get(opcode, opcode.replace("-", "_"))


def pointwise(d: Draft, x: Instruction) -> None:
    """Append the block ``out[i] = element(i)``."""
    at = (x, 0)
    name = d.fresh(d.owned[at].name if at in d.owned else opcode_name(x.opcode))
    out = d.target(at, name, x.array.dims, x.array.dtype)
    axes = d.emitter.spatial(out.shape)
    index = variables(axes)
    d.body.append(blocks.nest(name, axes, blocks.store(out, index, d.emitter.compute(x, index))))
    d.done(at, out)


def complex_(d: Draft, x: Instruction) -> None:
    """Append one block for both parts: ``out[i, 0] = real(i)``, ``out[i, 1] = imaginary(i)``."""
    at = (x, 0)
    name = d.fresh(d.owned[at].name if at in d.owned else "complex")
    out = d.target(at, name, *stored_as(x.array))
    axes = d.emitter.spatial(x.array.dims)
    index = variables(axes)
    parts = [d.emitter.element(o, index) for o in x.operands]
    places = [(*index, const(n)) for n in range(2)]
    d.body.append(blocks.nest(name, axes, blocks.stores_at(out, places, parts)))
    d.done(at, out)


def concatenate(d: Draft, x: Instruction) -> None:
    """Append a block for each operand, which writes its part of the result."""
    at = (x, 0)
    name = d.owned[at].name if at in d.owned else "concat"
    out = d.target(at, d.fresh(name), x.array.dims, x.array.dtype)
    (dim,) = x.attrs["dimensions"]
    start = 0
    for operand in x.operands:
        extents = operand.array.dims
        if 0 not in extents:
            axes = d.emitter.spatial(extents)
            index = variables(axes)
            place = (*index[:dim], add(index[dim], start), *index[dim + 1 :])
            body = blocks.store(out, place, d.emitter.element(operand, index))
            d.body.append(blocks.nest(d.fresh(f"{name}_part"), axes, body))
        start += extents[dim]
    d.done(at, out)


def copy_of(d: Draft, operand: Instruction, out: Buffer) -> None:
    """Append a copy of a value to ``out``, which later blocks update in place."""
    axes = d.emitter.spatial(out.shape)
    index = variables(axes)
    body = blocks.store(out, index, cast(d.emitter.element(operand, index), out.dtype))
    notes = COPY.alone(1) if leaf(operand)[0].opcode == "parameter" else NO_NOTES
    d.body.append(blocks.nest(d.fresh(f"{out.name}_copy"), axes, body, notes=notes))


def dynamic_update_slice(d: Draft, x: Instruction) -> None:
    """Append a copy of the operand, and a block that overwrites a window with the update."""
    operand, update = x.operands[:2]
    at = (x, 0)
    name = d.fresh("update")
    out = d.target(at, name, x.array.dims, x.array.dtype)
    copy_of(d, operand, out)
    extents = update.array.dims
    axes = d.emitter.spatial(extents)
    index = variables(axes)
    first = clamped_starts(d.emitter, x.operands[2:], operand.array.dims, extents)
    place = tuple(add(i, s) for i, s in zip(index, first, strict=True))
    body = blocks.store(out, place, d.emitter.element(update, index))
    d.body.append(blocks.nest(name, axes, body))
    d.done(at, out)


def hand_out(d: Draft, at: Leaf, out: Buffer) -> None:
    """Write an output that no stage wrote: another type, a second copy, or an input itself."""
    source = d.emitter.buffers[at]
    axes = d.emitter.spatial(out.shape)
    index = variables(axes)
    value: Expr = cast(Load(source, index), out.dtype)
    d.body.append(blocks.nest(d.fresh(out.name), axes, blocks.store(out, index, value)))
