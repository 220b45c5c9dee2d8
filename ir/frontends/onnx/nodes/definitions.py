"""ONNX's own definitions of operators: defaults of attributes, functions of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....dtypes import DType, to_numpy
from .node import Node
from .package import import_onnx
from .values import Sequence


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator as the package defines it in a version; ``defaults`` are AttributeProtos."""

    schema: Any
    defaults: Mapping[str, Any]


@cache
def definition(domain: str, name: str, version: int) -> Definition | None:
    """Return the definition that holds in a version of a domain, None where there is none."""
    defs = import_onnx("defs")
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None
    found = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    return Definition(schema, found)


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
