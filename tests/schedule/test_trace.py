"""Traces: text that can be pasted, JSON that replays, and what is refused in foreign ones."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import nestwright.te as te
from nestwright.ir.errors import NestwrightError
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.visit import equal
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace


def matmul() -> Func:
    a, b = te.placeholder((6, 4), name="A"), te.placeholder((4, 8), name="B")
    k = te.reduce_axis(4, "k")
    c = te.compute((6, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((6, 8), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_func([a, b, d], name="matmul")


def scheduled() -> Schedule:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    outer, inner = sch.split(i, [None, 4])
    sch.reorder(outer, k, inner, j)
    sch.reverse_compute_at("D", outer)
    out = sch.cache_write("C", 0, "register")
    sch.compute_at("C", sch.get_loops(out)[1], keep_unit_loops=True)
    sch.transform_layout("C", 0, None, [(1, 4)])
    sch.annotate("C", "tile", 4)
    sch.annotate(outer, "grain", "auto")
    sch.parallel(sch.fuse(outer))
    return sch


TEXT = """\
l0, l1, l2 = sch.get_loops("C")
l3, l4 = sch.split(l0, [None, 4])
sch.reorder(l3, l2, l4, l1)
sch.reverse_compute_at("D", l3)
"""


def test_show_is_python_that_does_it_again() -> None:
    sch = scheduled()
    assert sch.trace.show().startswith(TEXT)
    again = Schedule(matmul())
    exec(compile(sch.trace.show(), "trace", "exec"), {"sch": again})
    assert equal(again.func, sch.func)
    assert again.trace == sch.trace


def test_json_round_trip() -> None:
    sch = scheduled()
    plain = json.loads(json.dumps(sch.trace.to_json()))
    trace = Trace.from_json(plain)
    assert trace == sch.trace
    assert equal(trace.replay(matmul()).func, sch.func)


def test_replay_goes_on_where_it_ended() -> None:
    sch = scheduled().trace.replay(matmul())
    sch.unroll(sch.get_loops("D")[-1])
    assert equal(sch.trace.replay(matmul()).func, sch.func)


def test_a_loop_nobody_asked_for_is_introduced() -> None:
    sch, other = Schedule(matmul()), Schedule(matmul())
    twin = sch.copy()
    (i, _, _) = twin.get_loops("C")
    sch.split(i, [2, 3])
    assert [s.name for s in sch.trace.steps] == ["get_loops", "split"]
    assert equal(sch.trace.replay(other.func).func, sch.func)


def test_another_function_is_refused() -> None:
    a = te.placeholder((6,), name="A")
    func = te.create_func([a, te.compute((6,), lambda i: a[i] + 1.0, name="C")], name="other")
    with pytest.raises(ScheduleError, match="names 3 results, and there are 1"):
        scheduled().trace.replay(func)


FOREIGN: list[Any] = [
    None,
    {},
    "split",
    [1],
    [[]],
    [["split"]],
    [["split", [], []]],
    [["split", {}, []]],
    [["nothing", [], []]],
    [["__class__", [], []]],
    [["func", [], []]],
    [["copy", [], []]],
    [["_record", [], []]],
    [["get_loops", ["nowhere"], ["l0"]]],
    [["get_loops", [1], ["l0"]]],
    [["get_loops", ["C"], ["l0", "l1"]]],
    [["get_loops", ["C"], ["l0", "l0", "l1"]]],
    [["get_loops", ["C"], ["l 0", "l1", "l2"]]],
    [["get_loops", ["C"], [0, 1, 2]]],
    [["split", [{"loop": "l0"}, [2, 3]], ["l1", "l2"]]],
    [["split", ["l0", [2, 3]], ["l1", "l2"]]],
    [["annotate", [{"block": "C"}, "k", 1.5], []]],
    [["annotate", [{"block": "C"}, "k", True], []]],
    [["annotate", [{"block": "C", "loop": "l0"}, "k", 1], []]],
    [["annotate", [{"block": "C"}, "k" * 5000, 1], []]],
    [["cache_read", ["C", 1, "moon"], []]],
    [["cache_read", ["C", -1, "global"], []]],
    [["cache_read", ["C", 10**30, "global"], []]],
    [["cache_read", ["C", True, "global"], []]],
    [["transform_layout", ["C", 0, None, [[0, 0]]], []]],
    [["transform_layout", ["C", 0, None, [[0, 2, 3]]], []]],
    [["transform_layout", ["C", 0, [0], []], []]],
    [["fuse", [[]], ["l0"]]],
    [["reorder", [[]], []]],
    [["get_loops", [["C"] * 1000], []]],
    [["get_loops", [[[[[[["C"]]]]]]], []]],
    [["get_loops", ["C"], ["a", "b", "c"]]] * 5000,
]


@pytest.mark.parametrize("data", FOREIGN, ids=lambda d: str(d)[:60])
def test_foreign_traces_are_refused(data: Any) -> None:
    with pytest.raises(NestwrightError):
        Trace.from_json(data).replay(matmul())


def grown(rounds: int) -> list[Any]:
    """A trace whose index expressions would double in every round."""
    steps: list[Any] = [["get_loops", ["D"], ["i", "j"]]]
    a, b = "i", "j"
    for n in range(rounds):
        steps.append(["fuse", [[{"loop": a}, {"loop": b}]], [f"f{n}"]])
        a, b = f"a{n}", f"b{n}"
        steps.append(["split", [{"loop": f"f{n}"}, [None, 3 + n % 5]], [a, b]])
    return steps


def deep(rounds: int) -> list[Any]:
    """A trace that would nest ever more loops."""
    steps: list[Any] = [["get_loops", ["D"], ["l0", "j"]]]
    for n in range(rounds):
        outs = [f"l{n + 1}", *(f"x{n}_{k}" for k in range(15))]
        steps.append(["split", [{"loop": f"l{n}"}, [None] + [1] * 15], outs])
    return steps


@pytest.mark.parametrize("data", [grown(400), deep(40)], ids=["grown", "deep"])
def test_traces_that_would_grow_without_bound(data: list[Any]) -> None:
    with pytest.raises(ScheduleError, match=r"too large|more than"):
        Trace.from_json(data).replay(matmul())


def test_damaged_traces_never_crash() -> None:
    good = json.dumps(scheduled().trace.to_json())
    rng = random.Random(1)
    refused = 0
    for _ in range(400):
        text = list(good)
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice('[]{},:"0123456789lCD- ')
        try:
            data = json.loads("".join(text))
        except ValueError:
            continue
        try:
            Trace.from_json(data).replay(matmul())
        except NestwrightError:
            refused += 1
    assert refused > 50
