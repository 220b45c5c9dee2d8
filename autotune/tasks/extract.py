"""Tasks: the distinct groups of a model that can be tuned, with their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...codegen.plan.groups import Groups, fuse_module
from ...ir.errors import UnsupportedError
from ...ir.hlo.fuse.fusion import Group
from ...ir.hlo.fuse.order import called
from ...ir.hlo.nodes import Computation, HloModule, Instruction
from ...ir.hlo.patterns.loops import trip_count
from ...ir.hlo.text.canonical import canonical_text
from ...ir.loop.nodes import Func
from ...ir.loop.printer import canonical
from ...ir.target import Target
from ...schedule.language.schedule import Schedule
from ...schedule.sketches.generate import generate
from ...schedule.sketches.sampled import written_sketch
from ...schedule.space.analyze import blocks_of
from ..log.records import Workload, digest
from ..search.space import Space
from .counting import certain_flops, flops, moved
from .programs import Program
from .reuse import reuse_distances

LOOP_TRIPS = 10.0  # assumed trip count of a loop if it is not a constant


@dataclass(frozen=True)
class Task:
    """A program to tune. ``weight`` counts how often one run of the model executes it.

    ``certain`` is a lower bound on its f32 operations, ``reuse`` are the reuse distances
    of its parameters (``tasks.reuse``; empty without a model).
    """

    key: str
    name: str
    kind: str
    program: Program
    weight: float
    flops: float
    bytes: float
    space: Space
    certain: float = 0.0
    reuse: tuple[float, ...] = ()

    @property
    def workload(self) -> Workload:
        """The task's record in the log."""
        p = self.program
        return Workload(self.key, self.name, p.form, p.text, self.flops, self.bytes)


def extract(
    module: HloModule,
    target: Target,
    excess_precision: bool = True,
    groups: Groups | None = None,
) -> tuple[Task, ...]:
    """Return the tasks of an optimized module, the heaviest first.

    ``groups`` are the module's, if they are known already. Groups with a single schedule, such as
    plain copies, are left out.
    """
    if groups is None:
        groups = fuse_module(module, excess_precision, target)
    weights, reuse = _occurrences(module, groups), reuse_distances(groups)
    found = (
        _task(g, name, weights[name], target, reuse[name]) for name, g in groups.distinct.items()
    )
    tasks = [t for t in found if t is not None]
    return tuple(sorted(tasks, key=lambda t: -t.weight * (t.flops + 8 * t.bytes)))


def _task(
    group: Group, name: str, times: float, target: Target, reuse: tuple[float, ...]
) -> Task | None:
    c = group.computation
    program = Program("hlo", canonical_text(c), target.vectors)
    try:
        func = program.func
    except UnsupportedError:
        return None  # the code generator handles it without a loop nest, or reports why not
    space = Space(generate(func, target))
    if space.size() < 2:
        return None
    return Task(
        key=name,
        name=group.name,
        kind=group.kind,
        program=program,
        weight=times,
        flops=flops(c),
        bytes=moved(c),
        space=space,
        certain=certain_flops(c),
        reuse=reuse,
    )


def from_func(model: Func | Schedule, target: Target) -> tuple[Task, ...]:
    """Return the task of a hand-written function, or of filling the holes of a schedule."""
    func = model if isinstance(model, Func) else model.origin
    text = canonical(func)
    program = Program("loop", text)
    written = None if isinstance(model, Func) else written_sketch(model)
    space = Space(generate(program.func, target) if written is None else (written,))
    if space.size() < 2:
        return ()
    work = sum(b.flops for b in blocks_of(program.func))
    size = float(sum(_bytes(b.shape) * b.dtype.bytes for b in program.func.params))
    return (Task(digest(text), func.name, "loops", program, 1.0, work, size, space),)


def priced(task: Task, target: Target) -> Task:
    """Return a task whose points are ranked by the estimates for a target."""
    return replace(task, space=task.space.priced(generate(task.program.func, target)))


def _bytes(shape: tuple[int, ...]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _occurrences(module: HloModule, groups: Groups) -> dict[str, float]:
    """Return how often a run of the model executes each distinct group, by key."""
    times: dict[str, float] = {}
    for computation, runs in runs_of(module, groups).items():
        for group in groups.fusions[computation].groups:
            name = groups.keys[group]
            times[name] = times.get(name, 0.0) + runs
    return times


def runs_of(module: HloModule, groups: Groups) -> dict[Computation, float]:
    """Return how often a run of the model executes each computation that is fused."""
    times: dict[Computation, float] = dict.fromkeys(groups.fusions, 0.0)
    waiting: list[tuple[Computation, float]] = [(module.entry, 1.0)]
    while waiting:
        computation, runs = waiting.pop()
        times[computation] += runs
        for i in computation.instructions:
            times_each = runs * _trips(i)
            waiting += [(c, times_each) for c in called(i) if c in groups.fusions]
    return times


def _trips(i: Instruction) -> float:
    """Return how often one run of an instruction runs each computation that it calls."""
    if i.opcode != "while":
        return 1.0
    count = trip_count(i)
    return LOOP_TRIPS if count is None else float(count)
