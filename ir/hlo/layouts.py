"""The memory layouts of a module's arguments and results.

The header's ``entry_computation_layout`` decides. If it is missing or describes another signature,
the layouts of the entry's parameters and root do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..errors import ParseError
from .lexer import Cursor
from .nodes import AnyShape, HloModule, Raw, Shape, TupleShape
from .shape_text import parse_shape, show_shape
from .signatures import same_shape

HEADER = "entry_computation_layout"

Order: TypeAlias = tuple[int, ...]
"""The dimensions of an array from slowest to fastest in memory; empty for row-major."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The order of every argument and result array; tuples are flattened."""

    params: tuple[Order, ...] = ()
    results: tuple[Order, ...] = ()


ROW_MAJOR = Orders()


def entry_shapes(module: HloModule) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """Return the shapes of the entry's parameters and result, with the layouts that callers see."""
    entry = tuple(p.shape for p in module.entry.parameters), module.entry.root.shape
    header = module.attrs.get(HEADER)
    if not isinstance(header, Raw):
        return entry
    try:
        declared = _read(Cursor(header.text, module.name))
    except ParseError:
        return entry
    fits = len(declared[0]) == len(entry[0]) and same_shape(declared[1], entry[1])
    return declared if fits and all(map(same_shape, declared[0], entry[0])) else entry


def entry_orders(module: HloModule) -> Orders:
    """Return the orders of the entry's arguments and results, as callers see them."""
    params, result = entry_shapes(module)
    return Orders(tuple(o for p in params for o in orders(p)), tuple(orders(result)))


def header(params: Sequence[AnyShape], result: AnyShape) -> Raw:
    """Return the text of ``entry_computation_layout`` for a signature."""
    return Raw("{(" + ", ".join(map(show_shape, params)) + ")->" + show_shape(result) + "}")


def row_major(module: HloModule) -> HloModule:
    """Return a module whose arguments and results are row-major, whatever it says of layouts.

    Frameworks take and give such arrays, while XLA writes the layout of a transposed result where
    it lowers a module for them.
    """
    params = [_plain(p.shape) for p in module.entry.parameters]
    declared = header(params, _plain(module.entry.root.shape))
    return replace(module, attrs={**module.attrs, HEADER: declared})


def _plain(shape: AnyShape) -> AnyShape:
    match shape:
        case Shape():
            return replace(shape, layout=None, tiling="")
        case TupleShape(elements=elements):
            return TupleShape(tuple(map(_plain, elements)))
        case _:
            return shape


def slowest_first(shape: Shape) -> tuple[int, ...]:
    """Return the dimensions of an array from slowest to fastest in memory."""
    return tuple(range(shape.rank)) if shape.layout is None else tuple(reversed(shape.layout))


def orders(shape: AnyShape) -> Iterator[Order]:
    """Yield the order of each array in a shape, left to right."""
    match shape:
        case Shape():
            yield order(shape)
        case TupleShape(elements=elements):
            for e in elements:
                yield from orders(e)
        case _:
            pass


def order(shape: Shape) -> Order:
    """Return the order of one array; dimensions of size 1 and empty arrays do not matter."""
    places = slowest_first(shape)
    wide = [d for d in places if shape.dims[d] != 1]
    return () if wide == sorted(wide) or shape.size == 0 else places


def _read(cursor: Cursor) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """Parse ``{(shape, ...)->shape}``."""
    cursor.expect("{", "before a signature")
    cursor.expect("(", "before the parameters")
    params: list[AnyShape] = []
    while not cursor.take(")"):
        if params:
            cursor.expect(",", "between the parameters")
        params.append(parse_shape(cursor, {}))
    cursor.expect("->", "after the parameters")
    return tuple(params), parse_shape(cursor, {})
