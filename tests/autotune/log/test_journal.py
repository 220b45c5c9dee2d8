"""The log as a file: nothing that was appended gets lost, whatever happens to the writer."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from nestwright.autotune.bench.logs import unused
from nestwright.autotune.log import journal
from nestwright.autotune.log.contents import Log, describe, stats
from nestwright.autotune.log.encoding import encode
from nestwright.autotune.log.journal import LogWriter, check, merge, read, stamped
from nestwright.autotune.log.records import (
    Best,
    DeviceRecord,
    Model,
    Trial,
    Verdict,
    Workload,
    device_id,
)
from nestwright.ir.errors import LogError
from nestwright.ir.target import Target

WORK = Workload("w1", "dot", "hlo", "HloModule canonical\n", 1.0, 1.0)


def trial(n: int, cost: float = 1e-6, status: str = "ok", device: str = "d", **more) -> Trial:
    runs, trace = ((cost,), []) if status == "ok" else ((), None)
    record = Trial("w1", device, "tiled@1", {"rows": n}, status, "model", runs, trace, ts=float(n))
    return stamped(replace(record, **more))


def write(path: Path, *records) -> Path:
    with LogWriter(path, {"nestwright": "test"}) as writer:
        writer.append(WORK, DeviceRecord("d", "cpu", {}), *records)
    return path


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    trials = [trial(1), trial(2, status="crash")]
    log = read(write(tmp_path / "deep" / "a.jsonl", *trials))
    assert log.trials == trials
    assert log.workloads == {"w1": WORK}
    assert log.problems == log.notes == []


def test_partial_last_line_is_ignored_and_cut_off_before_the_next_append(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1), trial(2))
    path.write_bytes(path.read_bytes()[:-20])
    log = read(path)
    assert [t.decisions["rows"] for t in log.trials] == [1]
    assert log.notes == [f"{path}:5: unfinished last line ignored"]
    with LogWriter(path) as writer:
        writer.append(trial(3))
    assert [t.decisions["rows"] for t in read(path).trials] == [1, 3]
    assert check(path) == []


def test_a_whole_last_line_without_its_line_feed_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1))
    path.write_bytes(path.read_bytes()[:-1])
    with LogWriter(path) as writer:
        writer.append(trial(2))
    assert [t.decisions["rows"] for t in read(path).trials] == [1, 2]


def test_broken_middle_line_is_skipped_and_reported_by_check(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1), trial(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b"{half a line\n", lines[-1]]))
    assert len(read(path).trials) == 2
    (found,) = check(path)
    assert found.startswith(f"{path}:5: not JSON (Expecting") and "at column 2" in found


def test_check_finds_changed_and_dangling_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LogWriter(path) as writer:
        writer.append(trial(1), trial(2))
    before, changed, after = path.read_text().rpartition('"seed":0')
    path.write_text(before + changed.replace("0", "1") + after)
    assert [t.decisions["rows"] for t in read(path).trials] == [1]
    found = "\n".join(check(path))
    assert "workload w1 is not in the log" in found
    assert "its content does not have that id" in found


def test_unknown_version_refuses_the_whole_log(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1))
    path.write_text(path.read_text() + '{"k":"trial","v":9}\n')
    with pytest.raises(LogError, match=r"a.jsonl:5: cannot use the log: log version 9"):
        read(path)


def test_missing_and_foreign_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="No such file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "other.txt").write_text("hello\nworld\n")
    with pytest.raises(LogError, match="not a tuning log"):
        read(tmp_path / "other.txt")


WRITER = """
import sys
from nestwright.autotune.log.journal import LogWriter, stamped
from nestwright.autotune.log.records import Trial
with LogWriter(sys.argv[1]) as writer:
    for n in range(100_000):
        writer.append(stamped(Trial("w1", "d", "s", {"n": n}, "ok", "model", (1e-6,), [], ts=n)))
        print(n, flush=True)
