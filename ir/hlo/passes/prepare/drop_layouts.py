"""Row-major layouts everywhere, and no instruction that exists for a layout alone."""

from __future__ import annotations

from dataclasses import replace

from ....dtypes import DType
from ...layouts import slowest_first
from ...nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import inverse, is_static
from ...rewrite import make, map_computations, rebuild


def drop_layouts(module: HloModule) -> HloModule:
    """Forget layouts; ``copy``, ``opt-barrier`` vanish, a ``bitcast`` is reshape and transpose."""
    return map_computations(module, _drop)


def _drop(computation: Computation) -> Computation:
    written = iter(computation.instructions)  # in step with `rebuild`: shapes as they were read

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
    before, after = slowest_first(source), slowest_first(i.array)
    flat = build.transpose(i.operands[0], before)
    if i.array.dtype != source.dtype:
        flat = _reinterpret(build.reshape(flat, (source.size,)), i.array.dtype)
    regrouped = build.reshape(flat, [i.array.dims[d] for d in after])
    return build.transpose(regrouped, inverse(after))


def _reinterpret(flat: Instruction, dtype: DType) -> Instruction:
    """The bits of an array of rank 1 as elements of another type, their number as it comes."""
    old, new = flat.array.dtype.bits, dtype.bits
    count = flat.array.size * old // new
    if old < new:
        flat = build.reshape(flat, (count, new // old))
    dims = (flat.array.size, old // new) if old > new else (count,)
    cast = make("bitcast-convert", Shape(dtype, dims), (flat,))
    return build.reshape(cast, (count,))
