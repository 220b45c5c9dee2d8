"""Graphs whose shapes torch leaves open: compiled for each combination of sizes that comes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch.fx import Graph, GraphModule

NUMBERS = 8  # combinations of numbers beside the same sizes that are compiled, as torch recompiles
_LOG = logging.getLogger("nestwright.torch")


def is_symbolic(value: Any) -> bool:
    """True for a symbolic number and for a tensor with one among its sizes."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(d, torch.SymInt) for d in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


class PerShape:
    """A graph that ``make(gm, args)`` compiles for each combination of sizes, at its first call.

    Python's numbers that torch leaves open come as tensors of one element, whose ``item`` the
    graph asks for. They are constants of what is compiled; past ``NUMBERS`` combinations of them
    torch runs the graph.
    """

    def __init__(self, gm: Any, make: Callable[[Any, Sequence[Any]], Callable[..., Any]]) -> None:
        self._gm = gm
        self._make = make
        inputs = gm.graph.find_nodes(op="placeholder")
        self._items = {i: asked for i, n in enumerate(inputs) if (asked := _items(n))}
        self._known: dict[Any, dict[Any, Callable[..., Any]]] = {}
        self.__name__ = "nestwright_per_shape"

    def __call__(self, *args: Any) -> Any:
        """Run the graph for these arguments."""
        numbers = [args[i].item() for i in self._items]
        sizes = (torch.is_grad_enabled(), *map(_kind, args))
        written = tuple(map(repr, numbers))  # NaN equals itself, and the zeros differ
        known = self._known.get(sizes, {}).get(written)
        if known is None:
            with _session():
                made = self._known.setdefault(sizes, {})
                known = made.get(written)
                if known is None and len(made) < NUMBERS:
                    known = made[written] = self._make(self._with(numbers), args)
        if known is None:
            _LOG.info("torch runs a graph that came with %d combinations of numbers", NUMBERS)
            known = self._gm
        return known(*args)

    def _with(self, numbers: Sequence[Any]) -> Any:
        """Return the graph with these values of the numbers it asks for."""
        if not numbers:
            return self._gm
        known: dict[Any, Any] = {}
        for items, number in zip(self._items.values(), numbers, strict=True):
            known |= dict.fromkeys(items, number)
        graph = Graph()
        for n in self._gm.graph.nodes:
            if n not in known:
                known[n] = graph.node_copy(n, known.__getitem__)
        return GraphModule(self._gm, graph)


@contextmanager
def _session() -> Iterator[None]:
    """Compile as dynamo does: alone, because tracing changes classes for all threads, and told to
    the others, whose calls of compiled functions would take it for a trace of their own."""
    told = getattr(torch.compiler, "_compile_session_context", nullcontext)  # older ones have none
    with compile_lock, told():
        yield


def _items(placeholder: Any) -> list[Any]:
    """Return the nodes that make Python's number of an input that is read by no other."""
    users = list(placeholder.users)
    return users if all(n.op == "call_method" and n.target == "item" for n in users) else []


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype, value.stride(), value.requires_grad
    return value
