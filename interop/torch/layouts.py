"""Tensors whose memory is not in the order of their dimensions, such as ``channels_last`` ones.

A graph says how every result lies in memory, and torch makes views of it by that. So a result is
computed with its dimensions in the order of its memory, and a tensor that goes in is read as it
lies. The order of a tensor lists its dimensions from the outermost to the innermost.

What a forward graph keeps for the backward graph may lie in any order, if torch is told. It lies as
the optimized program computes it: images with their channels last, for example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch
from torch._guards import TracingContext

from ...ir.errors import LimitError, UnsupportedError
from ...ir.frontends.lax.graph import Graph
from ...ir.frontends.lax.shaping import transpose
from ...ir.frontends.lax.term import Term, unpacked
from ...ir.hlo.nodes import HloModule, Shape
from ...ir.hlo.ops.registry import definition
from ...ir.hlo.passes.pipeline import optimize

Order: TypeAlias = tuple[int, ...]
Strides: TypeAlias = tuple[int, ...]

FREE = "nestwright_free_layout"
"""Where nodes whose values only a backward graph reads have a ``FreeLayout`` in their ``meta``."""


@dataclass(slots=True)
class FreeLayout:
    """The strides that were chosen for a value; None for those that torch gave it."""

    strides: Strides | None = None


@contextmanager
def free_layouts(graph: Any) -> Iterator[None]:
    """Let the clusters of a forward graph choose how what it keeps lies in memory; tell torch."""
    context = TracingContext.try_get()
    told = None if context is None else context.output_strides
    if context is None or told is None or context.fw_metadata is None:
        yield
        return
    results = list(graph.graph.output_node().args[0])
    kept = results[context.fw_metadata.tensors_saved_for_backwards_slice]
    for n in kept:
        if isinstance(n, torch.fx.Node) and results.count(n) == 1:
            n.meta[FREE] = FreeLayout()
    yield
    told += [n.meta[FREE].strides if _is_free(n) else None for n in results]


def restride(graph: Any, given: Sequence[Any]) -> None:
    """Give the inputs of a backward graph the strides of what it is called with."""
    for n, value in zip(graph.graph.find_nodes(op="placeholder"), given, strict=True):
        if isinstance(value, torch.Tensor):
            n.meta["val"] = value


def _is_free(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and FREE in node.meta


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


def laid_out(
    module: HloModule, inputs: Sequence[Order], results: Sequence[Any], checked: bool
) -> tuple[HloModule, list[Any]]:
    """Return a module in memory order and its results as tensors, restrided where that was chosen.

    ``results`` are nodes; ``checked`` modules have a truth value after theirs. The layout of a free
    one that the optimized module transposes at its end is that of what it transposes.
    """
    values = [n.meta["val"] for n in results] + [torch.empty((), dtype=torch.bool)] * checked
    orders = [order_of(v) for v in values]
    plain = in_memory_order(module, inputs, orders)
    free = [i for i, n in enumerate(results) if _is_free(n) and values[i].dim() > 2]
    if not free or len(values) < 2:
        return plain, values
    try:
        made = optimize(plain).entry.root.operands
    except (UnsupportedError, LimitError):  # told where it is compiled
        return plain, values
    for i in free:
        if definition(made[i].opcode).permutes:
            back = inverse(made[i].attrs["dimensions"])
            orders[i] = tuple(orders[i][k] for k in back)
            values[i] = _restrided(values[i], orders[i])
            results[i].meta[FREE].strides = values[i].stride()
    return in_memory_order(module, inputs, orders), values


def _restrided(value: Any, order: Order) -> Any:
    """Return a tensor without memory that lies in an order."""
    lies = torch.empty([value.shape[k] for k in order], dtype=value.dtype, device="meta")
    return lies.permute(inverse(order))
