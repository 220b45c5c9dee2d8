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


@pytest.mark.parametrize(("opset", "kind"), [(7, np.float32), (10, np.bool_)])
def test_the_mask_of_an_old_dropout(opset: int, kind: type, make) -> None:
    model = make([("Dropout", "a", "y m", {})], {"a": (np.float32, [2])}, ["m"], opset=opset)
    found = evaluate(convert(model).module, [np.array([1, 2], np.float32)])
    assert found.dtype == kind


def test_moments_of_each_place(make) -> None:
    x = np.array([[[0, 2]], [[4, 6]]], np.float32)
    given = {"x": (np.float32, x.shape), **dict.fromkeys("sbmv", (np.float32, (1, 2)))}
    attributes = {"spatial": 0, "epsilon": 0.0}
    model = make([("BatchNormalization", "x s b m v", "y", attributes)], given, ["y"], opset=7)
    parts = [np.array([p], np.float32) for p in ([1, 2], [0, 1], [2, 2], [1, 4])]
    found = evaluate(convert(model).module, [x, *parts])
    assert found.tolist() == [[[-2, 1]], [[2, 5]]]


def test_a_mask_of_another_type(make) -> None:
    q, mask = np.ones((1, 1, 2, 4), np.float32), np.array([[0, -np.inf], [0, 0]])
    found = []
    for kind in (np.float32, np.float64, np.float16):
        given = {**dict.fromkeys("qkv", (np.float32, q.shape)), "m": (kind, (2, 2))}
        model = make([("Attention", "q k v m", "y", {})], given, ["y"], opset=23)
        value = np.cumsum(q, axis=2)
        found.append(evaluate(convert(model).module, [q, q, value, mask.astype(kind)]).tolist())
    assert found[0] == found[1] == found[2] == [[[[1.0] * 4, [1.5] * 4]]]


def test_moments_of_another_type(make) -> None:
    x = np.array([[[0], [2]], [[4], [6]]], np.float16)
    given = {"x": (np.float16, x.shape), **dict.fromkeys("sbmv", (np.float32, (2,)))}
    nodes = [("BatchNormalization", "x s b m v", "y n w", {"training_mode": 1, "epsilon": 0.0})]
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    y, means, variances = evaluate(
        convert(make(nodes, given, ["y", "n", "w"])).module, [x, one, zero, zero, one]
    )
    assert y.dtype == np.float16 and y.ravel().tolist() == [-1, -1, 1, 1]
    assert means.dtype == variances.dtype == np.float32
    np.testing.assert_allclose(means, [0.2, 0.4], rtol=1e-6)


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
