"""The recipe for a front-end: a folder and a row, for files and for objects of Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.ir.errors import ArgumentError, ParseError
from nestwright.ir.frontends import registry
from nestwright.ir.frontends.load import load
from nestwright.ir.frontends.registry import FileFrontend, ObjectFrontend
from nestwright.ir.frontends.signatures import text_matches

# The folder: a language in which `toy tanh 4` applies a function to a vector of 4 floats.
READER = '''"""Toy programs -> HloModule."""

import numpy as np

from nestwright.ir.errors import ParseError
from nestwright.ir.frontends.imported import Imported
from nestwright.ir.hlo.text import parse


def read(text, source):
    match text.split():
        case ["toy", opcode, size]:
            return module(opcode, int(size))
    raise ParseError("not a toy", "expected `toy OPCODE SIZE`", f"{source}:1:1")


def convert(model, example):
    return module(model.opcode, len(example[0]))


def read_two_files(path, shapes=None):
    sizes = (shapes or {}).get("vector", (4,))
    scaled = parse(
        f"HloModule toy\\nENTRY main {{ x = f32[{sizes[0]}] parameter(0) w = f32[{sizes[0]}] "
        f"parameter(1) ROOT y = f32[{sizes[0]}] multiply(x, w) }}"
    )
    weights = np.fromfile(path.with_suffix(".weights"), np.float32)[: sizes[0]]
    return Imported(module=scaled, inputs=("vector",), outputs=("scaled",), weights={1: weights})


def module(opcode, size):
    x = f"x = f32[{size}] parameter(0)"
    return parse(f"HloModule toy\\nENTRY main {{ {x} ROOT y = f32[{size}] {opcode}(x) }}")
'''

# The rows.
FILE = FileFrontend(
    name="a toy program",
    recognizes=text_matches(rb"toy\b"),
    read="toy_frontend.reader:read",
    hint="write one by hand",
    endings=(".toy",),
    text=True,
)
SPLIT = FileFrontend(
    name="a scaling program, with its weights beside it",
    recognizes=text_matches(rb"scale\b"),
    read="toy_frontend.reader:read_two_files",
    hint="write one by hand",
    opens=True,
    sized=True,
)
OBJECT = ObjectFrontend(
    name="a toy",
    recognizes=lambda model: hasattr(model, "opcode"),
    read="toy_frontend.reader:convert",
    hint="an object with an opcode",
    takes_example=True,
)
X = np.linspace(-1, 1, 4, dtype=np.float32)


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "toy_frontend"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "reader.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "FILES", (*registry.FILES, FILE, SPLIT))
    monkeypatch.setattr(registry, "OBJECTS", (OBJECT, *registry.OBJECTS))
    yield
    for name in [n for n in sys.modules if n.startswith("toy_frontend")]:
        del sys.modules[name]


def test_files_are_built_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model"
    path.write_text("toy tanh 4")
    np.testing.assert_allclose(nw.build(path)(X), np.tanh(X), rtol=1e-6)
    assert "toy_frontend.reader" in sys.modules
    assert main(["run", str(path), "--random", "0", "--check"]) == 0
    assert "all outputs match the interpreter" in capsys.readouterr().out


def test_objects_are_built_and_run() -> None:
    exe = nw.build(SimpleNamespace(opcode="negate"), example=X)
    np.testing.assert_array_equal(exe(X), -X)


def test_its_module_is_imported_when_such_a_model_is_read() -> None:
    nw.build(nw.parse("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }"))
    assert "toy_frontend.reader" not in sys.modules


def test_endings_and_hints_follow(tmp_path: Path) -> None:
    path = tmp_path / "model.toy"
    path.write_text("tanh 4")
    with pytest.raises(ParseError, match="expected `toy OPCODE SIZE`"):
        nw.build(path)
    assert "an HLO proto, a toy program or a scaling program" in registry.readable_files()
    with pytest.raises(ArgumentError, match="an HloModule, an object with an opcode, a Keras"):
        nw.build(3)


@pytest.fixture
def scaling(tmp_path: Path) -> Path:
    X.tofile(tmp_path / "model.weights")
    (tmp_path / "model").write_text("scale")
    return tmp_path / "model"


def test_weights_that_a_model_carries_are_frozen(scaling: Path) -> None:
    exe = nw.build(scaling)
    assert (exe.input_names, exe.output_names) == (("vector",), ("scaled",))
    np.testing.assert_array_equal(exe(vector=X), X * X)
    assert exe.memory_analysis()["argument_size_in_bytes"] == X.nbytes


def test_weights_are_arguments_where_that_is_asked(scaling: Path) -> None:
    exe = nw.build(scaling, freeze=False)
    assert exe.input_names == ("vector", "w")
    np.testing.assert_array_equal(exe(X, w=2 * X), 2 * X * X)


def test_constants_that_are_given_replace_the_models_own(scaling: Path) -> None:
    for which in ("w", 1):
        exe = nw.build(scaling, constants={which: np.ones(4, np.float32)})
        np.testing.assert_array_equal(exe(X), X)
    np.testing.assert_array_equal(nw.build(scaling, constants={"vector": X})(), X * X)


def test_the_cache_knows_what_lies_beside_a_model(
    scaling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESTWRIGHT_CACHE", str(tmp_path / "kept"))
    first, again = nw.build(scaling), nw.build(scaling)
    np.testing.assert_array_equal(first(X), again(vector=X))
    (-X).tofile(scaling.with_suffix(".weights"))
    np.testing.assert_array_equal(nw.build(scaling)(X), -X * X)


def test_saved_models_keep_the_names(scaling: Path, tmp_path: Path) -> None:
    nw.build(scaling).save(tmp_path / "model.nw")
    exe = nw.load(tmp_path / "model.nw")
    assert (exe.input_names, exe.output_names) == (("vector",), ("scaled",))
    np.testing.assert_array_equal(exe(vector=X), X * X)


def test_sizes_are_given_to_models_that_leave_them_open(scaling: Path) -> None:
    assert load(scaling, {"vector": (3,)}).module.entry.root.array.dims == (3,)
    with pytest.raises(ArgumentError, match="there is no input 'x'"):
        load(scaling, {"x": (3,)})
    with pytest.raises(ArgumentError, match=r"cannot have the shape \[3,\?\]"):
        load(scaling, {0: (3, None)})
