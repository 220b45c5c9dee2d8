"""Operations that reach beyond a SavedModel's folder, or run Python, when it is loaded or called.

Loading runs functions of the model: initializers of its resources, and in the format of
TensorFlow 1 nodes of the graph. Functions and nodes that only write checkpoints are in every
model, and run when it is saved; what nothing else leads to is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

FOREIGN = re.compile(
    "^Copy(Host)?$|Checkpoint|Dataset|Debug|Dump|File|ImmutableConst|LoadAndRemap|Print|Proto"
    "|PyFunc|Reader|RecordInput|Restore|Rpc|Save|Sql|Summary"
)
"""Words in the names of operations that reach files, networks or Python; none is lowered."""

RESTORE = "RestoreV2"


def foreign_operation(model: Any) -> str | None:
    """Return the name of such an operation in a ``SavedModel`` proto, None if there is none."""
    graphs = list(model.meta_graphs)
    if len(graphs) == 1 and graphs[0].HasField("object_graph_def"):
        return _of_functions(graphs[0])
    found = (f for graph in graphs for f in (_of_nodes(graph, _fetched(graph)), _restoring(graph)))
    return next((f for f in found if f), None)


def _of_functions(graph: Any) -> str | None:
    """An operation of the functions that the model's objects hold, or of what those call."""
    functions = _functions(graph)
    roots = [n for n in graph.object_graph_def.concrete_functions if n in functions]
    return _first(_called(functions, roots))


def _of_nodes(graph: Any, names: Iterable[str]) -> str | None:
    """An operation of the nodes that these results depend on, or of what those call."""
    nodes = list(_above(graph, names))
    functions = _functions(graph)
    roots = [f for node in nodes for f in _callees(node) if f in functions]
    return _first(nodes) or _first(_called(functions, roots))


def _restoring(graph: Any) -> str | None:
    """An operation of what restores variables, which may read the file that it is given."""
    given = _node(graph.saver_def.filename_tensor_name)
    kept = type(graph)()
    kept.CopyFrom(graph)
    for node in kept.graph_def.node:
        if node.op == RESTORE and node.input and _node(node.input[0]) == given:
            node.op = "NoOp"
    return _of_nodes(kept, [graph.saver_def.restore_op_name])


def _fetched(graph: Any) -> Iterator[str]:
    """The names of what else loading and calls ask for, those of variables among them."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import variable_pb2

    yield graph.saver_def.filename_tensor_name
    for collection in graph.collection_def.values():
        yield from collection.node_list.value
        for data in collection.bytes_list.value:
            with suppress(DecodeError):  # of something else than a variable
                variable = variable_pb2.VariableDef.FromString(data)
                yield from (variable.initializer_name, variable.initial_value_name)
                yield from (variable.snapshot_name, variable.variable_name)
    for signature in graph.signature_def.values():
        for info in signature.outputs.values():
            sparse, parts = info.coo_sparse, info.composite_tensor.components
            yield from (info.name, *(part.name for part in parts))
            yield from (sparse.values_tensor_name, sparse.indices_tensor_name)
            yield sparse.dense_shape_tensor_name


def _above(graph: Any, names: Iterable[str]) -> Iterator[Any]:
    """The nodes that results depend on."""
    nodes = {n.name: n for n in graph.graph_def.node}
    reached = _closure(map(_node, names), lambda name: map(_node, nodes[name].input), nodes)
    return (nodes[name] for name in reached)


def _called(functions: Mapping[str, Any], roots: Iterable[str]) -> Iterator[Any]:
    """The nodes of functions and of all that they call."""

    def callees(name: str) -> Iterator[str]:
        return (f for node in functions[name].node_def for f in _callees(node))

    return (n for f in _closure(roots, callees, functions) for n in functions[f].node_def)


def _closure(
    roots: Iterable[str], following: Callable[[str], Iterable[str]], known: Mapping[str, Any]
) -> set[str]:
    """The names among those known that roots lead to."""
    found: set[str] = set()
    left = list(roots)
    while left:
        if (name := left.pop()) in known and name not in found:
            found.add(name)
            left += following(name)
    return found


def _functions(graph: Any) -> dict[str, Any]:
    return {f.signature.name: f for f in graph.graph_def.library.function}


def _callees(node: Any) -> Iterator[str]:
    """The names of functions that a node may call: its own operation's, and its attributes'."""
    yield node.op
    for value in node.attr.values():
        yield value.func.name
        yield from (f.name for f in value.list.func)


def _node(name: str) -> str:
    """The node of a result or of a control dependency."""
    return name.removeprefix("^").split(":")[0]


def _first(nodes: Iterable[Any]) -> str | None:
    return min((n.op for n in nodes if FOREIGN.search(n.op)), default=None)
