"""Models from files: what is no model says so, with the place and a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestwright.ir import load
from nestwright.ir.errors import ParseError, UnsupportedError
from nestwright.ir.load import load_model

HLO = """HloModule tiny
ENTRY main { ROOT x = f32[4] parameter(0) }
"""


def test_hlo_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tiny.hlo"
    path.write_text(HLO)
    assert load_model(path).name == "tiny"
    assert load_model(str(path)).entry.root.array.dims == (4,)


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (b"", ParseError, "the file is empty"),
        (b"\xff\xfe\x00\x01", ParseError, r"not a model.s text: byte 0 is not UTF-8"),
        (b"HloModule a\n\n\xff", ParseError, r"model.x:3: not a model.s text"),
        (b"ML\xefR123", UnsupportedError, "StableHLO bytecode"),
        (b"module @jit_f {}", UnsupportedError, "StableHLO text"),
        (b"PK\x03\x04zip", UnsupportedError, "zip archive"),
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
