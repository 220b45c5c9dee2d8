"""Profiles: a table of the steps of a call, and traces as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from ...codegen.runtime.profile.data import Profile
    from ...codegen.runtime.profile.figures import ProfileRow

WIDE = 150  # columns where there is no terminal
SOURCES = 2  # lines of the model that a row shows
LONG = 34  # characters of a name


def print_profile(profile: Profile) -> None:
    """Print a profile as a table, the heaviest steps first, and what to know about it."""
    from ...autotune.log.units import counted, duration, rate
    from .terminal import terminal

    console = terminal(WIDE)
    whole, total = duration(profile.seconds), duration(profile.sum)
    console.print(
        f"{profile.name}: {whole} a call, {total} the sum of the steps, "
        f"{counted(profile.threads, 'thread')}, {counted(profile.rounds, 'round')}, "
        f"timing adds {profile.overhead:.2%}",
        soft_wrap=True,
    )
    if profile.peak is not None:
        flops, bandwidth = profile.peak
        told = f"peak: {rate(flops)} GFLOP/s FMA, {rate(bandwidth)} GB/s copy"
        console.print(told)
    console.print(_table(profile))
    for note in profile.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _table(profile: Profile) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("step", "kind"):
        table.add_column(title, no_wrap=True)
    for title in ("time", "share", "calls", "GFLOP/s", "GB/s", "of peak", "threads"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("schedule", "source"):
        table.add_column(title, no_wrap=True)
    for row in profile.heaviest:
        if row.calls:
            table.add_row(*_cells(profile, row))
    return table


def _cells(profile: Profile, row: ProfileRow) -> list[Any]:
    from rich.text import Text

    from ...autotune.log.units import duration, rate, share

    peak = profile.roofline(row)
    texts = [
        row.name if len(row.name) <= LONG else f"{row.name[: LONG - 2]}..",
        row.group or row.kind,
        duration(row.seconds),
        f"{profile.share(row):.1%}",
        str(row.calls),
        rate(row.flop_rate),
        rate(row.byte_rate),
        "" if peak is None else share(peak),
        f"{row.busy / row.seconds:.2f}" if row.busy and row.seconds else "",
        " ".join(filter(None, (row.schedule, row.record[:8]))),
        ", ".join(_short(s) for s in row.sources[:SOURCES]),
    ]
    return [Text(t) for t in texts]


def _short(source: str) -> str:
    """Return a source without the folders that its file is in; names of operations as they are."""
    file, colon, line = source.rpartition(":")
    is_place = colon and line.isdecimal()
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" if is_place else source


def write_traces(profiles: Sequence[Profile], path: str) -> None:
    """Write the traces of some profiles as one file, whole or not at all."""
    from ...codegen.runtime.profile.trace import write

    write(profiles, path)
