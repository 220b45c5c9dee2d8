"""ONNX's Backend interface: shapes and values that models are compiled for, single nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import ArgumentError, TargetError, UnsupportedError

onnx = pytest.importorskip("onnx", reason="the onnx package defines the interface")
backend = pytest.importorskip("nestwright.interop.onnx", reason="it needs the onnx package")
helper = onnx.helper

F = np.float32


def model(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
    results = [helper.make_tensor_value_info(name, 0, None) for name in outputs]
    graph = helper.make_graph(nodes, "made", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_each_shape_is_compiled_once() -> None:
    x = helper.make_tensor_value_info("x", 1, ["n"])
    prepared = backend.prepare(model([helper.make_node("Neg", ["x"], ["y"])], [x], ["y"]))
    for n in (3, 0, 5, 3):
        (found,) = prepared.run([np.ones(n, F)])
        np.testing.assert_array_equal(found, np.full(n, -1, F))
    assert prepared.run({"x": np.ones(2, F)}).y.tolist() == [-1, -1]


def test_shapes_follow_values_of_inputs() -> None:
    x, sizes = (helper.make_tensor_value_info(n, t, ["k"]) for n, t in (("x", 1), ("s", 7)))
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    prepared = backend.prepare(model(nodes, [x, sizes], ["y"]))
    for dims in ((2, 3), (3, 2), (6, 1), (2, 3)):
        assert prepared.run([np.arange(6, dtype=F), np.array(dims)])[0].shape == dims


def test_a_node_alone() -> None:
    node = helper.make_node("Gemm", ["a", "b"], ["y"], transA=1)
    a, b = np.ones((3, 2), F), np.ones((3, 4), F)
    np.testing.assert_array_equal(backend.run_node(node, [a, b]).y, a.T @ b)
    found = backend.run_node(helper.make_node("Softmax", ["x"], ["y"]), [a], opset_version=11)
    np.testing.assert_allclose(found.y, np.full((3, 2), 0.5, F))


def test_sequences_go_in_and_out_as_lists() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    inputs = [helper.make_value_info("s", kind)]
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["t"])]
    nodes.insert(0, helper.make_node("SequenceAt", ["s", "one"], ["x"]))
    nodes.insert(0, helper.make_node("Constant", [], ["one"], value_int=1))
    graph = helper.make_graph(nodes, "made", inputs, [helper.make_value_info("t", kind)])
    opsets = [helper.make_opsetid("", 21)]
    prepared = backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    given = [np.ones(2, F), np.zeros(3, F)]
    (found,) = prepared.run([given])
    assert [a.tolist() for a in found] == [[1, 1], [0, 0, 0], [0, 0, 0]]


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU")


def test_narrow_floats_are_rounded_after_every_operator() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, [64])
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"]), helper.make_node("Sub", ["y", "x"], ["z"])]
    given = np.linspace(0.9, 1.1, 64).astype(np.float16)
    (found,) = backend.prepare(model(nodes, [x], ["z"])).run([given])
    np.testing.assert_array_equal(found, given * given - given)


def test_denormals_are_an_option() -> None:
    x = helper.make_tensor_value_info("x", 1, [5])
    doubled = model([helper.make_node("Add", ["x", "x"], ["y"])], [x], ["y"])
    given = np.full(5, 1e-40, F)
    for denormals, wanted in (("flush", np.zeros(5, F)), ("keep", given * 2)):
        (found,) = backend.prepare(doubled, denormals=denormals).run([given])
        np.testing.assert_array_equal(found, wanted)
        node = helper.make_node("Add", ["x", "z"], ["y"])
        (alone,) = backend.run_node(node, [given, given], denormals=denormals)
        np.testing.assert_array_equal(alone, wanted)
    with pytest.raises(TargetError, match="keep or flush"):
        backend.prepare(doubled, denormals="no")


def test_what_cannot_run_says_why() -> None:
    x = helper.make_tensor_value_info("x", 1, [2])
    prepared = backend.prepare(model([helper.make_node("Neg", ["x"], ["y"])], [x], ["y"]))
    with pytest.raises(ArgumentError, match="2 inputs"):
        prepared.run([np.ones(2, F), np.ones(2, F)])
    with pytest.raises(ArgumentError, match="dimension 0 does not fit"):
        prepared.run([np.ones(3, F)])
    text = helper.make_tensor_value_info("x", 8, [2])
    lower = helper.make_node("StringNormalizer", ["x"], ["y"])
    with pytest.raises(UnsupportedError, match="strings"):
        backend.prepare(model([lower], [text], ["y"])).run([np.array(["a", "b"], object)])
