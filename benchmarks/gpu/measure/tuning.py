"""The first tunings on a GPU: their logs are kept, and the winner is timed beside the default."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from . import ours, workloads
from .clocks import medians, seconds
from .part import Part

TRIALS = 64
DRY_TRIALS = 4
PRODUCT = 4096
ROWS, COLUMNS = 1 << 13, 1 << 10  # the oracle takes minutes of the host for what `passes` times


def tuning(part: Part) -> None:
    """A product and a softmax, ``TRIALS`` trials each; without a GPU the cost model ranks them."""
    dry = part.options.dry_run
    works = (
        workloads.matmul("bf16", 64 if dry else PRODUCT),
        workloads.softmax(*((16, 64) if dry else (ROWS, COLUMNS))),
    )
    for n, work in enumerate(works):
        left = len(works) - n
        part.attempt(work.name, partial(_tune, part, work, left), 20)


def _tune(part: Part, work: workloads.Work, turns: int) -> None:
    from nestwright.autotune.api import tune
    from nestwright.ir.hlo.text import parse

    simulated = not part.on_gpu
    log: Path = part.options.out / f"tune-{work.name}.jsonl"
    result = tune(
        parse(work.hlo),
        part.predicted_target(work.options),
        trials=DRY_TRIALS if part.options.dry_run else TRIALS,
        seconds=0.8 * part.left() / turns,
        log=log,
        simulate_cost=simulated,
    )
    told: dict[str, Any] = {"trials": result.trials, "stopped": result.stopped, "log": log.name}
    told["tasks"] = [
        {"name": t.name, "default": t.default_seconds, "best": t.best_seconds, "sketch": t.sketch}
        for t in result.tasks
    ]
    if not simulated:
        told["seconds"] = _raced(part, work, log)
    part.write("tuned", work.name, **told)


def _raced(part: Part, work: workloads.Work, log: Path) -> dict[str, float]:
    """Time the default and the tuned kernel in turns, by the device's clock."""
    arguments = [work.arguments(0)] * 4
    default = ours.nestwright(part.build(work.hlo, work.options)[0], arguments)
    part.options.log = log
    tuned = ours.nestwright(part.build(work.hlo, work.options)[0], arguments)
    part.options.log = None
    rows = medians([replace(default, name="default"), replace(tuned, name="tuned")], 1.0)
    return {name: seconds(row) for name, row in rows.items()}
