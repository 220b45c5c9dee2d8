"""Races of whole models: built in this process, timed in turns in a measuring child."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from ...codegen.driver.build import PreparedModule
from ...codegen.plan.saved.write import write
from ...ir.errors import NestwrightError
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..log.records import DEFAULT_SKETCH
from ..measure.compare import SpeedComparison
from ..measure.host.lock import MachineLock
from ..measure.protocol import Candidate, Job, Limits, Measurer, Watch
from .budget import Budget
from .compose import Composition, Kept, TimeUp, compose

SECONDS = 6.0  # limit for timing two models, unless the result is clear before
COMPOSING = 30.0  # seconds to select the winners that a model keeps
LOAD = 600.0  # seconds to load two models and to draw their arguments
RUN = 120.0  # seconds for their first runs


class Unraceable(Exception):
    """The model cannot be raced with any schedules; the text says why."""


class ModelRacer:
    """Races a model with one set of tuned groups against the same model with another."""

    def __init__(
        self,
        builder: PreparedModule,
        traces: Mapping[str, Trace],
        measurer: Measurer,
        lock: MachineLock,
        scratch: Path,
        seed: int = 0,
        until: float = math.inf,
        watch: Watch | None = None,
    ) -> None:
        """``traces`` are the tuned schedules by a group's key; ``scratch`` a folder for files.

        ``until`` and ``watch`` are the measurer's.
        """
        self._builder = builder
        self._traces = traces
        self._measurer = measurer
        self._lock = lock
        self._scratch = scratch
        self._seed = seed
        self._until = until
        self._watch = watch
        self._files: dict[frozenset[str], Path] = {}

    def race(
        self, first: frozenset[str], second: frozenset[str], seconds: float = SECONDS
    ) -> SpeedComparison | None:
        """Compare the model with the second set of groups tuned to that with the first.

        None if the second cannot be built or run. Raises ``Unraceable`` if the first cannot either,
        ``TimeUp`` at ``until``.
        """
        self._forget({first, second, frozenset()})
        with self._lock.building():
            try:
                base = self._saved(first)
            except NestwrightError as e:
                raise Unraceable(str(e).splitlines()[0]) from None
            try:
                tuned = self._saved(second)
            except NestwrightError:
                return None
        found = self._timed(base, tuned, seconds)
        if isinstance(found, str) and isinstance(alone := self._timed(base, base, seconds), str):
            raise Unraceable(alone)
        return None if isinstance(found, str) else found

    def _timed(self, base: Path, other: Path, seconds: float) -> SpeedComparison | str:
        target = self._builder.target
        return time_models(
            (base, other), target, self._measurer, self._seed, seconds, self._until, self._watch
        )

    def _saved(self, groups: frozenset[str]) -> Path:
        """Return the file of the model with these groups tuned, building it if necessary."""
        if groups not in self._files:
            exe = self._builder.build({key: self._traces[key] for key in groups})
            names = " ".join(sorted(groups))
            place = self._scratch / f"{sha256(names.encode()).hexdigest()[:16]}.nw"
            write(exe.bundle, place, durable=False)
            self._files[groups] = place
        return self._files[groups]

    def _forget(self, needed: set[frozenset[str]]) -> None:
        """Remove files that are no longer needed: each contains all weights of the model."""
        for groups in self._files.keys() - needed:
            self._files.pop(groups).unlink(missing_ok=True)


def composition(racer: ModelRacer, changed: Sequence[str], budget: Budget) -> Composition:
    """Return the tuned groups with which a model runs fastest, compared with the default.

    ``changed`` are the groups whose winner is not the default, the most promising first. Raises
    ``TimeUp`` if there was no time for a race, or ``Unraceable``.
    """
    ends, raced = budget.clock() + COMPOSING, 0

    def race(first: Kept, second: Kept) -> SpeedComparison | None:
        nonlocal raced
        left = min(budget.left, ends - budget.clock())
        if left <= budget.reserve(0, 1):
            raise TimeUp("there was no time left")
        found = racer.race(first, second, min(SECONDS, left / 2))
        raced += 1
        return found

    made = compose(changed, race)
    if changed and not raced:
        raise TimeUp("there was no time left")
    return made


def time_models(
    places: tuple[Path, Path],
    target: Target,
    measurer: Measurer,
    seed: int,
    seconds: float,
    until: float = math.inf,
    watch: Watch | None = None,
) -> SpeedComparison | str:
    """Time two built models, given as files, in turns; return the comparison or an error text.

    Timing takes at most ``seconds``. Raises ``TimeUp`` at ``until``.
    """
    candidates = tuple(Candidate(DEFAULT_SKETCH, {}, bundle=str(p)) for p in places)
    job = Job(
        number=0,
        kind="models",
        key=places[0].name,
        form="",
        text="",
        target=target.spec,
        candidates=candidates,
        reference="",
        seed=seed,
        fill=seconds,
        limits=Limits(load=LOAD, run=RUN + 4 * seconds, memory=0),
    )
    for _, outcomes in measurer.run([job], until, watch):
        bad = next((o for o in outcomes if o.status != "ok"), None)
        if bad is not None:
            return f"{bad.status}: {bad.note}"
        default, other = (o.runs for o in outcomes)
        return SpeedComparison(default, other)
    raise TimeUp("there was no time left")
