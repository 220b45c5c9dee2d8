"""Reference logs: tunes models for this processor, and keeps what wins under `tuning_logs/`.

    python benchmarks/reference_logs.py MODEL.hlo ... --seconds 1800 [--threads 1] [--work FOLDER]

The time is shared among the models by their numbers of tasks, each getting ``--least`` seconds; a
model that needs less leaves it to the others. A ``.npz`` beside a model has the parameters to
freeze, by number. The whole logs stay in ``--work``: the same command goes on from there. What
builds need of them is written to `tuning_logs/<target key>/<model>.jsonl`, where `log="auto"` finds
it; records that are there already, such as those of another number of threads, are kept.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkout import ROOT, importable

EACH = 96  # trials of a task, at most


def shares(counts: Sequence[int], seconds: float, least: float) -> list[float]:
    """Return how many seconds models with these numbers of tasks get."""
    rest = max(0.0, seconds - least * len(counts))
    whole = max(1, sum(counts))
    return [least + rest * n / whole for n in counts]


def main() -> None:
    """Tune the models one by one, and print what was gained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--least", type=float, default=20.0)
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--work", type=Path, default=Path("report/reference_logs"))
    parser.add_argument("--out", type=Path, default=ROOT / "tuning_logs")
    chosen = parser.parse_args()
    with importable():
        from nestwright.ir.target import Target

        spec = f"cpu -threads={chosen.threads}" if chosen.threads else "cpu"
        target = Target.parse(spec)
        ends = time.monotonic() + chosen.seconds
        counts = [_tasks(m, target) for m in chosen.models]
        for n, model in enumerate(chosen.models):
            left = ends - time.monotonic()
            (seconds, *_) = shares(counts[n:], left, min(chosen.least, left / len(counts[n:])))
            if seconds > 1 and counts[n]:
                print(
                    _tuned(model, target, counts[n], seconds, chosen.work, chosen.out), flush=True
                )


def _tasks(model: Path, target: Any) -> int:
    from tuning.runs import frozen_beside

    from nestwright.autotune.tasks.extract import extract
    from nestwright.codegen.driver.build import PreparedModule
    from nestwright.ir.frontends.load import as_module

    builder = PreparedModule(as_module(model), target, frozen_beside(model))
    return len(extract(builder.optimized, target, groups=builder.groups))


def _tuned(model: Path, target: Any, tasks: int, seconds: float, work: Path, out: Path) -> str:
    """Tune a model for some seconds and keep what wins; return what was gained, as a line."""
    from tuning.runs import frozen_beside

    import nestwright as nw
    from nestwright.autotune.log.journal import merge

    name = f"{model.stem}.jsonl"
    whole, small = work / target.key / f"{target.threads}-{name}", out / target.key / name
    small.parent.mkdir(parents=True, exist_ok=True)
    result = nw.tune(
        model,
        target,
        trials=EACH * tasks,
        seconds=seconds,
        log=whole,
        constants=frozen_beside(model),
    )
    kept, _ = merge([p for p in (small, whole) if p.exists()], small, winners=True)
    size = math.ceil(small.stat().st_size / 1024)
    told = f"{result.trials} trials in {result.seconds:.0f} s, {result.speedup:.2f}x"
    return f"{model.stem}: {told}; {kept} records, {size} KiB; {result.stopped}"


if __name__ == "__main__":
    main()
