"""Tasks: the different groups of a model that can be tuned, each once, with its weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.errors import UnsupportedError
from ..ir.hlo.canonical import canonical_text, key
from ..ir.hlo.fuse import Group, fuse
from ..ir.hlo.nodes import Computation, HloModule
from ..ir.loop.nodes import Func
from ..ir.loop.printer import show as show_loops
from ..ir.target import Target
from ..schedule.sketches.analyze import blocks_of
from ..schedule.sketches.generate import generate
from .counting import flops, moved
from .programs import Program
from .records import Workload, digest
from .search.space import Space

LOOP_TRIPS = 10.0  # how often a loop body is taken to run, where nothing says it


@dataclass(frozen=True)
class Task:
    """A program to tune. ``weight`` counts how often one run of the model executes it."""

    key: str
    name: str
    kind: str
    program: Program
    weight: float
    flops: float
    bytes: float
    space: Space

    @property
    def workload(self) -> Workload:
        """The task as the log keeps it."""
        p = self.program
        return Workload(self.key, self.name, p.form, p.text, self.flops, self.bytes)


def extract(module: HloModule, target: Target) -> tuple[Task, ...]:
    """The tasks of an optimized module, the heaviest work first.

    Groups that have only one schedule, such as plain copies, are left out.
    """
    found: dict[str, Task] = {}
    refused: set[str] = set()
    for group, times in _groups(module):
        name = key(group.computation)
        if name in found:
            old = found[name]
            found[name] = replace(old, weight=old.weight + times)
        elif name not in refused:
            task = _task(group, name, times, target)
            if task is None:
                refused.add(name)
            else:
                found[name] = task
    return tuple(sorted(found.values(), key=lambda t: -t.weight * (t.flops + 8 * t.bytes)))


def _task(group: Group, name: str, times: float, target: Target) -> Task | None:
    c = group.computation
    program = Program("hlo", canonical_text(c))
    try:
        func = program.func
    except UnsupportedError:
        return None  # the code generator does without a loop nest, or says why it cannot
    space = Space(generate(func, target))
    if space.size() < 2:
        return None
    return Task(name, group.name, group.kind, program, times, flops(c), moved(c), space)


def from_func(func: Func, target: Target) -> tuple[Task, ...]:
    """The one task of a function written by hand."""
    text = show_loops(func)
    program = Program("loop", text)
    space = Space(generate(program.func, target))
    if space.size() < 2:
        return ()
    work = sum(b.flops for b in blocks_of(program.func))
    size = float(sum(_bytes(b.shape) * b.dtype.bytes for b in program.func.params))
    return (Task(digest(text), func.name, "loops", program, 1.0, work, size, space),)


def _bytes(shape: tuple[int, ...]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _groups(module: HloModule) -> Iterator[tuple[Group, float]]:
    """Every group of the entry and of the control flow under it, with how often it runs."""
    waiting: list[tuple[Computation, float]] = [(module.entry, 1.0)]
    while waiting:
        c, times = waiting.pop()
        for group in fuse(c).groups:
            yield group, times
        for i in c.instructions:
            trips = LOOP_TRIPS if i.opcode == "while" else 1.0
            if i.opcode in ("while", "conditional", "call"):
                waiting.extend((sub, times * trips) for sub in _called(i.attrs.values()))


def _called(values: object) -> Iterator[Computation]:
    for value in values:  # type: ignore[attr-defined]
        if isinstance(value, Computation):
            yield value
        elif isinstance(value, tuple):
            yield from _called(value)
