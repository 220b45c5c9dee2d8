"""Graphs whose operations are side by side: what waits for what, and that nothing is missing."""

from __future__ import annotations

import random
import re
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.runtime.cuda import recording
from nestwright.codegen.runtime.cuda.branches import (
    ANYTHING,
    ASKED,
    START,
    STREAMS,
    Accesses,
    Branches,
    Span,
    branches,
    needs,
    streams_asked,
)
from nestwright.codegen.runtime.cuda.recording import Places, operations
from nestwright.ir.errors import ArgumentError, NestwrightWarning

from ...conftest import Status


def op(read: str, written: str) -> Accesses:
    """An operation on ranges of addresses, each ``begin-end``."""

    def spans(text: str) -> tuple[Span, ...]:
        pairs = (part.split("-") for part in text.split())
        return tuple((int(a), int(b)) for a, b in pairs)

    return Accesses(spans(read), spans(written))


def test_an_operation_waits_for_what_it_reads_and_overwrites() -> None:
    ops = [op("", "0-8"), op("0-8", "8-16"), op("0-8", "16-24"), op("8-24", "24-32")]
    assert needs(ops) == [set(), {0}, {0}, {1, 2}]
    assert needs([*ops, op("", "0-8")])[4] == {0, 1, 2}  # another value in the same place
    assert needs([op("", "0-16"), op("4-6", "20-24"), op("", "15-18")]) == [set(), {0}, {0}]
    assert needs([op("", "0-8"), op("8-16", "16-24")]) == [set(), set()]  # neighbors
    assert needs([op("", "0-8"), ANYTHING, op("", "8-16")]) == [set(), {0}, {1}]
    assert needs([op("4-4", "8-8"), op("0-8", "8-16")]) == [set(), set()]  # of no bytes


def test_a_chain_stays_on_one_stream() -> None:
    ops = [op("0-8", "8-16"), op("8-16", "16-24"), op("16-24", "0-8")]
    made = branches(needs(ops), 4)
    assert [p.stream for p in made.places] == [0, 0, 0] and not made.marks


def test_two_branches_fork_and_join() -> None:
    ops = [op("", "0-8"), op("0-8", "8-16"), op("0-8", "16-24"), op("8-24", "24-32")]
    made = branches(needs(ops), 4)
    assert [(p.stream, p.waits) for p in made.places] == [(0, ()), (0, ()), (1, (0,)), (1, (1,))]
    assert made.ends == (3,) and made.marks == {0, 1, 3}


def test_what_needs_nothing_begins_at_the_start() -> None:
    made = branches(needs([op("", f"{8 * n}-{8 * n + 8}") for n in range(6)]), 3)
    assert [(p.stream, p.waits) for p in made.places[:3]] == [(0, ()), (1, (START,)), (2, (START,))]
    assert [p.stream for p in made.places[3:]] == [0, 1, 2]  # behind others: no more streams
    assert made.ends == (5, 4)


def ordered(made: Branches) -> list[set[int]]:
    """What is done before each operation, by streams and waits alone, and last before the end."""
    tails: dict[int, set[int]] = {}
    before: list[set[int]] = []
    for n, place in enumerate(made.places):
        done = set(tails.get(place.stream, set()))
        for w in (w for w in place.waits if w != START):
            done |= before[w] | {w}
        before.append(done)
        tails[place.stream] = done | {n}
    end = set(tails.get(0, set()))
    for e in made.ends:
        end |= before[e] | {e}
    return [*before, end]


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_streams_and_waits_order_all_that_must_be(seed: int, streams: int) -> None:
    rng = random.Random(seed)

    def spans(most: int) -> tuple[Span, ...]:
        starts = [rng.randrange(60) for _ in range(rng.randrange(most))]
        return tuple((a, a + rng.randrange(12)) for a in starts)

    ops = [Accesses(spans(4), spans(3)) for _ in range(30)]
    made = branches(needs(ops), streams)
    found = ordered(made)
    assert found[-1] == set(range(30))
    for n, later in enumerate(ops):
        for k, earlier in enumerate(ops[:n]):
            if meet(later, earlier):
                assert k in found[n]


def meet(a: Accesses, b: Accesses) -> bool:
    pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)]
    pairs += [(x, y) for x in a.reads for y in b.writes]
    return any(max(x[0], y[0]) < min(x[1], y[1]) for x, y in pairs)


