"""The protocol between the tuner and a measuring child: jobs and results as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self, TypeAlias

from ..log.records import Json

MAX_MESSAGE = 64 << 20
LIBRARIES = "NESTWRIGHT_MEASURE_LIBRARIES"
"""The variable with what a child needs to call registered library functions."""
OUT_OF_MEMORY = 77  # exit status of a child that cannot go on for lack of memory


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a phase may take before the child is killed, and bytes of address space.

    0 bytes means no limit, for a GPU's driver reserves more than the machine has. Waiting for the
    machine's lock is a separate phase, so it never counts against a candidate; nor does the start
    of the child itself.
    """

    start: float = 120.0
    load: float = 120.0
    build: float = 20.0
    wait: float = 1200.0
    run: float = 10.0
    memory: int = 8 << 30

    def of(self, phase: str) -> float:
        """Return the limit of a phase by its name."""
        return float(getattr(self, phase))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One schedule of a task: a trace, or a sketch with its decisions.

    In a race of whole models ``bundle`` is the file of a built model, and there is no schedule.
    """

    sketch: str
    decisions: Mapping[str, Json]
    trace: list[Json] | None = None
    bundle: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """Measure one candidate of a task, or race several side by side.

    ``form`` and ``text`` are the task's program, ``reference`` is a file that caches the expected
    results between jobs, ``incumbent`` the best time so far in seconds (0: none yet), ``fill`` the
    seconds for which a promising candidate is timed. A time below ``floor`` seconds exceeds the
    machine's peak, so it is an error. ``reuse`` are reuse distances as of ``tasks.reuse``.
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
    reuse: tuple[float, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that a child enters.

    ``candidate`` is the number of the candidate in its job, if the phase is about one; ``doing``
    describes the activity.
    """

    name: str
    candidate: int | None = None
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one candidate. ``error`` is relative to the reference's root mean square.

    ``runs`` are measured seconds, ``drift`` is the slowdown of the machine, ``facts`` are the
    compiler's facts about the code. After a ``fault`` the child cannot continue, and outcomes of
    other candidates that it has not reported are lost.
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


@dataclass(frozen=True, slots=True)
class Underway:
    """The jobs that a measurer has, and the phase of each: load, build, wait, run, or away.

    ``workers`` describes its workers ("" for its own children), ``news`` is what a user should
    know of them, a line each.
    """

    jobs: Sequence[tuple[Job, str]]
    workers: str = ""
    news: Sequence[str] = ()


Watch: TypeAlias = Callable[[Underway], object]
"""Called with what a measurer is doing."""


class Measurer(Protocol):
    """Evaluates the candidates of the tuner's jobs, as a context that closes it."""

    @property
    def slots(self) -> int:
        """The number of candidates that are timed at the same time."""
        return 1

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Yield each job with its outcomes as they arrive.

        At ``until``, a time of ``time.monotonic``, unfinished jobs are abandoned and have no
        outcome. ``watch`` is called from time to time with the phase of each job.
        """

    def close(self) -> None:
        """Release what evaluates."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def encode_job(job: Job) -> bytes:
    """Return a job as one line."""
    return json.dumps(asdict(job), separators=(",", ":")).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    """Return the job on a line that ``encode_job`` wrote."""
    value: dict[str, Any] = json.loads(line)
    limits = Limits(**value.pop("limits"))
    candidates = tuple(Candidate(**c) for c in value.pop("candidates"))
    reuse = tuple(float(x) for x in value.pop("reuse"))
    return Job(**value, limits=limits, candidates=candidates, reuse=reuse)


def encode_outcomes(number: int, outcomes: tuple[Outcome, ...]) -> bytes:
    """Return the reply to job ``number`` as one line."""
    reply = {"number": number, "outcomes": [asdict(o) for o in outcomes]}
    return json.dumps(reply, separators=(",", ":")).encode() + b"\n"


def encode_phase(phase: Phase) -> bytes:
    """Return a phase report as one line."""
    told = {"phase": phase.name, "candidate": phase.candidate, "doing": phase.doing}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def decode_reply(line: bytes) -> Phase | tuple[int, tuple[Outcome, ...]]:
    """Return a phase, or (job number, its outcomes); raise ``ValueError`` for any other line."""
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
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as e:
        raise ValueError(f"not a reply of a measuring child: {line[:80]!r}") from e
