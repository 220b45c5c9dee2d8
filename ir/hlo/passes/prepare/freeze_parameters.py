"""Freezing parameters: a model's weights become constants of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....arrays import Array, as_array
from ....dtypes import to_numpy
from ....errors import ArgumentError
from ...layouts import HEADER, entry_shapes, header
from ...nodes import HloModule, Instruction, Shape
from ...rewrite import assemble, constant, make, parameter, with_entry, with_operands
from ...shape_text import show_shape
from .drop_layouts import without_layout
from .keep_effects import keep_effects


def freeze(module: HloModule, constants: Mapping[int | str, Array]) -> HloModule:
    """Replace parameters, given by number or name, by constants, and renumber the others in order.

    An array must have the parameter's shape and element type, or a size within its bounds.
    ``ArgumentError`` if a parameter does not exist, is given twice, or does not fit its array.
    """
    if not constants:
        return module
    module = keep_effects(module)
    entry = module.entry
    frozen: dict[Instruction, Instruction] = {}
    for which, array in constants.items():
        p = _find(entry.parameters, which)
        if p in frozen:
            raise ArgumentError(f"parameter {p.name} is frozen twice", where=module.name)
        frozen[p] = _constant(p, as_array(array, f"parameter {p.name}", module.name))
    kept = [p for p in entry.parameters if p not in frozen]
    new = {**frozen, **{p: _renumbered(p, n) for n, p in enumerate(kept)}}
    for i in entry.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    new_entry = assemble(entry.name, [new[p] for p in kept], new[entry.root])
    attrs = {k: v for k, v in module.attrs.items() if k not in _POSITIONAL}
    if HEADER in attrs:
        shapes, result = entry_shapes(module)
        attrs[HEADER] = header([shapes[p.attrs["number"]] for p in kept], result)
    return with_entry(replace(module, attrs=attrs), new_entry)


_POSITIONAL = frozenset({"input_output_alias", "buffer_donor"})
"""Module attributes that refer to parameters by number."""


def _renumbered(p: Instruction, number: int) -> Instruction:
    return p if p.attrs["number"] == number else parameter(number, p.shape, p.name)


def _find(parameters: tuple[Instruction, ...], which: int | str) -> Instruction:
    if isinstance(which, str) and which.isdecimal():
        which = int(which)
    for number, p in enumerate(parameters):
        if which in (number, p.name):
            return p
    if isinstance(which, int):
        why = f"the program has {len(parameters)} parameters, numbered from 0"
        raise ArgumentError(f"there is no parameter {which}", why)
    names = [p.name for p in parameters]
    shown = ", ".join(names[:8]) + (", .." if len(names) > 8 else "")
    raise ArgumentError(f"there is no parameter called `{which}`", hint=f"parameters: {shown}")


def _constant(p: Instruction, array: Array) -> Instruction:
    shape = without_layout(p.shape)
    if not isinstance(shape, Shape):
        raise ArgumentError(f"parameter {p.name} cannot be frozen", "it is not an array")
    wanted = to_numpy(shape.dtype)
    if array.dtype.newbyteorder("=") == wanted:
        array = array.astype(wanted, copy=False)
    if array.dtype != wanted or not _fits(array, shape):
        takes = show_shape(replace(shape, layout=None)).partition("{")[0]
        raise ArgumentError(
            f"parameter {p.name} cannot be frozen to this array",
            f"it takes {takes}, the array is {array.dtype}{list(array.shape)}",
        )
    return _at_size(constant(_padded(array, shape.dims), name=p.name), array.shape, shape)


def _fits(array: Array, shape: Shape) -> bool:
    """True if an array has the shape, or a size within its bounds."""
    rows = zip(array.shape, shape.dims, shape.marks, strict=False)
    return array.ndim == shape.rank and all(n == d or (m and n < d) for n, d, m in rows)


def _padded(array: Array, dims: tuple[int, ...]) -> Array:
    """Pad an array with zeros up to its bounds."""
    more = [(0, d - n) for n, d in zip(array.shape, dims, strict=True)]
    return np.asarray(np.pad(array, more) if any(n for _, n in more) else array, order="C")


def _at_size(x: Instruction, sizes: tuple[int, ...], shape: Shape) -> Instruction:
    """Set the live sizes of a constant of bounded shape."""
    dynamic = [False] * shape.rank
    for d, marked in enumerate(shape.marks):
        if marked:
            dynamic[d] = True
            size = constant(np.array(sizes[d], np.int32))
            of = replace(x.array, dynamic=tuple(dynamic))
            x = make("set-dimension-size", of, (x, size), name=x.name, dimensions=(d,))
    return x
