"""Element types that ONNX's schemas do not allow are refused at the node; others are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import ParseError
from nestwright.ir.frontends.onnx.reader import convert
from nestwright.ir.hlo.interp.evaluate import evaluate

REFUSED = [
    ("And", {"a": "f4", "b": "f4"}, {}, r"`A`, is tensor\(float\); it takes tensor\(bool\)"),
    ("Not", {"a": "i4"}, {}, r"tensor\(int32\); it takes tensor\(bool\)"),
    ("LayerNormalization", {"a": "i4", "b": "i4"}, {}, r"tensor\(int32\); it takes tensor\(bfloat"),
    ("Add", {"a": "f4", "b": "f8"}, {}, r"`B`, is tensor\(double\), and `A` is tensor\(float\)"),
    ("Add", {"a": "?", "b": "?"}, {}, r"tensor\(bool\); it takes .* and 6 others"),
    ("Concat", {"a": "f4", "b": "i4"}, {"axis": 0}, "the operator takes one type for both"),
    ("Gather", {"a": "f4", "b": "f4"}, {}, r"input 1, `indices`, is tensor\(float\)"),
    ("BitwiseAnd", {"a": "?", "b": "?"}, {}, r"tensor\(bool\); it takes"),
    ("Sqrt", {"a": "i8"}, {}, r"tensor\(int64\); it takes"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "why"), REFUSED)
def test_a_type_that_the_schema_forbids(
    op: str, inputs: dict[str, str], attributes: dict[str, Any], why: str, make
) -> None:
    given = {name: (np.dtype(kind), [2, 3]) for name, kind in inputs.items()}
    model = make([(op, " ".join(inputs), "y", attributes)], given, ["y"])
    with pytest.raises(ParseError, match=f"{op}_0.*{op} is malformed.*{why}"):
        convert(model)


def test_the_schema_is_that_of_the_model_s_version(make) -> None:
    """``Clip`` of integers is new in version 12."""
    node, given = [("Clip", "a", "y", {})], {"a": (np.int32, [2])}
    convert(make(node, given, ["y"], opset=12))
    with pytest.raises(ParseError, match=r"tensor\(int32\); it takes"):
        convert(make(node, given, ["y"], opset=11))


@pytest.mark.parametrize(("op", "expected"), [("Abs", [0, 3, 255]), ("Sign", [0, 1, 1])])
def test_numbers_without_a_sign(op: str, expected: list[int], make) -> None:
    model = make([(op, "a", "y", {})], {"a": (np.uint8, [3])}, ["y"])
    found = evaluate(convert(model).module, [np.array([0, 3, 255], np.uint8)])
    assert found.tolist() == expected and found.dtype == np.uint8


def test_shrunk_integers_are_compared_and_moved_as_floats(make) -> None:
    model = make([("Shrink", "a", "y", {"bias": 1.5, "lambd": 1.5})], {"a": (np.int8, [4])}, ["y"])
    found = evaluate(convert(model).module, [np.array([-6, -1, 1, 7], np.int8)])
    assert found.tolist() == [-4, 0, 0, 5]


def test_declared_types_are_those_that_are_computed(onnx, make) -> None:
    nodes = [("Abs", "a", "b", {}), ("Shape", "b", "y", {})]
    model = make(nodes, {"a": (np.float32, [2])}, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    inner = onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [7])
    model.graph.value_info.append(inner)
    convert(model)
    inner.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    model.graph.value_info[0].CopyFrom(inner)
    with pytest.raises(ParseError, match=r"Abs_0.*`b` is declared as tensor\(double\)"):
        convert(model)
