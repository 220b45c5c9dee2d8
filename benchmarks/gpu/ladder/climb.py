"""The climb: rungs in order, each in a child whose imports and builds overlap with those before."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from .child import Child
from .outcome import ABSENT, FAILED, OK, SKIPPED, Outcome, attempt
from .report import Report
from .rung import Rung
from .site import Site

Numbered = tuple[int, Rung]


class Ended(BaseException):
    """A signal that ends the climb."""


def climb(
    rungs: Sequence[Numbered],
    command: Sequence[str],
    ahead: int,
    patience: Callable[[Rung], tuple[float, float]],
    report: Report,
) -> int:
    """Run the rungs in children, ``ahead`` of which prepare while one runs; the exit status.

    ``patience`` gives a rung's limits, of its preparation and of its run.
    """
    waiting = deque(rungs)
    begun: deque[tuple[int, Child]] = deque()
    with _signals():
        try:
            while begun or waiting:
                while waiting and len(begun) <= ahead:
                    number, rung = waiting.popleft()
                    begun.append((number, Child(rung, command)))
                number, child = begun[0]
                found = child.result(*patience(child.rung))
                begun.popleft()
                if not _add(report, number, found):
                    break
            return report.end()
        except (Ended, KeyboardInterrupt) as reason:
            return report.end(str(reason) or "SIGINT")
        finally:
            for _, child in begun:
                child.kill()


def in_process(rungs: Sequence[Numbered], site: Callable[[Rung], Site], report: Report) -> int:
    """Run the rungs one after the other in this process, without limits."""
    for number, rung in rungs:
        if rung.ends and len(rungs) > 1:
            why = "it ends this process's use of the GPU: --only it"
            found = Outcome(rung.name, SKIPPED, cause=why)
        else:
            found = attempt(site(rung), lambda: None)
        if not _add(report, number, found):
            break
    return report.end()


def _add(report: Report, number: int, found: Outcome) -> bool:
    """Write a rung down; False if there is no point in going on: there is no GPU.

    A GPU that was there before and is not any more is a failure.
    """
    if found.state == ABSENT and any(f.state == OK for f in report.outcomes):
        found.state = FAILED
    report.add(number, found)
    return found.state != ABSENT


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends the climb as Ctrl-C does: no child is left."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
