"""The part of a worker: it says what it is, refuses a request, or measures in a child process.

Each thread that takes requests has a child of its own, the same as the local pool's, which hangs
and crashes without harm to the worker. Idle children end after a while.
"""

from __future__ import annotations

import fcntl
import os
import platform
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256

from ...ir.files import cache_folder, open_lock
from ...ir.scratch import Scratch
from ...ir.target import Target
from ..measure.machine import measure_rate, measure_stream
from ..measure.protocol import Candidate, Job, Outcome
from ..measure.worker import Worker
from .identity import examine
from .messages import Reply, Request, decode_request, encode_reply

IDLE = 60.0  # seconds after which an idle child ends
_desk = threading.local()
_seats: set[_Seat] = set()
_turn = threading.Lock()


def perform(packet: bytes, *models: bytes) -> bytes:
    """Return the reply to a request, both encoded; ``models`` are the built models of a race."""
    request = decode_request(packet)
    me, refusal = examine(request)
    if refusal:
        return encode_reply(Reply(me, refusal))
    target = Target.parse(request.spec)
    if request.job is None:
        return encode_reply(Reply(me, "", (), measure_rate(target), measure_stream(target)))
    with _taken(target.threads, request.libraries) as seat:
        outcomes = _measured(seat.worker, request, request.job, models)
    return encode_reply(Reply(me, "", outcomes))


def _measured(
    worker: Worker, request: Request, job: Job, models: Sequence[bytes]
) -> tuple[Outcome, ...]:
    """Return a job's outcomes; its files are this worker's own."""
    named = sha256(f"{job.key} {job.seed} {request.spec}".encode()).hexdigest()[:32]
    job = replace(job, target=request.spec, reference=str(_folder().path / f"{named}.npz"))
    if not models:
        return serve(worker, job)
    places = [_folder().path / f"{threading.get_ident()}-{n}.nw" for n in range(len(models))]
    try:
        for place, data in zip(places, models, strict=True):
            place.write_bytes(data)
        return serve(worker, replace(job, candidates=tuple(map(_at, job.candidates, places))))
    finally:
        for place in places:
            place.unlink(missing_ok=True)


def _at(candidate: Candidate, place: os.PathLike[str]) -> Candidate:
    return replace(candidate, bundle=str(place))


def serve(worker: Worker, job: Job) -> tuple[Outcome, ...]:
    """Return the outcomes of a job from a child, which is killed when it exceeds a limit."""
    worker.submit(job)
    while True:
        left = worker.deadline - time.monotonic()
        ready, _, _ = select.select([worker], [], [], max(0.0, min(left + 0.01, 1.0)))
        done = (worker.receive() if ready else None) or worker.expire()
        if done is not None:
            return done[1]


@dataclass(eq=False, slots=True)
class _Seat:
    """A thread's child, and the lock of the core that it is pinned to (-1: none).

    ``busy`` is held while it works; once ``gone``, the thread needs another.
    """

    worker: Worker
    given: tuple[int, str]
    core: int = -1
    gone: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)
    timer: threading.Timer | None = None

    def end(self) -> None:
        """End the child, unless it is working."""
        if not self.busy.acquire(blocking=False):
            return
        try:
            if not self.gone:
                self.gone = True
                self.worker.close()
                if self.core >= 0:
                    os.close(self.core)
        finally:
            self.busy.release()
        with _turn:
            _seats.discard(self)

    def rest(self) -> None:
        """Let the child end soon, unless there is another request for it."""
        self.timer = threading.Timer(IDLE, self.end)
        self.timer.daemon = True
        self.timer.start()


@contextmanager
def _taken(threads: int, libraries: str) -> Iterator[_Seat]:
    """Hold this thread's seat; it is a new one if the child has ended or needs other settings."""
    while True:
        seat: _Seat | None = getattr(_desk, "seat", None)
        if seat is not None and (seat.gone or seat.given != (threads, libraries)):
            seat.end()
            seat = None
        if seat is None:
            core, lock = _core() if threads == 1 else (None, -1)
            worker = Worker(core=core, threads=threads, libraries=libraries)
            seat = _desk.seat = _Seat(worker, (threads, libraries), lock)
            with _turn:
                _seats.add(seat)
        if seat.timer is not None:
            seat.timer.cancel()
        try:
            with seat.busy:
                if not seat.gone:
                    yield seat
                    return
        finally:
            if not seat.gone:
                seat.rest()


def _core() -> tuple[int | None, int]:
    """Return a core that no other worker's child is pinned to, and its lock; none if all are."""
    with suppress(OSError):  # the folder cannot be written
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        for core in sorted(os.sched_getaffinity(0)):
            lock = open_lock(folder / f"core-{platform.node() or 'here'}-{core}.lock")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return core, lock
    return None, -1


def release() -> None:
    """End this process's idle children; a thread's next request starts another."""
    with _turn:
        seats = list(_seats)
    for seat in seats:
        if seat.timer is not None:
            seat.timer.cancel()
        seat.end()


@cache
def _folder() -> Scratch:
    """Return this worker's folder for reference results, which last as long as the process."""
    return Scratch("fleet")
