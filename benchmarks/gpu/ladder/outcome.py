"""The outcome of a rung, and running a rung in this process."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from .rung import Skipped
from .site import Site

OK, FAILED, SKIPPED, ABSENT = "ok", "FAILED", "skipped", "absent"
CAUSE = 300  # characters of a cause that a line has


@dataclass
class Outcome:
    """``fact`` is what was found; ``cause`` the first line of why not; ABSENT: there is no GPU."""

    name: str
    state: str
    fact: str = ""
    cause: str = ""
    seconds: float = 0.0
    prepare_seconds: float = 0.0
    numbers: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    def line(self, number: int) -> str:
        """Return the one line that is printed."""
        told = self.fact if self.state == OK else self.cause
        return f"{number:>2}  {self.name:<12}{self.state:<8}{self.seconds:7.2f} s  {told}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return all but the log."""
        found = asdict(self)
        del found["log"]
        return found


def attempt(site: Site, ready: Callable[[], object]) -> Outcome:
    """Prepare a rung, call ``ready``, which waits for the rung's turn, and run it."""
    found = Outcome(site.rung.name, FAILED, numbers=site.numbers)
    begun = time.perf_counter()
    try:
        site.prepare()
        found.prepare_seconds = time.perf_counter() - begun
        ready()
        begun = time.perf_counter()
        if _met(site, found):
            found.fact = site.rung.run(site)
            site.close()
            found.state = OK
    except Skipped as why:
        found.state, found.cause = SKIPPED, str(why)
    except Exception as error:
        traceback.print_exc()
        found.cause, found.log = told(error), traceback.format_exc()
    found.seconds = time.perf_counter() - begun
    return found


def _met(site: Site, found: Outcome) -> bool:
    """Open the device and return True; False, and outcome ABSENT, if there is none."""
    from nestwright.ir.errors import TargetError

    try:
        site.open()
        return True
    except TargetError as error:
        traceback.print_exc()
        found.state, found.cause = ABSENT, told(error)
        return False


def told(error: BaseException) -> str:
    """Return an error in one line."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    kind = "" if type(error).__name__ == "Wrong" else f"{type(error).__name__}: "
    return f"{kind}{first}"[:CAUSE]
