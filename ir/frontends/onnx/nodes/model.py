"""Bytes -> a checked model, its weights apart.

Weights are taken out of the protobuf first: the checker then sees inputs of their types, copies
none of them, and no limit of protobuf's own applies to what lies beside the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....arrays import Array
from ....errors import LimitError, ParseError, UnsupportedError
from .frames import written_out
from .package import import_onnx
from .tensors import EXTERNAL, sparse_array, tensor_array
from .types import tensor_name

OLDEST = 7
"""The oldest operator set that is read: before it, broadcasting was an attribute."""

MAX_BYTES = (1 << 31) - 1
"""Protobufs are no larger."""

MAX_NODES = 1 << 17
"""Nodes of a graph, counting those of functions once per call."""

RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators, which its optimizer does not always import."""

HOMES = {"SimplifiedLayerNormalization": RUNTIME}
"""Domains of operators that ONNX Runtime writes in ONNX's own, which does not have them."""

SHOWN = 300  # characters of the checker's message


@contextmanager
def damage_as_parse_error(source: str) -> Iterator[None]:
    """Raise ``ParseError`` where a text of a protobuf, which is decoded when read, is none."""
    try:
        yield
    except UnicodeDecodeError as e:
        why = f"a text in it is not UTF-8: {e.reason}"
        raise ParseError("not an ONNX model", why, source) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """A model that passed the checks.

    ``graph`` is its GraphProto without initializers, which ``weights`` holds by name; ``opsets``
    gives the version of each domain, ``functions`` the model's own by domain, name and overload,
    ``declared`` the types of arrays that the graph says nodes make, as ``tensor(float)``.
    """

    source: str
    graph: Any
    weights: Mapping[str, Array]
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Any]
    declared: Mapping[str, str]
    folder: Path | None


def file_bytes(path: Path) -> bytes:
    """Return the content of a model's file; ``LimitError`` for one larger than protobufs are."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                hint = "store weights beside it: onnx.save(model, path, save_as_external_data=True)"
                what, why = f"the file has {size} bytes", f"the limit is {MAX_BYTES}"
                raise LimitError(what, why, str(path), hint, size, MAX_BYTES)
            return file.read()
    except OSError as e:
        raise ParseError("cannot read the model", e.strerror or str(e), str(path)) from None


def model_of_bytes(content: bytes, source: str) -> CheckedModel:
    """Return the model in a file; data beside it is looked for in its folder only.

    ``ParseError`` for a damaged or malformed model, ``UnsupportedError`` for operator sets that
    are too old or too new.
    """
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError:
        raise ParseError("not an ONNX model", "its protobuf is damaged", source) from None
    return model_of_proto(proto, source, Path(source).parent)


def model_of_proto(proto: Any, source: str, folder: Path | None = None) -> CheckedModel:
    """Return the model of a ``ModelProto``, which is not changed; errors as for files."""
    with damage_as_parse_error(source):
        return _checked(proto, source, folder)


def _checked(proto: Any, source: str, folder: Path | None) -> CheckedModel:
    if not proto.HasField("graph"):
        raise ParseError("not an ONNX model", "it has no graph", source)
    infos = (*proto.graph.input, *proto.graph.output, *proto.graph.initializer)
    if not all(isinstance(named.name, str) for named in (proto.graph, *infos)):
        raise ParseError("not an ONNX model", "a name in it is not UTF-8", source)
    weights = _weights(proto.graph, folder, source)
    light = _without(proto, "graph")
    light.graph.CopyFrom(_without(proto.graph, "initializer", "sparse_initializer"))
    _declare(light.graph, proto.graph, weights)
    _bring_in(light.graph, folder, source)
    _move_home(light)
    opsets = _opsets(proto, source)
    functions = {(domain(f.domain), f.name, f.overload): f for f in light.functions}
    _require_few(light.graph, functions, source)
    _check(light, source)
    return CheckedModel(
        source=source,
        graph=light.graph,
        weights=weights,
        opsets=opsets,
        functions=functions,
        declared=_declared(light.graph),
        folder=folder,
    )


def _declared(graph: Any) -> dict[str, str]:
    """The types of arrays that a graph declares for its results and for values within it."""
    known: set[int] = set(import_onnx().TensorProto.DataType.values()) - {0}
    found = {i.name: i.type.tensor_type.elem_type for i in (*graph.value_info, *graph.output)}
    return {n: f"tensor({tensor_name(t)})" for n, t in found.items() if t in known}


def _move_home(proto: Any) -> None:
    """Write the domains of ``HOMES`` in the nodes of a model's own graph, and import what ONNX
    Runtime imports in any model."""
    moved = [n for n in proto.graph.node if not domain(n.domain) and n.op_type in HOMES]
    for node in moved:
        node.domain = HOMES[node.op_type]
    wanted = {RUNTIME, *(n.domain for n in moved)}
    for home in sorted(wanted - {i.domain for i in proto.opset_import}):
        proto.opset_import.add(domain=home, version=1)


def domain(name: str) -> str:
    """Return a domain's one name: the default domain has two."""
    return "" if name == "ai.onnx" else name


def opset_versions(imports: Any) -> dict[str, int]:
    """Return the versions of the domains that a model or function imports."""
    return {domain(i.domain): int(i.version) for i in imports}


