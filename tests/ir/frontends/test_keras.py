"""Keras models and files: read by the backend that Keras runs on; files hold no code."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, ParseError, UnsupportedError
from nestwright.ir.frontends.keras import archive

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

os.environ.setdefault("KERAS_BACKEND", "jax")


def written(path: Path, config: Any, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("metadata.json", "{}")
        out.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        for name, data in members.items():
            out.writestr(name, data)
    return path


def layer(name: str, home: str | None = "keras.layers", registered: str | None = None) -> Any:
    inner = {"class_name": name, "module": home, "registered_name": registered, "config": {}}
    return {"class_name": "Sequential", "module": "keras", "config": {"layers": [inner]}}


@pytest.mark.parametrize(
    "config",
    [
        layer("system", "os"),
        layer("Popen", "subprocess"),
        layer("Lambda"),
        layer("TorchModuleWrapper"),
        layer("Mine", None, "package>Mine"),
        layer("evil", "keras_evil"),
    ],
)
def test_files_that_ask_for_code_are_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(UnsupportedError, match="which may be any code"):
        nw.build(written(tmp_path / "m.keras", config))


def test_classes_of_no_module_are_called_by_their_registered_name(tmp_path: Path) -> None:
    path = written(tmp_path / "m.keras", layer("Mine", None, "package>Mine"))
    with pytest.raises(UnsupportedError, match="asks for package>Mine, which"):
        archive.check(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    for config, told in (("{", "JSONDecodeError"), ("[" * 100000, "RecursionError|Error")):
        with pytest.raises(ParseError, match=told):
            archive.check(written(path, config))
    with pytest.raises(ParseError, match=r"unknown member 'x\.py'"):
        archive.check(written(path, layer("Dense"), **{"x.py": b"1"}))
    whole = written(path, layer("Dense")).read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(ParseError, match=r"m\.keras.*BadZipFile"):
        nw.build(path)
    archive.check(written(path, layer("Dense")))


@pytest.mark.parametrize("name", [["Dense"], {"a": 1}, None, 3])
def test_names_that_are_no_text_are_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(UnsupportedError, match="may be any code"):
        archive.check(written(tmp_path / "m.keras", {"class_name": name, "config": {}}))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_of_any_compression_is_one_message(tmp_path: Path, method: int) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("config.json", json.dumps(layer("Dense")) * 20)
    data = bytearray(path.read_bytes())
    data[45:60] = bytes(range(200, 215))
    path.write_bytes(data)
    with pytest.raises(ParseError, match="not a Keras model"):
        archive.check(path)


def test_an_encrypted_file_is_one_message(tmp_path: Path) -> None:
    path = written(tmp_path / "m.keras", layer("Dense"))
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.find(mark)
        while start >= 0:
            data[start + flags] |= 1
            start = data.find(mark, start + 1)
    path.write_bytes(data)
    with pytest.raises(ParseError, match="encrypted"):
        archive.check(path)


@pytest.fixture(scope="module")
def keras() -> Any:
    found = pytest.importorskip("keras", reason="makes the models")
    if found.backend.backend() != "tensorflow":
        pytest.importorskip(found.backend.backend(), reason="Keras runs on it")
    return found


@pytest.fixture(scope="module")
def model(keras: Any) -> Any:
    layers = keras.layers
    x = inputs = layers.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Add()([x, layers.Conv2D(4, 1)(inputs)])
    x = layers.Dropout(0.5)(layers.Flatten()(x))
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))


X = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)


def called(keras: Any, model: Any, *args: Any) -> Any:
    return keras.ops.convert_to_numpy(model(*args))


def only(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def test_models_are_built(keras: Any, model: Any) -> None:
    exe = nw.build(model, example=(X,))
    assert exe.input_names == ("image",) and len(exe.plan.params) == 1
    np.testing.assert_allclose(only(exe(image=X)), called(keras, model, X), rtol=1e-4, atol=1e-6)
    sized = nw.build(model, shapes={"image": (2, None, None, None)})
    np.testing.assert_array_equal(only(sized(X)), only(exe(X)))
    lowered = nw.lower(model, X, freeze=False)
    assert len(lowered.compile().plan.params) == 1 + len(lowered.imported.weights)


def test_open_sizes_are_served_or_told(keras: Any, model: Any) -> None:
    with pytest.raises(ArgumentError, match="leaves sizes of input 'image' open"):
        nw.build(model)
    with pytest.raises(ArgumentError, match="the model declares"):
        nw.build(model, shapes={"image": (2, 9, 8, 3)})
    f = nw.build(model, shapes={"image": (range(1, 5), 8, 8, 3)}, rule="buckets")
    for n in (1, 2, 2):
        np.testing.assert_allclose(
            only(f(X[:n])), called(keras, model, X[:n]), rtol=1e-4, atol=1e-6
        )


def test_files_are_built(keras: Any, model: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    model.save(path)
    exe = nw.build(path, shapes={0: (2, None, None, None)})
    np.testing.assert_allclose(only(exe(X)), called(keras, model, X), rtol=1e-4, atol=1e-6)
    assert main(["run", str(path), "--shape", "image=2x8x8x3", "--random", "0", "--check"]) == 0


def test_several_inputs_and_recurrence(keras: Any) -> None:
    layers = keras.layers
    tokens, bias = layers.Input((6,), dtype="int32", name="tokens"), layers.Input((4,), name="bias")
    x = layers.LSTM(4)(layers.Embedding(11, 8)(tokens))
    model = keras.Model([tokens, bias], {"sum": layers.Add()([x, bias]), "state": x})
    ids, b = np.arange(12, dtype=np.int32).reshape(2, 6) % 11, np.ones((2, 4), np.float32)
    lowered = nw.lower(model, ids, b)
    exe, whole = lowered.compile(), model([ids, b])
    for args, named in (
        ([], {"tokens": ids, "bias": b}),
        ([ids, b], {}),
        ([[ids, b]], {}),
        ([{"bias": b, "tokens": ids}], {}),
    ):
        found = exe(*args, **named)
        if lowered.imported.rebuild is None:
            assert len(found) == 2
            continue
        assert sorted(found) == ["state", "sum"]
        for name, value in whole.items():
            expected = keras.ops.convert_to_numpy(value)
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("installed", "given", "config", "taken"),
    [
        (["jax"], None, None, "jax"),
        (["jax", "torch"], None, '{"backend": "tensorflow"}', "jax"),
        (["torch"], None, "[", "torch"),
        (["jax", "torch"], None, '{"backend": "torch"}', None),
        (["jax", "tensorflow"], None, None, None),
        (["jax"], "torch", None, "torch"),
        ([], None, None, None),
    ],
)
def test_keras_runs_on_what_is_installed(
    tmp_path: Path, monkeypatch: Any, installed: Any, given: Any, config: Any, taken: Any
) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setattr(archive, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", given or "")
    if config is not None:
        (tmp_path / "keras.json").write_text(config)
    archive.settle_backend()
    assert os.environ["KERAS_BACKEND"] == (taken or "")


def test_old_releases_are_refused(keras: Any, model: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.keras"
    model.save(path)
    monkeypatch.setattr(keras, "__version__", "3.8.0")
    with pytest.raises(UnsupportedError, match="pip install --upgrade keras"):
        nw.build(path)


def test_a_layer_that_leaves_jax_is_named(keras: Any) -> None:
    if keras.backend.backend() != "jax":
        pytest.skip("layers of other backends are read otherwise")

    class Outside(keras.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return keras.ops.convert_to_tensor(np.sort(np.asarray(x)))

        def compute_output_spec(self, x: Any) -> Any:
            return keras.KerasTensor(x.shape, x.dtype)

    inputs = keras.Input((4,))
    model = keras.Model(inputs, Outside(name="sorter")(inputs) + 1)
    with pytest.raises(UnsupportedError, match=r"the layer `sorter` \(Outside\)") as told:
        nw.lower(model, np.ones((2, 4), np.float32))
    assert "apply it to the data" in told.value.hint
