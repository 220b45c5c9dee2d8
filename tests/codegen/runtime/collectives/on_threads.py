"""Runs an executable on all of its devices, one thread each."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nestwright.codegen.runtime.collectives.threads import (
    ThreadCommunicator,
    thread_communicators,
)
from nestwright.codegen.runtime.executable import Executable

SECONDS = 60.0  # a busy machine may be slow


def run_on_threads(exe: Executable, args: Sequence[Sequence[Any]]) -> list[Any]:
    """The result of each device on its arguments; the first exception, if one fails."""

    def run(communicator: ThreadCommunicator, own: Sequence[Any]) -> Any:
        try:
            return exe.on(communicator)(*own)
        except BaseException:
            communicator.fail()
            raise

    with ThreadPoolExecutor(len(args)) as pool:
        return list(pool.map(run, thread_communicators(len(args), SECONDS), args))
