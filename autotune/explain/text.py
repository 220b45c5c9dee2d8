"""The answers to "why" as text: a model in short, or one of its groups in full."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from ...codegen.driver.ledger import CacheAnswer
from ..log.units import counted, duration
from .cards import flow_text, operations_text, percent, sized
from .model import GroupExplained, ModelExplained
from .origin import told
from .promise import Experience, Promise

REASONS = 8
"""Reasons of a model that are listed, the most frequent first."""


def show_model(m: ModelExplained) -> str:
    """Return the whole model: its groups in a line or two each, fusion, tuning, the cache."""
    work, size = m.graph.totals
    places = sum(len(g.places) for g in m.groups)
    head = (
        f"{m.name} on {m.target}: {counted(places, 'group')}, {len(m.groups)} distinct; "
        f"{work / 1e9:.3g} GFLOP and {sized(size)} a run"
    )
    parts = [head, *(f"log: {note}" for note in m.notes[:4]), "", "Schedules"]
    parts += [line for g in m.groups for line in _in_short(m, g)] or ["  no group has loops"]
    parts += ["", "Fusion", *_fusion(m), "", "Tuning", *_tuning(m), "", "Cache"]
    return "\n".join([*parts, *(f"  {line}" for line in _cache(m.cache))])


def show_group(m: ModelExplained, g: GroupExplained) -> str:
    """Return everything that is known of one group."""
    work, size = _shares(m, g)
    head = f"{g.name}: {g.kind}, {percent(work)} of FLOPs, {percent(size)} of bytes"
    lines = [head, f"  key {g.key}", f"  {operations_text(g.operations)}"]
    if len(g.places) > 1:
        lines.append(f"  also {', '.join(g.places[1:])}")
    lines += ["", "Fused inside"]
    lines += [f"  {a} -> {b}: {why}" for a, b, why in g.fused] or ["  nothing: one operation"]
    for title, flows in (("Reads", g.reads), ("Is read by", g.read_by)):
        lines += ["", title]
        lines += [f"  {line}" for f in flows for line in flow_text(f).split("\n")]
        lines += [] if flows else ["  parameters and constants alone"]
    lines += ["", "Schedule", *(f"  {line}" for line in _schedule(g))]
    if g.promise is not None:
        lines += ["", "Tuning", *(f"  {line}" for line in _promise(g.promise, m.known))]
    return "\n".join(lines)


def _schedule(g: GroupExplained, short: bool = False) -> tuple[str, ...]:
    return (f"no loops to schedule: {g.note}",) if g.origin is None else told(g.origin, short)


def _shares(m: ModelExplained, g: GroupExplained) -> tuple[float, float]:
    work, size = m.graph.totals
    return (g.runs * g.work / work if work else 0.0, g.runs * g.bytes / size if size else 0.0)


def _in_short(m: ModelExplained, g: GroupExplained) -> Iterator[str]:
    work, size = _shares(m, g)
    times = f" x {g.runs:g}" if g.runs != 1 else ""
    flops = f"{percent(work)} of FLOPs, " if work else ""
    yield f"  {g.name}{times} ({g.kind}; {flops}{percent(size)} of bytes)"
    yield from (f"      {line}" for line in _schedule(g, short=True))


def _fusion(m: ModelExplained) -> Iterator[str]:
    fused = sum(len(c.fused) for c in m.graph.computations)
    flows = [f for c in m.graph.computations for f in c.flows]
    yield f"  {counted(fused, 'edge')} fused, {counted(len(flows), 'flow')} through memory, because"
    found = Counter(why for f in flows for why in f.reasons).most_common()
    yield from (f"  {n:5} {why}" for why, n in found[:REASONS])
    if len(found) > REASONS:
        yield f"        and {counted(len(found) - REASONS, 'more reason')}; --group shows each"


def _tuning(m: ModelExplained) -> Iterator[str]:
    hopes = [(g, g.promise) for g in m.groups if g.promise is not None]
    if not hopes:
        tuned = any(g.origin is not None and g.origin.record is not None for g in m.groups)
        has = "every group with more than one schedule has a record of the log"
        yield f"  {has if tuned else 'no group has more than one schedule'}"
        return
    saved = sum(p.saved for _, p in hopes)
    told = f": tuning saves about {duration(saved)} a run" if m.known.gains else ""
    count = counted(len(hopes), "group")
    yield f"  {count} untuned; estimates, nothing was measured{told}"
    for g, p in sorted(hopes, key=lambda hope: -hope[1].seconds):
        yield f"  {g.name}: {_in_a_line(p, m.known)}"
    yield from (f"  {line}" for line in _basis(m.known))


def _promise(p: Promise, known: Experience) -> Iterator[str]:
    yield f"untuned; an estimate, nothing was measured: {_in_a_line(p, known)}"
    yield from _basis(known)


def _in_a_line(p: Promise, known: Experience) -> str:
    low, _, high = p.gains
    gain = f"{low:.2f} to {high:.2f} times as fast tuned; " if known.gains else ""
    return f"about {duration(p.seconds)} now; {gain}the roofline allows {p.bound:.1f} times"


def _basis(known: Experience) -> Iterator[str]:
    if not known.gains:
        yield "no log of such a machine is known, so only the roofline bounds what to expect"
        return
    faster = sum(g > 1 for g in known.gains)
    yield (
        f"the range is the middle half of {len(known.gains)} groups tuned on such a machine, of "
        f"which {faster} became faster, at most {known.gain(1):.2f} times"
    )
    if known.compared:
        yield (
            f"times are the analytic model's, scaled by {known.scale:.2f}: half of "
            f"{known.compared} measured defaults are within {known.error:.2f} times of it"
        )


def _cache(answer: CacheAnswer | None) -> Iterator[str]:
    if answer is None:
        yield "not used: the model is a file that cannot be read twice"
        return
    yield f"used: {answer.reason}" if answer.used else f"not used: {answer.reason}"
    if answer.changes:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.when))
        verb = "was built because" if answer.used else "is built because"
        yield f"it {verb} the nearest earlier build, of {day}, had another key:"
        yield from (f"  {change}" for change in answer.changes)
