"""The command's front door: the group, its exit statuses, and how an error is told."""

from __future__ import annotations

import importlib
import io
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import ClassVar, TextIO

import click

from ..ir.errors import NestwrightError, NestwrightWarning
from .syntax.group import Suggesting

UNUSABLE = 2
OURS = 3
INTERRUPTED = 130
TERMINATED = 143
COMPLETE = "_NESTWRIGHT_COMPLETE"
"""The variable by which a shell asks for completions, as click's scripts set it."""
_IMPORTED = time.monotonic()


class Commands(Suggesting):
    """The commands of ``nestwright``: each is loaded when it runs, so ``--version`` stays quick.

    ``homes`` names the module of each command, relative to this package.
    """

    homes: ClassVar[Mapping[str, str]] = {
        "tune": ".commands.tune",
        "build": ".commands.build",
        "run": ".commands.run",
        "bench": ".commands.bench",
        "show": ".commands.show",
        "explain": ".commands.explain",
        "log": ".commands.log",
        "replay": ".commands.replay",
        "opt": ".commands.opt",
        "calibrate": ".commands.calibrate",
        "targets": ".commands.machine",
        "doctor": ".commands.machine",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, without loading them."""
        return list(self.homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load and return a command; None for an unknown name."""
        home = self.homes.get(cmd_name)
        if home is None:
            return None
        command: click.Command = getattr(importlib.import_module(home, __package__), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nestwright", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; works anywhere.")
def nestwright(debug: bool) -> None:
    """Compile and tune tensor programs: HLO in, native code out."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status.

    0 success, 1 the answer is no, 2 unusable input or no such device, 3 a fault of ours,
    130 interrupted, 143 interrupted by SIGTERM.
    """
    began = time.monotonic() - (process_age() if argv is None else 0.0)
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed, as by `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets question marks
    with warnings.catch_warnings(), _terminable() as terminated:
        if not debug:
            warnings.simplefilter("ignore")
        warnings.simplefilter("always", NestwrightWarning)
        warnings.showwarning = _warn
        status = _answered(lambda: _run(args, began), debug)
    return TERMINATED if terminated and status == INTERRUPTED else status


@contextmanager
def _terminable() -> Iterator[list[int]]:
    """Let SIGTERM interrupt as Ctrl-C does, unless it is ignored or handled already.

    The list is empty until it has come.
    """
    come: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        come.append(number)
        raise KeyboardInterrupt

    ours = current_thread() is main_thread()  # no other can set a handler
    ours = ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield come
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def process_age() -> float:
    """Return the seconds since this process started, or since this import if that is unknown.

    A time limit of a command covers its start, too.
    """
    since_import = time.monotonic() - _IMPORTED
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since boot, proc(5) field 22
        return max(since_import, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, AttributeError, IndexError):
        return since_import


def _run(args: Sequence[str], began: float) -> int:
    """Return the command's exit status; click's own ``main`` would make 1 of a closed pipe.

    ``began``, when the command began on the monotonic clock, is the context's object.
    """
    if asked := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(nestwright, {}, "nestwright", COMPLETE, asked)
    try:
        with nestwright.make_context("nestwright", list(args), obj=began) as context:
            status = nestwright.invoke(context)
    except click.exceptions.Exit as e:  # --help and --version
        status = e.exit_code
    sys.stdout.flush()  # so that a full disk is noticed here
    return status if isinstance(status, int) else 0


def _answered(action: Callable[[], int], debug: bool) -> int:
    """Run something; an error becomes one message and an exit status."""
    try:
        return action()
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _told("interrupted", INTERRUPTED)
    except click.ClickException as e:
        return _misused(e)
    except Exception as e:
        if debug and not isinstance(e, BrokenPipeError):
            traceback.print_exc()
        return _failed(e)


def _failed(error: Exception) -> int:
    match error:
        case NestwrightError():
            return _told(str(error), error.exit_status)
        case BrokenPipeError() if _is_unread(sys.stdout):  # as in `nestwright show M | head`
            _drop(sys.stdout)
            return 0
        case OSError(filename=None):
            return _told(f"cannot read or write: {error.strerror or error}", UNUSABLE)
        case OSError():
            return _told(f"cannot use {error.filename!r}: {error.strerror or error}", UNUSABLE)
        case MemoryError():
            return _told(f"out of memory: {error or 'this machine has too little'}", UNUSABLE)
    told = f"internal error: {type(error).__name__}: {error}"
    return _told(
        told + "\n  hint: run again with --debug for the traceback, and please report it", OURS
    )


def _misused(error: click.ClickException) -> int:
    """Report a command line that does not parse, or print the help; return the exit status."""
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and message == context.get_help():
        return _told(message, UNUSABLE, "")
    path = context.command_path if context is not None else "nestwright"
    message = message[:1].lower() + message[1:].rstrip(".")
    return _told(f"{message}\n  hint: `{path} --help` lists commands and options", UNUSABLE)


def _told(message: str, status: int, prefix: str = "nestwright: ") -> int:
    try:
        click.echo(f"{prefix}{message}", err=True)
    except OSError:  # nobody reads it, or the disk is full; the status remains
        _drop(sys.stderr)
    return status


def _is_unread(stream: TextIO) -> bool:
    """True if a stream is a pipe whose reader has gone: it has seen enough."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except OSError:  # it is no file of the system
        return False


def _drop(stream: TextIO) -> None:
    """Drop what is written to a stream from now on, and what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without the place in our code that it comes from."""
    _told(f"warning: {message}", 0)
