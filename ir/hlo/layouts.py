"""How the arguments and results of a module lie in memory, as its header or its text says.

The header's ``entry_computation_layout`` decides; without one, or where it speaks of another
signature, the layouts of the entry's parameters and of its root do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import ParseError
from .lexer import Cursor
from .nodes import AnyShape, HloModule, Raw, Shape, TupleShape
from .shape_text import parse_shape, show_shape
from .signatures import same_shape

HEADER = "entry_computation_layout"

Order: TypeAlias = tuple[int, ...]
"""The dimensions of an array as they lie in memory, the slowest first; empty for row-major."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The order of every array that goes in and comes out, those in tuples one by one."""

    params: tuple[Order, ...] = ()
    results: tuple[Order, ...] = ()


ROW_MAJOR = Orders()


def entry_shapes(module: HloModule) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """The shapes of the entry's parameters and of its result, in the layouts that callers see."""
    own = tuple(p.shape for p in module.entry.parameters), module.entry.root.shape
    header = module.attrs.get(HEADER)
    if not isinstance(header, Raw):
        return own
    try:
        said = _read(Cursor(header.text, module.name))
    except ParseError:
        return own
    fits = len(said[0]) == len(own[0]) and same_shape(said[1], own[1])
    return said if fits and all(map(same_shape, said[0], own[0])) else own


def entry_orders(module: HloModule) -> Orders:
    """The orders of the entry's parameters and results."""
    params, result = entry_shapes(module)
    return Orders(tuple(o for p in params for o in orders(p)), tuple(orders(result)))


def header(params: Sequence[AnyShape], result: AnyShape) -> Raw:
    """The header's text of a signature."""
    return Raw("{(" + ", ".join(map(show_shape, params)) + ")->" + show_shape(result) + "}")


def slowest_first(shape: Shape) -> tuple[int, ...]:
    """The dimensions of an array as its layout puts them into memory."""
    return tuple(range(shape.rank)) if shape.layout is None else tuple(reversed(shape.layout))


def orders(shape: AnyShape) -> Iterator[Order]:
    """The order of each array in a shape, left to right."""
    match shape:
        case Shape():
            yield order(shape)
        case TupleShape(elements=elements):
            for e in elements:
                yield from orders(e)
        case _:
            pass


def order(shape: Shape) -> Order:
    """The order of one array; dimensions of size 1 lie anywhere."""
    places = slowest_first(shape)
    wide = [d for d in places if shape.dims[d] != 1]
    return () if wide == sorted(wide) or shape.size == 0 else places


def _read(cursor: Cursor) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """``{(shape, ...)->shape}``"""
    cursor.expect("{", "before a signature")
    cursor.expect("(", "before the parameters")
    params: list[AnyShape] = []
    while not cursor.take(")"):
        if params:
            cursor.expect(",", "between the parameters")
        params.append(parse_shape(cursor, {}))
    cursor.expect("->", "after the parameters")
    return tuple(params), parse_shape(cursor, {})
