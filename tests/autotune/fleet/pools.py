"""Fake costs, workers that answer with them, and an executor that treats answers badly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from nestwright.autotune.fleet.messages import Identity, Reply, decode_request, encode_reply
from nestwright.autotune.log.records import DEFAULT_SKETCH, digest
from nestwright.autotune.measure.protocol import Candidate, Job, Limits, Outcome

CODE = "nestwright 0"
MACHINE = "znver9 32K"


def cost(c: Candidate) -> float:
    """Return seconds that depend on the candidate's decisions alone."""
    if c.sketch == DEFAULT_SKETCH:
        return 2e-5
    return 1e-6 * (1 + int(digest([c.sketch, dict(c.decisions)])[:8], 16) % 1000)


def outcomes(job: Job) -> tuple[Outcome, ...]:
    """Return the outcomes of a job on the fake machine."""
    return tuple(Outcome("ok", (cost(c),) * 3, c.trace or []) for c in job.candidates)


def answer(packet: bytes, *models: bytes) -> bytes:
    """Answer a request as a worker would that fits, without a machine."""
    request = decode_request(packet)
    if request.job is None:
        return encode_reply(Reply(identity(request.code)))
    return encode_reply(Reply(identity(request.code), "", outcomes(request.job)))


def identity(code: str = CODE, name: str = "w", machine: str = MACHINE) -> Identity:
    return Identity(name, code, machine)


def job(number: int, candidates: int = 1) -> Job:
    """Return a job whose candidates have decisions of their own."""
    given = tuple(Candidate("tiles", {"at": number, "n": n}) for n in range(candidates))
    limits = Limits(load=1, build=1, wait=1, run=1)
    return Job(number, "measure", "key", "hlo", "text", "cpu", given, "ref", limits=limits)


class Clock:
    """A clock that advances by a step whenever it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class BadExecutor(Executor):
    """Loses, delays and reorders answers, and cancels some requests, by a seed.

    Each request is treated badly twice at most. There is no thread: what is held back is answered
    while something else is submitted, often after the request has been given again.
    """

    def __init__(
        self, seed: int, perform: Callable[..., bytes] = answer, lossy: float = 0.2
    ) -> None:
        self._rng, self._given, self.lossy = random.Random(seed), perform, lossy
        self._max_workers = 4
        self._held: list[tuple[Future[Any], tuple[Any, ...]]] = []
        self.fates: Counter[str] = Counter()
        self._treated: Counter[bytes] = Counter()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        fate = self._rng.random() if self._treated[args[0]] < 2 or self.lossy == 1 else 1.0
        self._treated[args[0]] += fate < self.lossy + 0.5
        if fate < self.lossy:
            self.fates["lost"] += 1
        elif fate < self.lossy + 0.1:
            self.fates["cancelled"] += 1
            future.cancel()
        elif fate < self.lossy + 0.5:
            self.fates["held"] += 1
            self._held.append((future, args))
        else:
            self.fates["answered"] += 1
            future.set_result(self._given(*args))
        if self._held and self._rng.random() < 0.5:
            self.let_go()
        return future

    def let_go(self) -> None:
        """Answer one of those that are held, any of them."""
        future, args = self._held.pop(self._rng.randrange(len(self._held)))
        if not future.cancelled():
            future.set_result(self._given(*args))


def differing(**changed: str) -> Callable[..., bytes]:
    """Return ``answer`` of a worker whose identity is different."""

    def other(packet: bytes, *models: bytes) -> bytes:
        request = decode_request(packet)
        me = replace(identity(request.code), **changed)
        return encode_reply(Reply(me, "", outcomes(request.job) if request.job else ()))

    return other
