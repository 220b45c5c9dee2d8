"""The backend of ``torch.compile``: a graph of torch's as compiled clusters, by AOTAutograd.

torch finds it by the entry point ``nestwright`` of the group ``torch_dynamo_backends``. AOTAutograd
makes a functional graph of ATen operators, and one for the backward pass where gradients are asked
for. Each is divided into clusters that are compiled and operators that torch runs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd

from ...ir.errors import UnsupportedError
from ...ir.frontends.torch.decompositions import decompositions, own_kernels
from ...ir.frontends.torch.walk import checked_module, unsupported
from .cluster import CompiledCluster
from .layouts import free_layouts, restride
from .partition import Division, assemble, divide, left_whole
from .settings import Settings, parse
from .shapes import CompiledGraph, PerShape, is_symbolic

Recorder: TypeAlias = Callable[[str, Division], None]
"""Is told the name of a graph and how it was divided."""

BACKWARD = "_backward"  # ends the name of a backward graph
_LOG = logging.getLogger("nestwright.torch")


def nestwright(
    gm: Any, example_inputs: Sequence[Any], *, mode: Any = None, options: Any = None
) -> Any:
    """Compile a graph for torch: ``torch.compile(model, backend="nestwright", options={...})``.

    ``options`` are the fields of ``Settings``; ``mode`` is "default", "reduce-overhead", which are
    the same, or "max-autotune", which tunes with 200 trials a graph. Raises ``ArgumentError`` for
    others. A graph whose shapes torch leaves open is compiled for each combination that comes.
    """
    return compile_graph(gm, example_inputs, parse(mode, options))


def compile_graph(
    gm: Any, example_inputs: Sequence[Any], settings: Settings, record: Recorder | None = None
) -> Callable[..., Any]:
    """Return the function that runs a graph of dynamo's; ``record`` is told how it was divided."""
    if any(map(_is_nested, gm.graph.nodes)):
        division = left_whole(gm, "nested tensors are not compiled")
        if record is not None:
            record(model_name(gm), division)
        _log_outside(model_name(gm), division)
        run: Callable[..., Any] = gm.forward
        return run
    if any(map(is_symbolic, example_inputs)):
        return PerShape(gm, lambda g, args: _compile(g, args, settings, record), settings.sizes)
    return _compile(gm, example_inputs, settings, record).run


def _compile(
    gm: Any, example_inputs: Sequence[Any], settings: Settings, record: Recorder | None
) -> CompiledGraph:
    name, weights = model_name(gm), _weights(gm)
    clusters: list[CompiledCluster] = []

    def divide_graph(graph: Any, kind: str, static: frozenset[int]) -> Any:
        module, division = divided(graph, name + kind, static, settings, clusters)
        if record is not None:
            record(name + kind, division)
        return module, division

    def compiler(kind: str, static: frozenset[int], keeps: bool = False) -> Callable[..., Any]:
        def run(graph: Any, given: Sequence[Any]) -> Any:
            if kind == BACKWARD:
                restride(graph, given)
            with free_layouts(graph) if keeps else nullcontext():
                module, division = divide_graph(graph, kind, static)
            _log_outside(name + kind, division)
            return make_boxed_func(module.forward)

        return run

    def partition(*joint: Any, **named: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(*joint, **named)
        if record is not None:  # AOTAutograd compiles the backward graph when it is first run
            divide_graph(backward, BACKWARD, frozenset())
        return forward, backward

    backend = aot_autograd(
        fw_compiler=compiler("", frozenset(), keeps=True),
        bw_compiler=compiler(BACKWARD, frozenset()),
        inference_compiler=compiler("", weights),
        decompositions=decompositions(),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )
    learns = torch.is_grad_enabled() and any(
        t.requires_grad for t in (*example_inputs, *gm.parameters()) if isinstance(t, torch.Tensor)
    )
    with own_kernels(learns):
        run = backend(gm, example_inputs)
    return CompiledGraph(run, lambda: sum(cluster.nbytes for cluster in clusters))


def _log_outside(name: str, division: Division) -> None:
    if told := Counter((str(n.target), why) for n, why in division.outside()):
        left = "; ".join(f"{count} {op} ({why})" for (op, why), count in told.items())
        _LOG.info("%s leaves to torch: %s", name, left)


def divided(
    graph: Any, name: str, static: frozenset[int], settings: Settings, made: list[CompiledCluster]
) -> tuple[Any, Division]:
    """Return a graph of ATen operators that calls its clusters, and how it was divided.

    The clusters are added to ``made``.
    """
    reasons = dict(unsupported(graph))
    for _ in graph.graph.nodes:
        division = divide(graph, reasons, settings.min_operators)
        try:
            return assemble(graph, division, static, _builder(name, settings, made)), division
        except UnsupportedError as error:
            named = {f.name: f.reason for f in error.findings}
            found = {n: named[n.name] for n in graph.graph.nodes if n.name in named}
            if not found:
                raise
            reasons |= found
    raise AssertionError("every operator was refused twice")


def _builder(
    name: str, settings: Settings, made: list[CompiledCluster]
) -> Callable[[Any, frozenset[int]], Any]:
    def build(part: Any, static: frozenset[int]) -> Any:
        module, checked = checked_module(part, name)
        cluster = CompiledCluster(part, module, static, settings, checked)
        made.append(cluster)
        return cluster.function()

    return build


def _is_nested(node: Any) -> bool:
    """True for what makes or is given as a nested tensor, whose sizes no array has."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.is_nested


def model_name(gm: Any) -> str:
    """Return the name of the class whose graph this is, as far as dynamo tells; else ``torch``."""
    for node in gm.graph.nodes:
        for _, owner in (node.meta.get("nn_module_stack") or {}).values():
            kind = owner if isinstance(owner, str) else f"{owner.__module__}.{owner.__qualname__}"
            return kind.rpartition(".")[2]
    return "torch"


def _weights(gm: Any) -> frozenset[int]:
    """Return the numbers of AOTAutograd's arguments that are parameters and buffers.

    Those that the graph module owns come first, then the placeholders in order.
    """
    own = len(list(gm.parameters())) + len(list(gm.buffers()))
    inputs = gm.graph.find_nodes(op="placeholder")
    static = [own + i for i, n in enumerate(inputs) if _is_weight(n)]
    return frozenset([*range(own), *static])


def _is_weight(placeholder: Any) -> bool:
    """True for parameters and buffers of modules, and not for caches that are marked as static."""
    value = placeholder.meta.get("example_value")
    static = placeholder.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    return isinstance(value, torch.nn.Parameter) or static == "unguarded"
