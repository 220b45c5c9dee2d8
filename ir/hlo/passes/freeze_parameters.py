"""Parameters of a model that never change, made part of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...dtypes import to_numpy
from ...errors import ArgumentError
from ..layouts import HEADER, entry_shapes, header
from ..nodes import HloModule, Instruction, Shape
from ..rewrite import assemble, constant, parameter, with_entry, with_operands
from .drop_layouts import without_layout

Array = np.ndarray[Any, Any]


def freeze(module: HloModule, constants: Mapping[int | str, Array]) -> HloModule:
    """Parameters given by number or name  ->  constants; the others are numbered anew, in order.

    An array must have the parameter's shape and element type. Raises ``ArgumentError`` for a
    parameter that does not exist, is given twice, or is given another array than it takes.
    """
    if not constants:
        return module
    entry = module.entry
    frozen: dict[Instruction, Instruction] = {}
    for which, array in constants.items():
        p = _find(entry.parameters, which)
        if p in frozen:
            raise ArgumentError(f"parameter {p.name} is frozen twice", where=module.name)
        frozen[p] = _constant(p, np.asarray(array))
    kept = [p for p in entry.parameters if p not in frozen]
    new = {**frozen, **{p: _renumbered(p, n) for n, p in enumerate(kept)}}
    for i in entry.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    settled = assemble(entry.name, [new[p] for p in kept], new[entry.root])
    attrs = {k: v for k, v in module.attrs.items() if k not in _POSITIONAL}
    if HEADER in attrs:
        shapes, result = entry_shapes(module)
        attrs[HEADER] = header([shapes[p.attrs["number"]] for p in kept], result)
    return with_entry(replace(module, attrs=attrs), settled)


_POSITIONAL = frozenset({"input_output_alias", "buffer_donor"})
"""Module attributes that speak of parameters by number."""


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
    if array.dtype != wanted or array.shape != shape.dims:
        takes = f"{shape.dtype}{list(shape.dims)}"
        raise ArgumentError(
            f"parameter {p.name} cannot be frozen to this array",
            f"it takes {takes}, the array is {array.dtype}{list(array.shape)}",
        )
    return constant(np.asarray(array, order="C"), name=p.name)
