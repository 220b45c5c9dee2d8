"""ONNX models as Imported: names, weights, sizes, functions, and what files hold beside."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.frontends.load import load

W = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
LINEAR = [("MatMul", "x w", "p", {}), ("Relu", "p", "y", {})]


@pytest.fixture
def path(onnx, make, tmp_path: Path) -> Path:
    place = tmp_path / "linear.onnx"
    onnx.save(make(LINEAR, {"x": (np.float32, ["n", 4])}, ["y"], {"w": W}), place)
    return place


def test_weights_are_parameters_and_names_are_kept(path: Path) -> None:
    found = load(path, {"x": (3, 4)})
    assert found.inputs == ("x",) and found.outputs == ("y",)
    assert [p.array.dims for p in found.module.entry.parameters] == [(3, 4), (4, 5)]
    np.testing.assert_array_equal(found.weights[1], W)


def test_a_file_runs_by_name(path: Path) -> None:
    exe = nw.build(path, shapes={"x": (3, 4)})
    assert exe.input_names == ("x",)
    np.testing.assert_allclose(exe(x=X), np.maximum(X @ W, 0), rtol=1e-6)


def test_weights_may_stay_arguments(path: Path) -> None:
    exe = nw.build(path, shapes={"x": (3, 4)}, freeze=False)
    np.testing.assert_allclose(exe(X, 2 * W), np.maximum(X @ (2 * W), 0), rtol=1e-6)


def test_an_open_size_is_asked_for_by_its_name(path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"input `x`(.|\n)*dimension 0 is `n`(.|\n)*--shape"):
        nw.build(path)
    with pytest.raises(ArgumentError, match="dimension 1 does not fit"):
        nw.build(path, shapes={"x": (3, 5)})


def test_the_command_takes_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = path.with_suffix(".npz")
    np.savez(inputs, x=X)
    flags = ["--shape", "x=3x4"]
    assert main(["run", str(path), *flags, "--inputs", str(inputs), "--check"]) == 0
    assert main(["show", str(path), *flags]) == 0
    assert "all outputs match" in capsys.readouterr().out
    assert main(["run", str(path), "--random", "0"]) == 2
    assert "dimension 0 is `n`" in capsys.readouterr().err


def test_an_object_takes_its_sizes_from_an_example(make) -> None:
    model = make(LINEAR, {"x": (np.float32, ["n", 4])}, ["y"], {"w": W})
    before = model.SerializeToString()
    np.testing.assert_allclose(nw.build(model, example=(X,))(X), np.maximum(X @ W, 0), rtol=1e-6)
    assert model.SerializeToString() == before


def test_inputs_may_have_no_shape(make) -> None:
    model = make([("Relu", "x", "y", {})], {"x": (np.float32, None)}, ["y"])
    with pytest.raises(ArgumentError, match=r"`x`: has no shape in the model"):
        nw.build(model)
    assert nw.build(model, example=(-X,))(-X).shape == X.shape
    assert nw.build(model, shapes={"x": (2, 1)})(X[:2, :1]).shape == (2, 1)


def test_one_name_is_one_size(make) -> None:
    inputs = {"a": (np.float32, ["n"]), "b": (np.float32, ["n"])}
    model = make([("Add", "a b", "y", {})], inputs, ["y"])
    exe = nw.build(model, shapes={"a": (7,)})
    np.testing.assert_array_equal(exe(np.ones(7, "f"), np.ones(7, "f")), np.full(7, 2, "f"))


def test_shapes_may_depend_on_small_weights(make) -> None:
    """Scales are floats that have to be known, and the offsets beside them are not."""
    weights = {"scales": np.array([1, 1, 2, 3], np.float32), "b": np.ones((1, 1, 4, 6), "f")}
    nodes = [("Resize", "x  scales", "r", {"mode": "nearest"}), ("Add", "r b", "y", {})]
    nodes[0] = ("Resize", "x none scales", "r", {"mode": "nearest"})
    weights["none"] = np.zeros(0, np.float32)
    model = make(nodes, {"x": (np.float32, [1, 1, 2, 2])}, ["y"], weights)
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    np.testing.assert_array_equal(nw.build(model)(x), x.repeat(2, 2).repeat(3, 3) + 1)


def test_shape_arithmetic_is_folded(make) -> None:
    nodes = [
        ("Shape", "x", "s", {}),
        ("Gather", "s one", "n", {}),
        ("Concat", "n minus", "t", {"axis": 0}),
        ("Reshape", "x t", "y", {}),
    ]
    weights = {"one": np.array([1]), "minus": np.array([-1])}
    model = make(nodes, {"x": (np.float32, ["b", 3, 5])}, ["y"], weights)
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    np.testing.assert_array_equal(nw.build(model, example=(x,))(x), x.reshape(3, 10))


def test_a_shape_that_an_input_gives_is_refused_by_name(make) -> None:
    inputs = {"x": (np.float32, [6]), "sizes": (np.int64, [2])}
    model = make([("Reshape", "x sizes", "y", {})], inputs, ["y"])
    with pytest.raises(UnsupportedError, match=r"Reshape_0(.|\n)*depends on `sizes`"):
        nw.build(model)


def test_a_layout_of_one_processor_is_refused_with_a_way_out(onnx, make) -> None:
    domain = "com.microsoft.nchwc"
    nodes = [("ReorderInput", "x", "y", {"domain": domain})]
    model = make(nodes, {"x": (np.float32, [1, 8, 3, 3])}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    with pytest.raises(UnsupportedError, match="ORT_ENABLE_EXTENDED"):
        nw.build(model)


def test_operators_of_onnx_runtime_need_no_import(make) -> None:
    nodes = [("QuickGelu", "x", "y", {"domain": "com.microsoft"})]
    model = make(nodes, {"x": (np.float32, [3])}, ["y"])
    assert [i.domain for i in model.opset_import] == [""]
    x = np.array([-4, 0, 4], np.float32)
    np.testing.assert_allclose(nw.build(model)(x), x / (1 + np.exp(-1.702 * x)), rtol=1e-5)
    assert [i.domain for i in model.opset_import] == [""]  # the model is the caller's


def test_functions_are_called_with_their_attributes(onnx, make) -> None:
    helper = onnx.helper
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    opset = [helper.make_opsetid("", 21)]
    leaky = helper.make_function("own", "Leaky", ["a"], ["b"], [inner], opset, ["slope"])
    nodes = [("Leaky", "x", "y", {"domain": "own", "slope": 0.25})]
    model = make(nodes, {"x": (np.float32, [3])}, ["y"], functions=[leaky])
    x = np.array([-4, 0, 4], np.float32)
    np.testing.assert_array_equal(nw.build(model)(x), [-1, 0, 4])


def test_nodes_that_nothing_needs_are_not_read(make) -> None:
    nodes = [("Relu", "x", "y", {}), ("StringNormalizer", "x", "z", {})]
    model = make(nodes, {"x": (np.float32, [3])}, ["y"])
    np.testing.assert_array_equal(nw.build(model)(np.ones(3, "f")), np.ones(3, "f"))


def test_further_outputs_of_old_batch_norms_mean_training(make) -> None:
    """As PyTorch wrote them up to 1.5, with names that nothing uses."""
    dead = " ".join(f"dead{n}" for n in range(3))
    nodes = [("BatchNormalization", "x one zero zero one", f"y mean {dead}", {"epsilon": 0.0})]
    weights = {"one": np.ones(3, "f"), "zero": np.zeros(3, "f")}
    model = make(nodes, {"x": (np.float32, [4, 3])}, ["y", "mean"], weights, opset=9)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    y, mean = nw.build(model)(x)
    np.testing.assert_allclose(y, (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, x.mean(0) / 10, rtol=1e-4, atol=1e-6)


def test_a_stack_that_nothing_uses_needs_no_trip_count(onnx, make) -> None:
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    takes = [value("i", 7, []), value("on", 9, []), value("v", 1, [3])]
    gives = [value("goes", 9, []), value("w", 1, [3]), value("row", 1, [3])]
    pairs = [("on", "goes"), ("v", "row")]
    steps = [node("Add", ["v", "x"], ["w"]), *(node("Identity", [a], [b]) for a, b in pairs)]
    body = onnx.helper.make_graph(steps, "body", takes, gives)
    nodes, weights = [("Loop", "n yes x", "y rows", {"body": body})], {"yes": np.array(True)}
    inputs = {"x": (np.float32, [3]), "n": (np.int64, [])}
    exe = nw.build(make(nodes, inputs, ["y"], weights))
    assert exe(np.arange(3, dtype="f"), np.array(9)) == pytest.approx(np.arange(3) * 10)


def test_data_beside_the_model_is_read(onnx, make, tmp_path: Path) -> None:
    model = make(LINEAR, {"x": (np.float32, [3, 4])}, ["y"], {"w": W})
    place = tmp_path / "m.onnx"
    onnx.save(model, place, save_as_external_data=True, size_threshold=0, location="m.data")
    assert (tmp_path / "m.data").stat().st_size >= W.nbytes
    np.testing.assert_allclose(nw.build(place)(X), np.maximum(X @ W, 0), rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 13, 21])
def test_old_operator_sets_are_read(make, opset: int) -> None:
    model = make([("Softmax", "x", "y", {})], {"x": (np.float32, [2, 3, 4])}, ["y"], opset=opset)
    x = np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    axes = (1, 2) if opset < 13 else (2,)
    e = np.exp(x)
    np.testing.assert_allclose(nw.build(model)(x), e / e.sum(axes, keepdims=True), rtol=1e-5)


def test_operator_set_10_shrinks_to_the_elements_above(make) -> None:
    nodes, weights = [("Resize", "x s", "y", {})], {"s": np.array([0.6, 0.6, 2], np.float32)}
    model = make(nodes, {"x": (np.float32, [2, 4, 1])}, ["y"], weights, opset=10)
    x = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    np.testing.assert_array_equal(nw.build(model)(x), [[[1, 1], [3, 3]]])


def test_without_the_package_it_says_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UnsupportedError, match=r'pip install "nestwright\[onnx\]"'):
        nw.build(path)


@pytest.mark.parametrize(
    "flags",
    [
        ["--shape", "x=1..5x4"],
        ["--shape", "x=1..5x4", "--rule", "buckets"],
        ["--shape", "0=1..64x?", "--rule", "8"],
        ["--shape", "x=3..3x4", "--rule", "3,9"],
    ],
)
def test_the_command_takes_ranges(
    path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, out = path.with_suffix(".npz"), path.with_suffix(".out.npz")
    np.savez(inputs, x=X)
    files = ["--inputs", str(inputs), "--outputs", str(out), "--check"]
    assert main(["run", str(path), *flags, *files]) == 0
    np.testing.assert_allclose(np.load(out)["out0"], np.maximum(X @ W, 0), rtol=1e-6)
    assert main(["run", str(path), *flags, "--random", "0", "--check"]) == 0
    assert "all outputs match" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "flags", "told"),
    [
        ("run", ["--shape", "x=4..64x4"], "for shapes= has [4..64, 4]"),
        ("run", ["--shape", "x=9..2x4"], "no size is in the range"),
        ("run", ["--shape", "x=1..x4"], "it is not NAME=SIZES"),
        ("run", ["--shape", "x=1..9x4", "--rule", "0"], "no such rule"),
        ("run", ["--shape", "x=1..9x4", "--rule", "powers"], "no such rule"),
        ("run", ["--shape", "x=1..9x4", "--rule", "1,2"], "over the largest bucket, 2"),
        ("run", ["--shape", "x=3x4", "--rule", "exact"], "no size in --shape is a range"),
        ("run", ["--rule", "exact"], "no size in --shape is a range"),
        ("run", ["--shape", "x=1..9"], "the model has rank 2"),
        ("run", ["--shape", "y=1..9x4"], "there is no input 'y'"),
        ("build", ["--shape", "x=1..9x4"], "this command takes one size"),
    ],
)
def test_ranges_and_rules_that_do_not_fit(
    path: Path, command: str, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(path.with_suffix(".npz"), x=X)
    files = ["--inputs", str(path.with_suffix(".npz"))] if command == "run" else []
    assert main([command, str(path), *flags, *files]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("groups", [2, 3, 6, 9])  # nine are no channels, but parts of them
def test_group_norm_as_exporters_write_it(onnx, make, groups: int) -> None:
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    sizes = {"apart": np.array([0, groups, -1]), "whole": np.array([2, 6, 3, 5])}
    norms = {n: rng.standard_normal(groups).astype(np.float32) for n in ("scale", "bias")}
    nodes = [
        ("Reshape", "x apart", "a", {}),
        ("InstanceNormalization", "a scale bias", "b", {}),
        ("Reshape", "b whole", "y", {}),
    ]
    model = make(nodes, {"x": (np.float32, [2, 6, 3, 5])}, ["y"], sizes | norms)
    x = rng.standard_normal((2, 6, 3, 5)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.allclose(nw.build(model)(x), wanted, atol=1e-5)


def test_group_normalization_scales_channels(make) -> None:
    rng = np.random.default_rng(0)
    scale, bias = (rng.standard_normal(6).astype(np.float32) for _ in range(2))
    x = rng.standard_normal((2, 6, 3, 5)).astype(np.float32)
    grouped = x.reshape(2, 2, -1)
    apart = grouped - grouped.mean(2, keepdims=True)
    normal = (apart / np.sqrt((apart**2).mean(2, keepdims=True) + 1e-5)).reshape(x.shape)
    wanted = normal * scale.reshape(6, 1, 1) + bias.reshape(6, 1, 1)
    nodes = [("GroupNormalization", "x scale bias", "y", {"num_groups": 2})]
    weights = {"scale": scale, "bias": bias}
    model = make(nodes, {"x": (np.float32, [2, 6, 3, 5])}, ["y"], weights)
    assert np.allclose(nw.build(model)(x), wanted, atol=1e-5)
