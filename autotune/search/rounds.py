"""The next round: which tasks are measured, with how many trials each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.target import Work

ROUNDS: Mapping[Work, int] = {"threads": 8, "launches": 16}
"""Trials of a round on one machine: more where building costs more than running."""
AHEAD = 2  # trials of a round for each candidate that is timed at the same time


def next_round(
    promises: Sequence[tuple[float, int]], full: int, slots: int, trials: int, left: int
) -> list[tuple[int, int]]:
    """Return the numbers of the most promising tasks, with how many trials each gets.

    ``promises`` has each task's expected gain and the number of its trials; empty if nothing gains.
    One task has a round of ``full`` trials, fewer while it is new and ``trials`` for all tasks are
    scarce. Several have one where ``slots`` candidates are timed at the same time, and larger ones
    where the tasks are too few. At most ``left`` trials in all.
    """
    order = sorted(range(len(promises)), key=lambda n: -promises[n][0])
    share = trials // max(1, len(promises))
    sizes: list[tuple[int, int]] = []
    total, wanted = 0, AHEAD * slots if slots > 1 else 1
    for n in order:
        gain, tried = promises[n]
        if gain <= 0 or total >= wanted:
            break
        size = max(2, min(full, share // 2)) if tried <= 1 else full
        sizes.append((n, size))
        total += size
    grown = max(1, -(-wanted // max(1, total)))
    found = []
    for n, size in sizes:
        taken = min(size * grown, left)
        left -= taken
        if taken:
            found.append((n, taken))
    return found
