"""Tuning on executors: every planned trial once, the best that a local run finds, resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from nestwright.autotune.api import tune
from nestwright.autotune.fleet.fleet import Fleet
from nestwright.autotune.fleet.identity import question
from nestwright.autotune.fleet.worker_pool import ExecutorPool
from nestwright.autotune.log.contents import best_trial
from nestwright.autotune.log.journal import LogWriter, check, read
from nestwright.autotune.measure.protocol import Job, Measurer, Outcome, Watch
from nestwright.autotune.search.rounds import next_round
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tuner.plan import TuningPlan
from nestwright.autotune.tuner.progress import Progress, TuneResult, TuningInterrupted
from nestwright.autotune.tuner.tune import Tuner
from nestwright.ir.errors import ArgumentError, FleetError, TargetError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

from .pools import MACHINE, BadExecutor, Clock, outcomes

TEXT = """HloModule small
ENTRY main {
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  ROOT y = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
MODEL = """HloModule dots
ENTRY main {
  x = f32[16,24] parameter(0)
  w = f32[24,32] parameter(1)
  d = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[16,32] tanh(d)
}
"""
TARGET = Target.parse("cpu -mcpu=znver4 -threads=1")


class Local:
    """Measures here, with fake costs."""

    slots = 1

    def run(
        self, jobs: Iterable[Job], until: float = 0.0, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        for job in jobs:
            yield job, outcomes(job)


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


def tuned(path: Path, measurer: Measurer, trials: int = 10**4, text: str = TEXT) -> TuneResult:
    """Tune with a measurer; the whole of a small space unless there are fewer trials."""
    tasks = extract(optimize(parse(text)), TARGET)
    before = read(path) if path.exists() else None
    plan = TuningPlan(
        "small", TARGET, tasks, trials, strategy="random", machine=MACHINE, peaks=(0.0, 0.0)
    )
    with LogWriter(path) as writer:
        tuner = Tuner(plan, writer, before or read(path), measurer, None)
        with closing(tuner):
            return tuner.run()


def found(path: Path) -> tuple[set[tuple[str, ...]], float, int]:
    """Return the points of a log, its best time, and the number of its trials."""
    trials = read(path).trials
    assert check(path) == []
    assert all(t.machine == MACHINE for t in trials)
    return {t.point for t in trials}, min(t.cost for t in trials), len(trials)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_planned_trial_is_in_the_log_once_and_the_best_is_the_local_one(
    tmp_path: Path, seed: int
) -> None:
    local, far = tmp_path / "local.jsonl", tmp_path / "far.jsonl"
    assert tuned(local, Local()).stopped == "exhausted"
    workers = ExecutorPool(BadExecutor(seed))
    with Fleet(workers, question(TARGET), Clock(0.5), nap=0.0) as fleet:
        assert tuned(far, fleet).stopped == "exhausted"
    assert found(local) == found(far)
    assert found(far)[2] == len(found(far)[0]) > 10


def test_it_resumes_and_ignores_what_other_machines_measured(tmp_path: Path) -> None:
    log, other = tmp_path / "log.jsonl", tmp_path / "other.jsonl"
    with Fleet(ExecutorPool(BadExecutor(0)), question(TARGET), Clock(0.5), nap=0.0) as fleet:
        tuned(log, fleet, trials=5)
        assert tuned(log, fleet, trials=9).measured == 4
    assert len(found(log)[0]) == 9
    other.write_text(log.read_text().replace(MACHINE, "elsewhere"))
    lines = [line for line in read(other).problems if "its content" in line]
    assert len(lines) >= 9, "nobody can change where a trial was measured"


def test_trials_of_another_class_of_machines_do_not_rank(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tuned(path, Local(), trials=6)
    before = read(path)
    before.bests.append(best_trial(before.trials))
    tasks = extract(optimize(parse(TEXT)), TARGET)
    plan = TuningPlan("small", TARGET, tasks, 6, strategy="random", machine="x", peaks=(0.0, 0.0))
    with LogWriter(path) as writer, closing(Tuner(plan, writer, before, Local(), None)) as t:
        assert t.state.trials == 0 and all(s.race is None for s in t.state.tasks)
        assert t.run().measured == 6
    assert {t.machine for t in read(path).trials} == {MACHINE, "x"}


def test_rounds_grow_with_the_workers() -> None:
    promises = [(1.0, 20), (3.0, 20), (0.0, 20), (2.0, 20)]
    assert next_round(promises, 8, 1, 500, 400) == [(1, 8)]
    assert next_round(promises, 8, 4, 500, 400) == [(1, 8)]
    assert next_round(promises, 8, 6, 500, 400) == [(1, 8), (3, 8)]
    assert next_round(promises, 8, 24, 500, 400) == [(1, 16), (3, 16), (0, 16)]
    assert next_round(promises, 8, 24, 500, 20) == [(1, 16), (3, 4)]
    assert next_round([(0.0, 3)], 8, 1, 500, 400) == []
    assert next_round([(2.0, 1), (1.0, 1)], 8, 1, 8, 6) == [(0, 2)], "small while trials are scarce"


def test_ctrl_c_and_a_broken_executor_say_how_to_go_on(tmp_path: Path) -> None:
    class Interrupted(Local):
        def run(self, jobs, until=0.0, watch=None):
            for n, (job, told) in enumerate(super().run(jobs)):
                if n == 1:
                    raise self.error
                yield job, told

    measurer = Interrupted()
    for error, kind in (
        (KeyboardInterrupt(), TuningInterrupted),
        (FleetError("it broke"), FleetError),
    ):
        measurer.error = error
        log = tmp_path / f"{kind.__name__}.jsonl"
        with pytest.raises(kind, match=r"kept in .*run the same command again"):
            tuned(log, measurer)
        assert len(read(log).trials) > 0
        assert tuned(log, Local()).stopped == "exhausted"


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_real_children_measure_for_an_executor(tmp_path: Path, kind) -> None:
    log, seen = tmp_path / "log.jsonl", []
    given = {"mp_context": get_context("spawn")} if kind is ProcessPoolExecutor else {}
    with kind(1, **given) as executor:
        result = tune(
            parse(MODEL),
            "cpu -threads=1",
            trials=2,
            seconds=60,
            log=log,
            executor=executor,
            progress=seen.append,
        )
    assert result.trials == 2 and result.verdict is not None
    trials = read(log).trials
    assert [t.status for t in trials] == ["ok"] * 2
    assert len({t.machine for t in trials}) == 1 and trials[0].machine.startswith("cpu-")
    assert any(p.workers == "1 worker" for p in seen if isinstance(p, Progress))


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ArgumentError, match="simulate_cost"):
            tune(parse(MODEL), log=log, executor=pool, simulate_cost=True)
        with pytest.raises(TargetError, match="simulator"):
            tune(parse(MODEL), "cuda-sim -arch=sm_80", log=log, executor=pool)
        with pytest.raises(FleetError, match=r"no worker of .* fits: it cannot run code"):
            tune(parse(MODEL), "llvm -mtriple=aarch64-linux-gnu", log=log, executor=pool)
        with pytest.raises(FleetError, match="fewer cores"):
            tune(parse(MODEL), "cpu -threads=1000", log=log, executor=pool)
    not_one: Executor = "processes"  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match="Executor"):
        tune(parse(MODEL), log=log, executor=not_one)
    assert not log.exists(), "nothing is half written"