"""


@pytest.mark.parametrize(
    "data", [b"HloModule m\n\nENTRY e {\n}", b'{"a": 1}', b"x", b"PK\x03\x04\n\0"]
)
def test_a_file_that_is_no_log_is_never_changed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(data)
    for use in (LogWriter, read):
        with pytest.raises(LogError, match="not a tuning log"):
            use(path)
    assert path.read_bytes() == data


def test_a_header_cut_short_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(b'{"k":"hea')
    assert read(path).notes
    with LogWriter(path) as writer:
        writer.append(trial(0))
    assert len(read(path).trials) == 1


def test_killed_writer_loses_nothing_it_had_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        done += [int(n) for n in process.stdout.read().split("\n") if n]
    kept = [t.decisions["n"] for t in read(path).trials]
    assert kept[: len(done)] == done
    with LogWriter(path) as writer:
        writer.append(trial(1))
    assert len(read(path).trials) == len(kept) + 1


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LogWriter(path) as a, LogWriter(path) as b:
        for n in range(40):
            (a if n % 2 else b).append(trial(n))
    assert [t.decisions["rows"] for t in read(path).trials] == list(range(40))


def test_full_disk_is_one_clear_error_and_leaves_the_log_whole(tmp_path, monkeypatch) -> None:
    path = write(tmp_path / "a.jsonl", trial(1))
    before = path.read_bytes()

    def half(fd: int, data: bytes, real=os.write) -> int:
        if len(data) > 10:
            return real(fd, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with LogWriter(path) as writer:
        monkeypatch.setattr(journal.os, "write", half)
        with pytest.raises(LogError, match="No space left on device") as error:
            writer.append(trial(2))
    monkeypatch.undo()
    assert "it resumes where it stopped" in str(error.value)
    assert path.read_bytes() == before


def test_unwritable_place_is_a_log_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot write the log"):
        LogWriter(tmp_path / "file" / "a.jsonl")


def test_merge_drops_repeated_records_and_keeps_unknown_fields(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", trial(1), trial(2))
    b = write(tmp_path / "b.jsonl", trial(2), trial(3))
    b.write_text(b.read_text() + '{"k":"sentinel","v":1,"later":true}\n' + '{"k":"trial","v":1,')
    kept, dropped = merge([a, b], tmp_path / "out.jsonl")
    assert (kept, dropped) == (6, 4)
    assert [t.decisions["rows"] for t in read(tmp_path / "out.jsonl").trials] == [1, 2, 3]
    assert '"later":true' in (tmp_path / "out.jsonl").read_text()
    assert merge([a, tmp_path / "out.jsonl"], a)[0] == 6


def test_merge_takes_the_good_one_of_a_record_and_a_changed_copy(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", trial(1))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(good.read_text().replace('"rows":1', '"rows":7'))
    assert merge([bad, good], tmp_path / "out.jsonl")[0] == 3
    held = read(tmp_path / "out.jsonl")
    assert [t.decisions["rows"] for t in held.trials] == [1] and not held.problems


def test_a_log_that_is_replaced_while_it_is_written_is_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1), trial(1))
    with LogWriter(path) as writer:
        writer.append(trial(2))
        merge([path], path)
        writer.append(trial(3))
        assert [t.decisions["rows"] for t in read(path).trials] == [1, 2, 3]
        path.unlink()
        writer.append(trial(4))
    assert [t.decisions["rows"] for t in read(path).trials] == [4]


def test_merge_waits_for_who_is_writing(tmp_path: Path) -> None:
    """Else it would replace the log by one without what is appended meanwhile."""
    path = write(tmp_path / "a.jsonl", trial(1))
    merging = threading.Thread(target=merge, args=([path], path))
    with LogWriter(path) as writer:
        with writer._locked(), path.open("a") as file:
            merging.start()
            merging.join(0.05)
            file.write(encode(trial(2)) + "\n")
        merging.join()
    assert [t.decisions["rows"] for t in read(path).trials] == [1, 2]


def test_winners_are_on_the_disk_at_once_and_all_at_the_end(tmp_path, monkeypatch) -> None:
    synced: list[int] = []
    before = set(os.listdir("/proc/self/fd"))
    with LogWriter(tmp_path / "a.jsonl") as writer:
        writer.append(trial(1))
        monkeypatch.setattr(journal.os, "fsync", synced.append)
        monkeypatch.setattr(journal, "SYNC_EVERY", 1e9)
        writer.append(trial(2))
        assert not synced, "now and then is enough for trials"
        writer.append(verdict(1.0, w1=""))
        assert len(synced) == 1
    assert len(synced) == 2 and set(os.listdir("/proc/self/fd")) <= before


def test_best_prefers_the_latest_race_then_the_fastest_trial() -> None:
    log = Log(())
    slow = trial(1, 4e-6, sketch="default", decisions={})
    log.add(slow)
    log.add(trial(2, 3.99e-6))
    assert log.best("d")["w1"].trial == slow.id, "2 % faster is not a gain to trust"
    log.add(trial(3, 2e-6))
    assert log.best("d")["w1"].decisions == {"rows": 3}
    race = Best("w1", "d", "t", "tiled@1", {"rows": 2}, [], (3e-6,), (4e-6,), 0.0, 50.0)
    log.add(stamped(race))
    assert log.best("d")["w1"].decisions == {"rows": 2}
    assert log.best("another device") == {}


def test_winners_fall_back_to_another_number_of_threads() -> None:
    one, two = Target.parse("cpu -threads=1"), Target.parse("cpu -threads=2")
    log = Log(())
    for target, rows in ((one, 1), (two, 2)):
        log.add(DeviceRecord(device_id(target), target.spec, {}))
        log.add(trial(rows, device=device_id(target)))
    assert log.winners(one)["w1"].decisions == {"rows": 1}
    assert log.winners(two)["w1"].decisions == {"rows": 2}
    assert log.winners(Target.parse("cpu -threads=3"))["w1"].decisions == {"rows": 2}
    assert log.winners(Target.parse("llvm -mtriple=aarch64-linux-gnu")) == {}


def verdict(n: float, **picks: str) -> Verdict:
    return stamped(Verdict("m", "d", tuple(picks.items()), ts=n))


def test_check_finds_what_a_verdict_refers_to_in_vain(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", trial(1), verdict(1.0, w1="gone"))
    found = "\n".join(check(path))
    assert "trial gone is not in the log" in found and "model m is not in the log" in found
    assert stats(read(path))["verdicts"] == 1


def test_a_verdict_decides_for_its_model_and_is_dropped_where_it_lost_a_pick() -> None:
    target = Target.parse("cpu -threads=2")
    here = device_id(target)
    log = Log(())
    log.add(DeviceRecord(here, target.spec, {}))
    first, second = trial(1, 2e-6, device=here), trial(2, 1e-6, device=here)
    for t in (first, second):
        log.add(t)
    wins = log.winners(target)["w1"]
    assert wins.trial == second.id
    log.add(replace(verdict(1.0, w1=first.id), device=here))
    assert log.winners(target, {"w1", "w9"})["w1"].trial == first.id
    assert log.winners(target, {"w9"}) == {}
    assert log.winners(target)["w1"].trial == second.id, "of no model in particular"
    log.add(replace(verdict(2.0, w1=""), device=here, id="later"))
    assert log.winners(target, {"w1"}) == {}, "the latest counts: the default"
    log.add(replace(verdict(3.0, w1="gone"), device=here, id="last"))
    assert log.winners(target, {"w1"}) == {}, "one that lost a pick does not"
    log.add(replace(verdict(0.0, w1=first.id, w9=""), device=here, id="larger"))
    assert log.winners(target, {"w1", "w9"})["w1"].trial == first.id


def test_a_verdict_for_other_threads_serves_where_there_is_nothing_better() -> None:
    one, two = Target.parse("cpu -threads=1"), Target.parse("cpu -threads=2")
    log = Log(())
    log.add(DeviceRecord(device_id(two), two.spec, {}))
    log.add(trial(1, device=device_id(two)))
    log.add(replace(verdict(1.0, w1=""), device=device_id(two)))
    assert log.winners(one, {"w1"}) == {}
    log.add(DeviceRecord(device_id(one), one.spec, {}))
    own = trial(2, device=device_id(one))
    log.add(own)
    assert log.winners(one, {"w1"})["w1"].trial == own.id


def test_stats_and_description(tmp_path: Path) -> None:
    model = Model("m", "mnist", "d", (("w1", 1.0),))
    path = write(tmp_path / "a.jsonl", model, trial(1), trial(2, status="wrong"))
    log = read(path)
    found = stats(log)
    assert found["status"] == {"ok": 1, "wrong": 1}
    assert found["models"] == ["mnist"]
    assert describe(log) == "2 trials of 1 workload; mnist for d"


def test_a_log_whose_trials_all_failed_says_so(tmp_path: Path) -> None:
    log = read(write(tmp_path / "a.jsonl", trial(1, status="crash"), trial(2, status="wrong")))
    assert describe(log) == "2 trials of 1 workload, which all failed; no model"
    assert unused("a.jsonl", log, Target.parse("cpu")) == "a.jsonl has 2 trials, which all failed"


def test_a_folder_stands_for_all_logs_in_it(tmp_path: Path) -> None:
    logs = tmp_path / "tuning_logs"
    (logs / "cpu-a").mkdir(parents=True)
    (logs / "cpu-b").mkdir()
    write(logs / "cpu-a" / "x.jsonl", trial(1))
    write(logs / "cpu-b" / "y.jsonl", trial(2), trial(3))
    (logs / "notes.txt").write_text("no log")
    held = read(logs)
    assert [t.decisions["rows"] for t in held.trials] == [1, 2, 3]
    assert [p.name for p in held.paths] == ["x.jsonl", "y.jsonl"]
    assert merge([logs], tmp_path / "all.jsonl") == (
        5,
        3,
    )  # both hold the header, the workload and the device
    assert len(read(tmp_path / "all.jsonl").trials) == 3


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no tuning log in .*: the folder has no .jsonl file"):
        read(tmp_path)


def _tuned_log(path: Path) -> None:
    """Write a log of four workloads: one raced, one not, one that keeps its default, one picked."""
    works = [Workload(f"w{n}" * 4, f"dot{n}", "hlo", "HloModule m\n", 1e6, 1e4) for n in range(4)]
    device = "cpu-test-t2"

    def tried(n: int, sketch: str, cost: float, ts: float) -> Trial:
        runs, trace = (cost,), [["split", sketch, [n]]]
        return stamped(Trial(works[n].id, device, sketch, {}, "ok", "prior", runs, trace, ts=ts))

    def raced(t: Trial, ts: float) -> Best:
        runs = (t.runs[0],)
        return stamped(
            Best(t.workload, device, t.id, t.sketch, {}, t.trace or [], runs, (9.0,), 0.0, ts)
        )

    first = [tried(0, "default", 9.0, 1.0), tried(0, "a", 5.0, 2.0), tried(0, "b", 4.0, 3.0)]
    second = [tried(1, "default", 9.0, 4.0), tried(1, "a", 3.0, 5.0)]
    third = [tried(2, "default", 9.0, 6.0), tried(2, "a", 8.95, 7.0)]
    fourth = [tried(3, "default", 9.0, 8.0), tried(3, "a", 8.0, 9.0)]
    model = stamped(Model("", "m", device, tuple((w.id, 1.0) for w in works)))
    picks = ((works[0].id, first[2].id), (works[3].id, fourth[1].id), (works[2].id, ""))
    old = stamped(Verdict(model.id, device, ((works[0].id, first[1].id),), (1.0,), (2.0,), ts=20.0))
    verdict = stamped(Verdict(model.id, device, picks, (1.0,), (2.0,), ts=30.0))
    races = [raced(first[1], 10.0), raced(first[2], 11.0), raced(third[0], 12.0)]
    races += [raced(fourth[1], 13.0), raced(fourth[0], 14.0)]
    with LogWriter(path) as writer:
        writer.append(DeviceRecord(device, "cpu", {}), model, *works)
        writer.append(*first, *second, *third, *fourth, *races, verdict, old)  # as if merged


def test_winners_are_kept_and_nothing_else(tmp_path: Path) -> None:
    whole, small = tmp_path / "whole.jsonl", tmp_path / "small.jsonl"
    _tuned_log(whole)
    kept, dropped = merge([whole], small, winners=True)
    before, after = read(whole), read(small)
    assert kept + dropped > kept and kept < len(before.trials) + len(before.bests)
    assert check(small) == []
    device = "cpu-test-t2"
    tuned = {w: b.trace for w, b in before.best(device).items() if b.sketch != "default"}
    found = after.best(device)
    assert {w: b.trace for w, b in found.items() if b.sketch != "default"} == tuned
    assert {b.sketch for w, b in found.items() if w not in tuned} == {"default"}
    assert len(after.trials) == 1, "that of the workload that was never raced"
    assert [v.ts for v in after.verdicts] == [30.0]
    assert len(after.workloads) == 3, "the one whose default is kept everywhere is not needed"
    assert merge([small], small, winners=True)[1] == 0, "nothing more can be dropped"


def test_winners_of_an_empty_log_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        writer.append(DeviceRecord("cpu-test-t2", "cpu", {}))
    assert merge([path], path, winners=True)[0] == 0
    assert read(path).trials == []
