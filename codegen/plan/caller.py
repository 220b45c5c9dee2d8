"""A program's arguments and results as its caller sees them, from the shapes of its entry."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.hlo.layouts import Order
from ...ir.hlo.limits import require_bytes
from ...ir.hlo.nodes import AnyShape, Computation, Shape, TokenShape, TupleShape
from ...ir.hlo.shape_text import show_shape
from .nodes import BufferSlice
from .signature import ArraySpec, Tree, slots
from .slices import Slices, spread

SIZE_BYTES = 4  # live sizes of bounded dimensions are s32


def parameters_of(
    entry: Computation, orders: Sequence[Order]
) -> tuple[tuple[ArraySpec, ...], list[Slices], Tree]:
    """Return the arrays of a program's arguments, where it has each, and their tuple structure.

    ``orders`` are the layouts that the caller has. ``LimitError`` for an array that is too large.
    """
    specs: list[ArraySpec] = []
    trees = tuple(_signature(p.shape, orders, specs, p.name) for p in entry.parameters)
    numbers = iter(range(len(slots(specs))))

    def leaf(shape: Shape) -> Slices:
        require_bytes(shape.bytes, show_shape(shape), f"a parameter of `{entry.name}`")
        number = next(numbers)
        data = BufferSlice("param", 0, shape.bytes, number)
        sizes = [BufferSlice("param", 0, SIZE_BYTES, next(numbers)) for _ in shape.bounded]
        return (data, *sizes) if sizes else data

    return tuple(specs), [spread(p.shape, leaf) for p in entry.parameters], trees


def results_of(shape: AnyShape, orders: Sequence[Order]) -> tuple[tuple[ArraySpec, ...], Tree]:
    """Return the arrays of a program's result, of its root's shape, and their tuple structure."""
    specs: list[ArraySpec] = []
    tree = _signature(shape, orders, specs)
    return tuple(specs), tree


def _signature(
    shape: AnyShape, orders: Sequence[Order], specs: list[ArraySpec], name: str = ""
) -> Tree:
    """Return the tuple structure of a shape, leaves by number; its arrays are added to
    ``specs``.
    """
    match shape:
        case Shape():
            number = len(specs)
            order = orders[number] if number < len(orders) else ()
            specs.append(_spec(name or f"result {number}", shape, order))
            return number
        case TupleShape(elements=elements):
            return tuple(_signature(e, orders, specs, name) for e in elements)
        case TokenShape():
            return ()


def _spec(name: str, stored: Shape, order: Order) -> ArraySpec:
    """Return the caller's view of an array that the program has as ``stored``."""
    if not order:
        return ArraySpec(name, stored.dtype, stored.dims, (), stored.dynamic)
    places = [order.index(d) for d in range(stored.rank)]
    dynamic = tuple(stored.dynamic[k] for k in places) if stored.dynamic else ()
    return ArraySpec(name, stored.dtype, tuple(stored.dims[k] for k in places), order, dynamic)
