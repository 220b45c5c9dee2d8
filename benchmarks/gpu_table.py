"""The rows of `gpu.py` as a table: facts, checks, times and ratios, notes of what was not run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
GOALS = {"of_copy": 0.85, "matmul_bf16_8192": 0.4, "models": 0.5}
"""Of the copy's bandwidth; of torch's speed; of jax's speed."""


def table(rows: Sequence[Row]) -> str:
    """Everything as text."""
    return (
        "\n".join((*_facts(rows), "", *_checks(rows), "", *_times(rows), "", *_notes(rows))) + "\n"
    )


def _of(rows: Sequence[Row], *kinds: str) -> list[Row]:
    return [r for r in rows if r["kind"] in kinds]


def _facts(rows: Sequence[Row]) -> Iterator[str]:
    for r in _of(rows, "fact"):
        yield f"{r['name']:<16} {r['value']}"


def _checks(rows: Sequence[Row]) -> Iterator[str]:
    found = _of(rows, "right")
    bad = [r for r in found if not r["ok"]]
    yield f"checked {len(found)}: {len(found) - len(bad)} right, {len(bad)} wrong"
    for r in bad:
        yield f"  WRONG {r['name']}: error {r['error']:.1e}"


def _times(rows: Sequence[Row]) -> Iterator[str]:
    found = list({r["name"]: r for r in _of(rows, "timed")}.values())  # the last of each counts
    yield f"{'workload':<34}{'nestwright':>12}{'torch':>12}{'jax':>12}  speed of (1 is equal)"
    for r in found:
        seconds = r["contenders"]
        cells = (
            _milliseconds(seconds[n]["seconds"]) if n in seconds else "-"
            for n in ("nestwright", "torch", "jax")
        )
        shown = "".join(f"{c:>12}" for c in cells)
        yield f"{r['name']:<34}{shown}  {', '.join(_proportions(r))}".rstrip()
    yield from _convolutions(found)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _proportions(row: Row) -> Iterator[str]:
    for name, ratio in row["ratios"].items():
        yield f"{name} {ratio:.2f}"
    if "of_copy" in row:
        yield f"copy bandwidth {row['of_copy']:.2f}{_goal(row['of_copy'], GOALS['of_copy'])}"
    if "tflops" in row:
        yield f"{row['tflops']:.0f} TFLOP/s"
    if row["name"] in GOALS and "torch" in row["ratios"]:
        yield _goal(row["ratios"]["torch"], GOALS[row["name"]]).strip()
    if row["part"] == "models" and "jax" in row["ratios"]:
        yield _goal(row["ratios"]["jax"], GOALS["models"]).strip()


def _goal(got: float, goal: float) -> str:
    return f" (goal {goal}: {'reached' if got >= goal else 'not reached'})"


def _convolutions(found: Sequence[Row]) -> Iterator[str]:
    """All convolutions of the model, each as often as it has it."""
    both = [r for r in found if r["part"] == "convolutions" and "torch" in r["contenders"]]
    if both:
        ours, theirs = (
            math.fsum(r["weight"] * r["contenders"][n]["seconds"] for r in both)
            for n in ("nestwright", "torch")
        )
        name = f"{len(both)} shapes, weighted"
        cells = f"{_milliseconds(ours):>12}{_milliseconds(theirs):>12}{'-':>12}"
        yield f"{name:<34}{cells}  torch {theirs / ours:.2f}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    found = _of(rows, "failed", "skipped")
    yield f"NOTES: {len(found)} things failed or were not run" if found else "NOTES: none"
    for r in found:
        yield f"  {r['kind']} {r['part']}: {r['name']}: {r['why']}"
