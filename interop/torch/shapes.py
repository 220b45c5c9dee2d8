"""Graphs whose shapes torch leaves open: compiled for each combination of sizes that comes."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._dynamo.convert_frame import compile_lock
from torch.fx import Graph, GraphModule

from ...ir.targets.processor import memory

NUMBERS = 8  # combinations of numbers beside the same sizes that are compiled, as torch recompiles
MEMORY = memory(16 << 30) // 4  # bytes of what is kept compiled of a graph
_LOG = logging.getLogger("nestwright.torch")


class CompiledGraph(NamedTuple):
    """A function that runs a graph, and one that returns the bytes its code takes so far."""

    run: Callable[..., Any]
    nbytes: Callable[[], int]


Make: TypeAlias = Callable[[Any, Sequence[Any]], CompiledGraph]
"""Compiles a graph for arguments."""


def is_symbolic(value: Any) -> bool:
    """True for a symbolic number and for a tensor with one among its sizes."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(d, torch.SymInt) for d in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


@dataclass(slots=True)
class _Kept:
    """Graphs compiled for the same sizes, by the numbers beside them, and when these were used."""

    graphs: dict[Any, CompiledGraph] = field(default_factory=dict)
    used: int = 0


class PerShape:
    """A graph that ``make`` compiles for each combination of sizes, at its first call.

    The ``most`` combinations that were called last are kept, and fewer where they take more than
    ``MEMORY``; others are compiled again. Python's numbers that torch leaves open come as tensors
    of one element, whose ``item`` the graph asks for. They are constants of what is compiled; past
    ``NUMBERS`` combinations of them torch runs the graph.
    """

    def __init__(self, gm: Any, make: Make, most: int) -> None:
        self._gm = gm
        self._make = make
        self._most = most
        self._calls = count()
        inputs = gm.graph.find_nodes(op="placeholder")
        self._items = {i: asked for i, n in enumerate(inputs) if (asked := _items(n))}
        self._known: dict[Any, _Kept] = {}
        self.__name__ = "nestwright_per_shape"

    def __call__(self, *args: Any) -> Any:
        """Run the graph for these arguments."""
        numbers = [args[i].item() for i in self._items]
        sizes = (torch.is_grad_enabled(), *map(_kind, args))
        written = tuple(map(repr, numbers))  # NaN equals itself, and the zeros differ
        kept = self._known.get(sizes)
        known = kept.graphs.get(written) if kept is not None else None
        if known is None:
            with _session():
                kept = self._known.setdefault(sizes, _Kept())
                known = kept.graphs.get(written)
                if known is None and len(kept.graphs) < NUMBERS:
                    self._forget(kept)
                    known = kept.graphs[written] = self._make(self._with(numbers), args)
        assert kept is not None
        kept.used = next(self._calls)
        if known is None:
            _LOG.info("torch runs a graph that came with %d combinations of numbers", NUMBERS)
            return self._gm(*args)
        return known.run(*args)

    def _forget(self, new: _Kept) -> None:
        """Free what was not called for longest, to have room for more."""
        others = {sizes: kept for sizes, kept in self._known.items() if kept is not new}
        nbytes = {s: sum(c.nbytes() for c in kept.graphs.values()) for s, kept in others.items()}
        oldest = sorted(others, key=lambda sizes: others[sizes].used)
        count = len(oldest)
        others.clear()
        while oldest and (len(oldest) >= self._most or sum(nbytes[s] for s in oldest) > MEMORY):
            del self._known[oldest.pop(0)]
        if len(oldest) < count:
            gc.collect()  # graphs and native code hold each other

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
    """Compile in a session as dynamo does.

    One thread compiles at a time, because tracing changes classes for all of them. Other threads
    are told, as their calls of compiled functions would take the trace for one of their own.
    """
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
