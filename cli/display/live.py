"""The display of tuning under way: a table that redraws on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...autotune.log.units import clock, counted, duration, span
from ...autotune.tuner.progress import Progress, TaskResult

BARS = "▁▂▃▄▅▆▇█"
BAR = 24  # columns
COLUMNS = ("task", "trials", "default", "best", "gain", "best so far")
TEXTS = ("task", "best so far")  # columns that are not numbers
ROWS = 12  # tasks shown; the heaviest first
FANCY_EVERY = 0.25  # seconds between redrawings for what is not news
PLAIN_EVERY = 5.0  # seconds between plain lines that are not news


class Display:
    """Listens to a tuner and shows its progress. Use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._fancy = self._console.is_terminal and not self._console.is_dumb_terminal
        # It redraws when told something: a clock of its own would run beside timed code.
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._last = 0.0

    def __enter__(self) -> Display:
        if self._fancy:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fancy:
            self._live.stop()

    def __call__(self, p: Progress) -> None:
        """Show a report of the tuner."""
        news = p.event in ("start", "race", "model", "note", "done")
        if self._fancy:
            if news or p.event == "wait" or p.elapsed - self._last >= FANCY_EVERY:
                self._last = p.elapsed
                self._live.update(picture(p), refresh=True)
            return
        if news or p.elapsed - self._last >= PLAIN_EVERY:
            self._last = p.elapsed
            print(line(p), file=sys.stderr, flush=True)


def line(p: Progress) -> str:
    """Return the state of tuning and what just happened, as one line."""
    return f"{state(p)}  {p.text}" if p.text else state(p)


def state(p: Progress) -> str:
    """Return time, phase, trials, gain so far, and failures."""
    gain = f"{p.default_seconds / p.best_seconds:.2f}x" if p.best_seconds else "-"
    failed = ", ".join(f"{n} {kind}" for kind, n in sorted(p.failures.items()) if n)
    left = f", {span(p.left)} left" if p.left is not None else ""
    done = f"{p.trials}/{counted(p.budget, 'trial')}"
    parts = [f"[{clock(p.elapsed)}{left}]", p.phase, p.workers, done, f"gain {gain}"]
    if failed:
        parts.append(f"failed: {failed}")
    return "  ".join(filter(None, parts))


def picture(p: Progress) -> RenderableType:
    """Return the view that is redrawn: a bar, and the heaviest tasks with their curves."""
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in TEXTS else "right")
    heavy = sorted(p.tasks, key=lambda t: -(t.weight * (t.default_seconds or 0.0)))
    for t in heavy[:ROWS]:
        table.add_row(
            t.name,
            str(t.trials),
            duration(t.default_seconds),
            duration(t.best_seconds),
            f"{t.speedup:.2f}x",
            spark(t),
        )
    if len(heavy) > ROWS:
        table.add_row(f"... and {len(heavy) - ROWS} more", "", "", "", "", "")
    bar = ProgressBar(total=max(1, p.budget), completed=p.trials, width=BAR)
    head = Table.grid(padding=(0, 2))
    head.add_row(bar, Text(state(p), no_wrap=True, overflow="ellipsis"))
    return Group(head, Text(p.text, no_wrap=True, overflow="ellipsis"), table)


def spark(t: TaskResult) -> str:
    """Return the task's best speed after each trial, as a row of bars."""
    if len(t.curve) < 2:
        return ""
    speeds = [1.0 / seconds for _, seconds in t.curve[-24:]]
    top = max(speeds)
    return "".join(BARS[min(7, int(8 * s / top))] for s in speeds)
