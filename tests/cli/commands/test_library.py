"""`build --format c`: what the command writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MODEL = """HloModule twice
ENTRY main {
  x = f32[3] parameter(0)
  ROOT y = f32[3] add(x, x)
}
"""
FFT = """HloModule m
ENTRY e { x = c64[37] parameter(0)
 ROOT y = c64[37] fft(x), fft_type=FFT, fft_length={37} }"""


def test_sizes_are_printed(nestwright) -> None:
    Path("m.hlo").write_text(MODEL)
    said = nestwright("build", "m.hlo", "--format", "c", "-o", "out")
    assert said.status == 0 and "written to out" in said.out
    assert "library twice: code " in said.out and ", weights 0 bytes, arena 0 bytes" in said.out
    given = ("build", "m.hlo", "--format", "c", "-o", "out", "--name", "net", "--json")
    facts = json.loads(nestwright(*given).out)["library"]
    assert facts["name"] == "net" and Path("out/lib/libnet.a").stat().st_size > facts["code_bytes"]
    assert not Path("out/lib/libtwice.a").exists()
    assert set(facts["files"]) == {
        str(p.relative_to("out")) for p in Path("out").rglob("*.*") if p.is_file()
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--format", "c"), "name it: -o DIR"),
        (("--weights-as", "file", "-o", "out"), "add --format c"),
        (("--name", "net", "-o", "out"), "add --format c"),
        (("--format", "c", "--name", "a b", "-o", "out"), "for example 'a_b'"),
        (("--format", "c", "-o", "m.hlo"), "it is not a folder"),
        (("--format", "c", "-o", "."), "the folder has other files in it"),
        (("--format", "c", "-o", "out", "--target", "cuda -arch=sm_80"), "a processor"),
        (("--format", "c", "-o", "out", "--from", "hlo"), "cannot be used with --from"),
    ],
)
def test_refusals(nestwright, options: tuple[str, ...], why: str) -> None:
    Path("m.hlo").write_text(MODEL)
    said = nestwright("build", "m.hlo", *options)
    assert said.status == 2 and why in said.err
    assert [p.name for p in Path().iterdir()] == ["m.hlo"]


def test_library_calls_are_refused_by_name(nestwright) -> None:
    Path("m.hlo").write_text(FFT)
    said = nestwright("build", "m.hlo", "--format", "c", "-o", "out")
    assert said.status == 2 and "functions of the host" in said.err and "fft" in said.err
    assert not Path("out").exists()
