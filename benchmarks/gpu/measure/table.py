"""The rows of `main.py` as tables: facts, checks, times, rates, predictions, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .clocks import seconds
from .prediction import by_kind

Row = dict[str, Any]
GOALS = {"of_copy": 0.85, "matmul_bf16_8192": 0.4, "models": 0.5}
"""Of the copy's bandwidth; of torch's speed; of jax's speed."""
CONTENDERS = ("nestwright", "torch", "jax")
HOW = {"graph": "g", "calls": "c"}
WIDTHS = 28, 14


def table(rows: Sequence[Row]) -> str:
    """Everything as text."""
    sections = _facts(rows), _checks(rows), _times(rows), _rates(rows), _kinds(rows), _tuned(rows)
    return "\n".join("\n".join((*lines, "")) for lines in (*sections, _notes(rows)))


def _of(rows: Sequence[Row], *kinds: str) -> list[Row]:
    return [r for r in rows if r["kind"] in kinds]


def _timed(rows: Sequence[Row]) -> list[Row]:
    """Return the timed rows, the last one of each workload."""
    return list({r["name"]: r for r in _of(rows, "timed")}.values())


def _line(name: str, *cells: str) -> str:
    return (f"{name:<{WIDTHS[0]}}" + "".join(f"{c:>{WIDTHS[1]}}" for c in cells)).rstrip()


def _number(rows: Sequence[Row], name: str) -> float:
    """Return a fact that is a number; 0 where it is unknown."""
    return max((float(r["number"]) for r in _of(rows, "fact") if r["name"] == name), default=0.0)


def _facts(rows: Sequence[Row]) -> Iterator[str]:
    for r in _of(rows, "fact"):
        yield f"{r['name']:<{WIDTHS[0]}}{r['value']}"


def _checks(rows: Sequence[Row]) -> Iterator[str]:
    found = _of(rows, "right")
    bad = [r for r in found if not r["ok"]]
    yield f"checked {len(found)}: {len(found) - len(bad)} right, {len(bad)} wrong"
    for r in bad:
        yield f"  WRONG {r['name']}: error {r['error']:.1e}"


def _times(rows: Sequence[Row]) -> Iterator[str]:
    found = _timed(rows)
    if not found:
        return
    yield "Medians of one call in ms. device: by events; host: by its clock, the wait included."
    yield "g: replays of one graph; c: calls one by one (all that jax offers)."
    yield _line(
        "workload",
        *(f"{n} {c}" for n in ("ours", "torch") for c in _CLOCKS),
        "jax host",
        "of torch",
        "of jax",
    )
    for r in found:
        shown = r["contenders"]
        cells = [_cell(shown.get(n), c) for n in CONTENDERS[:2] for c in _CLOCKS]
        cells.append(_cell(shown.get("jax"), "host"))
        cells += [_ratio(r["ratios"].get(n)) for n in CONTENDERS[1:]]
        yield _line(r["name"], *cells) + _reached(r)
    yield from _convolutions(found)


_CLOCKS = "device", "host"


def _cell(contender: Row | None, clock: str) -> str:
    if not contender or not contender[clock]:
        return "-"
    return f"{seconds(contender, clock) * 1e3:.4g} {HOW[contender['how']]}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _reached(row: Row) -> str:
    peer, goal = "torch", GOALS.get(row["name"])
    if row["part"] == "models":
        peer, goal = "jax", GOALS["models"]
    return _goal(row["ratios"][peer], goal) if goal and peer in row["ratios"] else ""


def _goal(got: float, goal: float) -> str:
    return f"  (goal {goal}: {'reached' if got >= goal else 'not reached'})"


def _convolutions(found: Sequence[Row]) -> Iterator[str]:
    """Return all convolutions of the model, each as often as it has it."""
    both = [r for r in found if r["part"] == "convolutions" and "torch" in r["contenders"]]
    if both:
        ours, theirs = (
            math.fsum(r["weight"] * seconds(r["contenders"][n]) for r in both)
            for n in CONTENDERS[:2]
        )
        cells = f"{ours * 1e3:.4g}", "", f"{theirs * 1e3:.4g}", "", "", f"{theirs / ours:.2f}"
        yield _line(f"{len(both)} shapes, weighted", *cells)


def _rates(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rates reached, relative to the best of this run and to the predictions."""
    found = [r for r in _timed(rows) if r.get("flops") or r.get("bytes")]
    if not found:
        return
    copy, product = _number(rows, "copy bandwidth"), largest_product(rows)
    yield f"copy {_rate(copy, 1e9)} GB/s; largest product of the run {_rate(product, 1e12)} TF/s"
    yield _line("workload", "GB/s", "of copy", "TF/s", "of largest", "predicted", "pred./meas.")
    for r in found:
        took = seconds(r["contenders"]["nestwright"])
        bound = not r["flops"]
        moved, work = r["bytes"] / took, r["flops"] / took
        expected = r.get("predicted", 0.0)
        yield _line(
            r["name"],
            _rate(moved, 1e9),
            _share(moved, copy) if bound else "-",
            _rate(work, 1e12),
            _share(work, product),
            f"{expected * 1e3:.4g} ms" if expected else "-",
            _share(expected, took),
        ) + (_goal(moved / copy, GOALS["of_copy"]) if bound and copy else "")


def largest_product(rows: Sequence[Row]) -> float:
    """Return the highest rate that any contender reached in a matrix product, in FLOP per
    second.
    """
    return max(
        (
            r["flops"] / seconds(c)
            for r in _timed(rows)
            for c in r["contenders"].values()
            if r["part"] == "matmul"
        ),
        default=0.0,
    )


def _rate(value: float, unit: float) -> str:
    return f"{value / unit:.4g}" if value else "-"


def _share(value: float, whole: float) -> str:
    return f"{value / whole:.2f}" if value and whole else "-"


def _kinds(rows: Sequence[Row]) -> Iterator[str]:
    """Predicted over measured by kind of sketch, and the cost model's constants beside readings."""
    found = list(by_kind(_of(rows, "kernel")))
    if not found:
        return
    yield "Predicted over measured by kind of sketch (above 1 it takes less than predicted)"
    yield _line("sketch", "kernels", "mean", "lowest", "highest")
    for k in found:
        yield _line(k.sketch, str(k.kernels), *(f"{x:.2f}" for x in (k.mean, k.low, k.high)))
    copy, nominal = _number(rows, "copy bandwidth"), _number(rows, "the row it is taken for")
    launch = _number(rows, "launch in a graph")
    if copy and nominal:
        yield f"REACHED: the copy reaches {copy / nominal:.2f} of the bandwidth in the row"
    if launch:
        yield f"LAUNCH: an empty launch in a graph takes {launch * 1e6:.2f} us"


def _tuned(rows: Sequence[Row]) -> Iterator[str]:
    for r in _of(rows, "tuned"):
        raced = r.get("seconds")
        gain = f", tuned {raced['default'] / raced['tuned']:.2f} times as fast" if raced else ""
        yield f"tuned {r['name']}: {r['trials']} trials ({r['stopped']}), {r['log']}{gain}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    found = _of(rows, "failed", "skipped")
    yield f"NOTES: {len(found)} things failed or were not run" if found else "NOTES: none"
    for r in found:
        yield f"  {r['kind']} {r['part']}: {r['name']}: {r['why']}"
