"""Rounds of tuning for a GPU: what is compiled, what of it is measured, what goes back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.journal import LogWriter
from nestwright.autotune.log.records import Json
from nestwright.autotune.measure.protocol import Job, Outcome, Watch
from nestwright.autotune.search.rounds import ROUNDS
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tuner.plan import TuningPlan
from nestwright.autotune.tuner.tune import Tuner
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """HloModule product
ENTRY main {
  x = f16[512,512] parameter(0)
  w = f16[512,512] parameter(1)
  ROOT d = f16[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TARGET = Target.parse("cuda -arch=sm_80")


class Bench:
    """A measurer whose kernels are as fast as they have few registers; odd tiles do not compile."""

    slots = 1

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.measured: list[str] = []

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        for job in jobs:
            self.kinds.append(job.kind)
            yield job, tuple(self.outcome(job, n) for n in range(len(job.candidates)))

    def outcome(self, job: Job, n: int) -> Outcome:
        c = job.candidates[n]
        work = sum(v for v in c.decisions.values() if isinstance(v, int))
        registers: Json = 32 + work % 200
        facts: dict[str, Json] = {
            "registers": [registers],
            "spills": [0],
            "shared": [0],
            "threads": [256],
        }
        if job.kind == "compile":
            return Outcome("ok", facts=facts) if work % 5 else Outcome("build", note="spills")
        self.measured.append(repr((c.sketch, sorted(c.decisions.items()))))
        if c.decisions and not work % 5:
            return Outcome("build", note="spills")
        return Outcome("ok", (1e-6 * (32 + work % 200),), [], facts=facts)


def test_twice_as_many_are_compiled_as_are_measured(tmp_path: Path) -> None:
    tasks = extract(optimize(parse(MODEL)), TARGET)
    bench = Bench()
    with LogWriter(tmp_path / "log.jsonl") as writer:
        tuner = Tuner(TuningPlan("product", TARGET, tasks, 100), writer, Log(()), bench, None)
        try:
            result = tuner.run()
        finally:
            tuner.close()
    kinds = Counter(bench.kinds)
    assert result.trials == kinds["measure"] == 100
    assert 1.5 * 100 < kinds["compile"] <= 2 * 100
    assert max(_runs(bench.kinds, "measure")) == ROUNDS["launches"]
    assert len(set(bench.measured)) >= 100, "no point is measured twice but in the race"
    [state] = tuner.state.tasks
    registers = [t.code["registers"] for t in state.trials if t.status == "ok"]
    late, early = registers[-30:], registers[1:30]
    assert _mean(late) < _mean(early), "the model learns what registers mean"


def _mean(rows: list[Json]) -> float:
    numbers = [float(r[0]) for r in rows if isinstance(r, list) and isinstance(r[0], int)]
    return sum(numbers) / len(numbers)


def _runs(kinds: list[str], wanted: str) -> list[int]:
    """Lengths of the stretches of one kind."""
    found, length = [0], 0
    for kind in kinds:
        length = length + 1 if kind == wanted else 0
        found.append(length)
    return found
