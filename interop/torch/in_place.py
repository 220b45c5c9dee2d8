"""Caches are written where they lie: a scatter into an input that only the result replaces.

A functional graph makes a new cache, with a few rows scattered into the old one, and copies it over
the old one at its end. For a long cache these two copies cost more than the model. Here torch
scatters the rows into the input's memory, and what reads the new cache reads that.
"""

from __future__ import annotations

from typing import Any

import torch

SCATTERS = ("index_put", "index_copy", "index_add", "index_fill", "scatter", "scatter_add")
"""Operators of ATen that copy their first argument and write to parts of it."""


def write_in_place(graph: Any) -> set[Any]:
    """Let scatters write to the inputs that they update; return those that do, as nodes.

    The input must be read by nothing but the scatter and the copy of its result over the input.
    """
    written: set[Any] = set()
    for copy in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        held, value = copy.args[:2]
        if _replaces(held, value) and set(held.users) == {value, copy}:
            packet, _, overload = _parts(value)
            value.target = getattr(getattr(torch.ops.aten, f"{packet}_"), overload)
            graph.erase_node(copy)
            written.add(value)
    return written


def _replaces(held: Any, value: Any) -> bool:
    """True if a value is a scatter into an input, of the input's element type."""
    if held.op != "placeholder" or value.op != "call_function" or value.args[0] is not held:
        return False
    return _parts(value)[0] in SCATTERS and str(value.target).startswith("aten.")


def _parts(node: Any) -> tuple[str, str, str]:
    """Return ``("index_put", ".", "default")`` for a call of ``aten.index_put.default``."""
    packet, dot, overload = str(node.target).removeprefix("aten.").partition(".")
    return packet, dot, overload
