"""Scratch folders go with their process, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nestwright.ir.scratch import Scratch, scratch, sweep

HOLDER = """
import sys
from nestwright.ir.scratch import Scratch
made = Scratch("tune")
(made.path / "file").write_text("x")
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, empty, for this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_private_and_goes_with_the_block_and_with_the_object(base: Path) -> None:
    with scratch("bench") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "x").write_text("x")
    made = Scratch("tune")
    assert made.path.name.startswith("nestwright-tune-")
    del made
    assert list(base.iterdir()) == []


def test_a_killed_process_is_swept_after_and_a_living_one_is_not(base: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER]
    holders = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(2)]
    try:
        folders = [Path(h.stdout.readline().strip().decode()) for h in holders if h.stdout]
        sweep(base)
        assert all(f.is_dir() for f in folders)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert folders[0].is_dir()
        sweep(base)
        assert not folders[0].exists() and (folders[1] / "file").is_file()
    finally:
        for h in holders:
            h.kill()
            h.communicate()


def test_the_next_process_sweeps(base: Path) -> None:
    left = base / "nestwright-tune-left"
    left.mkdir(mode=0o700)
    (left / "lock").touch(0o600)
    subprocess.run([sys.executable, "-c", HOLDER], input=b"", check=True, capture_output=True)
    assert list(base.iterdir()) == []


def test_what_is_not_ours_stays(base: Path) -> None:
    other = base / "elsewhere"
    other.mkdir()
    (other / "lock").touch(0o600)
    (base / "nestwright-tune-link").symlink_to(other)
    (base / "nestwright-tune-open").mkdir()
    (base / "nestwright-tune-open").chmod(0o777)
    (base / "nestwright-tune-open" / "lock").touch(0o600)
    (base / "nestwright-tune-bare").mkdir(mode=0o700)
    (base / "nestwright-tune-linked").mkdir(mode=0o700)
    (base / "nestwright-tune-linked" / "lock").symlink_to(other / "lock")
    (base / ".nestwright-new-young").mkdir(mode=0o700)
    old = base / ".nestwright-new-old"
    old.mkdir(mode=0o700)
    os.utime(old, (0, 0))
    before = {p.name for p in base.iterdir()}
    sweep(base)
    assert {p.name for p in base.iterdir()} == before - {old.name}
    assert (other / "lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_folder_stays(base: Path) -> None:
    theirs = base / "nestwright-tune-theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "lock").touch(0o600)
    os.chown(theirs, 12345, 12345)
    sweep(base)
    assert theirs.is_dir()
