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
from nestwright.ir.frontends.registry import FileFrontend, ObjectFrontend
from nestwright.ir.frontends.signatures import text_matches

# The folder: a language in which `toy tanh 4` applies a function to a vector of 4 floats.
READER = '''"""Toy programs -> HloModule."""

from nestwright.ir.errors import ParseError
from nestwright.ir.hlo.text import parse


def read(text, source):
    match text.split():
        case ["toy", opcode, size]:
            return module(opcode, int(size))
    raise ParseError("not a toy", "expected `toy OPCODE SIZE`", f"{source}:1:1")


def convert(model, example):
    return module(model.opcode, len(example))


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
    monkeypatch.setattr(registry, "FILES", (*registry.FILES, FILE))
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
    assert registry.readable_files().endswith("an HLO proto or a toy program")
    with pytest.raises(ArgumentError, match="an HloModule, an object with an opcode, jax"):
        nw.build(3)