def _without(message: Any, *fields: str) -> Any:
    """A copy of a message without some of its fields."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name not in fields:
            copy.MergeFrom(_only(message, field, value))
    return copy


def _only(message: Any, field: Any, value: Any) -> Any:
    """A message of the same kind that holds one field."""
    one = type(message)()
    target = getattr(one, field.name)
    if hasattr(target, "extend"):
        target.extend(value)
    elif hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    else:
        setattr(one, field.name, value)
    return one


def _weights(graph: Any, folder: Path | None, source: str) -> dict[str, Array]:
    """The arrays of the graph's initializers by name."""
    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        where = f"{source}: initializer `{tensor.name}`"
        _once(tensor.name, found, where)
        found[tensor.name] = tensor_array(tensor, folder, where)
    for sparse in graph.sparse_initializer:
        where = f"{source}: initializer `{sparse.values.name}`"
        _once(sparse.values.name, found, where)
        found[sparse.values.name] = sparse_array(sparse, folder, where)
    return found


def _once(name: str, found: Mapping[str, Array], where: str) -> None:
    if not name or name in found:
        why = "another one has this name" if name else "it has no name"
        raise ParseError("the model has an initializer that cannot be used", why, where)


def _declare(graph: Any, original: Any, weights: Mapping[str, Array]) -> None:
    """Make an input of every initializer that is not one already, and give outputs shapes."""
    helper = import_onnx("helper")
    inputs = {i.name for i in graph.input}
    types = {t.name: t.data_type for t in original.initializer}
    types |= {s.values.name: s.values.data_type for s in original.sparse_initializer}
    for name, array in weights.items():
        if name not in inputs:
            info = helper.make_tensor_value_info(name, types[name], array.shape)
            graph.input.append(info)
    for output in graph.output:  # the checker asks for a shape, whichever it is
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.shape.SetInParent()


def _bring_in(graph: Any, folder: Path | None, source: str) -> None:
    """Replace data beside the model by its bytes in attributes and in the graphs inside nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            tensors = [attribute.t] if attribute.HasField("t") else []
            for tensor in [*tensors, *attribute.tensors]:
                _load(tensor, folder, f"{source}: node `{node.name}` ({node.op_type})")
            inner = [attribute.g] if attribute.HasField("g") else []
            for body in [*inner, *attribute.graphs]:
                for tensor in body.initializer:
                    _load(tensor, folder, f"{source}: initializer `{tensor.name}`")
                _bring_in(body, folder, source)


def _load(tensor: Any, folder: Path | None, where: str) -> None:
    if tensor.data_location == EXTERNAL:
        array = tensor_array(tensor, folder, where)
        tensor.CopyFrom(import_onnx("numpy_helper").from_array(array, tensor.name))


def _opsets(proto: Any, source: str) -> dict[str, int]:
    """The versions that the model asks for; those of ONNX's own operators must be known.

    An older operator set counts as the oldest that is read where its operators did not change.
    """
    found = opset_versions(proto.opset_import)
    version = found.get("", 1 if not found else OLDEST)
    defs = import_onnx("defs")
    newest = defs.onnx_opset_version()
    old = 0 < version < OLDEST and not any(_changed(n, version) for n in proto.graph.node)
    if not old and not OLDEST <= version <= newest:
        hint = f"onnx.version_converter.convert_version(model, {newest})"
        if version > newest:
            hint = f"a newer onnx package may know it; or {hint} where it is installed"
        raise UnsupportedError(
            f"the model is written in operator set {version}",
            f"{OLDEST} to {newest} are read with the onnx package that is installed",
            source,
            hint,
        )
    return {**found, "": max(version, OLDEST)}


def _changed(node: Any, version: int) -> bool:
    """True unless an operator means the same in an old operator set as in the oldest read."""
    defs = import_onnx("defs")
    try:
        then, later = (defs.get_schema(node.op_type, v, node.domain) for v in (version, OLDEST))
    except defs.SchemaError:
        return True
    return bool(then.since_version != later.since_version)


def _require_few(graph: Any, functions: Mapping[tuple[str, str, str], Any], source: str) -> None:
    """Raise ``LimitError`` for a graph that is too large once its functions are written out."""
    known: dict[tuple[str, str, str], int] = {}

    def count(node: Any) -> int:
        _require_texts(node, source)
        key = (domain(node.domain), node.op_type, node.overload)
        if key in functions and key not in known:
            known[key] = MAX_NODES + 1  # of one that calls itself
            known[key] = min(written_out(functions[key].node, count), MAX_NODES + 1)
        return known.get(key, 1)

    total = written_out(graph.node, count)
    if total > MAX_NODES:
        what = "the model has too many nodes"
        why = f"with its functions written out, over {MAX_NODES}"
        raise LimitError(what, why, source, "", total, MAX_NODES)


def _require_texts(node: Any, source: str) -> None:
    """Raise ``ParseError`` for a node whose names are no texts: protobuf then gives their bytes."""
    attributes = [t for a in node.attribute for t in (a.name, a.ref_attr_name)]
    names = (node.name, node.op_type, node.domain, *node.input, *node.output, *attributes)
    if not all(isinstance(name, str) for name in names):
        raise ParseError("not an ONNX model", "a node has a name that is not UTF-8", source)


def _check(proto: Any, source: str) -> None:
    """Let ONNX's own checker look at a model. Inputs need no shapes, which it asks for."""
    checker = import_onnx("checker")
    arrays = [i.type.tensor_type for i in proto.graph.input if i.type.HasField("tensor_type")]
    open_ranks = [a for a in arrays if not a.HasField("shape")]
    for array in open_ranks:
        array.shape.SetInParent()
    try:
        checker.check_model(proto)
    except (checker.ValidationError, ValueError, RuntimeError) as e:
        told = " ".join(str(e).split())
        short = told if len(told) <= SHOWN else f"{told[:SHOWN]}..."
        raise ParseError("the ONNX checker refuses the model", short, source) from None
    for array in open_ranks:
        array.ClearField("shape")
