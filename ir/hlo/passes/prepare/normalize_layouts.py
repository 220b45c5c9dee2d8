"""Layout normalization: layouts of the entry's parameters and results become transposes.

A parameter that is stored column by column becomes one whose dimensions are in that order, followed
by a transpose; likewise results. Afterwards every array is row-major and the header has no layouts;
``layouts.entry_orders`` of the module before has them.
"""

from __future__ import annotations

from dataclasses import replace

from ...layouts import HEADER, entry_shapes, order, orders
from ...nodes import AnyShape, HloModule, Instruction, Shape, TupleShape
from ...patterns import build
from ...patterns.match import inverse
from ...rewrite import assemble, make, parameter, with_entry, with_operands
from .drop_layouts import drop_layouts, without_layout


def normalize_layouts(module: HloModule) -> HloModule:
    """``x: f32[2,3]{0,1}``  ->  ``transpose(x)``, ``x: f32[3,2]``; then drop all layouts."""
    params, result = entry_shapes(module)
    plain = drop_layouts(module)
    if HEADER in plain.attrs:
        plain = replace(plain, attrs={k: v for k, v in plain.attrs.items() if k != HEADER})
    if not any(_is_ordered(s) for s in (*params, result)):
        return plain
    entry = plain.entry
    new: dict[Instruction, Instruction] = {}
    for n, (p, shape) in enumerate(zip(entry.parameters, params, strict=True)):
        new[p] = parameter(n, _in_memory(shape), p.name)
    given = [new[p] for p in entry.parameters]
    for p, shape in zip(entry.parameters, params, strict=True):
        new[p] = _as_seen(new[p], shape)
    for i in entry.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    return with_entry(plain, assemble(entry.name, given, _as_stored(new[entry.root], result)))


def _is_ordered(shape: AnyShape) -> bool:
    """True if any array in a shape is stored in another order than row-major."""
    return any(orders(shape))


def _in_memory(shape: AnyShape) -> AnyShape:
    """Return the row-major shape of the same bytes."""
    match shape:
        case Shape() if places := order(shape):
            dims = tuple(shape.dims[d] for d in places)
            marks = tuple(shape.dynamic[d] for d in places) if shape.dynamic else ()
            return Shape(shape.dtype, dims, None, marks)
        case TupleShape(elements=elements):
            return TupleShape(tuple(map(_in_memory, elements)))
        case _:
            return without_layout(shape)


def _as_seen(x: Instruction, shape: AnyShape) -> Instruction:
    """Transpose a value from its stored order to its shape's order of dimensions."""
    match shape:
        case Shape() if places := order(shape):
            return _transpose(x, inverse(places))
        case TupleShape(elements=elements) if _is_ordered(shape):
            parts = [_as_seen(_element(x, n), e) for n, e in enumerate(elements)]
            return make("tuple", TupleShape(tuple(p.shape for p in parts)), parts)
        case _:
            return x


def _as_stored(x: Instruction, shape: AnyShape) -> Instruction:
    """Transpose a value to the order in which its shape's layout stores it."""
    match shape:
        case Shape() if places := order(shape):
            return _transpose(x, places)
        case TupleShape(elements=elements) if _is_ordered(shape):
            parts = [_as_stored(_element(x, n), e) for n, e in enumerate(elements)]
            return make("tuple", TupleShape(tuple(p.shape for p in parts)), parts)
        case _:
            return x


def _transpose(x: Instruction, places: tuple[int, ...]) -> Instruction:
    if not any(x.array.dynamic):
        return build.transpose(x, places)
    dims = tuple(x.array.dims[d] for d in places)
    marks = tuple(x.array.dynamic[d] for d in places)
    return make("transpose", Shape(x.array.dtype, dims, None, marks), (x,), dimensions=places)


def _element(x: Instruction, index: int) -> Instruction:
    """Return one element of a tuple."""
    if x.opcode == "tuple":
        return x.operands[index]
    return build.element(x, index)
