"""The origin of each group's schedule: a rule, or a record; and why other records do not apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...codegen.driver.compile_group import outdone
from ...codegen.driver.schedules import fitting
from ...ir.errors import NestwrightError
from ...ir.hlo.text.canonical import form_and_sizes
from ...ir.library.functions import has as has_function
from ...ir.loop.nodes import Func
from ...ir.target import Target
from ...schedule.errors import ScheduleError
from ...schedule.language.schedule import Schedule
from ...schedule.language.trace import Trace
from ...schedule.space.space import Sketch
from ...schedule.usable import require_usable
from ..log.contents import Log
from ..log.records import (
    DEFAULT_SKETCH,
    LIBRARY_SKETCH,
    Best,
    DeviceRecord,
    Json,
    Trial,
    canonical,
    device_id,
    holds_estimates,
)
from ..log.units import counted, duration
from ..search.space import Space
from .promise import default_seconds, known_seconds


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The record of a log that a schedule comes from.

    ``seconds`` and ``default_seconds`` are per call as measured (estimated, if ``estimated``).
    ``trial`` is its number among the ``trials`` of its group on its machine that the log holds (0:
    the log has only winners), ``rank`` its place by time among those that ran. ``predicted`` is
    the analytic prior's estimate in seconds (0: none), ``predicted_rank`` its place by it.
    """

    id: str
    device: str
    processor: str
    raced: str
    seconds: float
    default_seconds: float
    seed: int | None
    source: str
    trial: int
    trials: int
    rank: int
    ran: int
    predicted: float
    predicted_rank: int
    estimated: bool
    when: float


@dataclass(frozen=True, slots=True)
class ScheduleOrigin:
    """Where a group's schedule comes from: ``kind`` is default, log or library.

    ``sketch`` names the rule or sketch, ``decisions`` what it left open, ``matching`` all sketches
    that match. ``unused`` says why records of the log are not used, a line for each cause; it is
    empty only if the log's record is, or there is no log.
    """

    kind: str
    sketch: str
    decisions: Mapping[str, Json]
    matching: tuple[str, ...]
    record: RecordFacts | None = None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class OriginFinder:
    """Finds the origins of a model's schedules; ``texts`` are its groups in canonical text, by key.

    ``lent`` are workloads whose winners are of other processors of the family, by processor.
    """

    log: Log | None
    target: Target
    texts: Mapping[str, str]
    lent: Mapping[str, str]

    def of(self, key: str, func: Func, sketches: tuple[Sketch, ...]) -> ScheduleOrigin:
        """Return the origin of a group's schedule; ``func`` is the group in default order."""
        default = _default(func, sketches)
        if self.log is None:
            return default
        inside = _OriginInLog(self.log, self.target, self.texts, self.lent)
        return inside.of(key, func, sketches, default)