def test_launches_of_one_kernel_keep_their_order(fake: Any) -> None:
    """It may count the blocks that are done in memory of its own."""
    alike = re.sub(r"(negate|abs|floor|ceil)\((\w+)\)", r"add(\2, \2)", WIDE)
    program = fake.executable(alike).loaded()
    (segment,) = program.steps
    at = Places([0, 1 << 20, 2 << 20], [3 << 20, 4 << 20], 5 << 20, 6 << 20)
    ops = operations(segment, program.kernels, at, 0)
    names = [str(op).split()[1] for op in ops]
    pairs = [(a, b) for b in range(len(ops)) for a in range(b) if names[a] == names[b]]
    assert pairs
    found = ordered(branches(needs([op.accesses for op in ops]), 4))
    assert all(a in found[b] for a, b in pairs)


WIDE = """HloModule wide
ENTRY main {
  x = f32[24,32] parameter(0)
  a = f32[32,32] parameter(1)
  b = f32[32,32] parameter(2)
  p = f32[24,32] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d1 = f32[24,32] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[24,32] negate(d1)
  d2 = f32[24,32] dot(p, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  pa = f32[24,32] abs(d2)
  d3 = f32[24,32] dot(q, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  qb = f32[24,32] add(d3, d3)
  d4 = f32[24,32] dot(pa, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  pq = f32[24,32] floor(d4)
  d5 = f32[24,32] dot(qb, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  qp = f32[24,32] ceil(d5)
  s = f32[24,32] add(pq, qp)
  t = f32[24,32] multiply(pa, qb)
  ROOT r = (f32[24,32], f32[24,32]) tuple(s, t)
}
"""
"""Six products, of which no two are the same kernel."""


def run(fake: Any, turns: int = 4) -> bool:
    """True if all calls are right, each on other values: what is left of one before is wrong."""
    exe = fake.executable(WIDE)
    right = True
    for turn in range(turns):
        rng = np.random.default_rng(turn)
        shapes = (24, 32), (32, 32), (32, 32)
        x, a, b = (rng.integers(-2, 3, s).astype(np.float32) for s in shapes)
        pa, qb = abs(x @ a @ a), 2 * (-(x @ b) @ b)
        both = zip((pa @ b + qb @ a, pa * qb), exe(x, a, b), strict=True)
        right = all([right, *(np.array_equal(wanted, got) for wanted, got in both)])
    return right


KEPT = 2
"""Events of the memory through which arrays are copied."""


def test_a_graph_of_branches_is_right_in_its_latest_order(fake: Any) -> None:
    assert run(fake)
    assert fake.graphs == 1 and fake.count()["cuStreamWaitEvent"] >= 2
    assert fake.count()["cuEventCreate"] == fake.count()["cuEventDestroy"] + KEPT


def test_a_wait_that_is_missing_shows(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of the waits between streams some result is wrong, or nothing is recorded."""
    found: list[Branches] = []

    def seen(before: Any, streams: int) -> Branches:
        found.append(branches(before, streams))
        return found[-1]

    monkeypatch.setattr(recording, "branches", seen)
    run(fake)
    (made,) = found
    assert sum(len(p.waits) for p in made.places) >= 3 and made.ends
    for n, place in enumerate(made.places):
        for w in (w for w in place.waits if w != START):
            less = replace(place, waits=tuple(x for x in place.waits if x != w))
            broken = replace(made, places=(*made.places[:n], less, *made.places[n + 1 :]))
            monkeypatch.setattr(recording, "branches", lambda *args, made=broken: made)
            with warnings.catch_warnings(), suppress(NestwrightWarning):  # it has not joined
                warnings.simplefilter("error")
                assert not run(fake), (n, w)


def test_a_stream_that_does_not_come_back_is_refused(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recording, "branches", lambda before, n: replace(branches(before, n), ends=())
    )
    with pytest.warns(NestwrightWarning, match="UNJOINED"):
        assert run(fake)


def test_one_stream_where_it_is_asked_for(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_CUDA_STREAMS", "1")
    assert run(fake)
    assert fake.graphs == 1 and fake.count()["cuStreamWaitEvent"] == 0


def test_a_recording_that_fails_on_a_branch_leaves_nothing(fake: Any) -> None:
    fake.failing["cuStreamWaitEvent"] = [Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED] * 3
    with pytest.warns(match="it runs one by one"):
        assert run(fake, 5)
    assert fake.count()["cuEventCreate"] == fake.count()["cuEventDestroy"] + KEPT
    assert not any(s.recording for s in fake.streams)


def test_a_number_of_streams_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, streams in (("", STREAMS), ("1", 1), ("2", 2)):
        monkeypatch.setenv(ASKED, text)
        assert streams_asked() == streams
    for text in ("many", "0", "-1", "100000"):
        monkeypatch.setenv(ASKED, text)
        with pytest.raises(ArgumentError, match="NESTWRIGHT_CUDA_STREAMS"):
            streams_asked()
