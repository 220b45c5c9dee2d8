"""The answers to "why" for a model: fusion, schedules, promises of tuning, the cache; the page."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...codegen.driver import PreparedModule
from ...codegen.driver.ledger import CacheAnswer, ask
from ...ir.errors import ArgumentError, NestwrightError
from ...ir.hlo.text.canonical import canonical_text
from ...ir.lazy import resolve
from ...schedule.sketches.generate import generate
from ..compiled import key_of
from ..log.automatic import automatic_log, with_related
from ..log.best import AUTO
from ..log.contents import Log
from ..log.journal import PathLike, read
from ..lowered import Lowered
from ..tasks.programs import Program
from .graph import ComputationGraph, Flow, ModelGraph, Vertex, model_graph
from .origin import OriginFinder, ScheduleOrigin, told
from .page import render
from .promise import Experience, Promise, default_seconds, experience, promise
from .texts import group_texts, stages_of

_TEXT = ".text:show_model"


@dataclass(frozen=True, slots=True)
class GroupExplained:
    """A distinct group, named by its first place, and all ``places`` where it occurs.

    ``runs`` counts all of them in one run of the model. ``reads`` and ``read_by`` are the flows of
    the first place, each with its reasons, ``fused`` the edges inside it with theirs. Without an
    ``origin`` it has no loops to schedule: ``note`` says why. ``promise`` is an estimate of what
    tuning gains, and None for a group that was tuned or has a single schedule.
    """

    name: str
    places: tuple[str, ...]
    key: str
    kind: str
    runs: float
    work: float
    bytes: int
    operations: tuple[str, ...]
    reads: tuple[Flow, ...]
    read_by: tuple[Flow, ...]
    fused: tuple[tuple[str, str, str], ...]
    origin: ScheduleOrigin | None
    promise: Promise | None
    note: str = ""


@dataclass(frozen=True)
class ModelExplained:
    """Why a model is built as it is; ``str`` shows it, ``to_json`` is for programs.

    ``groups`` are the distinct ones, heaviest first. ``cache`` is None for a model that is no file
    and no graph. ``known`` is what the promises are made of, ``notes`` what the log left out.
    """

    name: str
    target: str
    log: str
    graph: ModelGraph
    groups: tuple[GroupExplained, ...]
    cache: CacheAnswer | None
    known: Experience
    notes: tuple[str, ...]

    def group(self, name: str) -> GroupExplained:
        """Return a group by a name or the start of its key; ``ArgumentError`` without one."""
        found = [g for g in self.groups if name in g.places or (name and g.key.startswith(name))]
        if found:
            return found[0]
        names = [place for g in self.groups for place in g.places]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        shown = ", ".join(names[:8]) + (", .." if len(names) > 8 else "")
        raise ArgumentError(f"no group {name!r} in {self.name}", hint=f"{hint}groups: {shown}")

    def to_json(self) -> dict[str, Any]:
        """Return plain data; seconds are of one run of the model where a field says so."""
        found = {**asdict(self), "version": 1}
        found.pop("graph")
        return found

    def __str__(self) -> str:
        text: str = resolve(_TEXT, __package__)(self)
        return text


def explain_model(model: Lowered, log: PathLike | None = None) -> ModelExplained:
    """Return why a model is built as it is with the best schedules of a log. Nothing is measured.

    ``log`` is a path, or "auto" for all logs that are found. ``LogError`` for a damaged log, and
    the errors of reading and compiling for a model that cannot be.
    """
    held, lent, notes = _log_of(model, log)
    prepared = model.prepared()
    graph = model_graph(prepared, model.name)
    origins = OriginFinder(held, model.target, _texts(prepared), lent)
    known = experience(held if held is not None and held.bests else automatic_log(), model.target)
    groups = _groups(prepared, graph, origins, known)
    key = key_of(model, model.schedules(log))
    cache = None if key is None else ask(key, model.name)
    spec = prepared.target.spec
    return ModelExplained(model.name, spec, str(log or ""), graph, groups, cache, known, notes)


def _log_of(
    model: Lowered, log: PathLike | None
) -> tuple[Log | None, Mapping[str, str], tuple[str, ...]]:
    """Return the records that a build with this log uses, which are lent, and what was skipped."""
    if log is None:
        return None, {}, ()
    if log != AUTO:
        held = read(log)
        return held, {}, tuple(held.problems)
    held, lent = with_related(automatic_log(), model.target)
    return held, lent, tuple(held.problems)


def _texts(prepared: PreparedModule) -> dict[str, str]:
    return {key: canonical_text(g.computation) for key, g in prepared.groups.distinct.items()}


def _groups(
    prepared: PreparedModule, graph: ModelGraph, origins: OriginFinder, known: Experience
) -> tuple[GroupExplained, ...]:
    places: dict[str, list[tuple[ComputationGraph, Vertex]]] = {}
    for computation in graph.computations:
        for v in computation.vertices:
            if v.key:
                places.setdefault(v.key, []).append((computation, v))
    found = [_group(prepared, key, at, origins, known) for key, at in places.items()]
    return tuple(sorted(found, key=lambda g: -g.runs * (g.work + 8 * g.bytes)))


def _group(
    prepared: PreparedModule,
    key: str,
    places: Sequence[tuple[ComputationGraph, Vertex]],
    origins: OriginFinder,
    known: Experience,
) -> GroupExplained:
    computation, v = places[0]
    group = prepared.groups.distinct[key]
    members = {i.name for i in group.members}
    runs = sum(at.runs for _, at in places)
    origin, estimate, share, note = _scheduled(prepared, key, origins)
    hope = None
    if origin is not None and origin.record is None and estimate:
        hope = promise(estimate, v.work * share, v.bytes, runs, prepared.target, known)
    return GroupExplained(
        name=v.name,
        places=tuple(at.name for _, at in places),
        key=key,
        kind=v.kind,
        runs=runs,
        work=v.work,
        bytes=v.bytes,
        operations=v.operations,
        reads=tuple(f for f in computation.flows if f.target == v.name),
        read_by=tuple(f for f in computation.flows if f.source == v.name),
        fused=tuple(e for e in computation.fused if e[0] in members and e[1] in members),
        origin=origin,
        promise=hope,
        note=note,
    )


def _scheduled(
    prepared: PreparedModule, key: str, origins: OriginFinder
) -> tuple[ScheduleOrigin | None, float, float, str]:
    """Return a group's origin, the estimate of its default schedule, the least part of its
    arithmetic that a schedule does, and why there are none.
    """
    target = prepared.target
    try:
        func = Program("hlo", origins.texts[key], target.vectors).func
        sketches = generate(func, target)
    except NestwrightError as error:
        return None, 0.0, 1.0, str(error).splitlines()[0]
    origin = origins.of(key, func, sketches)
    choices = max((s.size() for s in sketches), default=1) * len(sketches)
    estimate = default_seconds(sketches) if choices > 1 else 0.0
    share = min((s.share for s in sketches), default=1.0)
    return origin, estimate, share, ""


def graph_page(model: Lowered, stages: str | None = None, log: PathLike | None = None) -> str:
    """Return the HTML page of a model's groups, their texts with the best schedules of a log.

    ``stages`` is a list such as ``te,asm``; by default all that the target has. ``ArgumentError``
    for a stage that groups do not have.
    """
    chosen = stages_of(model.target, stages)  # before a large model is read
    held, lent, _ = _log_of(model, log)
    prepared = model.prepared()
    texts = group_texts(prepared, model.schedules(log), chosen)
    origins = OriginFinder(held, model.target, _texts(prepared), lent)
    notes: dict[str, Sequence[str]] = {}
    for key in prepared.groups.distinct:
        origin, *_, note = _scheduled(prepared, key, origins)
        notes[key] = (note,) if origin is None else told(origin)
    graph = model_graph(prepared, model.name)
    source = f", schedules of {Path(log).name}" if log is not None else ", default schedules"
    return render(graph, texts, notes, f"Target {prepared.target.spec}{source}")
