"""What cannot be a C library is refused by name, and nothing is left half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nestwright as nw
from nestwright.codegen.driver import build as driver
from nestwright.codegen.export import folder as folders
from nestwright.codegen.export import library as libraries
from nestwright.codegen.export.checks import require_known
from nestwright.ir.errors import ArgumentError, ArtifactError, LimitError, UnsupportedError

from .conftest import built, library

FFT = """HloModule m
ENTRY e { x = c64[37] parameter(0)
 ROOT y = c64[37] fft(x), fft_type=FFT, fft_length={37} }"""
BOUNDED = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[<=6,3] parameter(0)
 z = f32[] constant(0)
 ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add }"""


def test_functions_of_the_host(tmp_path: Path) -> None:
    exe = nw.build(nw.parse(FFT))
    with pytest.raises(UnsupportedError, match=r"functions of the host: .*fft.* \(") as caught:
        exe.export_c(tmp_path / "m")
    assert "m as a C library" in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_groups_that_the_interpreter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_CACHE", "off")

    def refusing(jobs: Any, *args: Any) -> Any:
        return {}, {key: UnsupportedError("not today") for key in jobs}

    monkeypatch.setattr(driver, "compile_all", refusing)
    exe = nw.build("examples/softmax.hlo", fallback="interpreter")
    with pytest.raises(UnsupportedError, match="the interpreter runs") as caught:
        exe.export_c(tmp_path / "m")
    assert all(name in caught.value.why for name in exe.fallbacks())


def test_bounded_sizes(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"only bounded: x: f32\[<=6,3\]"):
        nw.build(nw.parse(BOUNDED)).export_c(tmp_path / "m")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("cuda-sim -arch=sm_80", "does not run on a processor"),
        ("cuda -arch=sm_80", "does not run on a processor"),
        ("llvm -mtriple=aarch64-apple-darwin", "made for Linux, and this is aarch64-apple"),
    ],
)
def test_targets_without_libraries(target: str, why: str, tmp_path: Path) -> None:
    exe = nw.build("examples/softmax.hlo", target=target)
    with pytest.raises(UnsupportedError, match=why):
        exe.export_c(tmp_path / "m")


def test_names_that_libraries_of_c_do_not_have() -> None:
    require_known(["memcpy", "sinf", "pthread_join", "__truncsfhf2", "fmod"])
    with pytest.raises(UnsupportedError, match="its code needs PyErr_Clear, nw_library"):
        require_known(["memcpy", "nw_library", "PyErr_Clear"])


@pytest.mark.parametrize(
    "options", [{"weights": "both"}, {"threads": 0}, {"threads": 257}, {"threads": True}]
)
def test_options_that_there_are_not(options: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        built("net").export_c(tmp_path / "m", **options)


def test_weights_too_large_for_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "LARGEST_OBJECT", 1000)
    with pytest.raises(LimitError, match="bytes of weights in a library") as caught:
        built("net").export_c(tmp_path / "m")
    assert "weights='file'" in caught.value.hint
    built("net").export_c(tmp_path / "m", weights="file")


def test_a_folder_with_other_files_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt", tmp_path / "mine.txt" / "m", 7):
        with pytest.raises(ArtifactError, match="cannot write"):
            built("net").export_c(place)  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_an_earlier_library_is_replaced_as_a_whole(tmp_path: Path) -> None:
    library(tmp_path, weights="file")
    assert (tmp_path / "net/share").exists()
    library(tmp_path)
    assert not (tmp_path / "net/share").exists()
    (tmp_path / "empty").mkdir()
    built("net").export_c(tmp_path / "empty")
    assert {p.name for p in tmp_path.iterdir()} == {"net", "empty"}


def test_a_failed_write_leaves_the_earlier_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = library(tmp_path)
    before = {p: p.read_bytes() for p in one.folder.rglob("*") if p.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_take_the_place", full)
    with pytest.raises(ArtifactError, match="No space left"):
        one.exe.export_c(one.folder)
    assert {p: p.read_bytes() for p in one.folder.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = library(tmp_path / "a"), library(tmp_path / "b")
    for path in (p for p in a.folder.rglob("*") if p.is_file()):
        assert path.read_bytes() == (b.folder / path.relative_to(a.folder)).read_bytes()


def test_a_saved_model_can_be_a_library(tmp_path: Path) -> None:
    one = library(tmp_path)
    one.exe.save(tmp_path / "net.nw")
    nw.load(tmp_path / "net.nw").export_c(tmp_path / "again", name="net")
    archive = "lib/libnet.a"
    assert (tmp_path / "again" / archive).read_bytes() == (one.folder / archive).read_bytes()
