"""A sweep that is interrupted loses no cell that was measured, and the same command goes on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nestwright.autotune.bench import sweep
from nestwright.autotune.bench.data import BenchReport, CellBench, CellKey, WayBench, read_report
from nestwright.autotune.measure.host.peak import Peak
from nestwright.autotune.report.page import read_page

SWEEP = ("bench", "dense.hlo", "--threads", "1,2", "--json", "r.json", "--html", "r.html")
KILLED = f"""
import os, signal
from {__name__} import played
from nestwright.cli.main import main
played(setattr, lambda: os.kill(os.getpid(), signal.SIGKILL))
main({SWEEP!r})
"""


def played(change: Any, second: Callable[[], object]) -> None:
    """Let cells take no time and have the time of day as theirs; ``second`` precedes two threads'.

    The machine is a known one.
    """

    def measured(key: CellKey, *rest: Any) -> CellBench:
        if key.threads == 2:
            second()
        return CellBench(key, (WayBench("tuned", runs=(time.time(),) * 3),))

    change(sweep, "bench_cell", measured)
    change(sweep, "measure_peak", lambda target: Peak(target.threads, 1e11, 1e10))


def raised(error: Exception) -> None:
    raise error


def runs(report: BenchReport) -> dict[int, float | None]:
    """The time of each cell by its threads: one that is measured again has another."""
    return {c.key.threads: c.seconds("tuned") for c in report.cells}


def test_killed_then_interrupted_then_finished(
    nestwright, dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, (home, *sys.path)))
    environment = {**os.environ, "PYTHONPATH": paths}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    first = read_report("r.json")
    assert killed.returncode == -signal.SIGKILL and not Path("r.html").exists()
    assert list(runs(first)) == [1] and first.missing == 1

    played(monkeypatch.setattr, lambda: os.kill(os.getpid(), signal.SIGINT))
    said = nestwright(*SWEEP)
    assert said.status == 130 and "going on with 1 cell of the interrupted run" in said.err
    assert "1 cell kept in r.json, 1 to go; run the same command again to go on" in said.err
    page = Path("r.html").read_text()
    assert "1 cell of this sweep is not measured yet" in page
    assert runs(read_page(page)) == runs(first)

    played(monkeypatch.setattr, lambda: None)
    said = nestwright(*SWEEP)
    last = read_report("r.json")
    assert said.status == 0 and "going on with 1 cell" in said.err
    assert list(runs(last)) == [1, 2] and not last.missing
    assert runs(last)[1] == runs(first)[1], "it was not measured again"
    assert "not measured in this run: 1 cell of the interrupted run" in said.out

    again = nestwright(*SWEEP)
    assert again.status == 0 and "going on" not in again.err
    assert runs(read_report("r.json"))[1] != runs(first)[1], "a whole report is measured anew"


def fault() -> None:
    raise RuntimeError("a fault")


def test_a_fault_loses_nothing_and_other_inputs_are_measured(
    nestwright, dense: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NESTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    played(monkeypatch.setattr, fault)
    sweep_only = SWEEP[:4]
    said = nestwright(*sweep_only)
    assert said.status == 3 and "1 cell kept in the cache, 1 to go" in said.err
    (place,) = (tmp_path / "home").rglob("sweeps/*.json")
    first = read_report(place)

    played(monkeypatch.setattr, lambda: None)
    text = dense.read_text()
    dense.write_text(text.replace("tanh", "sine"))
    keep = sweep.bench("dense.hlo", threads=[2, 1], keep=place)
    assert runs(keep)[1] != runs(first)[1], "another model"
    replace(first, missing=1).write_json(place)
    dense.write_text(text)
    place.parent.chmod(0o777)
    assert "going on" not in nestwright(*sweep_only).err, "others may have written it"
    place.parent.chmod(0o700)
    said = nestwright(*sweep_only)
    assert said.status == 0 and "going on with 1 cell" in said.err and not place.exists()


def test_a_full_disk_does_not_end_a_sweep(
    nestwright, dense: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NESTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    played(monkeypatch.setattr, lambda: None)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(BenchReport, "write_json", lambda *_: raised(full))
    said = nestwright(*SWEEP[:4])
    assert said.status == 0 and "not kept in case of an interrupt: No space left" in said.out
    assert said.out.count("dense on cpu") >= 2


def test_cells_that_are_not_reached_again_are_kept(
    dense: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "r.json"
    played(monkeypatch.setattr, fault)
    with pytest.raises(RuntimeError):
        sweep.bench(dense, threads=[1, 2], keep=place)
    first = read_report(place)
    with pytest.raises(RuntimeError):
        sweep.bench(dense, threads=[3, 2, 1], keep=place)
    left = read_report(place)
    assert sorted(runs(left)) == [1, 3] and runs(left)[1] == runs(first)[1]
    assert left.missing == 1
