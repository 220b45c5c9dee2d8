"""The race of the whole model: what its groups' races got wrong is dropped, and `build` follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from nestwright.autotune.build import build
from nestwright.autotune.log.best import best_traces
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.encoding import encode
from nestwright.autotune.log.journal import LogWriter, check, read
from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure.estimate import Estimator
from nestwright.autotune.measure.protocol import Job, Outcome, Watch
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tuner.budget import Budget
from nestwright.autotune.tuner.plan import TuningPlan
from nestwright.autotune.tuner.progress import Progress, TuneResult
from nestwright.autotune.tuner.tune import Tuner
from nestwright.codegen.driver.build import PreparedModule
from nestwright.codegen.plan.notes import SCHEDULED
from nestwright.codegen.plan.saved.read import read as read_bundle
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.registry import codec
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule pair
ENTRY main {
  x = f32[64,128] parameter(0)
  w = f32[128,96] parameter(1)
  v = f32[96,256] parameter(2)
  d = f32[64,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,96] tanh(d)
  ROOT e = f32[64,256] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
# The second of its groups stands in another model, too.
OTHER = """HloModule other
ENTRY main {
  t = f32[64,96] parameter(0)
  v = f32[96,256] parameter(1)
  ROOT e = f32[64,256] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TARGET = Target.parse("cpu -threads=2")
ROUNDS = 12


@cache
def plain() -> dict[str, object]:
    """The default kernels of the model."""
    return kernels(build(parse(MODEL), TARGET, cache=False))


def kernels(exe: Executable) -> dict[str, object]:
    return dict(exe.bundle.kernels)


class Bench(Estimator):
    """A child that reads kernels off threads three times too slow, and models as they are.

    There a kernel on one thread takes ``serial`` times as long as the default one.
    """

    def __init__(self, serial: float) -> None:
        super().__init__()
        self.serial = serial
        self.raced: list[int] = []
        self.broken = ""

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        for job in jobs:
            if job.kind == "models":
                yield job, self.whole(job)
            else:
                for found, outcomes in super().run([job]):
                    pairs = zip(job.candidates, outcomes, strict=True)
                    yield found, tuple(self.charged(c, o) for c, o in pairs)

    def charged(self, c, o: Outcome) -> Outcome:
        threads = c.sketch == DEFAULT_SKETCH or c.decisions.get("parallel", 1) != 0
        return replace(o, status="ok", runs=(3e-5 if threads else 1e-5,) * 3)

    def whole(self, job: Job) -> tuple[Outcome, ...]:
        models = [read_bundle(Path(c.bundle), codec).kernels for c in job.candidates]
        default = plain()
        changed = [sum(m[s] != default[s] for s in default) for m in models]
        self.raced.append(changed[1])
        if self.broken and changed[1]:
            return (Outcome(self.broken, note="SIGSEGV in run"),) * 2
        times = [1e-5 * (len(default) + (self.serial - 1) * n) for n in changed]
        return tuple(Outcome("ok", (t,) * ROUNDS) for t in times)


def tune(path: Path, bench: Bench, trials: int = 12, listener=None) -> TuneResult:
    builder = PreparedModule(parse(MODEL), TARGET)
    tasks = extract(builder.optimized, TARGET, builder.groups)
    assert len(tasks) == 2
    plan = TuningPlan("pair", TARGET, tasks, trials, strategy="random")
    before = read(path) if path.exists() else Log(())
    with LogWriter(path) as writer:
        tuner = Tuner(plan, writer, before, bench, listener, builder, Budget())
        try:
            return tuner.run()
        finally:
            tuner.close()


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


@dataclass(frozen=True)
class Lost:
    """A tuning whose winners did not hold in the model."""

    log: str
    result: TuneResult
    bench: Bench
    told: tuple[Progress, ...]

    def copy(self, folder: Path) -> Path:
        """Write its log to a folder; the path there."""
        path = folder / "l.jsonl"
        path.write_text(self.log)
        return path


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    folder, bench, seen = tmp_path_factory.mktemp("lost"), Bench(serial=1.4), list[Progress]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NESTWRIGHT_MEASURE_LOCK", str(folder / "measure.lock"))
        result = tune(folder / "l.jsonl", bench, listener=seen.append)
    return Lost((folder / "l.jsonl").read_text(), result, bench, tuple(seen))


def test_winners_that_were_charged_wrongly_do_not_get_into_the_model(
    lost: Lost, tmp_path: Path
) -> None:
    log, bench, seen, result = lost.copy(tmp_path), lost.bench, lost.told, lost.result
    held = read(log)
    assert {b.decisions.get("parallel") for b in held.bests} == {0}, "their races were lost"
    assert bench.raced == [2, 1, 1], "all at once, then each"
    (verdict,) = held.verdicts
    assert result.verdict == verdict and result.speedup == 1.0
    assert [pick for _, pick in verdict.picks] == ["", ""] and not verdict.runs
    assert kernels(build(parse(MODEL), TARGET, log=log, cache=False)) == plain()
    assert check(log) == []
    told = next(p for p in seen if p.event == "model")
    assert told.phase == "racing the whole model"
    assert told.text == "whole model: the default is kept, 2 winners dropped"


def test_winners_that_hold_in_the_model_are_built(tmp_path: Path) -> None:
    log, bench = tmp_path / "l.jsonl", Bench(serial=0.5)
    result = tune(log, bench)
    assert bench.raced == [2] and result.speedup == pytest.approx(2.0)
    (verdict,) = read(log).verdicts
    bests = {b.workload: b.trial for b in read(log).bests}
    assert dict(verdict.picks) == bests
    made = kernels(build(parse(MODEL), TARGET, log=log, cache=False))
    assert all(made[s] != code for s, code in plain().items())


def test_a_winner_that_crashes_in_the_model_is_dropped(tmp_path: Path) -> None:
    log, bench = tmp_path / "l.jsonl", Bench(serial=0.5)
    bench.broken = "crash"
    assert tune(log, bench).speedup == 1.0
    assert [pick for _, pick in read(log).verdicts[0].picks] == ["", ""]


def test_resuming_races_the_model_again_only_if_something_is_new(
    lost: Lost, tmp_path: Path
) -> None:
    log, first = lost.copy(tmp_path), lost.result
    again = Bench(serial=0.5)
    result = tune(log, again)
    assert (result.measured, again.raced) == (0, [])
    assert result.verdict == first.verdict and len(read(log).verdicts) == 1
    more = tune(log, again, trials=16)
    assert more.measured == 4 and again.raced == [2]
    assert more.speedup == pytest.approx(2.0)
    traces = best_traces(log, TARGET).of([w for w, _ in more.verdict.picks])
    assert len(traces) == 2, "the latest verdict counts"


def test_a_log_without_a_verdict_gets_one_without_a_trial(lost: Lost, tmp_path: Path) -> None:
    log = lost.copy(tmp_path)
    old = [line for line in log.read_text().splitlines() if '"k":"verdict"' not in line]
    log.write_text("\n".join(old) + "\n")
    assert build(parse(MODEL), TARGET, log=log, cache=False).bundle.notes[SCHEDULED] == "2"
    result = tune(log, Bench(serial=1.4))
    assert result.measured == 0 and len(read(log).verdicts) == 1


def test_what_there_was_no_time_to_try_is_tried_by_the_next_run(lost: Lost, tmp_path: Path) -> None:
    log, first = lost.copy(tmp_path), lost.result.verdict
    assert first is not None and not first.cut
    lines = log.read_text().splitlines()
    cut = replace(first, cut=True, id="")
    log.write_text("\n".join([*lines[:-1], encode(cut)]) + "\n")
    again = Bench(serial=0.5)
    assert tune(log, again).speedup == pytest.approx(2.0)
    assert again.raced == [2]


def test_a_verdict_is_about_its_model_alone(lost: Lost, tmp_path: Path) -> None:
    log = lost.copy(tmp_path)
    made = kernels(build(parse(OTHER), TARGET, log=log, cache=False))
    assert made.keys() < plain().keys()
    assert all(plain()[s] != code for s, code in made.items()), (
        "the group's own record counts in a model that was not raced"
    )
    keys = PreparedModule(parse(MODEL), TARGET).groups.distinct
    held = read(log)
    assert held.winners(TARGET, keys) == {} and len(held.winners(TARGET)) == 2
    other = PreparedModule(parse(OTHER), TARGET).groups.distinct
    assert len(held.winners(TARGET, other)) == 1
    one = Target.parse("cpu -threads=1")
    assert held.winners(one, keys) == {}, "another number of threads has no record of its own"


def test_nothing_is_raced_when_the_time_is_up(tmp_path: Path) -> None:
    log, bench = tmp_path / "l.jsonl", Bench(serial=0.5)
    builder = PreparedModule(parse(MODEL), TARGET)
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])

    def late(p: Progress) -> None:
        now[0] = 200.0 if p.phase == "racing groups" else now[0]

    tasks = extract(builder.optimized, TARGET, builder.groups)
    plan = TuningPlan("pair", TARGET, tasks, 12, strategy="random", seconds=100.0)
    with LogWriter(log) as writer:
        tuner = Tuner(plan, writer, Log(()), bench, late, builder, budget)
        try:
            result = tuner.run()
        finally:
            tuner.close()
    assert result.verdict is None and bench.raced == []
    assert any("the whole model was not raced" in note for note in result.notes)
