"""The lock files: another user's, links and pipes in their place neither mislead nor block."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from nestwright.autotune.log.journal import LogWriter, read
from nestwright.autotune.log.records import DeviceRecord
from nestwright.autotune.measure.host import lock as locks
from nestwright.autotune.measure.host.lock import MachineLock
from nestwright.ir.errors import ArgumentError, LogError

OTHER = 12345  # a user
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where users meet, in a temporary folder of the test's own."""
    monkeypatch.delenv(locks.VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(locks, "_own_path", lambda: tmp_path / "cache" / "own.lock")
    return tmp_path / "nestwright-measure.lock"


def excludes(path: Path) -> bool:
    """Does somebody hold the lock file alone?"""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_this_users_file_serves_alone(shared: Path, tmp_path: Path) -> None:
    lock = MachineLock()
    with lock.timing():
        assert excludes(shared)
    assert not excludes(shared)
    with lock.building():
        assert not excludes(shared)
    lock.close()
    assert not (tmp_path / "cache").exists()


def test_no_builder_passes_a_timed_run_that_waits(shared: Path) -> None:
    """It holds the gate, through which every new builder has to go."""
    gate = shared.with_name(shared.name + ".gate")
    builder, timed = MachineLock(), MachineLock()

    def run() -> None:
        with timed.timing():
            pass

    thread = threading.Thread(target=run, daemon=True)
    with builder.building():
        thread.start()
        for _ in range(2000):
            if excludes(gate):
                break
            time.sleep(0.001)
        assert excludes(gate)
    thread.join(30)
    assert not thread.is_alive() and not excludes(gate)
    builder.close()
    timed.close()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_there_leaves_a_lock_of_ones_own(
    shared: Path, tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "victim"
    match kind:
        case "link":
            shared.symlink_to(victim)
        case "pipe":
            os.mkfifo(shared)
        case _:
            shared.mkdir()
    lock = MachineLock()
    with lock.timing():
        assert excludes(tmp_path / "cache" / "own.lock")
    lock.close()
    assert not victim.exists()


@only_root
def test_another_users_file_is_locked_beside_ones_own(shared: Path, tmp_path: Path) -> None:
    shared.touch()
    os.chown(shared, OTHER, OTHER)
    lock = MachineLock()
    with lock.timing():
        assert excludes(shared) and excludes(tmp_path / "cache" / "own.lock")
    lock.close()


@only_root
def test_another_user_cannot_hold_tuning_up_for_ever(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    shared.touch()
    os.chown(shared, OTHER, OTHER)
    held = os.open(shared, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    lock = MachineLock()
    done = threading.Event()

    def run() -> None:
        for _ in range(3):
            with lock.timing():
                assert excludes(tmp_path / "cache" / "own.lock")
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert done.wait(30)
    thread.join()
    lock.close()
    os.close(held)


def test_a_named_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(ArgumentError, match="cannot lock"):
        MachineLock(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_the_lock_beside_a_log_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl.lock").symlink_to(tmp_path / "target")
    with pytest.raises(LogError, match="cannot write the log"):
        LogWriter(tmp_path / "log.jsonl")
    assert not (tmp_path / "target").exists()


def test_threads_that_share_a_writer_take_turns(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.jsonl") as writer:

        def work(number: int) -> None:
            for n in range(20):
                writer.append(DeviceRecord(f"{number}-{n}", "cpu", {"text": "x" * 500}))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    log = read(tmp_path / "log.jsonl")
    assert len(log.devices) == 80 and not log.problems


def test_a_log_where_no_file_can_be_made_is_an_error_at_once() -> None:
    for path in ("/proc/nestwright.jsonl", "a\0b"):
        with pytest.raises(LogError, match="cannot write the log"):
            LogWriter(path)