@dataclass(frozen=True)
class _OriginInLog:
    """Finds origins where there is a log; the fields are those of ``OriginFinder``."""

    log: Log
    target: Target
    texts: Mapping[str, str]
    lent: Mapping[str, str]

    def of(
        self, key: str, func: Func, sketches: tuple[Sketch, ...], default: ScheduleOrigin
    ) -> ScheduleOrigin:
        picks = fitting(self.log.composed(self.target), self.texts.keys())
        best = self.log.winners(self.target, self.texts.keys()).get(key)
        if best is None:
            return _unused(default, list(self._absent(key, dropped=key in picks)))
        if refusal := self._refused(best, func) or self._outdone(best, func, default):
            return _unused(default, [refusal])
        facts = self._facts(best, Space(sketches), raced=key in picks)
        names = default.matching
        if best.sketch == LIBRARY_SKETCH:
            return ScheduleOrigin("library", best.sketch, best.decisions, names, facts)
        return ScheduleOrigin("log", best.sketch, best.decisions, names, facts)

    def _absent(self, key: str, *, dropped: bool) -> Iterator[str]:
        """Yield why the log has no schedule for a group."""
        log = self.log
        if dropped:
            yield "the race of the whole model kept the default schedule for this group"
            return
        everything: list[Trial | Best] = [*log.trials, *log.bests]
        records = [r for r in everything if r.workload == key]
        if not records:
            held = counted(len(log.workloads), "other workload")
            yield f"no record is of this group (the log holds {held}{self._alike(key)})"
            return
        for device in dict.fromkeys(r.device for r in records):
            own = [r for r in records if r.device == device]
            yield self._unfit(device, log.devices.get(device), own)

    def _alike(self, key: str) -> str:
        """Return how many workloads of the log differ from a group in their sizes only."""
        log = self.log
        form, _ = form_and_sizes(self.texts[key])
        alike = sum(form == form_and_sizes(w.text)[0] for w in log.workloads.values())
        return f", of which {alike} differ in sizes only and seed its tuning" if alike else ""

    def _unfit(self, device: str, found: DeviceRecord | None, records: list[Trial | Best]) -> str:
        """Return why the records of one device serve nothing here."""
        told = counted(len(records), "record")
        target = self.target
        if found is not None and found.accuracy > target.accuracy:
            limits = f"{found.accuracy:.0e}, and {target.accuracy:.0e} is allowed"
            return f"{told} of {device}: their schedules may add an error of {limits}"
        here = device.rpartition("-t")[0] == target.key
        if not here and not holds_estimates(device):
            return f"{told} of another machine, {device}: this is {device_id(target)}"
        absent = {
            str(r.decisions.get("library"))
            for r in records
            if r.sketch == LIBRARY_SKETCH and not has_function(str(r.decisions.get("library")))
        }
        if absent:
            names = ", ".join(sorted(absent))
            return f"{told} of {device}: library functions that are not registered: {names}"
        failed = Counter(r.status for r in records if isinstance(r, Trial) and not r.ran)
        if failed:
            causes = ", ".join(f"{n} {status}" for status, n in failed.most_common())
            return f"{told} of {device}: none ran ({causes})"
        return f"{told} of {device}: none fits target {target.key}"

    def _refused(self, best: Best, func: Func) -> str:
        """Return why a record's schedule is illegal here; empty if it is not."""
        told = f"record {best.trial or best.id} of {best.device}"
        if best.sketch == LIBRARY_SKETCH:
            return ""
        try:
            require_usable(Trace.from_json(best.trace).replay(func).func, self.target)
        except NestwrightError as error:
            return f"{told} is illegal here: {str(error).splitlines()[0]}"
        return ""

    def _outdone(self, best: Best, func: Func, default: ScheduleOrigin) -> str:
        """Return why a record's schedule gives way to the default one; empty if it does not."""
        log = self.log
        trace = log.trace(best)
        if not outdone(func, self.target, trace):
            return ""
        told = f"record {best.trial or best.id} of {best.device}"
        allowed = f"an error of {trace.accuracy:.0e}" if trace.accuracy else "no added error"
        return f"{told} was tuned with {allowed}; {default.sketch} saves arithmetic by one"

    def _facts(self, best: Best, space: Space, *, raced: bool) -> RecordFacts:
        log = self.log
        device = self._device(best)
        tried = log.trials_of(best.workload, device)
        ran = sorted((t for t in tried if t.ran), key=lambda t: t.cost)
        own = next((t for t in tried if t.id == best.trial), None)
        prior = predicted(space, best.sketch, best.decisions)
        others = [predicted(space, t.sketch, t.decisions) for t in ran]
        processor = self.lent.get(best.workload, "") or self.target.cpu
        if (known := log.devices.get(device)) is not None:
            processor = str(known.facts.get("cpu", processor))
        races = {b.trial for b in log.bests}
        group_race = "race of the group" if best.trial in races else "fastest trial"
        return RecordFacts(
            id=best.trial or best.id,
            device=device,
            processor=processor,
            raced="race of the whole model" if raced else group_race,
            seconds=best.seconds,
            default_seconds=best.default_seconds if best.default_runs else 0.0,
            seed=None if own is None else own.seed,
            source="" if own is None else own.source,
            trial=0 if own is None else tried.index(own) + 1,
            trials=len(tried),
            rank=0 if own is None or own not in ran else ran.index(own) + 1,
            ran=len(ran),
            predicted=prior,
            predicted_rank=sum(0 < p < prior for p in others) + 1 if prior and own else 0,
            estimated=holds_estimates(device),
            when=best.ts,
        )

    def _device(self, best: Best) -> str:
        """Return the device on which a record was made, also where it is lent to this one."""
        log = self.log
        made = {b.device for b in log.bests if b.trial == best.trial and b.id == best.id}
        return next(iter(sorted(made - {best.device})), best.device)


def predicted(space: Space, sketch: str, decisions: Mapping[str, Json]) -> float:
    """Return the analytic estimate of a schedule in seconds, 0 where the prior knows none."""
    if sketch == DEFAULT_SKETCH:
        return default_seconds(space.sketches)
    point = space.find(sketch, decisions)
    if point is None:
        return 0.0
    return known_seconds(space.sketches[point.sketch].cost(space.choices(point)))


def _default(func: Func, sketches: tuple[Sketch, ...]) -> ScheduleOrigin:
    """Return the rule of the default schedule: the first sketch that applies, as builds find it."""
    names = tuple(s.name for s in sketches)
    for sketch in sketches:
        try:
            sketch.apply(Schedule(func), sketch.default)
        except ScheduleError:
            continue
        return ScheduleOrigin("default", sketch.name, dict(sketch.default), names)
    return ScheduleOrigin("default", "fallback", {}, names)


def _unused(default: ScheduleOrigin, why: list[str]) -> ScheduleOrigin:
    return ScheduleOrigin(
        "default", default.sketch, default.decisions, default.matching, None, tuple(why)
    )


def told(origin: ScheduleOrigin, short: bool = False) -> tuple[str, ...]:
    """Return an origin as lines; in short, without decisions and other sketches."""
    choices = ", ".join(f"{k} = {canonical(v)}" for k, v in origin.decisions.items())
    head = f"{origin.sketch} ({choices})" if choices and not short else origin.sketch
    rest = [n for n in origin.matching if n != origin.sketch and not short]
    if origin.record is None:
        others = f"; {', '.join(rest)} match too" if rest else ""
        unused = [f"not used: {why}" for why in origin.unused]
        return f"default schedule: the rule {head}{others}", *unused
    return f"schedule of the log: {head}", *_record(origin.record)


def _record(r: RecordFacts) -> Iterator[str]:
    how = "estimated" if r.estimated else "measured"
    times = f"{how} {duration(r.seconds)}"
    if r.default_seconds:
        gain = f"{r.default_seconds / r.seconds:.2f} times as fast"
        times += f", the default {duration(r.default_seconds)}: {gain}"
    yield f"record {r.id} of {r.device} ({r.processor}), {r.raced}: {times}"
    if r.trial:
        place = f"the fastest of {r.ran}" if r.rank == 1 else f"number {r.rank} of {r.ran} by time"
        yield f"trial {r.trial} of {r.trials}, seed {r.seed}, from {r.source}; {place}"
    else:
        yield "the log keeps only winners: seed and number of its trial are not known"
    if r.predicted:
        rank = f", number {r.predicted_rank} of {r.ran} by it" if r.predicted_rank else ""
        yield f"the analytic prior predicted {duration(r.predicted)}{rank}"
