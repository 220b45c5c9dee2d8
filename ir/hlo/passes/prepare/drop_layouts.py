"""Removal of layouts, and of instructions that exist only for a layout."""

from __future__ import annotations

from dataclasses import replace

from ....dtypes import DType
from ...layouts import slowest_first
from ...nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import inverse, is_static
from ...rewrite import make, map_computations, rebuild


def drop_layouts(module: HloModule) -> HloModule:
    """Drop layouts, ``copy`` and ``opt-barrier``; a ``bitcast`` becomes reshape and transpose."""
    return map_computations(module, _drop)


def _drop(computation: Computation) -> Computation:
    written = iter(computation.instructions)  # in step with `rebuild`; has the old shapes

    def rule(i: Instruction) -> Instruction | None:
        old = next(written)
        match i.opcode:
            case "add-dependency" if isinstance(i.operands[1].shape, TupleShape):
                pass  # it keeps an effect
            case "copy" | "opt-barrier" | "domain" | "add-dependency":
                return i.operands[0]
            case "bitcast" if is_static(i) and is_static(i.operands[0]):
                return _bitcast(i, old.operands[0].array)
            case _:
                pass
        shape = without_layout(i.shape)
        return None if shape is i.shape else replace(i, shape=shape)

    return rebuild(computation, rule)


def without_layout(shape: AnyShape) -> AnyShape:
    """Return a shape without layouts; the same object if it has none."""
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
    """Expand a bitcast: transpose to memory order, reshape, and transpose to the new layout."""
    before, after = slowest_first(source), slowest_first(i.array)
    flat = build.transpose(i.operands[0], before)
    if i.array.dtype != source.dtype:
        flat = _reinterpret(build.reshape(flat, (source.size,)), i.array.dtype)
    regrouped = build.reshape(flat, [i.array.dims[d] for d in after])
    return build.transpose(regrouped, inverse(after))


def _reinterpret(flat: Instruction, dtype: DType) -> Instruction:
    """Reinterpret the bits of a vector as a vector of another type, of as many bits."""
    old, new = flat.array.dtype.bits, dtype.bits
    count = flat.array.size * old // new
    if old < new:
        flat = build.reshape(flat, (count, new // old))
    dims = (flat.array.size, old // new) if old > new else (count,)
    cast = make("bitcast-convert", Shape(dtype, dims), (flat,))
    return build.reshape(cast, (count,))
