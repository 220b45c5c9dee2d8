"""What travels between the tuner and a measuring child: jobs and results, as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeAlias

from ..log.records import Json

MAX_MESSAGE = 64 << 20
OUT_OF_MEMORY = 77  # exit status of a child that cannot go on for lack of memory


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds a phase may take before the child is killed, and bytes of address space it may use
    (0: any number, for a GPU's driver reserves more than a machine has).

    Waiting for the machine's lock is a phase of its own, so it never counts against a candidate.
    """

    load: float = 120.0
    build: float = 20.0
    wait: float = 1200.0
    run: float = 10.0
    memory: int = 8 << 30

    def of(self, phase: str) -> float:
        """The limit of a phase by its name."""
        return float(getattr(self, phase))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule of a task: a trace, or a sketch with its decisions, from which one is made.

    In a race of whole models ``bundle`` is the file of a built one, and there is no schedule.
    """

    sketch: str
    decisions: Mapping[str, Json]
    trace: list[Json] | None = None
    bundle: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """Measure one candidate of a task, or race several side by side.

    ``form`` and ``text`` are the task's program, ``reference`` a file that keeps the interpreter's
    result between jobs, ``incumbent`` the best time so far in seconds (0: none yet), ``fill`` how
    long a promising candidate is timed. A time below ``floor`` seconds is beyond the machine, so it
    cannot be right. ``reach`` says how many bytes pass between two uses of each input.
    """

    number: int
    kind: str
    key: str
    form: str
    text: str
    target: str
    candidates: tuple[Candidate, ...]
    reference: str
    seed: int = 0
    incumbent: float = 0.0
    fill: float = 0.05
    floor: float = 0.0
    reach: tuple[float, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a child enters: the phase's name, the number of the candidate in its job that the phase
    is about (None: none), and what is done with it, in words."""

    name: str
    candidate: int | None = None
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate. ``error`` is relative to the reference's root mean square.

    ``runs`` are seconds as measured, ``drift`` how much slower the machine was than before,
    ``facts`` what the compiler says of the code. After a ``fault`` the child can do no more work,
    and what it has not said of other candidates is lost.
    """

    status: str
    runs: tuple[float, ...] = ()
    trace: list[Json] | None = None
    error: float = 0.0
    note: str = ""
    build: float = 0.0
    drift: float = 1.0
    facts: Mapping[str, Json] = field(default_factory=dict)
    fault: bool = False


Watch: TypeAlias = Callable[[Sequence[tuple[Job, str]]], object]
"""Told about jobs under way, and the phase of each: load, build, wait or run."""


class Measurer(Protocol):
    """What the tuner has its candidates judged by."""

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Each job with its outcomes, as they come in.

        At ``until``, a time of ``time.monotonic``, what is under way is given up: those jobs have
        no outcome. ``watch`` is told now and then which job is in which phase.
        """


def encode_job(job: Job) -> bytes:
    """One line."""
    return json.dumps(asdict(job), separators=(",", ":")).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    """The job on a line that ``encode_job`` wrote."""
    value: dict[str, Any] = json.loads(line)
    limits = Limits(**value.pop("limits"))
    candidates = tuple(Candidate(**c) for c in value.pop("candidates"))
    reach = tuple(float(x) for x in value.pop("reach"))
    return Job(**value, limits=limits, candidates=candidates, reach=reach)


def encode_outcomes(number: int, outcomes: tuple[Outcome, ...]) -> bytes:
    """The reply to job ``number``, one line."""
    reply = {"number": number, "outcomes": [asdict(o) for o in outcomes]}
    return json.dumps(reply, separators=(",", ":")).encode() + b"\n"


def encode_phase(phase: Phase) -> bytes:
    """A sign of life: the phase that the child enters, one line."""
    told = {"phase": phase.name, "candidate": phase.candidate, "doing": phase.doing}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def decode_reply(line: bytes) -> Phase | tuple[int, tuple[Outcome, ...]]:
    """A phase, or (job number, its outcomes). ``ValueError`` for anything else."""
    try:
        value = json.loads(line)
        if "phase" in value:
            Limits().of(value["phase"])
            number = value["candidate"]
            number = None if number is None else int(number)
            return Phase(str(value["phase"]), number, str(value["doing"]))
        outcomes = tuple(
            Outcome(**{**o, "runs": tuple(float(x) for x in o["runs"])}) for o in value["outcomes"]
        )
        return int(value["number"]), outcomes
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise ValueError(f"no reply of a measuring child: {line[:80]!r}") from e
