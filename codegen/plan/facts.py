"""The facts of a plan's thunks: instructions with their sources, work, the schedule in force.

The runtime needs none of it. A bundle keeps it as a note (``notes.FACTS``), so that a loaded model
can be profiled; a thunk has the number of its facts in that list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.errors import ArtifactError
from ...ir.hlo.nodes import Instruction
from ...ir.hlo.ops.definition import Work
from .nodes import (
    ConditionalThunk,
    KernelThunk,
    LibraryThunk,
    Plan,
    Thunk,
    WhileThunk,
    accesses,
    children,
)

DEFAULT, LOG, TRACE = "default", "log", "trace"
"""Schedules in force: the default one, a record's of a log, a trace that the caller gave."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An HLO instruction; ``source`` is ``file:line`` where the model says it, ``origin`` the
    model's own name of the operation."""

    name: str
    opcode: str
    source: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The work of one run of a thunk, and where it comes from.

    ``group`` is the kind of the group, or the opcode of an instruction outside groups. ``flops``
    and ``transcendentals`` count as in ``Executable.cost_analysis``. ``schedule`` is one of
    ``DEFAULT``, ``LOG`` and ``TRACE``, "" for what has none; ``record`` is the id of the log's
    record, also of one whose schedule no longer applies, so that the default is in force.
    ``fallback`` is true for a kernel that only runs where a group's own is not correct
    (``plan.guards``). ``untouched`` are bytes of its arrays that it neither reads nor writes.
    """

    group: str = ""
    members: tuple[GroupMember, ...] = ()
    flops: float = 0.0
    transcendentals: float = 0.0
    schedule: str = ""
    record: str = ""
    fallback: bool = False
    untouched: int = 0


NOTHING = Facts()


def members(
    instructions: Iterable[Instruction], source: Callable[[Instruction], str]
) -> tuple[GroupMember, ...]:
    """Return instructions as members, without parameters and constants."""
    return tuple(
        GroupMember(
            i.name, i.opcode, source(i), i.metadata.op_name if i.metadata is not None else ""
        )
        for i in instructions
        if i.opcode not in ("parameter", "constant")
    )


def to_json(facts: Sequence[Facts]) -> str:
    """Return facts as the text of a note; texts that occur often are written once."""
    texts: dict[str, int] = {}

    def known(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = [
        [
            known(f.group),
            [[known(t) for t in (m.name, m.opcode, m.source, m.origin)] for m in f.members],
            f.flops,
            f.transcendentals,
            known(f.schedule),
            known(f.record),
            int(f.fallback),
            f.untouched,
        ]
        for f in facts
    ]
    return json.dumps({"texts": list(texts), "facts": rows}, separators=(",", ":"))


def from_json(text: str) -> tuple[Facts, ...]:
    """Return the facts in a note, none for an empty one; ``ArtifactError`` for any other text."""
    if not text:
        return ()
    try:
        data: Any = json.loads(text)
        texts = data["texts"]
        if not all(isinstance(t, str) for t in texts):
            raise ValueError("not all of its texts are texts")
        return tuple(_read(row, texts) for row in data["facts"])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ArtifactError("the facts of the kernels cannot be read", why) from error


def _read(row: Any, texts: Sequence[str]) -> Facts:
    group, inside, flops, transcendentals, schedule, record, fallback, untouched = row
    found = tuple(GroupMember(*(texts[n] for n in m)) for m in inside)
    counts = float(flops), float(transcendentals)
    names = texts[schedule], texts[record]
    return Facts(texts[group], found, *counts, *names, bool(fallback), int(untouched))


def facts_of(thunk: Thunk, facts: Sequence[Facts]) -> Facts:
    """Return the facts of a thunk; nothing is known of copies."""
    match thunk:
        case KernelThunk(facts=number) | LibraryThunk(facts=number) if 0 <= number < len(facts):
            return facts[number]
    return NOTHING


def moved(thunk: Thunk, facts: Sequence[Facts]) -> int:
    """Return the bytes that a thunk itself reads and writes, without the thunks inside it."""
    whole = sum(s.bytes for part in accesses(thunk) for s in part)
    return max(0, whole - facts_of(thunk, facts).untouched)


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of a run, and the bytes that it reads and writes."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        flops, other_flops = self.flops, other.flops
        exotic = self.transcendentals + other.transcendentals
        return Cost(flops + other_flops, exotic, self.bytes + other.bytes)

    def share(self, parts: int) -> Cost:
        """Return one of so many equal parts."""
        return Cost(self.flops / parts, self.transcendentals / parts, self.bytes / parts)

    def most(self, other: Cost) -> Cost:
        """Return the larger of each count."""
        return Cost(
            max(self.flops, other.flops),
            max(self.transcendentals, other.transcendentals),
            max(self.bytes, other.bytes),
        )


def cost(plan: Plan, facts: Sequence[Facts]) -> Cost:
    """Return the cost of one run: one iteration of each loop, the costliest branch of each choice.

    These are the conventions of XLA's HloCostAnalysis. Fallbacks do not count.
    """
    return _cost(plan.thunks, facts)


def own_cost(thunk: Thunk, facts: Sequence[Facts]) -> Cost:
    """Return the cost of a thunk itself, without the thunks inside it."""
    found = facts_of(thunk, facts)
    return Cost(found.flops, found.transcendentals, float(moved(thunk, facts)))


def _cost(thunks: Sequence[Thunk], facts: Sequence[Facts]) -> Cost:
    total = Cost()
    for thunk in thunks:
        parts = [p for p in children(thunk) if not any(facts_of(t, facts).fallback for t in p)]
        inner = [_cost(part, facts) for part in parts]
        total += own_cost(thunk, facts)
        if isinstance(thunk, ConditionalThunk):
            chosen = Cost()
            for branch in inner:
                chosen = chosen.most(branch)
            total += chosen
        else:
            if isinstance(thunk, WhileThunk):
                inner[-1:] = [body.share(thunk.unrolled) for body in inner[-1:]]
            total = sum(inner, total)
    return total


class FactList:
    """Facts while a plan is made; ``source`` returns ``file:line`` of an instruction, or ""."""

    def __init__(self, source: Callable[[Instruction], str]) -> None:
        self._source = source
        self._found: list[Facts] = []

    @property
    def facts(self) -> tuple[Facts, ...]:
        """All facts so far, by number."""
        return tuple(self._found)

    def add(
        self,
        group: str,
        instructions: Iterable[Instruction],
        work: Work,
        schedule: str = "",
        record: str = "",
        fallback: bool = False,
        untouched: int = 0,
    ) -> int:
        """Add the facts of a thunk and return their number."""
        inside = members(instructions, self._source)
        counts = work.flops, work.transcendentals
        made = Facts(group, inside, *counts, schedule, record, fallback, untouched)
        self._found.append(made)
        return len(self._found) - 1

    def together(self, numbers: Sequence[int]) -> int:
        """Add the facts of a kernel made of others, whose facts have these numbers."""
        parts = [self._found[n] for n in numbers]
        made = Facts(
            _one({p.group for p in parts}),
            tuple(m for p in parts for m in p.members),
            sum(p.flops for p in parts),
            sum(p.transcendentals for p in parts),
            _one({p.schedule for p in parts}),
            _one({p.record for p in parts}),
            any(p.fallback for p in parts),
            sum(p.untouched for p in parts),
        )
        self._found.append(made)
        return len(self._found) - 1


def _one(words: Collection[str]) -> str:
    """Return a word that all have, or all words."""
    return ", ".join(sorted(filter(None, words)))
