"""`explain`: reasons of fusion, origins of schedules, promises, the cache, clear errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import nestwright as nw
from nestwright import te
from nestwright.autotune.explain.model import ModelExplained, explain_model
from nestwright.autotune.explain.promise import Experience, promise
from nestwright.autotune.explain.text import show_group
from nestwright.autotune.log.journal import LogWriter, read
from nestwright.autotune.log.records import Best, DeviceRecord, Trial
from nestwright.codegen.driver import store
from nestwright.ir.errors import ArgumentError, LogError
from nestwright.ir.target import Target

ONE = "cpu -threads=1"
PARTS = ("Schedules", "Fusion", "Tuning", "Cache")


def explained(path: Path, log: Path | str | None = None, target: str = ONE) -> ModelExplained:
    return explain_model(nw.lower(path, target=target), log)


def test_a_model_is_told_in_four_parts(
    nestwright, softmax: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, store.OFF)
    said = nestwright("explain", softmax)
    assert said.status == 0 and said.err == ""
    assert [line for line in said.out.splitlines() if line in PARTS] == list(PARTS)
    assert "default schedule: the rule rows@1" in said.out
    assert "the cache is off: NESTWRIGHT_CACHE=off" in said.out


def test_a_group_is_told_in_full(nestwright, dense: Path) -> None:
    said = nestwright("explain", dense, "--group", "dot_tanh_0")
    assert said.status == 0
    for part in ("Fused inside", "Reads", "Is read by", "Schedule", "Tuning"):
        assert f"\n{part}\n" in said.out
    assert "d -> t: same group" in said.out
    assert "not fused: a result of the model is stored" in said.out


def test_json_has_what_text_has(nestwright, dense: Path) -> None:
    found = json.loads(nestwright("explain", dense, "--json").out)
    (group,) = found["groups"]
    assert found["version"] == 1 and group["name"] == "dot_tanh_0"
    assert group["origin"]["kind"] == "default" and group["promise"]["seconds"] > 0
    assert found["cache"]["used"] is False
    key = group["key"]
    one = json.loads(nestwright("explain", dense, "--json", "--group", key[:9]).out)
    assert [g["key"] for g in one["groups"]] == [key]


# ---- a log -------------------------------------------------------------------------------------


@pytest.fixture
def held(tuned: Path, dense: Path, tmp_path: Path) -> Path:
    """A copy of the log of six trials."""
    path = tmp_path / "held.jsonl"
    path.write_bytes(tuned.read_bytes())
    return path


def changed(log: Path, out: Path, **fields: object) -> Path:
    """The log with the same trials and no races, each trial changed."""
    known = read(log)
    with LogWriter(out) as writer:
        writer.append(*known.devices.values(), *known.workloads.values(), *known.models)
        writer.append(*(replace(t, id="", **fields) for t in known.trials))  # type: ignore[arg-type]
    return out


def test_a_record_is_told_with_its_trial(held: Path, dense: Path, tmp_path: Path) -> None:
    log = changed(held, tmp_path / "trials.jsonl")
    (group,) = explained(dense, log).groups
    assert group.origin is not None and group.origin.kind == "log" and group.promise is None
    facts = group.origin.record
    assert facts is not None and (facts.rank, facts.trials, facts.seed) == (facts.rank, 6, 0)
    assert 1 <= facts.trial <= 6 and facts.ran <= 6 and facts.seconds > 0
    assert facts.device == read(log).trials[0].device and facts.raced == "fastest trial"
    text = show_group(explained(dense, log), group)
    assert f"trial {facts.trial} of 6, seed 0, from " in text
    assert "the analytic prior predicted" in text and facts.predicted > 0


def test_a_race_of_the_whole_model_is_told(held: Path, dense: Path) -> None:
    (group,) = explained(dense, held).groups
    assert group.origin is not None
    verdicts = read(held).verdicts
    assert verdicts, "tuning ends with one"
    if verdicts[-1].picks[0][1]:
        assert group.origin.record is not None
        assert group.origin.record.raced == "race of the whole model"
    else:
        assert group.origin.unused == (
            "the race of the whole model kept the default schedule for this group",
        )


def unused(path: Path, log: Path, target: str = ONE) -> str:
    (group,) = explained(path, log, target).groups
    assert group.origin is not None and group.origin.kind == "default"
    assert group.promise is not None
    return "; ".join(group.origin.unused)


def test_records_of_another_machine(held: Path, dense: Path) -> None:
    other = "cpu -mcpu=haswell -threads=1"
    assert "records of another machine" in unused(dense, held, other)
    assert Target.parse(other).key in unused(dense, held, other)


def test_records_of_another_group(held: Path, softmax: Path, dense: Path) -> None:
    assert unused(softmax, held) == "no record is of this group (the log holds 1 other workload)"
    dense.write_text(dense.read_text().replace("24", "40"))
    assert "of which 1 differ in sizes only and seed its tuning" in unused(dense, held)


def test_records_that_failed(held: Path, dense: Path, tmp_path: Path) -> None:
    log = changed(held, tmp_path / "failed.jsonl", status="wrong", runs=())
    assert "6 records of " in unused(dense, log) and "none ran (6 wrong)" in unused(dense, log)


def test_a_schedule_that_is_illegal_here(held: Path, dense: Path, tmp_path: Path) -> None:
    x = te.placeholder((64,), name="X")
    other = nw.Schedule(te.create_func([x, te.compute((64,), lambda i: x[i] * 2.0, name="Y")]))
    other.split(other.get_loops("Y")[0], [None, 4])
    log = changed(held, tmp_path / "illegal.jsonl", trace=other.trace.to_json())
    assert " is illegal here: " in unused(dense, log)


@pytest.mark.filterwarnings("ignore::nestwright.ir.errors.NestwrightWarning")
def test_a_schedule_that_cannot_be_read(held: Path, dense: Path, tmp_path: Path) -> None:
    log = changed(held, tmp_path / "unread.jsonl", trace=[["split", {"loop": 7}]])
    assert " is illegal here: " in unused(dense, log)


def test_a_library_function_that_is_not_registered(held: Path, dense: Path, tmp_path: Path) -> None:
    fields = {"sketch": "library", "decisions": {"library": "absent_gemm"}}
    log = changed(held, tmp_path / "library.jsonl", **fields)
    assert "library functions that are not registered: absent_gemm" in unused(dense, log)


def test_schedules_of_more_error_than_is_allowed(held: Path, dense: Path, tmp_path: Path) -> None:
    known = read(held)
    path = tmp_path / "loose.jsonl"
    loose = "cpu -threads=1 -accuracy=1e-3"
    device = f"{Target.parse(loose).key}-t1"
    with LogWriter(path) as writer:
        writer.append(DeviceRecord(device, loose, {"accuracy": 1e-3}), *known.workloads.values())
        writer.append(*(replace(t, id="", device=device) for t in known.trials))
    assert "their schedules may add an error of 1e-03, and 0e+00 is allowed" in unused(dense, path)


def test_estimates_are_told_as_such(held: Path, dense: Path, tmp_path: Path) -> None:
    known = read(held)
    path = tmp_path / "estimates.jsonl"
    device = f"{Target.parse(ONE).key}-estimated"
    with LogWriter(path) as writer:
        writer.append(DeviceRecord(device, ONE, {}), *known.workloads.values())
        ran = [t for t in known.trials if t.ran and t.sketch != "default"]
        writer.append(*(replace(t, id="", device=device, status="estimated") for t in ran))
    (group,) = explained(dense, path).groups
    assert group.origin is not None and group.origin.record is not None
    assert group.origin.record.estimated and "estimated" in show_group(
        explained(dense, path), group
    )


def test_the_page_tells_where_schedules_come_from(
    nestwright, held: Path, dense: Path, tmp_path: Path
) -> None:
    log = changed(held, tmp_path / "trials.jsonl")
    page = tmp_path / "g.html"
    target = ("--target", ONE, "--stages", "hlo")
    assert nestwright("show", dense, "--html", page, "--log", log, *target).status == 0
    assert "schedule of the log: " in page.read_text()
    assert nestwright("show", dense, "--html", page, *target).status == 0
    assert "default schedule: the rule tiling@2" in page.read_text()


def test_the_face_serves_every_model(dense: Path) -> None:
    from_path = nw.explain(dense, target=ONE)
    module = nw.parse(dense.read_text())
    for found in (from_path, nw.explain(module, target=ONE), nw.explain(nw.lower(dense))):
        assert [g.places for g in found.groups] == [("dot_tanh_0",)]
        assert found.group("dot_tanh_0") is found.groups[0]
    assert str(from_path).startswith("dense on cpu -threads=1: 1 group")


# ---- promises ------------------------------------------------------------------------------------


def test_a_promise_is_bounded_by_the_roofline() -> None:
    cpu = Target.parse("cpu -mcpu=znver4 -threads=1")
    known = Experience((1.0, 1.1, 1.2, 1.5, 4.0), 1.0, 1.2, 5)
    far = promise(1.0, 1e9, 1e6, 3.0, cpu, known)
    assert far.gains == (1.1, 1.2, 1.5) and far.bound > 4
    assert far.saved == pytest.approx(3.0 * (1 - 1 / 1.2)) and far.seconds == 3.0
    near = promise(1e-9, 1e9, 1e6, 1.0, cpu, known)
    assert near.gains == (1.0, 1.0, 1.0) and near.saved == 0 and near.bound == 1.0
    none = promise(1.0, 1e9, 1e6, 1.0, cpu, Experience((), 1.0, 1.0, 0))
    assert none.gains == (1.0, 1.0, 1.0) and none.bound > 1


def test_a_promise_of_tile_registers_is_bounded_by_theirs(tmp_path: Path) -> None:
    (tmp_path / "dot.hlo").write_text(
        """HloModule dot
