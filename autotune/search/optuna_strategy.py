"""Optuna's samplers as search strategies, by ask and tell. An extra: ``nestwright[optuna]``."""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec
from typing import Any

import optuna
from optuna.trial import TrialState

from ...ir.errors import UnsupportedError
from .evolution import SHORTLIST
from .space import Point, Space
from .strategy import Proposal, Scorer

REPEATS = 8  # suggestions per wanted point after which the space counts as exhausted

optuna.logging.set_verbosity(optuna.logging.WARNING)


NEEDS = {"cmaes": "cmaes", "gp": "torch"}
"""Packages that Optuna imports only when one of these samplers is used."""


def sampler(kind: str, seed: int) -> optuna.samplers.BaseSampler:
    """Return a sampler of Optuna's by name; ``UnsupportedError`` if it is unknown or unusable."""
    makers: dict[str, Any] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "qmc": optuna.samplers.QMCSampler,
        "nsgaii": optuna.samplers.NSGAIISampler,
        "cmaes": optuna.samplers.CmaEsSampler,
        "gp": optuna.samplers.GPSampler,
    }
    if kind not in makers:
        known = ", ".join(f"optuna:{k}" for k in makers)
        raise UnsupportedError(f"strategy optuna:{kind}", "no such sampler", hint=f"use {known}")
    package = NEEDS.get(kind, "")
    if package and find_spec(package) is None:
        why = f"its sampler needs the package {package}, which is not installed"
        raise UnsupportedError(f"strategy optuna:{kind}", why, hint=f"pip install {package}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made: optuna.samplers.BaseSampler = makers[kind](seed=seed % (1 << 32))
    return made


class OptunaSearch:
    """Search by ask and tell in memory; every decision is an integer, the index of the choice.

    The points of least analytic cost are enqueued first, so that the sampler starts like the native
    strategy.
    """

    def __init__(self, space: Space, seed: int, kind: str = "tpe") -> None:
        self.space = space
        self._study = optuna.create_study(direction="minimize", sampler=sampler(kind, seed))
        self._asked: dict[Point, optuna.trial.Trial] = {}
        self._seen: set[Point] = set()
        listed = self.space.everything()
        pool = listed if listed is not None else self.space.defaults()
        for point in sorted(pool, key=self.space.cost)[:SHORTLIST]:
            self._study.enqueue_trial(self._parameters(point))

    def _parameters(self, point: Point) -> dict[str, int]:
        names = self.space.sketches[point.sketch].decisions
        return {"sketch": point.sketch} | {
            f"{point.sketch}.{n}": i for n, i in zip(names, point.at, strict=True)
        }

    def _ask(self) -> tuple[optuna.trial.Trial, Point]:
        trial = self._study.ask()
        number = trial.suggest_int("sketch", 0, len(self.space.sketches) - 1)
        decisions = self.space.sketches[number].decisions
        at = tuple(trial.suggest_int(f"{number}.{n}", 0, len(d) - 1) for n, d in decisions.items())
        return trial, Point(number, at)

    def propose(
        self, count: int, score: Scorer | None, closer: Scorer | None = None
    ) -> list[Proposal]:
        """Propose the sampler's suggestions; invalid and known points are reported as failures."""
        chosen: list[Proposal] = []
        for _ in range(REPEATS * count):
            if len(chosen) == count:
                break
            trial, point = self._ask()
            if point in self._seen or not self.space.valid(point):
                self._study.tell(trial, state=TrialState.FAIL)
                continue
            self._seen.add(point)
            self._asked[point] = trial
            chosen.append(Proposal(point, "optuna"))
        return chosen

    def release(self, point: Point) -> None:
        """Report a failure, so that the sampler does not wait for a result."""
        self._seen.discard(point)
        trial = self._asked.pop(point, None)
        if trial is not None:
            self._study.tell(trial, state=TrialState.FAIL)

    def observe(self, point: Point, cost: float) -> None:
        """Report the logarithm of the cost, or a failure."""
        self._seen.add(point)
        trial = self._asked.pop(point, None)
        if trial is not None:
            if math.isfinite(cost):
                self._study.tell(trial, math.log(cost))
            else:
                self._study.tell(trial, state=TrialState.FAIL)
