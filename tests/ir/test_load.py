"""Models from files: what is not a model says so, with the place and a way out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nestwright.ir.errors import ParseError, UnsupportedError
from nestwright.ir.frontends import load
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.frontends.load import load_model
from nestwright.ir.hlo.text import parse, show

LAYOUT = ", entry_computation_layout={(f32[4]{0})->f32[4]{0}}"

STABLEHLO = """// a comment
module @tiny {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    return %arg0 : tensor<4xf32>
  }
}
"""
HLO = """HloModule tiny
ENTRY main { ROOT x = f32[4] parameter(0) }
"""


def test_hlo_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.hlo"
    path.write_text(HLO)
    assert load_model(path).name == "tiny"
    assert load_model(str(path)).entry.root.array.dims == (4,)


def test_protos_are_read_under_any_name(tmp_path: Path) -> None:
    for name in ("tiny.pb", "tiny.hlo", "tiny"):
        path = tmp_path / name
        path.write_bytes(to_proto(parse(HLO)))
        assert show(load_model(path)) == show(parse(HLO.replace("tiny\n", f"tiny{LAYOUT}\n")))


def test_a_name_can_tell_of_a_proto(tmp_path: Path) -> None:
    path = tmp_path / "odd.pb"
    path.write_bytes(b"\x12\x04main")
    with pytest.raises(ParseError, match="not an HLO proto: no module is in it"):
        load_model(path)


def test_stablehlo_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.mlir"
    path.write_text(STABLEHLO)
    assert load_model(path).entry.root.array.dims == (4,)


@pytest.mark.parametrize(
    "text", [STABLEHLO, "HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }"]
)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text(text, "utf-8-sig")
    assert load_model(path).entry.root.array.dims == (4,)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.hlo"
    os.mkfifo(path)
    with pytest.raises(ParseError, match=r"not a regular file\n.*write the model to a file"):
        load_model(path)


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (b"", ParseError, "the file is empty"),
        (b"\xff\xfe\x00\x01", ParseError, r"not a model.s text: byte 0 is not UTF-8"),
        (b"HloModule a\n\n\xff", ParseError, r"model.x:3: not a model.s text"),
        (b"ML\xefR123", UnsupportedError, "no portable artifact of StableHLO"),
        (b"PK\x03\x04zip", UnsupportedError, "zip archive"),
        (b"PK\x03\x04\0\0m/data.pkl", UnsupportedError, "a saved torch model"),
        (b"\x1f\x8b\x08\0", UnsupportedError, "a gzip archive.*\n.*unpack it"),
        (b"\x7fELF", UnsupportedError, "an object file"),
        (b"\x80\x04\x95", UnsupportedError, "a Python pickle"),
        (b"\x08\x07\x12\x04onnx", ParseError, "not an ONNX model: it has no graph"),
        (b"\x1c\0\0\0TFL3", UnsupportedError, "a TensorFlow Lite model"),
        (b'\x0a\0\0\0\0\0\0\0{"a": 1}  ', UnsupportedError, "a safetensors file"),
        (b"\x0a\x05names", ParseError, "model.x:byte 0: not an HLO proto"),
        (b'{"a": 1}', UnsupportedError, "JSON"),
        (b"hello world", ParseError, r"model.x:1:"),
    ],
)
def test_what_is_no_hlo_text_is_refused(tmp_path: Path, data: bytes, error, why: str) -> None:
    path = tmp_path / "model.x"
    path.write_bytes(data)
    with pytest.raises(error, match=why):
        load_model(path)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"none.hlo: cannot read the model: No such file"):
        load_model(tmp_path / "none.hlo")
    with pytest.raises(ParseError, match="Is a directory"):
        load_model(tmp_path)


def test_files_too_large_are_not_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(load, "MAX_BYTES", 10)
    path = tmp_path / "big.hlo"
    path.write_text(HLO)
    with pytest.raises(ParseError, match="file too large"):
        load_model(path)
