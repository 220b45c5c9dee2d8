"""Tables and lines for a terminal or a pipe, in which names are text and never rich's markup."""

from __future__ import annotations

from functools import partial

from rich.console import Console


def terminal(piped: int) -> Console:
    """Return where a command prints; ``piped`` are the columns where there is no terminal."""
    make = partial(Console, markup=False, emoji=False, highlight=False)
    console = make()
    return console if console.is_terminal else make(width=piped)