ENTRY main { x = bf16[512,512] parameter(0)
  w = bf16[512,512] parameter(1)
  ROOT y = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
    )
    processor = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -threads=1"

    def expected(attributes: str) -> float:
        (group,) = explained(tmp_path / "dot.hlo", target=processor + attributes).groups
        return group.promise.seconds

    assert expected("") < expected(" -mattr=-amx-tile,-avx512bf16") / 4


def test_a_promise_says_what_it_rests_on(
    held: Path, dense: Path, softmax: Path, tmp_path: Path
) -> None:
    known = read(held)
    trial = next(t for t in known.trials if t.ran)
    path = tmp_path / "raced.jsonl"
    best = Best(
        *(trial.workload, trial.device, trial.id, trial.sketch, trial.decisions),
        *(trial.trace or [], (1e-6,), (2e-6,), 0.0),
    )
    with LogWriter(path) as writer:
        writer.append(*known.devices.values(), *known.workloads.values(), best)
    told = explained(softmax, path)
    assert told.known.gains == (2.0,) and told.known.compared == 1 and told.known.scale > 0
    (group,) = told.groups
    assert group.promise is not None and group.promise.gains[1] == min(2.0, group.promise.bound)
    assert "1 group untuned; estimates, nothing was measured" in str(told)
    assert "the middle half of 1 groups tuned on such a machine" in str(told)


