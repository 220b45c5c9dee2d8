"""A measurer whose jobs are done by the workers of a pool, which come, go, hang and die.

A job is given to another worker when its own has gone or is silent, and to an idle one when it
takes much longer than others. Its first good answer counts, any later one is dropped.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from statistics import median
from typing import Self

from ...ir.errors import FleetError
from ..measure.protocol import Job, Measurer, Outcome, Underway, Watch
from ..measure.timing import Clock
from .identity import other_class
from .messages import BadReply, Reply, Request, decode_reply_of, encode_request
from .worker_pool import ANYONE, Answer, WorkerPool, in_words
from .workers import AHEAD, Assignment, Attempt, WorkerState, models_of

NAP = 0.25  # seconds between two looks at the workers
TELL = 1.0  # seconds between two calls of a watch
TRIES = 4  # workers that may lose the same job
FAULTS = 3  # errors in succession after which a worker is not used
REFUSALS = 20  # refusals in succession after which no worker of an executor is expected to fit
ARRIVAL = 15.0  # seconds to wait for the first worker
PATIENCE = 60.0  # seconds to wait for others when none is left
LATE = 2.0, 4.0  # seconds, and multiple of the usual time, after which an idle worker helps out


class Fleet(Measurer):
    """Runs jobs on a pool's workers; entering its context waits for the first of them.

    ``machine`` is the class of the machines that measure: of the request, else the first worker's.
    ``peaks`` are the most operations and bytes a second of any, as of ``floor.least_seconds``.
    """

    def __init__(
        self, pool: WorkerPool, request: Request, clock: Clock = time.monotonic, nap: float = NAP
    ) -> None:
        """``request`` asks a worker what it is; ``nap`` is the longest wait for an answer."""
        self.machine, self.peaks = request.machine, (0.0, 0.0)
        self._pool, self._request, self._clock, self._nap = pool, request, clock, nap
        self._workers: dict[str, WorkerState] = {}
        self._attempts: dict[int, Attempt] = {}
        self._open: list[Assignment] = []
        self._again: deque[Assignment] = deque()
        self._answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
        self._numbers = count()
        self._took: deque[float] = deque(maxlen=32)
        self._news: list[str] = []
        self._warned: set[str] = set()
        self._mute = 0  # attempts given up since the last answer
        self._looked = self._told = -math.inf
        self._drained = False  # no job is left to draw
        self._alone: float | None = None  # since when there has been no worker to use

    def __enter__(self) -> Self:
        began = self._clock()
        try:
            while not self._fit():
                self._look()
                list(self._serve(began + ARRIVAL))
                asked = any(w.state == "asked" for w in self._workers.values())
                if not self._fit() and not asked and (self._workers or self._late(began, ARRIVAL)):
                    raise self._nobody()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Cancel what is out, and release the pool."""
        self._recall()
        for attempt in self._attempts.values():
            attempt.cancel()
        self._pool.close()

    @property
    def slots(self) -> int:
        """The number of candidates that are timed at the same time."""
        return max(1, sum(w.slots for w in self._fit()))

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Yield each job with its outcomes as they arrive; a job is drawn when a worker is free.

        At ``until``, a time of the clock, unfinished jobs are abandoned and have no outcome.
        ``FleetError`` if there is no worker any more.
        """
        waiting, self._drained = iter(jobs), False
        try:
            while self._clock() < until:
                self._look()
                self._require_workers(self._clock())
                yield from self._assign(waiting)
                if self._drained and not self._open:
                    return
                yield from self._serve(until)
                self._tell(watch)
        finally:
            self._recall()

    def _fit(self) -> list[WorkerState]:
        return [w for w in self._workers.values() if w.state == "fit"]

    def _late(self, began: float, patience: float) -> bool:
        """True if ``patience`` seconds have passed since ``began``."""
        return self._clock() - began >= patience

    def _look(self) -> None:
        """See which workers have come or gone, and which are silent."""
        now = self._clock()
        if now - self._looked < self._nap:
            return
        self._looked = now
        there = self._pool.workers()
        for name in [n for n in self._workers if n not in there]:
            self._dismiss(self._workers.pop(name), "left", count=True)
        for name, slots in there.items():
            if name in self._workers:
                self._workers[name].slots = slots
            else:
                worker = self._workers[name] = WorkerState(name, self._pool.title(name), slots, now)
                self._send(None, worker)
        for attempt in list(self._attempts.values()):
            if (
                not attempt.given_up
                and now - max(attempt.began, attempt.worker.heard) > attempt.limit
            ):
                self._give_up(attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Wait no longer for an attempt. An executor's other workers may take another instead."""
        attempt.given_up = True
        self._mute += 1
        if attempt.worker.name == ANYONE:
            attempt.worker.attempts.pop(attempt.number, None)
        if attempt.assignment is None and attempt.worker.name == ANYONE and self._mute < TRIES:
            self._send(None, attempt.worker)
        elif attempt.assignment is None:
            attempt.worker.state, attempt.worker.why = "out", "it does not answer"
            self._add(f"{attempt.worker.title} does not answer and is not used")
        else:
            self._lose(attempt, f"{attempt.worker.title} did not answer", True)

    def _require_workers(self, now: float) -> None:
        """Raise ``FleetError`` if nobody has been able to work for long."""
        fit = self._fit()
        stuck = all(w.attempts and all(self._attempts[n].given_up for n in w.attempts) for w in fit)
        if self._mute > max(TRIES, (1 + AHEAD) * self.slots):
            raise FleetError("the workers do not answer", self._summary())
        if fit and not stuck:
            self._alone = None
        elif self._alone is None:
            self._alone = now
            self._add("no worker is left; waiting for others")
        elif self._late(self._alone, PATIENCE):
            raise self._nobody()

    def _nobody(self) -> FleetError:
        left_out = [f"{w.title}: {w.why}" for w in self._workers.values() if w.why]
        why = "; ".join(left_out[:4]) or f"none is there after {ARRIVAL:.0f} s"
        return FleetError("there is no worker to measure on", why)

    def _assign(self, waiting: Iterator[Job]) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Give work to all who are free; yield the jobs that cannot be sent."""
        now = self._clock()
        for worker in self._workers.values():
            while worker.free(now):
                chosen = self._next(waiting, worker)
                if isinstance(chosen, Assignment):
                    self._send(chosen, worker)
                elif chosen is None:
                    break
                else:
                    yield chosen

    def _next(
        self, waiting: Iterator[Job], worker: WorkerState
    ) -> Assignment | tuple[Job, tuple[Outcome, ...]] | None:
        """Return what a free worker does next: what others lost, a new job, what is late."""
        while self._again:
            found = self._again.popleft()
            if not found.done:
                return found
        job = next(waiting, None)
        if job is None:
            self._drained = True
            return self._overdue(worker)
        try:
            made = Assignment(job, models_of(job))
        except (OSError, ValueError) as e:
            return job, (Outcome("invalid", note=str(e)),) * len(job.candidates)
        self._open.append(made)
        return made

    def _overdue(self, worker: WorkerState) -> Assignment | None:
        """Return a job that another worker has had for long, if this one has nothing to do."""
        usual = max(LATE[0], LATE[1] * median(self._took or (math.inf,)))
        if worker.name != ANYONE and worker.attempts:
            return None
        for a in self._open:
            attempts = [self._attempts[n] for n in a.away]
            if len(attempts) == 1 and self._late(attempts[0].began, usual):
                return a
        return None

    def _send(self, assignment: Assignment | None, worker: WorkerState) -> None:
        number, now = next(self._numbers), self._clock()
        request = replace(self._request, machine=self.machine)
        models: tuple[bytes, ...] = ()
        if assignment is not None:
            request, models = replace(request, job=assignment.job), assignment.models
            assignment.away.add(number)
        attempt = self._attempts[number] = Attempt(number, assignment, worker, now)
        if not worker.attempts:
            worker.heard = now
        worker.attempts[number] = None
        answers = self._answers
        attempt.cancel = self._pool.submit(
            worker.name,
            encode_request(request),
            models,
            lambda answer: answers.put((number, answer)),
        )

    def _serve(self, until: float) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        """Wait for an answer, and yield the jobs that are finished by all that have arrived."""
        wait = min(self._nap, max(0.0, until - self._clock()))
        while True:
            try:
                number, answer = (
                    self._answers.get(timeout=wait) if wait else self._answers.get_nowait()
                )
            except Empty:
                break
            wait = 0.0
            attempt = self._attempts.pop(number, None)
            if attempt is not None:
                attempt.worker.attempts.pop(number, None)
                found = self._take(attempt, answer)
                if found is not None:
                    yield found
        for a in [a for a in self._open if not a.done and len(a.lost) >= TRIES and not a.away]:
            self._finish(a)
            yield a.failed()

    def _take(self, attempt: Attempt, answer: Answer) -> tuple[Job, tuple[Outcome, ...]] | None:
        """Record an answer; return the job that it finishes."""
        worker, assignment = attempt.worker, attempt.assignment
        if assignment is not None:
            assignment.away.discard(attempt.number)
        if isinstance(answer, BaseException):
            self._failed(attempt, answer)
            return None
        worker.heard, self._mute = self._clock(), 0
        try:
            reply = decode_reply_of(answer, len(assignment.job.candidates) if assignment else 0)
        except BadReply as e:
            self._failed(attempt, e)
            return None
        if refusal := reply.refusal or other_class(reply.worker.machine, self.machine):
            self._refused(attempt, reply, refusal)
            return None
        worker.refusals = worker.faults = 0
        if assignment is None:
            self._welcome(worker, reply)
            return None
        worker.done += 1
        if assignment.done:
            return None
        self._took.append(worker.heard - attempt.began)
        self._finish(assignment)
        return assignment.job, reply.outcomes

    def _welcome(self, worker: WorkerState, reply: Reply) -> None:
        """Use a worker that fits."""
        self.machine = self.machine or reply.worker.machine
        rate, stream = self.peaks
        self.peaks = max(rate, reply.rate), max(stream, reply.stream)
        worker.state = "fit"

    def _refused(self, attempt: Attempt, reply: Reply, why: str) -> None:
        """Leave out a worker that does not fit; its jobs go to others."""
        worker, assignment = attempt.worker, attempt.assignment
        if assignment is not None and not assignment.done:
            self._again.append(assignment)
        if worker.name != ANYONE:
            self._leave_out(worker, why)
            return
        self._warn(reply.worker.name, f"worker {reply.worker.name} is left out: {why}")
        worker.refusals, worker.why = worker.refusals + 1, why
        worker.until = self._clock() + min(1.0, 0.01 * 2**worker.refusals)
        if worker.refusals >= REFUSALS + worker.slots:
            raise FleetError(f"no worker of {worker.title} fits", why)
        if assignment is None:
            self._send(None, worker)

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        """Record that an attempt has no answer."""
        worker, assignment = attempt.worker, attempt.assignment
        if isinstance(error, BrokenExecutor):
            raise FleetError(f"{worker.title} broke", in_words(error))
        if attempt.given_up:
            return
        told = in_words(error)
        died = isinstance(error, CancelledError) or type(error).__name__ == "KilledWorker"
        if died:
            self._mute += 1
        else:
            worker.faults += 1
            if worker.name == ANYONE and worker.faults >= FAULTS * worker.slots:
                raise FleetError(f"the workers of {worker.title} fail", told)
            if worker.name != ANYONE and (worker.state == "asked" or worker.faults >= FAULTS):
                self._leave_out(worker, told)
            self._warn(told, f"{worker.title} failed: {told}")
        if assignment is not None:
            self._lose(attempt, f"{worker.title}: {told}", False)
        elif worker.name == ANYONE or died:
            self._send(None, worker)

    def _leave_out(self, worker: WorkerState, why: str) -> None:
        if worker.state != "out":
            worker.state, worker.why = "out", why
            self._add(f"{worker.title} is left out: {why}")
            self._dismiss(worker, "is left out", count=False)

    def _dismiss(self, worker: WorkerState, why: str, count: bool) -> None:
        """Let others do what a worker had to do; ``count`` it against what it may have begun."""
        if worker.state == "fit":
            self._add(f"{worker.title} {why}; its jobs go to others")
        begun = {n for n in worker.attempts if worker.begun(n)}
        for number in list(worker.attempts):
            attempt = self._attempts.pop(number)
            attempt.cancel()
            if attempt.assignment is None or attempt.given_up:
                continue
            if count and number in begun:
                self._lose(attempt, f"{worker.title} {why}", False)
            else:
                attempt.assignment.away.discard(number)
                self._repeat(attempt.assignment)
        worker.attempts.clear()

    def _lose(self, attempt: Attempt, why: str, silent: bool) -> None:
        """Record that an attempt at a job came to nothing."""
        assignment = attempt.assignment
        assert assignment is not None
        assignment.away.discard(attempt.number)
        assignment.lost.append(why)
        assignment.silent = assignment.silent and silent
        if len(assignment.lost) < TRIES:
            self._repeat(assignment)

    def _repeat(self, assignment: Assignment) -> None:
        """Give a job to somebody else, unless it is done or somebody has it."""
        if not assignment.done and not assignment.away:
            self._again.append(assignment)

    def _finish(self, assignment: Assignment) -> None:
        assignment.done = True
        if assignment in self._open:
            self._open.remove(assignment)
        for attempt in [self._attempts[n] for n in assignment.away]:
            if attempt.worker.name == ANYONE or not attempt.worker.begun(attempt.number):
                attempt.cancel()  # what has begun goes on, and keeps its worker busy

    def _recall(self) -> None:
        """Cancel all jobs. What a worker has begun it finishes; nobody waits for it."""
        for assignment in list(self._open):
            self._finish(assignment)
        self._again.clear()

    def _summary(self) -> str:
        fit = self._fit()
        out = sum(w.state == "out" for w in self._workers.values())
        workers = sum(w.slots for w in fit)
        parts = [f"{workers} worker{'' if workers == 1 else 's'}"]
        return ", ".join(parts + ([f"{out} left out"] if out else []))

    def _warn(self, name: str, text: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            self._add(text)

    def _add(self, text: str) -> None:
        self._news.append(text)

    def _tell(self, watch: Watch | None) -> None:
        now = self._clock()
        if watch is None or (now - self._told < TELL and not self._news):
            return
        self._told = now
        news, self._news = tuple(self._news), []
        watch(Underway(tuple((a.job, "away") for a in self._open), self._summary(), news))
