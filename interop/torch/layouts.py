"""Tensors whose memory is not in the order of their dimensions, such as ``channels_last`` ones.

A graph says how every result lies in memory, and torch makes views of it by that. So a result is
computed with its dimensions in the order of its memory, and a tensor that goes in is read as it
lies. The order of a tensor lists its dimensions from the outermost to the innermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from ...ir.frontends.lax.graph import Graph
from ...ir.frontends.lax.shaping import transpose
from ...ir.frontends.lax.term import Term, unpacked
from ...ir.hlo.nodes import HloModule, Shape

Order: TypeAlias = tuple[int, ...]
Strides: TypeAlias = tuple[int, ...]


def order_of(tensor: Any) -> Order:
    """Return the order of a tensor, fake ones too; the plain one if its memory has gaps."""
    plain = tuple(range(tensor.dim()))
    dims, strides = tensor.shape, tensor.stride()
    found = tuple(sorted(plain, key=lambda k: (dims[k] != 1, -strides[k]) if prod(dims) else k))
    expected, dense = 1, True
    for k in reversed(found):
        dense = dense and (dims[k] == 1 or strides[k] == expected)
        expected *= dims[k]
    return found if dense and not tensor.is_contiguous() else plain


def strides_of(tensor: Any) -> Strides:
    """Return the strides that a result is given: its own, or plain ones if its memory has gaps."""
    if tensor.is_contiguous() or order_of(tensor) != tuple(range(tensor.dim())):
        return tuple(map(int, tensor.stride()))
    return tuple(map(int, torch.empty(tensor.shape, device="meta").stride()))


def inverse(order: Order) -> Order:
    """Return the order that puts the dimensions back."""
    return tuple(order.index(k) for k in range(len(order)))


def in_memory_order(
    module: HloModule, inputs: Sequence[Order], results: Sequence[Order]
) -> HloModule:
    """Return a module whose parameters and results have their dimensions in these orders."""
    if all(o == tuple(sorted(o)) for o in (*inputs, *results)):
        return module
    graph = Graph(module.name)
    given = []
    for parameter, order in zip(module.entry.parameters, inputs, strict=True):
        shape = parameter.array
        lies = Shape(shape.dtype, tuple(shape.dims[k] for k in order))
        term = Term(graph, graph.parameter(lies, parameter.name))
        given.append(transpose(term, inverse(order)).value)
    made = unpacked(graph, graph.infer("call", given, to_apply=module.entry))
    placed = [transpose(t, order).value for t, order in zip(made, results, strict=True)]
    return graph.module(placed, module.name)
