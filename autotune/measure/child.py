"""The measuring child process: reads jobs from its input, measures, replies on its output.

The process is isolated: it dies with its parent, has limited address space, can be pinned to one
core, and output of kernels and libraries does not get into the protocol.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import BinaryIO

from ...ir.library.functions import adopt
from .host.lock import MachineLock
from .protocol import (
    LIBRARIES,
    OUT_OF_MEMORY,
    Outcome,
    Phase,
    decode_job,
    encode_outcomes,
    encode_phase,
)

PR_SET_PDEATHSIG = 1


def isolate() -> None:
    """Die with the parent, ignore Ctrl-C, and stay on the core that the environment names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get("NESTWRIGHT_MEASURE_PARENT")
    if parent is not None and os.getppid() != int(parent):
        sys.exit()  # the parent died before the signal was set up
    core = os.environ.get("NESTWRIGHT_MEASURE_CORE")
    if core is not None:
        with suppress(OSError):  # the system does not allow it, or took the core away
            os.sched_setaffinity(0, {int(core)})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def private_output() -> BinaryIO:
    """Move the pipe to the parent to a new descriptor, and redirect prints to stderr."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return pipe


def limit_memory(size: int) -> None:
    """Limit the address space to ``size`` bytes, 0 for no limit, or to less if the system does."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    unlimited = hard == resource.RLIM_INFINITY
    least = size if unlimited else min(size or hard, hard)
    resource.setrlimit(resource.RLIMIT_AS, (least or hard, hard))


def main() -> None:
    """Serve jobs until the input ends."""
    isolate()
    out = private_output()
    lock = MachineLock()
    out.write(encode_phase(Phase("wait")))
    with lock.building():
        out.write(encode_phase(Phase("start")))
        from .harness import Harness  # after isolation: this import loads the compiler
    lock.close()

    adopt(os.environ.get(LIBRARIES, ""))
    harness = Harness(lambda phase: out.write(encode_phase(phase)))
    for line in sys.stdin.buffer:
        job = decode_job(line)
        limit_memory(job.limits.memory)
        try:
            outcomes: tuple[Outcome, ...] = harness.run(job)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # the heap may be corrupt: a fresh child continues
        out.write(encode_outcomes(job.number, outcomes))


if __name__ == "__main__":
    main()
