"""Predictions of the cost model for each kernel, compared with measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """The sketch that a group gets without a log, and its estimated seconds."""

    sketch: str
    seconds: float


def predictions(module: Any, target: Any) -> dict[str, Prediction]:
    """By canonical key, the prediction for each distinct group that has a loop nest."""
    from nestwright.codegen.driver.build import PreparedModule
    from nestwright.ir.errors import NestwrightError
    from nestwright.te.from_hlo import lower_group

    found = {}
    for key, group in PreparedModule(module, target).groups.distinct.items():
        try:
            func = lower_group(group.computation, "kernel", target.vectors)
        except NestwrightError:
            continue  # the plan does it without a kernel of ours
        if (prediction := _of(func, target)) is not None:
            found[key] = prediction
    return found


def _of(func: Any, target: Any) -> Prediction | None:
    """Return the prediction for the first sketch that applies, as the default schedule takes it."""
    from nestwright.schedule.sketches.generate import generate
    from nestwright.schedule.space.space import first_fit

    for sketch in generate(func, target):
        if first_fit([sketch], func) is not None:
            seconds = float(sketch.cost(sketch.default))
            return Prediction(sketch.name, seconds) if 0 < seconds < math.inf else None
    return None


@dataclass(frozen=True)
class Kind:
    """Predicted over measured times, for the kernels of one kind of sketch."""

    sketch: str
    kernels: int
    mean: float
    low: float
    high: float


def by_kind(rows: Sequence[Mapping[str, Any]]) -> Iterator[Kind]:
    """Geometric means of predicted over measured, by sketch."""
    found: dict[str, list[float]] = {}
    for r in rows:
        if r["measured"] > 0 and r["predicted"] > 0:
            found.setdefault(r["sketch"], []).append(math.log(r["predicted"] / r["measured"]))
    for sketch, logs in sorted(found.items()):
        mean = math.fsum(logs) / len(logs)
        yield Kind(sketch, len(logs), math.exp(mean), math.exp(min(logs)), math.exp(max(logs)))
