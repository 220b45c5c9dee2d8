"""The parent's side of a way: its process, which runs only while it has a turn."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....ir.arrays import Array
from ....ir.library.functions import for_children
from ...measure.protocol import LIBRARIES
from .arrays import read_arrays

CHILD = (sys.executable, "-m", "nestwright.autotune.bench.race.child")
POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NESTWRIGHT_NUM_THREADS")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
LOAD, RUN = 900.0, 300.0  # seconds to open a model, and to answer a command
LONGEST = 1 << 26  # bytes of an answer


@dataclass(frozen=True, slots=True)
class WayEntry:
    """A way that takes part: the function that opens it, and what it is given.

    ``open`` is ``module:function`` relative to ``package``; ``single`` as of ``PeerWay``. ``seed``
    draws the arguments of our builds, which are not given any.
    """

    name: str
    open: str
    package: str
    file: Path
    threads: int
    cores: Sequence[int] = ()
    names: Sequence[str] = ()
    arguments: Path | None = None
    seed: int = 0
    single: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, Any]:
        """The first line to the process."""
        return {
            "open": self.open,
            "package": self.package,
            "file": str(self.file),
            "threads": self.threads,
            "cores": list(self.cores),
            "names": list(self.names),
            "arguments": str(self.arguments or ""),
            "seed": self.seed,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the process: every pool of threads has the same size."""
        own = {LIBRARIES: for_children(), "NESTWRIGHT_MEASURE_PARENT": str(os.getpid())}
        pools = dict.fromkeys(POOLS, str(self.threads))
        single = self.single if self.threads == 1 else {}
        return {**os.environ, **QUIET, **pools, **own, **single}


class Lost(Exception):
    """A way that cannot go on; the text says why."""


class Entrant:
    """A way's process, as a context manager; leaving it kills the process.

    The process is stopped except while it answers, so that its threads cannot spin beside others.
    """

    def __init__(self, entry: WayEntry) -> None:
        """Start the process and open the model; raises ``Lost``."""
        self.entry = entry
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            CHILD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=entry.environment,
            start_new_session=True,
        )
        try:
            told = self._ask(entry.told, LOAD)
        except BaseException:
            self.close()
            raise
        self.first, self.detail = float(told["first"]), str(told["detail"])

    def turn(self, calls: int) -> tuple[float, list[float]]:
        """Return the seconds of a call in a loop of ``calls``, and of calls timed singly."""
        told = self._ask({"do": "turn", "calls": calls}, RUN)
        return float(told["seconds"]), [float(s) for s in told["each"]]

    def results(self, place: Path) -> list[Array]:
        """Return the results of a call, by way of a file."""
        self._ask({"do": "results", "to": str(place)}, RUN)
        return read_arrays(place)

    def callers(self, count: int, shared: bool, seconds: float) -> tuple[int, float]:
        """Return the calls that several callers finished, and the seconds they had."""
        asked = {"callers": count, "shared": shared, "seconds": seconds}
        told = self._ask({"do": "callers", **asked}, LOAD)
        return int(told["calls"]), float(told["seconds"])

    def _ask(self, command: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Let the process answer a command; raises ``Lost``."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError, ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
        answer, ends = b"", time.monotonic() + limit
        while not answer.endswith(b"\n"):
            left = ends - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise Lost(f"killed after {limit:g} s without an answer")
            data = os.read(process.stdout.fileno(), 1 << 20)
            if not data or len(answer) > LONGEST:
                raise Lost(self._last_words())
            answer += data
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
        told: dict[str, Any] = json.loads(answer)
        if problem := told.get("problem"):
            raise Lost(str(problem))
        return told

    def _last_words(self) -> str:
        """Return how the process ended, with the last line that it wrote."""
        self._process.wait(RUN)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        status = self._process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"its process ended with {how}{': ' if lines else ''}{''.join(lines[-1:])}"[:300]

    def close(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._errors.close()

    def __enter__(self) -> Entrant:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
