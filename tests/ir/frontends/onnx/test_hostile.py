"""Damaged and hostile models: one message that names the node, and nothing read elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import LimitError, NestwrightError, ParseError, UnsupportedError
from nestwright.ir.frontends.onnx.reader import parse

F = np.float32
ROUNDS = 300


@pytest.fixture
def external(onnx, make, tmp_path: Path):
    """A model in a folder of its own whose weight lies at ``location``."""
    (tmp_path / "secret").write_bytes(np.zeros(3, F).tobytes())
    home = tmp_path / "home"
    home.mkdir()

    def write(location: str, **more: object) -> Path:
        model = make([("Add", "x w", "y", {})], {"x": (F, [3])}, ["y"], {"w": np.ones(3, F)})
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = 1
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=str(value))
        place = home / "m.onnx"
        place.write_bytes(model.SerializeToString())
        return place

    return write


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../secret", "", ".", "a\0b", "x" * 5000, "loop"]
)
def test_nothing_outside_the_folder_is_read(external, tmp_path: Path, location: str) -> None:
    os.symlink("loop", tmp_path / "home" / "loop")
    with pytest.raises(ParseError, match=r"initializer `w`(.|\n)*external data"):
        nw.build(external(location))


def test_links_that_lead_out_are_not_followed(external, tmp_path: Path) -> None:
    os.symlink(tmp_path / "secret", tmp_path / "home" / "inside")
    with pytest.raises(ParseError, match="outside the model's folder"):
        nw.build(external("inside"))


@pytest.mark.parametrize(
    "more",
    [{"offset": 4}, {"offset": -4}, {"length": 1 << 60}, {"length": 8}, {"offset": "x"}],
)
def test_data_that_does_not_fit_its_file(external, tmp_path: Path, more) -> None:
    (tmp_path / "home" / "data").write_bytes(np.zeros(3, F).tobytes())
    assert nw.build(external("data"))(np.ones(3, F)).tolist() == [1, 1, 1]
    with pytest.raises(ParseError, match="initializer `w`"):
        nw.build(external("data", **more))


def test_a_device_is_no_data(external) -> None:
    home = external("zero").parent
    os.mkfifo(home / "pipe")
    with pytest.raises(ParseError, match="no such file"):
        nw.build(external("pipe"))


def test_a_cycle_is_named(make) -> None:
    nodes = [("Add", "x b", "a", {}), ("Relu", "a", "b", {})]
    with pytest.raises(ParseError, match="Add_0"):
        nw.build(make(nodes, {"x": (F, [3])}, ["b"]))


@pytest.mark.parametrize("dims", [[1 << 62, 1 << 62], [-1], [1 << 40]])
def test_sizes_that_overflow(onnx, make, dims) -> None:
    model = make([("Add", "x w", "y", {})], {"x": (F, [1])}, ["y"], {"w": np.ones(1, F)})
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)
    with pytest.raises((ParseError, LimitError), match="initializer `w`"):
        nw.build(model)


@pytest.mark.parametrize(
    ("node", "sizes"),
    [
        (("ConstantOfShape", "n", "y", {}), [1 << 40, 1 << 40]),
        (("Expand", "x n", "y", {}), [1 << 50, 1]),
        (("Tile", "x n", "y", {}), [1 << 62]),
    ],
)
def test_results_that_overflow(make, node, sizes) -> None:
    model = make([node], {"x": (F, [1])}, ["y"], {"n": np.array(sizes)})
    with pytest.raises(NestwrightError, match=node[0]):
        nw.build(model)


def test_functions_that_multiply_are_limited(onnx, make) -> None:
    """Thirty functions that call one another twice are a billion nodes."""
    helper = onnx.helper
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]

    def function(n: int):
        op, where = (f"F{n - 1}", "own") if n else ("Relu", "")
        steps = [("a", "b"), ("b", "c")]
        nodes = [helper.make_node(op, [x], [y], domain=where) for x, y in steps]
        return helper.make_function("own", f"F{n}", ["a"], ["c"], nodes, opsets)

    nodes = [("F29", "x", "y", {"domain": "own"})]
    model = make(nodes, {"x": (F, [1])}, ["y"], functions=[function(n) for n in range(30)])
    with pytest.raises(LimitError, match="too many nodes"):
        nw.build(model)


def test_parts_that_no_output_takes(make) -> None:
    node = ("Split", "x", "y z", {"num_outputs": 1 << 60})
    with pytest.raises(ParseError, match="it has 2 outputs"):
        nw.build(make([node], {"x": (F, [4])}, ["y"]))


@pytest.mark.parametrize("opset", [1, 5, 99])
def test_operator_sets_that_are_not_known(make, opset: int) -> None:
    with pytest.raises(NestwrightError, match="operator set"):
        nw.build(make([("Relu", "x", "y", {})], {"x": (F, [3])}, ["y"], opset=opset))


def test_operators_that_did_not_change_are_read(make) -> None:
    model = make([("Relu", "x", "y", {})], {"x": (F, [3])}, ["y"], opset=6)
    np.testing.assert_array_equal(nw.build(model)(np.array([-1, 0, 2], F)), [0, 0, 2])


def test_unknown_operators_are_named(make) -> None:
    nodes = [("Nothing", "x", "y", {"domain": "elsewhere"})]
    model = make(nodes, {"x": (F, [3])}, ["y"])
    model.opset_import.add(domain="elsewhere", version=1)
    with pytest.raises(UnsupportedError, match=r"`Nothing_0`(.|\n)*elsewhere.Nothing"):
        nw.build(model)


def test_attributes_of_other_types_are_named(make) -> None:
    model = make([("Gemm", "x x", "y", {})], {"x": (F, [3, 3])}, ["y"])
    model.graph.node[0].attribute.add(name="alpha", type=2, i=3)
    with pytest.raises(NestwrightError, match=r"Gemm_0|alpha"):
        nw.build(model)


def test_shapes_that_do_not_fit_name_the_node(make) -> None:
    model = make([("MatMul", "x x", "y", {})], {"x": (F, [2, 3])}, ["y"])
    with pytest.raises(NestwrightError, match="MatMul_0"):
        nw.build(model)


@pytest.mark.parametrize("name", [b"made", b"Relu", b"Relu_0", b"xx", b"yy"])
def test_names_that_are_no_texts(make, name: bytes) -> None:
    content = make([("Relu", "xx", "yy", {})], {"xx": (F, [3])}, ["yy"]).SerializeToString()
    assert name in content
    with pytest.raises(ParseError):
        parse(content.replace(name, b"\xff" * len(name), 1), "m.onnx")


def test_mutated_bytes_are_refused_or_read(make) -> None:
    """Bytes changed, cut and repeated: an error of ours, or a model; never another exception."""
    nodes = [
        ("Conv", "x w", "c", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Reshape", "c s", "r", {}),
        ("Softmax", "r", "y", {"axis": -1}),
    ]
    weights = {"w": np.ones((2, 1, 3, 3), F), "s": np.array([1, -1])}
    content = make(nodes, {"x": (F, [1, 1, 5, 5])}, ["y"], weights).SerializeToString()
    random = np.random.default_rng(7)
    read = 0
    for _ in range(ROUNDS):
        data = bytearray(content)
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(len(data)))
            match random.integers(3):
                case 0:
                    data[at] = int(random.integers(256))
                case 1:
                    del data[at : at + int(random.integers(1, 9))]
                case _:
                    data[at:at] = data[at : at + int(random.integers(1, 30))]
        try:
            parse(bytes(data), "mutated.onnx")
            read += 1
        except NestwrightError as e:
            assert str(e)
    assert 0 < read < ROUNDS
