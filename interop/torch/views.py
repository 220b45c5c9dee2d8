"""Operators of a graph that only look at a tensor, and operators that write to one."""

from __future__ import annotations

from collections import Counter
from operator import getitem
from typing import Any

import torch

from .layouts import FREE


def is_view(node: Any) -> bool:
    """True for an operator whose result shares the memory of its first argument, or whose results
    do, and for the selection of one of these."""
    if node.op == "call_function" and node.target is getitem:
        return is_view(node.args[0])
    return _is_operator(node) and any(
        r.alias_info is not None and not r.alias_info.is_write for r in node.target._schema.returns
    )


def writes(node: Any) -> bool:
    """True for an operator that writes to an argument."""
    return _is_operator(node) and node.target._schema.is_mutable


def draws(node: Any) -> bool:
    """True for an operator that draws random numbers of torch's generator."""
    return _is_operator(node) and torch.Tag.nondeterministic_seeded in node.target.tags


def _is_operator(node: Any) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


def base(node: Any) -> Any:
    """Return the node whose memory a node's result shares: itself unless it is a view."""
    while is_view(node):
        node = node.args[0]
    return node


def outside_views(graph: Any) -> set[Any]:
    """Give results that share memory views of their own, and return these.

    A result that is a view of an input, or of what another result is a view of, must share its
    memory, as torch makes it again from the memory and the strides. Its views are added to the
    graph a second time, to be run by torch. Not so a part that is kept for a backward graph, which
    would copy it to close its gaps.
    """
    output = graph.output_node()
    results = [n for n in output.all_input_nodes if is_view(n)]
    shared = Counter(base(n) for n in output.all_input_nodes)
    added: dict[Any, Any] = {}
    for node in results:
        if base(node).op == "placeholder" or (shared[base(node)] > 1 and not _is_kept_part(node)):
            output.replace_input_with(node, _again(graph, output, node, added))
    return {n for n in added.values() if n.target is not getitem}


def _is_kept_part(view: Any) -> bool:
    return FREE in view.meta and view.meta["val"].numel() < base(view).meta["val"].numel()


def _again(graph: Any, output: Any, node: Any, added: dict[Any, Any]) -> Any:
    if not is_view(node):
        return node
    if node not in added:
        viewed = _again(graph, output, node.args[0], added)
        with graph.inserting_before(output):
            made = graph.node_copy(node, lambda n: viewed if n is node.args[0] else n)
        added[node] = made
    return added[node]
