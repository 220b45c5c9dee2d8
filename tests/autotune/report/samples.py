"""A report that fills every section of the page, with names and figures that strain its layout."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

from nestwright.autotune.attribute import Attribution, Reverted
from nestwright.autotune.bench.data import (
    Against,
    BenchReport,
    Change,
    ScheduleBench,
    Throughput,
    TrialBench,
    WayBench,
)
from nestwright.autotune.explain.graph import ComputationGraph, Flow, ModelGraph, Vertex
from nestwright.autotune.measure.host.peak import LevelRoof
from nestwright.codegen.plan.facts import GroupMember
from nestwright.codegen.plan.loaded import Event
from nestwright.codegen.runtime.profile.data import Profile
from nestwright.codegen.runtime.profile.figures import ProfileRow

from ..bench.reports import CELL, GROUP, REPORT

PEERS = ("numpy", "jax", "torch", "onnxruntime", "openvino")
LONG = "convolution_broadcast_multiply_add_maximum_" * 3 + "42"
NEST = "for i in range({}):\n    for j in range(64):\n        x[i, j] = y[i, j]\n"


def trials(count: int, seeds: int) -> tuple[TrialBench, ...]:
    """Trials of some seeds that get faster, with a failure now and then."""
    return tuple(
        TrialBench(
            n + 1,
            n % seeds,
            1.7 * (n // seeds),
            None if n % 11 == 10 else 2e-5 / (1 + 0.1 * (n // (3 + n % seeds))),
            "wrong" if n % 11 == 10 else "ok",
            "evolve",
            2e-5 / (1 + 0.07 * n),
            None if n < 12 else 1.8e-5 / (1 + 0.09 * n),
        )
        for n in range(count)
    )


ROOFS = (
    LevelRoof("l1", 1 << 16, 2e11),
    LevelRoof("l2", 1 << 20, 9e10),
    LevelRoof("l3", 1 << 24, 2e10),
)
RUNS = tuple(1e-5 + 1e-8 * n for n in range(9))
ATTRIBUTION = Attribution(
    RUNS,
    (
        Reverted("all decisions", "tiling@2", "tiling@2", tuple(2 * r for r in RUNS)),
        Reverted("rows", 8, 13, tuple(1.3 * r for r in RUNS)),
        Reverted("order and " + LONG, ["row", 1], ["column", 2], tuple(0.9 * r for r in RUNS)),
        Reverted("unroll", 2, 1, RUNS),
        Reverted("pack", 1, 0, note="not a valid schedule with the other decisions"),
    ),
)


def groups(count: int):
    """Groups from heavy to light; the last moves bytes only, one has a very long name."""
    made = []
    for n in range(count):
        name = LONG if n == 1 else f"dot_add_{n}"
        seconds = 4e-5 / (n + 1) ** 2
        default = ScheduleBench("default", {}, [], (1.5 * seconds,) * 3, nest=NEST.format(4))
        tuned = ScheduleBench("tiling@2", {"rows": 4}, [], (seconds,) * 3, nest=NEST.format(8))
        flops = 0.0 if n == count - 1 else 10.0 ** (7 - n % 4)
        made.append(
            replace(
                GROUP,
                key=f"{n:064d}",
                name=name,
                flops=flops,
                bytes=10.0 ** (5 - n % 2),
                default=default,
                tuned=tuned,
                trials=trials(66, 3 if n % 2 else 1),
                attribution=ATTRIBUTION if n < 3 else None,
                note="" if n else "crash: the first of its candidates died",
            )
        )
    return tuple(made)


def graph(count: int) -> ModelGraph:
    """A chain of groups with a branch to the results."""
    vertices = [Vertex("x", "input", "f32[8,128]", bytes=4096)]
    for n in range(count):
        name = LONG if n == 1 else f"convolution_maximum_{n}"
        vertices.append(Vertex(name, "dot", "f32[8,128]", 1.0, 1e6, 4096, key=f"{n:064d}"))
    vertices.append(Vertex("result", "result", "f32[8,128]", bytes=4096))
    pairs = [(a.name, b.name) for a, b in itertools.pairwise(vertices)]
    flows = [Flow(a, b, ("v",), 4096, ("read twice",)) for a, b in [*pairs, ("x", "result")]]
    return ModelGraph("m", "cpu", (ComputationGraph("main", tuple(vertices), tuple(flows), ()),))


def profile() -> dict[str, object]:
    """A profile of two threads."""
    member = GroupMember("dot.1", "dot", "model.py:12")
    rows = (
        ProfileRow(
            "dot_add_0", "kernel", 4e-5, 1, 1e6, 0.0, 1e5, "dot", "k", (member,), "log", "t"
        ),
        ProfileRow("copy.3", "copy", 1e-5, 1),
        ProfileRow(LONG, "kernel", 2e-5, 2, 1e6, 0.0, 1e5, "dot", "k2", (member,) * 9, "default"),
        ProfileRow("call", "call", 1e-6, 1),
    )
    events = (
        Event(0, 0, 0.0, 4e-5),
        Event(0, 1, 1e-6, 3.8e-5, part=True),
        Event(1, 0, 4e-5, 1e-5),
        Event(2, 0, 5e-5, 2e-5),
    )
    costs, memory = {"flops": 1e6}, {"temp_size_in_bytes": 0}
    found = Profile("m", "cpu", 2, 5, 7.1e-5, 7.2e-5, 1e-7, rows, events, 0, costs, memory)
    return found.against(1e11, 1e10).to_json()


def full() -> BenchReport:
    """Three cells: a full one with a long name, one with little, one with a problem."""
    key = replace(CELL.key, model="a_model_with_a_long_name_that_must_break_somewhere_" + "x" * 40)
    absent = (WayBench(name, problem="ModuleNotFoundError: No module") for name in PEERS)
    rates = tuple(Throughput(n, n % 2 == 0, 123456, 1.0) for n in (2, 3, 4))
    ways = tuple(replace(w, throughput=rates) if w.name == "tuned" else w for w in CELL.ways)
    rich = replace(
        CELL,
        ways=(*ways[:3], *absent),
        key=key,
        groups=groups(9),
        graph=graph(9),
        profile=profile(),
        edges=(),
    )
    change = Change(key, "tuned", 1e-3, 1.4e-3, 0.05, "regression")
    other = replace(change, way="default", after=1e-3, kind="same")
    found = replace(
        REPORT,
        cells=(rich, *REPORT.cells),
        peaks=tuple(replace(p, peak=replace(p.peak, roofs=ROOFS)) for p in REPORT.peaks),
        warnings=("2 threads: load 8.0 on 2 cores",),
        against=Against(9e8, ("another machine",), (change, other)),
    )
    return BenchReport.from_json(json.loads(found.text()))
