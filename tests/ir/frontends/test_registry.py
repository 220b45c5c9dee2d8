"""The rows of the front-ends: what they name exists, and what is refused says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.cli.main import main
from nestwright.ir.errors import ParseError, UnsupportedError
from nestwright.ir.frontends.load import as_model as load_object
from nestwright.ir.frontends.load import load, recognize
from nestwright.ir.frontends.registry import (
    FILES,
    OBJECTS,
    FileFrontend,
    ObjectFrontend,
    readable_files,
    reader,
)

ROOT = Path(__file__).parents[3]
READ = [row for row in (*FILES, *OBJECTS) if row.read]


@pytest.mark.parametrize("row", READ, ids=lambda row: row.name)
def test_what_is_read_has_a_reader_and_a_hint(row: FileFrontend | ObjectFrontend) -> None:
    assert callable(reader(row)) and row.hint


@pytest.mark.parametrize("row", READ, ids=lambda row: row.name)
def test_the_readme_names_what_is_read(row: FileFrontend | ObjectFrontend) -> None:
    assert row.name in (ROOT / "README.md").read_text().replace("\n", " ")


def test_endings_are_of_one_row_each() -> None:
    endings = [e for row in FILES for e in row.endings]
    assert len(endings) == len(set(endings)) and all(e.startswith(".") for e in endings)


@pytest.mark.parametrize(
    ("name", "row"),
    [("m.mlir", "StableHLO text"), ("m.hlo_pb", "an HLO proto"), ("m", "HLO text")],
)
def test_an_ending_decides_where_the_content_does_not(name: str, row: str) -> None:
    assert recognize(b"\xff\xff", name).name == row


def test_an_ending_does_not_hide_the_content() -> None:
    assert recognize(b"HloModule m", "m.onnx").name == "HLO text"
    assert recognize(b"\x08\x07", "m.onnx").name == "an ONNX model"


def test_each_command_that_takes_a_model_says_what_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("build", "run", "tune", "bench", "show", "replay run", "replay pack"):
        assert main([*command.split(), "--help"]) == 0
        assert readable_files() in " ".join(capsys.readouterr().out.split()), command


def test_no_reader_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, nestwright.ir.frontends.load; "
        "print(*(m for m in sys.modules if '.frontends.' in m))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {m.partition(".frontends.")[2] for m in out.stdout.split()}
    assert found == {"load", "imported", "registry", "signatures", "protocols"}


@pytest.mark.parametrize("lines", [3, 3000])
def test_text_that_is_given_as_a_path_is_told_how_to_be_read(lines: int) -> None:
    text = "HloModule m\n" + "ENTRY e { ROOT x = f32[3] parameter(0) }\n" * lines
    with pytest.raises(ParseError, match="text that starts with 'HloModule m'") as caught:
        load(text)
    assert "nw.parse(text)" in caught.value.hint


def test_a_name_that_the_system_does_not_take_is_a_missing_file() -> None:
    with pytest.raises(ParseError, match="cannot read the model"):
        load("x" * 5000)


def test_a_class_is_refused_for_its_instances() -> None:
    with pytest.raises(UnsupportedError, match="dict is a class") as caught:
        load_object(dict)
    assert "instance" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "told"),
    [("Compiled", "is what JAX compiled"), ("ClosedJaxpr", "is a jaxpr")],
)
def test_what_jax_made_of_a_function_is_refused_for_the_function(name: str, told: str) -> None:
    made = type(name, (), {"__module__": "jax._src.any", "__call__": lambda self, x: x})()
    with pytest.raises(UnsupportedError, match=told) as caught:
        load_object(made)
    assert "jax.jit(f)" in caught.value.hint