# ---- the cache -----------------------------------------------------------------------------------


def test_the_cache_is_asked(
    nestwright, dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "kept"))
    assert "not used: no build of dense is known" in nestwright("explain", dense).out
    nw.build(dense)
    assert "  used: it is in the cache" in nestwright("explain", dense).out
    said = nestwright("explain", dense, "--weights", "bf16").out
    assert "  not used: it was built before with another key" in said
    assert "narrow weights: null -> bf16" in said


# ---- bad input -----------------------------------------------------------------------------------


def test_an_unknown_group_draws_a_suggestion(nestwright, dense: Path) -> None:
    said = nestwright("explain", dense, "--group", "dot_tan_0")
    assert said.status == 2 and said.out == ""
    assert "no group 'dot_tan_0' in dense" in said.err and "did you mean 'dot_tanh_0'?" in said.err
    with pytest.raises(ArgumentError):
        explained(dense).group("")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", ""),
        (b"noise\n", "not a tuning log"),
        (b'{"k":"header","v":99}\n', "cannot use the log"),
    ],
)
def test_empty_and_damaged_logs(
    nestwright, dense: Path, tmp_path: Path, text: bytes, message: str
) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(text)
    said = nestwright("explain", dense, "--log", path)
    if message:
        assert said.status == 2 and message in said.err and "Traceback" not in said.err
    else:
        assert said.status == 0 and "the log holds 0 other workloads" in said.out
    assert nestwright("explain", dense, "--log", tmp_path / "none.jsonl").status == 2
    with pytest.raises(LogError):
        explained(dense, tmp_path / "none.jsonl")


def test_a_damaged_line_is_told(nestwright, dense: Path, held: Path) -> None:
    held.write_bytes(held.read_bytes() + b"noise\n" + b'{"k":"trial"}\n')
    assert "not valid records" in nestwright("explain", dense, "--log", held).err


def test_models_that_cannot_be_built(nestwright, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule bad\nENTRY main {\n  x = f32[2] frobnicate()\n}\n")
    for name in (path, tmp_path / "absent.hlo"):
        said = nestwright("explain", name)
        assert said.status == 2 and said.err.startswith("nestwright: ")
        assert said.out == "" and "Traceback" not in said.err


def test_trials_are_records_of_this_version(held: Path) -> None:
    """The tests above make records from those of a log, so that log must have some that ran."""
    assert any(isinstance(t, Trial) and t.ran for t in read(held).trials)
