"""Files that are no model, places that cannot be written, disks that are full."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.files import whole_file


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"hello world\n", "does not start with a module header"),
        (b'{"format": 1}', "it looks like JSON"),
        (b"module @jit_f { }", "the module has no function"),
        (b"ML\xefR\r\x01", "no portable artifact of StableHLO"),
        (b"\x08\x07\x12\x07pytorch\x1a\x03", "it is binary"),
        (b"PK\x03\x04rest", "it looks like a zip archive"),
        (b"\x7fELF\x02\x01", "it looks like an object file"),
        (b"HloModule m\n\nENTRY e {\n  ROOT x = f32[2] negate(\xff)\n}\n", "bad:4"),
        (bytes(range(256)) * 8, "bad"),
    ],
)
@pytest.mark.parametrize("command", ["build", "show"])
def test_what_is_no_hlo_text_is_named(nestwright, command: str, data: bytes, message: str) -> None:
    Path("bad").write_bytes(data)
    said = nestwright(command, "bad")
    assert said.status == 2 and message in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("divide(", "divied("), "did you mean `divide`?"),
        (("f32[8,24] divide", "f32[8,25] divide"), "f32[8,25]"),
        (("divide(e, sums)", "divide(e, summs)"), "summs"),
        (("to_apply=total", "to_apply=totals"), "totals"),
    ],
)
def test_mistakes_in_the_text_are_told_with_their_line(
    nestwright, softmax: Path, change: tuple[str, str], message: str
) -> None:
    softmax.write_text(softmax.read_text().replace(*change))
    said = nestwright("build", softmax)
    assert said.status == 2 and message in said.err
    assert f"{softmax}:" in said.err, "the place in the input"


def test_folders_and_files_without_permission(nestwright, softmax: Path) -> None:
    assert "Is a directory" in nestwright("show", ".").err
    softmax.chmod(0)
    if os.access(softmax, os.R_OK):
        pytest.skip("this user may read everything")
    said = nestwright("show", softmax)
    assert said.status == 2 and "Permission denied" in said.err


@pytest.mark.parametrize(
    "args",
    [
        ("build", "softmax.hlo", "-o", "PLACE"),
        ("run", "softmax.hlo", "--random", "0", "--outputs", "PLACE"),
        ("tune", "softmax.hlo", "--trials", "1", "--log", "PLACE"),
        ("log", "merge", "l.jsonl", "-o", "PLACE"),
        ("bench", "softmax.hlo", "--json", "PLACE"),
        ("bench", "softmax.hlo", "--html", "PLACE"),
        ("bench", "softmax.hlo", "--trace", "PLACE"),
    ],
)
@pytest.mark.parametrize("place", ["file/out", "folder"])
def test_places_that_cannot_be_written(nestwright, softmax: Path, args, place: str) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    Path("l.jsonl").write_text('{"k":"header","v":1,"tool":{},"created":0}\n')
    said = nestwright(*(place if a == "PLACE" else a for a in args))
    assert said.status == 2 and place in said.err
    assert said.err.count("nestwright: ") == 1 and "Traceback" not in said.err
    assert not said.out and "bench: " not in said.err, "told before anything is measured"


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A disk that is full after so many bytes of a file.

    No byte code is written meanwhile: Python 3.11 keeps half a file, which no process can read.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "args",
    [("build", "-o", "out"), ("run", "--random", "0", "--outputs", "out")],
    ids=["artifact", "outputs"],
)
def test_a_full_disk_leaves_what_was_there(nestwright, softmax: Path, args) -> None:
    Path("out").write_bytes(b"before")
    with files_no_larger_than(600):
        said = nestwright(args[0], softmax, *args[1:])
    assert said.status == 2 and "File too large" in said.err
    assert Path("out").read_bytes() == b"before"
    assert sorted(p.name for p in Path().iterdir() if "out" in p.name) == ["out"], "nothing half"


def test_a_full_disk_while_tuning_keeps_whole_lines(nestwright, softmax: Path) -> None:
    tune = ("tune", softmax, "--trials", 3, "--log", "l.jsonl", "--target", "cpu -threads=1")
    with files_no_larger_than(2000):
        said = nestwright(*tune)
    assert said.status == 2
    assert "l.jsonl: cannot write the log" in said.err and "run the same command again" in said.err
    assert Path("l.jsonl").read_bytes().endswith(b"\n")
    assert nestwright("log", "check", "l.jsonl").status == 0
    assert nestwright(*tune).status == 0, "with room again it goes on"


def test_devices_are_written_to_and_not_replaced(nestwright, softmax: Path) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with whole_file("pipe") as file:
        file.write(b"through")
    assert os.read(reader, 100) == b"through" and Path("pipe").is_fifo()
    os.close(reader)
    assert nestwright("build", softmax, "-o", os.devnull).status == 0
    assert Path(os.devnull).is_char_device()


def test_links_stay_and_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with pytest.raises(ZeroDivisionError), whole_file(link) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert real.read_bytes() == b"old"
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_outputs_are_plain_npz(nestwright, softmax: Path) -> None:
    assert nestwright("run", softmax, "--random", 0, "--outputs", "y").status == 0
    with np.load("y") as y:
        assert y.files == ["out0"] and np.allclose(y["out0"].sum(1), 1, atol=1e-5)
