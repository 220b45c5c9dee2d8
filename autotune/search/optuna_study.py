"""Optuna studies: logs exported for its dashboard, options of a build chosen by ask and tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState

from ...ir.errors import ArgumentError
from ..log.contents import Log
from ..log.records import Json, Trial, canonical
from .optuna_strategy import sampler

REPEATS = 16  # suggestions of known points in a row after which a study ends


def to_study(log: Log, workload: str, device: str, storage: Any = None) -> optuna.study.Study:
    """Return the trials of one workload as a finished study, for Optuna's plots and dashboard.

    The objective is seconds per call. ``storage`` is as for ``optuna.create_study``; None keeps the
    study in memory, and trials that it has already are not added again.
    """
    study = _created(f"{workload[:16]} {device}", storage)
    known = {t.user_attrs.get("id") for t in study.get_trials(deepcopy=False)}
    trials = log.trials_of(workload, device)
    domains: dict[str, list[str]] = {"sketch": sorted({t.sketch for t in trials})}
    for t in trials:
        for name, value in t.decisions.items():
            choices = domains.setdefault(f"{t.sketch}.{name}", [])
            if canonical(value) not in choices:
                choices.append(canonical(value))
    distributions: dict[str, BaseDistribution] = {
        n: CategoricalDistribution(d) for n, d in domains.items()
    }
    study.add_trials([_frozen(t, distributions) for t in trials if t.id not in known])
    return study


def _frozen(t: Trial, distributions: dict[str, BaseDistribution]) -> optuna.trial.FrozenTrial:
    values: dict[str, Any] = {"sketch": t.sketch}
    values |= {f"{t.sketch}.{n}": canonical(v) for n, v in t.decisions.items()}
    done = t.ran
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if done else TrialState.FAIL,
        value=t.cost if done else None,
        params=values,
        distributions={n: distributions[n] for n in values},
        user_attrs={"status": t.status, "source": t.source, "id": t.id},
    )


def _created(name: str, storage: Any, **given: Any) -> optuna.study.Study:
    """Create or continue a study; ``ArgumentError`` for a storage that cannot be used."""
    try:
        return optuna.create_study(
            direction="minimize", storage=storage, study_name=name, load_if_exists=True, **given
        )
    except Exception as error:  # of SQLAlchemy, redis, or Optuna itself
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArgumentError(f"storage {storage}", why, hint="such as sqlite:///study.db") from None


def export(log: Log, storage: str) -> dict[str, dict[str, float]]:
    """Write a study for each workload and device of a log; return their importances by name."""
    pairs = dict.fromkeys((t.workload, t.device) for t in log.trials)
    studies = [to_study(log, workload, device, storage) for workload, device in pairs]
    return {s.study_name: importances(s) for s in studies}


def importances(study: optuna.study.Study) -> dict[str, float]:
    """Return the share of each parameter in the difference of costs, the largest first.

    By PED-ANOVA (Watanabe et al., IJCAI 2023), which needs no other package, over the parameters
    that every finished trial has; empty if these are too few trials.
    """
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({t.value for t in done}) < 4:
        return {}
    try:
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    except (RuntimeError, ValueError):
        return {}
    return {name: float(share) for name, share in found.items() if math.isfinite(share)}


def choose(
    options: Mapping[str, Sequence[Json]],
    measure: Callable[[dict[str, Json]], float],
    trials: int,
    kind: str,
    seed: int,
    storage: Any = None,
    name: str = "build options",
) -> optuna.study.Study:
    """Let a sampler try options, ``trials`` different ones at most, and return the study.

    ``measure`` returns a cost, infinite for options that do not work. Nothing is measured twice.
    """
    study = _created(name, storage, sampler=sampler(kind, seed))
    texts = {n: [canonical(v) for v in values] for n, values in options.items()}
    costs: dict[tuple[int, ...], float] = {}
    repeated = 0
    most = min(trials, math.prod(map(len, options.values())))
    while len(costs) < most and repeated < REPEATS:
        trial = study.ask()
        at = tuple(t.index(trial.suggest_categorical(n, t)) for n, t in texts.items())
        repeated = repeated + 1 if at in costs else 0
        if at not in costs:
            pairs = zip(options.items(), at, strict=True)
            costs[at] = measure({n: values[i] for (n, values), i in pairs})
        cost = costs[at]
        if math.isfinite(cost):
            study.tell(trial, cost)
        else:
            study.tell(trial, state=TrialState.FAIL)
    return study
