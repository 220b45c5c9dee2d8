"""How far figures can be trusted: each condition, read from a system of the test's own."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from nestwright.autotune.measure.host import trust as home
from nestwright.autotune.measure.host.trust import Condition, System, Trust, spread, trust

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


@pytest.fixture
def system(tmp_path):
    """An idle machine, one hardware thread a core, with the governor that measuring wants."""
    found = System(tmp_path / "proc", tmp_path / "cpus", tmp_path / "groups")
    found.proc.mkdir()
    (found.groups / "cpu").mkdir(parents=True)
    (found.proc / "loadavg").write_text("0.01 0.02 0.03 1/99 1234\n")
    for n in CORES:
        for name, text in (
            ("cpufreq/scaling_governor", "performance\n"),
            ("topology/thread_siblings_list", f"{n}\n"),
        ):
            path = found.cpus / f"cpu{n}" / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
    return found


def run(system, monkeypatch, threads=1, busy=0, idle=20, stolen=0, uneven=0.01):
    """The trust of a system whose cores spend these ticks while they are watched."""
    ticks = {n: [10, 0, 0, 100, 0, 0, 0, 0, 0, 0] for n in CORES}

    def write():
        lines = ["cpu  1 2 3", *(f"cpu{n} {' '.join(map(str, t))}" for n, t in ticks.items())]
        (system.proc / "stat").write_text("\n".join(lines) + "\nintr 5\n")

    def sleep(seconds):
        for n, t in ticks.items():
            ticks[n] = [t[0] + busy, *t[1:3], t[3] + idle, *t[4:7], t[7] + stolen, *t[8:]]
        write()

    write()
    monkeypatch.setattr(home, "priority", lambda: "taken while code is timed")
    monkeypatch.setattr(home, "spread", lambda: uneven)
    return trust(threads, system, 0.0, sleep)


def named(found, name):
    return next(c for c in found.conditions if c.name == name)


def test_an_idle_machine_is_trusted(system, monkeypatch):
    found = run(system, monkeypatch)
    assert found.level == "good" and not found.problems
    assert named(found, "free cores").figure == len(CORES)
    assert "can be trusted" in found.told and "under 1%" in found.told


def test_busy_cores_are_counted_and_told(system, monkeypatch):
    found = run(system, monkeypatch, busy=15, idle=5)
    free = named(found, "free cores")
    assert free.figure == pytest.approx(0.25 * len(CORES)) and not free.ok
    assert found.level == "fair" and free.told in found.told


def test_busy_cores_without_priority_are_not_trusted(system, monkeypatch):
    found = run(system, monkeypatch, busy=20, idle=0)
    monkeypatch.undo()
    last = Condition("real-time priority", False, "real-time priority not granted")
    found = replace(found, conditions=(*found.conditions[:-1], last))
    assert found.level == "poor" and "cannot be trusted" in found.told


def test_stolen_time_is_found(system, monkeypatch):
    found = run(system, monkeypatch, idle=18, stolen=2)
    assert named(found, "stolen time").figure == pytest.approx(0.1)
    assert not named(found, "stolen time").ok


def test_more_threads_than_cores(system, monkeypatch):
    found = run(system, monkeypatch, threads=len(CORES) + 1)
    assert not named(found, "free cores").ok


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1.5), ("max 100000", None)])
def test_quota_of_a_control_group(system, monkeypatch, text, cores):
    (system.groups / "cpu.max").write_text(text + "\n")
    found = named(run(system, monkeypatch, threads=2), "CPU quota")
    assert found.figure == cores and found.ok == (cores is None)


def test_quota_of_an_old_control_group(system, monkeypatch):
    (system.groups / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (system.groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert named(run(system, monkeypatch), "CPU quota").figure == 0.5


def test_no_quota_of_an_old_control_group(system, monkeypatch):
    (system.groups / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (system.groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert named(run(system, monkeypatch), "CPU quota").ok


def test_governor_load_and_siblings(system, monkeypatch):
    (system.cpus / f"cpu{CORES[0]}" / "cpufreq" / "scaling_governor").write_text("powersave\n")
    (system.proc / "loadavg").write_text("99.5 1 1 1/1 1\n")
    for n in CORES:
        path = system.cpus / f"cpu{n}" / "topology" / "thread_siblings_list"
        path.write_text("0-1\n")
    found = run(system, monkeypatch, threads=len(CORES))
    assert not named(found, "governor").ok and "powersave" in named(found, "governor").told
    assert named(found, "load").figure == 99.5 and not named(found, "load").ok
    assert named(found, "SMT").ok == (len(CORES) == 1)


def test_a_system_that_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "spread", lambda: 0.0)
    found = trust(1, System(tmp_path, tmp_path, tmp_path), 0.0, lambda seconds: None)
    assert all(c.ok for c in found.conditions[:-1])


def test_levels_follow_from_the_spread():
    levels = [Trust(1, (), s).level for s in (0.0, 0.1, 0.4)]
    assert levels == ["good", "fair", "poor"]


def test_spread_is_that_of_the_clock():
    now = iter([t for n in range(100) for t in (10.0 * n, 10.0 * n + (1.5 if n % 4 == 0 else 1.0))])
    assert spread(100, lambda: next(now)) == pytest.approx(0.5)
    assert spread(20) >= 0.0


def test_json_has_the_sentence(system, monkeypatch):
    found = run(system, monkeypatch)
    data = json.loads(json.dumps(found.to_json()))
    assert data["told"] == found.told and data["level"] == "good"
    assert {c["name"] for c in data["conditions"]} >= {"load", "governor", "SMT", "CPU quota"}
