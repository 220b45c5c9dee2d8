"""Functions of TensorFlow and SavedModels: their HLO, with variables as weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, ParseError, UnsupportedError
from nestwright.ir.frontends.load import load


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="Is a directory"):
        load(tmp_path)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="traces the functions")


@pytest.fixture
def model(tf: Any) -> Any:
    class Model(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.w = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), name="w")
            self.table = tf.constant(np.arange(4, dtype=np.float32))

        @tf.function(input_signature=[tf.TensorSpec((None, 3), name="x")])  # type: ignore[untyped-decorator,unused-ignore]
        def __call__(self, x: Any) -> Any:
            return {"y": tf.nn.softmax(x @ self.w) + self.table, "n": tf.reduce_sum(x)}

    return Model()


X = np.random.default_rng(0).random((2, 3)).astype(np.float32)


def right(x: Any) -> tuple[Any, Any]:
    e = np.exp(x @ np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    return x.sum(), e / e.sum(1, keepdims=True) + np.arange(4)


def test_concrete_functions_are_built(tf: Any, model: Any) -> None:
    function = model.__call__.get_concrete_function()
    for given in ({"example": (X,)}, {"shapes": {"x": (2, 3)}}):
        exe = nw.build(function, **given)
        assert exe.input_names == ("x",) and exe.output_names == ("n", "y")
        for a, b in zip(exe(x=X), right(X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    with pytest.raises(ArgumentError, match="sizes of input 'x' are left open"):
        nw.build(function)
    with pytest.raises(ArgumentError, match="not"):
        nw.build(function, shapes={"x": (2, 4)})
    lowered = nw.lower(model.__call__, X)
    assert sorted(lowered.compile()(X)) == ["n", "y"]


def test_a_signature_leaves_sizes_to_the_example(tf: Any, model: Any) -> None:
    function = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec((None, 3))])
    for given in ({"example": (X,)}, {"shapes": {"x": (2, 3)}}):
        np.testing.assert_array_equal(nw.build(function, **given)(X), X + 1)
    for module in (model, model.__call__):
        exe = nw.build(module, example=(X,))
        np.testing.assert_allclose(exe(X)[exe.output_names.index("y")], right(X)[1], rtol=1e-5)
    with pytest.raises(UnsupportedError, match="cannot be called"):
        nw.build(tf.Module(), example=(X,))


def test_arguments_may_be_trees(tf: Any) -> None:
    function = tf.function(lambda d, r, s: (d["a"] - d["b"]) @ r[0] * s)
    d, r = {"b": X, "a": 2 * X}, [np.ones((3, 2), np.float32)]
    exe = nw.build(function, example=(d, r, 0.5))
    assert exe.input_names == ("d_a", "d_b", "r_0", "s")
    np.testing.assert_allclose(exe(d["a"], X, r[0], 0.5), X @ r[0] / 2, rtol=1e-6)
    compiled = nw.lower(function, d, r, 0.5).compile()
    np.testing.assert_allclose(compiled(d, r, 0.5), X @ r[0] / 2, rtol=1e-6)


def test_gradients_of_loops_over_arrays(tf: Any) -> None:
    """TensorFlow lowers those that it traces for XLA."""

    def call(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.scan(lambda a, b: a * 0.5 + b, x))
        return tape.gradient(total, x)

    found = nw.build(tf.function(call), example=(X,))(X)
    np.testing.assert_allclose(found, [[1.5] * 3, [1.0] * 3], rtol=1e-6)


def test_numbers_have_the_types_of_tensorflow(tf: Any) -> None:
    exe = nw.build(tf.function(lambda a, b, c: (a, b, c)), example=(2.0, 3, [1.0, 2.0]))
    assert [str(r.dtype) for r in exe(2.0, 3, np.ones(2, np.float32))] == [
        "float32",
        "int32",
        "float32",
    ]


def test_results_may_be_trees(tf: Any) -> None:
    def call(x: Any, nothing: Any) -> Any:
        return {"z": x, "b": [x + 1, (x + 2, nothing)], "a": x + 3}

    assert nw.build(tf.function(call), example=(X, None)).output_names == (
        "a",
        "b[0]",
        "b[1][0]",
        "z",
    )
    found = nw.lower(tf.function(call), X, None).compile()(X, None)
    assert found["b"][1][1] is None
    for n, a in enumerate((found["z"], found["b"][0], found["b"][1][0], found["a"])):
        np.testing.assert_array_equal(a, X + n)


def test_functions_that_change_variables_are_refused(tf: Any) -> None:
    v = tf.Variable(1.0)
    f = tf.function(lambda x: v.assign_add(x))
    with pytest.raises(UnsupportedError, match="changes variables"):
        nw.lower(f, np.float32(2))


def test_saved_models_are_built(tf: Any, model: Any, tmp_path: Path) -> None:
    tf.saved_model.save(model, tmp_path / "m")
    exe = nw.build(tmp_path / "m", shapes={"x": (2, 3)})
    for name, b in zip(("n", "y"), right(X), strict=True):
        np.testing.assert_allclose(exe(X)[exe.output_names.index(name)], b, rtol=1e-5)
    args = ["run", str(tmp_path / "m"), "--shape", "x=2x3", "--random", "0", "--check"]
    assert main(args) == 0
    f = nw.build(tmp_path / "m", shapes={0: (range(1, 9), 3)}, rule="buckets")
    for n in (3, 4):
        x = np.ones((n, 3), np.float32)
        for name, b in zip(("n", "y"), right(x), strict=True):
            at = f.executable(x).output_names.index(name)
            np.testing.assert_allclose(f(x)[at], b, rtol=1e-5)


def test_saved_models_that_reach_files_are_refused(tf: Any, tmp_path: Path) -> None:
    class Reader(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[])  # type: ignore[untyped-decorator,unused-ignore]
        def __call__(self) -> Any:
            return tf.io.read_file("/etc/hostname")

    tf.saved_model.save(Reader(), tmp_path / "m")
    with pytest.raises(UnsupportedError, match="the operation ReadFile"):
        nw.build(tmp_path / "m")
    (tmp_path / "m" / "saved_model.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ParseError, match="not a SavedModel"):
        nw.build(tmp_path / "m")


def test_saved_models_whose_loading_reaches_files_are_refused(tf: Any, tmp_path: Path) -> None:
    from tensorflow.python.trackable.resource import CapturableResource

    told, out = tmp_path / "told", tmp_path / "m"

    class Table(CapturableResource):  # type: ignore[misc]
        def _create_resource(self) -> Any:
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)

        def _initialize(self) -> None:
            tf.print("loaded", output_stream=f"file://{told}")

    class Model(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.table = Table()

        @tf.function(input_signature=[tf.TensorSpec([2])])  # type: ignore[untyped-decorator,unused-ignore]
        def __call__(self, x: Any) -> Any:
            return x, self.table.resource_handle

    held = Model()
    held.__call__.get_concrete_function()
    served = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(held, out, signatures={"serving_default": served})
    told.unlink(missing_ok=True)
    with pytest.raises(UnsupportedError, match="the operation PrintV2"):
        nw.build(out)
    assert not told.exists()


@pytest.mark.parametrize("op", ["", "PrintV2", "SaveV2", "RestoreV2"])
def test_graphs_of_tensorflow_1_run_no_foreign_operation(tf: Any, tmp_path: Path, op: str) -> None:
    v1, place = tf.compat.v1, str(tmp_path / "other")
    named = {"prefix": place, "tensor_names": ["a"], "shape_and_slices": [""]}
    begins = {
        "": tf.no_op,
        "PrintV2": lambda: tf.print("loaded", output_stream=f"file://{place}"),
        "SaveV2": lambda: tf.raw_ops.SaveV2(**named, tensors=[tf.constant(1.0)]),
        "RestoreV2": lambda: tf.group(tf.raw_ops.RestoreV2(**named, dtypes=[tf.float32])),
    }
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.eye(3, dtype=np.float32), use_resource=True)
        session.run(v1.global_variables_initializer())
        served = v1.saved_model.predict_signature_def({"x": x}, {"y": x @ w})
        builder = v1.saved_model.Builder(str(tmp_path / "m"))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": served}, main_op=begins[op]()
        )
        builder.save()
    if op:
        with pytest.raises(UnsupportedError, match=f"the operation {op}"):
            nw.build(tmp_path / "m", shapes={"x": (2, 3)})
    else:
        np.testing.assert_array_equal(nw.build(tmp_path / "m", shapes={"x": (2, 3)})(X), X)
