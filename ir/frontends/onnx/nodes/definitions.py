"""ONNX's own definitions of operators: defaults of attributes, types of inputs, functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....dtypes import DType, to_numpy
from ...lax.term import Term
from .node import Node
from .package import import_onnx
from .types import tensor_name
from .values import Sequence


@dataclass(frozen=True, slots=True)
class Formal:
    """An input of a definition: its name, the names of types that it takes, and the parameter that
    stands for its type, empty where its types are free of those of other inputs."""

    name: str
    types: frozenset[str]
    parameter: str


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator as the package defines it in a version; ``defaults`` are AttributeProtos.

    The last of ``inputs`` stands for any that follow.
    """

    schema: Any
    defaults: Mapping[str, Any]
    inputs: tuple[Formal, ...]


@cache
def definition(domain: str, name: str, version: int) -> Definition | None:
    """Return the definition that holds in a version of a domain, None where there is none."""
    defs = import_onnx("defs")
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None
    found = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    inputs = tuple(
        Formal(i.name, frozenset(i.types), i.type_str if i.is_homogeneous else "")
        for i in schema.inputs
    )
    return Definition(schema, found, inputs)


def require_types(known: Definition, node: Node) -> None:
    """Require inputs of the types that the operator's definition takes.

    ``ParseError`` for a type that it does not take, and for two types where it takes one.
    """
    bound: dict[str, tuple[str, str]] = {}
    for n, value in enumerate(node.inputs):
        if value is None or not known.inputs:
            continue
        formal = known.inputs[min(n, len(known.inputs) - 1)]
        found = type_name(value)
        if not formal.types & {found, f"optional({found})"}:
            takes = ", ".join(sorted(formal.types)[:SHOWN])
            more = f" and {len(formal.types) - SHOWN} others" * (len(formal.types) > SHOWN)
            node.malformed(f"input {n}, `{formal.name}`, is {found}; it takes {takes}{more}")
        name, first = bound.setdefault(formal.parameter or f"{n}", (formal.name, found))
        if first != found:
            why = f"input {n}, `{formal.name}`, is {found}, and `{name}` is {first}"
            node.malformed(f"{why}: the operator takes one type for both")


SHOWN = 6
"""Types that a message lists."""


def type_name(value: Sequence | Term) -> str:
    """Return the name of a value's type in definitions, such as ``seq(tensor(int64))``."""
    found = f"tensor({_tensor_name(value.dtype)})"
    return f"seq({found})" if isinstance(value, Sequence) else found


@cache
def _tensor_name(dtype: DType) -> str:
    return tensor_name(_number(dtype))


def function_body(known: Definition, node: Node) -> Any | None:
    """Return the FunctionProto that defines an operator by others, None where there is none."""
    schema, proto = known.schema, import_onnx().FunctionProto
    if schema.has_function:
        version = _latest(schema.function_opset_versions, node.version)
        found = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = _latest(schema.context_dependent_function_opset_versions, node.version)
        found = schema.get_context_dependent_function_with_opset_version(
            version, _node_proto(node), _input_types(node)
        )
    else:
        return None
    return proto.FromString(found) if found else None


def _latest(versions: list[int], newest: int) -> int:
    return max((v for v in versions if v <= newest), default=min(versions))


def _node_proto(node: Node) -> bytes:
    onnx = import_onnx()
    names = [f"x{n}" if node.has(n) else "" for n in range(len(node.inputs))]
    proto = onnx.NodeProto(
        op_type=node.op, domain=node.domain, input=names, output=list(node.outputs)
    )
    for name, given in node.attributes.items():
        attribute = proto.attribute.add()
        attribute.CopyFrom(given)
        attribute.name = name
    found: bytes = proto.SerializeToString()
    return found


def _input_types(node: Node) -> list[bytes]:
    """The types of the inputs as the package's functions want to see them."""
    onnx, helper = import_onnx(), import_onnx("helper")
    found = []
    for value in node.inputs:
        if value is None:
            found.append(onnx.TypeProto())
        elif isinstance(value, Sequence):
            element = helper.make_tensor_type_proto(_number(value.dtype), None)
            found.append(helper.make_sequence_type_proto(element))
        else:
            found.append(helper.make_tensor_type_proto(_number(value.dtype), value.dims))
    return [t.SerializeToString() for t in found]


def _number(dtype: DType) -> int:
    found: int = import_onnx("helper").np_dtype_to_tensor_dtype(to_numpy(dtype))
    return found
