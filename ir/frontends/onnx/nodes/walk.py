"""A graph of nodes -> terms: node by node, functions called and inner graphs entered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ....errors import LimitError, NestwrightError, ParseError, UnsupportedError
from ....hlo.limits import CALL_DEPTH, require_bytes
from ....hlo.nodes import Metadata
from ...lax.graph import Graph
from ...lax.term import Term
from .definitions import Definition, definition, function_body, require_types, type_name
from .frames import Frame, attributes_of, needed
from .model import MAX_NODES, CheckedModel, domain, opset_versions
from .node import Body, Node
from .table import row
from .tensors import sparse_array, tensor_array
from .values import Sequence as ValueSequence
from .values import Value

_MALFORMED = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""What a node that does not hang together raises in the functions of the table."""

BLOCKED_HINT = (
    "ONNX Runtime laid the weights out for one processor; take the model that it read, or save "
    "with graph_optimization_level = ORT_ENABLE_EXTENDED"
)


class Walk:
    """One reading of a model: counts the nodes, because short graphs can call for many."""

    def __init__(self, model: CheckedModel, sources: Callable[[Term], tuple[str, ...]]) -> None:
        self._model = model
        self._sources = sources
        self._nodes = 0

    def results(self, nodes: Sequence[Any], names: Sequence[str], frame: Frame) -> list[Value]:
        """Return the values of names after the nodes that they depend on."""
        if frame.depth > CALL_DEPTH:
            why = f"graphs and functions lie {frame.depth} deep; the limit is {CALL_DEPTH}"
            raise LimitError(
                "the model is nested too deep", why, self._model.source, "", frame.depth, CALL_DEPTH
            )
        for node, used in needed(nodes, names):
            self._node(node, used, frame)
        return [self._find(name, frame, "the graph's result") for name in names]

    def _node(self, proto: Any, used: frozenset[str], frame: Frame) -> None:
        """Compute one node and give the outputs that are used their values."""
        self._count()
        place = f"{self._model.source}: node `{_name(proto)}` ({proto.op_type})"
        node = self._described(proto, used, frame, place)
        frame.graph.label = next((name for name in proto.output if name), "")
        frame.graph.origin = Metadata(op_type=proto.op_type, op_name=_name(proto))
        try:
            found = self._computed(proto, node, frame)
        except NestwrightError as e:
            if e.where.startswith(self._model.source):
                raise
            raise replace(e, where=f"{place} {e.where}".rstrip()) from None
        except _MALFORMED as e:
            told = str(e).split("\n")[0]
            raise ParseError(f"{node.op} is malformed", told or type(e).__name__, place) from e
        results = found if isinstance(found, tuple) else (found,)
        for n, name in enumerate(proto.output):
            if name in used and n >= len(results):
                raise UnsupportedError(f"output {n} of {node.op} is not computed here", "", place)
            if name in used:
                _fits(results[n], place)
                if frame.depth == 0:
                    self._require_declared(name, results[n], place)
                frame.values[name] = results[n]

    def _require_declared(self, name: str, value: Value, place: str) -> None:
        """Require the element type that the model declares for a name of its own graph."""
        declared = self._model.declared.get(name, "")
        if declared and isinstance(value, Term) and type_name(value) != declared:
            why = f"`{name}` is declared as {declared} and computed as {type_name(value)}"
            raise ParseError("the model's types do not fit", why, place)

    def _described(self, proto: Any, used: frozenset[str], frame: Frame, place: str) -> Node:
        where = domain(proto.domain)
        version = frame.opsets.get(where, 1)
        known = definition(where, proto.op_type, version)
        return Node(
            op=proto.op_type,
            domain=where,
            version=version,
            inputs=tuple(self._find(name, frame, place) if name else None for name in proto.input),
            outputs=tuple(proto.output),
            used=used,
            graph=frame.graph,
            place=place,
            attributes=attributes_of(proto, frame),
            defaults=known.defaults if known else {},
            body=lambda graph: self._body(graph, frame),
            sources=self._sources,
        )

    def _computed(self, proto: Any, node: Node, frame: Frame) -> Any:
        """The results of a node: by the model's own function, the table, or ONNX's function."""
        own = self._model.functions.get((node.domain, node.op, proto.overload))
        if own is not None:
            return self._called(own, node, frame)
        defined = definition(node.domain, node.op, node.version)
        if defined is not None:
            require_types(defined, node)
        known = row(node.domain, node.op, node.version)
        if known is not None:
            if not known.sized:
                node.require_fixed()
            found = known.meaning(node)
            if defined is None:
                node.require_asked()
            return found
        body = function_body(defined, node) if defined else None
        if body is None:
            self._refuse(node, defined)
        return self._called(body, node, frame)

    def _called(self, function: Any, node: Node, frame: Frame) -> tuple[Value, ...]:
        """The results of a function on the node's inputs and attributes."""
        given = dict(zip(function.input, node.inputs, strict=False))
        defaults = {a.name: a for a in function.attribute_proto}
        inside = Frame(
            graph=frame.graph,
            values={name: given.get(name) for name in function.input},
            opsets={**frame.opsets, **opset_versions(function.opset_import)},
            attributes={**node.defaults, **defaults, **node.attributes},
            depth=frame.depth + 1,
        )
        wanted = [name for n, name in enumerate(function.output) if node.wants(n)]
        found = dict(zip(wanted, self.results(function.node, wanted, inside), strict=True))
        return tuple(found.get(name) for name in function.output)

    def _body(self, graph: Any, frame: Frame) -> Body:
        """A graph inside a node as a function of its inputs.

        It is written in the innermost graph of the inputs; given ``whole``, all of it in that one.
        """

        def body(*inputs: Value, whole: Graph | None = None) -> list[Value]:
            if len(inputs) > len(graph.input):
                why = f"it takes {len(graph.input)} inputs and is given {len(inputs)}"
                raise ParseError("a graph inside a node does not fit", why)
            site = whole or _innermost(frame.graph, inputs)
            inside = replace(
                frame,
                graph=site,
                whole=whole is not None,
                values=self._initial(graph, site),
                outer=frame,
                depth=frame.depth + 1,
            )
            inside.values.update(zip((i.name for i in graph.input), inputs, strict=False))
            return self.results(graph.node, [o.name for o in graph.output], inside)

        return body

    def _initial(self, graph: Any, site: Graph) -> dict[str, Value]:
        """The constants that a graph inside a node brings along."""
        source, folder = self._model.source, self._model.folder
        arrays = {
            t.name: tensor_array(t, folder, f"{source}: initializer `{t.name}`")
            for t in graph.initializer
        } | {
            s.values.name: sparse_array(s, folder, f"{source}: initializer `{s.values.name}`")
            for s in graph.sparse_initializer
        }
        return {
            name: Term(site, site.constant(np.asarray(array))) for name, array in arrays.items()
        }

    def _find(self, name: str, frame: Frame, place: str) -> Value:
        try:
            return frame.find(name)
        except KeyError:
            raise ParseError(
                f"`{name}` is used before anything makes it",
                "the graph has a cycle, or its nodes are out of order",
                place,
            ) from None

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            why = f"functions and loops written out, it has over {MAX_NODES}"
            raise LimitError(
                "the model has too many nodes",
                why,
                self._model.source,
                "",
                self._nodes,
                MAX_NODES,
            )

    def _refuse(self, node: Node, defined: Definition | None) -> NoReturn:
        full = f"{node.domain}.{node.op}" if node.domain else node.op
        if defined is None:
            why = f"no such operator is known in version {node.version} of its domain"
        else:
            why = "docs/onnx.md lists the operators"
        hint = BLOCKED_HINT if node.domain == "com.microsoft.nchwc" else ""
        raise UnsupportedError(f"the operator {full} is not supported", why, node.place, hint)


def _fits(value: Value, place: str) -> None:
    """Raise ``LimitError`` for an array that no memory holds."""
    match value:
        case Term():
            require_bytes(value.shape.bytes, "its result", place)
        case ValueSequence(elements=elements):
            for element in elements:
                _fits(element, place)


def initial_frame(model: CheckedModel, graph: Graph, values: Mapping[str, Value]) -> Frame:
    """Return the frame of a model's own graph, whose instructions are written in ``graph``."""
    return Frame(graph=graph, values=dict(values), opsets=model.opsets)


def _innermost(graph: Graph, values: Sequence[Value]) -> Graph:
    """The innermost of a graph and those that arrays are written in."""
    sites = [v.site for v in values if isinstance(v, Term) and isinstance(v.site, Graph)]
    return max([graph, *sites], key=lambda site: site.depth)


def _name(proto: Any) -> str:
    return str(proto.name or next((name for name in proto.output if name), "?"))
