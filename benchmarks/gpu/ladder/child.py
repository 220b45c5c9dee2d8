"""A rung in a process of its own, from both ends: what runs there, and who watches it.

The child prepares, says so on a pipe, waits for its turn on its standard input and says how it
went. It is killed with all that it started when it says nothing for too long. Whatever it prints
goes to the log.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from threading import Thread
from typing import Any

from .outcome import FAILED, OK, Outcome, attempt
from .rung import Rung
from .site import Site

KEPT = 1 << 17  # bytes of the beginning and of the end of what a child prints
LAST = 0.9  # of its time, after which a child writes where its threads are
ENDING = 10.0  # seconds that a child may take to end after its answer
ORPHANED = 30.0  # seconds past its time after which a child ends itself
STOPPED = "stopped"
TRACED = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


def serve(site: Site, control: int, seconds: float) -> None:
    """Be the child: ``control`` is the pipe's end to write to."""
    os.set_inheritable(control, False)

    def say(**event: Any) -> None:
        os.write(control, json.dumps(event, default=str).encode() + b"\n")

    def ready() -> None:
        say(event="ready")
        if sys.stdin.readline() != "go\n":
            os._exit(1)  # whoever waited for this is gone
        faulthandler.dump_traceback_later(seconds * LAST)

    found = attempt(site, ready)
    faulthandler.cancel_dump_traceback_later()
    say(event="done", outcome=asdict(found))
    sys.stdout.flush()
    faulthandler.dump_traceback_later(ENDING + ORPHANED, exit=True)


class Child:
    """The process of a rung, seen from outside."""

    def __init__(self, rung: Rung, command: Sequence[str]) -> None:
        self.rung = rung
        self.begun = time.monotonic()
        self._printed, self._dropped = bytearray(), 0
        self._tail = bytearray()
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        read, write = os.pipe()
        env = {**os.environ, **rung.env, "PYTHONUNBUFFERED": "1"}
        try:
            self.process = subprocess.Popen(
                [*command, "--child", rung.name, "--control", str(write)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                start_new_session=True,
                env=env,
            )
        finally:
            os.close(write)
        self._listeners = [
            Thread(target=self._listen, args=(read,), daemon=True),
            Thread(target=self._drain, daemon=True),
        ]
        for listener in self._listeners:
            listener.start()

    def result(self, prepare: float, seconds: float) -> Outcome:
        """Give the child its turn and wait for what it says, within these limits."""
        begun = time.monotonic()
        event = self._event(prepare)
        if event.get("event") == "ready":
            begun = time.monotonic()
            self.go()
            event = self._event(seconds)
            limit = f"no answer within {seconds:g} s"
        else:
            limit = f"not ready within {prepare:g} s"
        outcome = event.get("outcome")
        if outcome is None:
            ended = self._ended() if event.get("event") != STOPPED else limit
            self.kill()
            found = Outcome(self.rung.name, FAILED, seconds=time.monotonic() - begun)
            found.log = self.log()
            found.cause = "; ".join(filter(None, (ended, self._place(found.log))))
            return found
        found = Outcome(**outcome)
        why = self._unended()
        self.kill()
        found.log = self.log()
        if why and found.state == OK:
            found.state, found.cause = FAILED, f"it was right ({found.fact}), and then {why}"
        return found

    def go(self) -> None:
        """Tell a child that is ready that it is its turn."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def _event(self, seconds: float) -> dict[str, Any]:
        """Return the child's next event; empty if it ended, ``STOPPED`` if the time is up."""
        try:
            return self._events.get(timeout=seconds) or {}
        except queue.Empty:
            return {"event": STOPPED}

    def _ended(self) -> str:
        """Describe the end of a process that sent no answer."""
        try:
            status = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            return "it closed its pipe and stayed"
        return f"its process ended {_status(status)} before it answered"

    def _unended(self) -> str:
        """Describe what is wrong with the process's end after its answer; '' if nothing is."""
        try:
            status = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            return f"its process did not end within {ENDING:g} s"
        return f"its process ended {_status(status)}" if status else ""

    def _place(self, log: str) -> str:
        """Return the place that the child had reached, by its last traceback or line of output."""
        *_, last = ("", *re.split(r"most recent call first\):", log))
        frames = TRACED.findall(last)[:2]
        if frames:
            return "in " + ", called by ".join(f"{f} ({p}:{n})" for p, n, f in frames)
        lines = [line for line in log.splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""

    def kill(self) -> None:
        """End the process and all that it started; one that cannot be ended is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDING)
        for listener in self._listeners:
            listener.join(1.0)
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def log(self) -> str:
        """Return the output, or its beginning and end if it is long."""
        gap = f"\n... {self._dropped} bytes ...\n".encode() if self._dropped else b""
        return (bytes(self._printed) + gap + bytes(self._tail)).decode(errors="replace")

    def _listen(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as file:
            for line in file:
                with suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._events.put(event)
        self._events.put(None)

    def _drain(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as file:
            while part := os.read(file.fileno(), 1 << 16):
                room = KEPT - len(self._printed)
                self._printed += part[:room]
                self._tail += part[max(room, 0) :]
                excess = len(self._tail) - KEPT
                if excess > 0:
                    del self._tail[:excess]
                    self._dropped += excess


def _status(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
