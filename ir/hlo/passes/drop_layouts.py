"""Row-major layouts everywhere, and no instruction that exists for a layout alone."""

from __future__ import annotations

from dataclasses import replace

from ..nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ..rewrite import map_computations, rebuild
from . import build
from .match import inverse, is_static


def drop_layouts(module: HloModule) -> HloModule:
    """Forget layouts; ``copy``, ``opt-barrier`` vanish, a ``bitcast`` is reshape and transpose."""
    return map_computations(module, _drop)


def _drop(computation: Computation) -> Computation:
    written = iter(computation.instructions)  # in step with `rebuild`: shapes as they were read

    def rule(i: Instruction) -> Instruction | None:
        old = next(written)
        match i.opcode:
            case "copy" | "opt-barrier" | "domain" | "add-dependency":
                return i.operands[0]
            case "bitcast" if is_static(i) and is_static(i.operands[0]):
                return _bitcast(i, old.operands[0].array)
            case _:
                shape = without_layout(i.shape)
                return None if shape is i.shape else replace(i, shape=shape)

    return rebuild(computation, rule)


def without_layout(shape: AnyShape) -> AnyShape:
    """The same shape in row-major layout; itself if it has no layout."""
    match shape:
        case Shape(layout=None, tiling=""):
            return shape
        case Shape():
            return replace(shape, layout=None, tiling="")
        case TupleShape(elements=elements):
            new = tuple(map(without_layout, elements))
            same = all(a is b for a, b in zip(new, elements, strict=True))
            return shape if same else TupleShape(new)
        case _:
            return shape


def _bitcast(i: Instruction, source: Shape) -> Instruction:
    """The same bytes under another shape: to physical order, regrouped, and back to logical."""
    x = i.operands[0]
    if i.array.dtype != source.dtype:
        return replace(i, opcode="bitcast-convert", shape=without_layout(i.shape))
    before, after = _physical(source), _physical(i.array)
    regrouped = build.reshape(build.transpose(x, before), [i.array.dims[d] for d in after])
    return build.transpose(regrouped, inverse(after))


def _physical(shape: Shape) -> tuple[int, ...]:
    """Logical dimensions in the order in which they lie in memory, the slowest first."""
    if shape.layout is None:
        return tuple(range(shape.rank))
    return tuple(reversed(shape.layout))
