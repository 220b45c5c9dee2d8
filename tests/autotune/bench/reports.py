"""A small benchmark report, made by hand, that has something in every field."""

from __future__ import annotations

from nestwright.autotune.bench.data import (
    BenchReport,
    CellBench,
    CellKey,
    EdgeBench,
    GroupBench,
    Latency,
    LogBench,
    ScheduleBench,
    TargetPeak,
    Throughput,
    TrialBench,
    WayBench,
)
from nestwright.autotune.measure.host.peak import Peak

GROUP = GroupBench(
    "k" * 64,
    "dot_<add>",
    "dot",
    2.0,
    1e6,
    1e4,
    ScheduleBench("default", {}, [["split", {"loop": "i"}]], (2e-5, 2e-5), 1.5e-5),
    ScheduleBench("tiling@1", {"rows": 4}, [["split", {"loop": "j"}]], (1e-5,), 9e-6, "t3"),
    1e-7,
    (
        TrialBench(1, 0, 0.0, 2e-5, "ok", "default", 1.5e-5),
        TrialBench(2, 0, 1.5, None, "wrong", "evolve"),
        TrialBench(3, 0, 2.0, 1e-5, "ok", "evolve", 9e-6),
    ),
)
DEFAULT = WayBench("default", "default schedules", (4e-3, 4.1e-3, 4e-3), first=0.5, error=1e-6)
TUNED = WayBench(
    "tuned",
    "1 schedule of l.jsonl",
    (2e-3, 2.02e-3, 2e-3),
    Latency(2e-3, 2.1e-3, 2.5e-3, 200),
    (Throughput(2, True, 1000, 1.0),),
    0.6,
    1e-6,
)
CONTROL = WayBench("control", "the tuned build again", (2.01e-3, 2e-3, 2.08e-3))
ABSENT = WayBench("torch", problem="torch is not installed")
CELL = CellBench(
    CellKey("m&m", "cpu", 2, 8, "l.jsonl"),
    (DEFAULT, TUNED, CONTROL, ABSENT),
    (GROUP,),
    (EdgeBench("dot.1", "add.2", True, "it is an epilogue", "dot_<add>", "dot_<add>"),),
    1e7,
    1e5,
    ("the control differs by 4 %",),
    {"rows": [{"name": "k", "seconds": 1e-5}]},
)
BROKEN = CellBench(CellKey("broken", "cpu", 2), problem="cannot <read>")
MACHINE = {
    "cpu": "test",
    "model": "Test 1",
    "cores": 2,
    "vector_bits": 512,
    "l1": 1,
    "l2": 1,
    "l3": 1,
}
REPORT = BenchReport(
    MACHINE,
    (0.5, 0.6),
    {"nestwright": "0.1.0"},
    0,
    1e9,
    (CELL, BROKEN),
    (TargetPeak("cpu", 2, Peak(2, 1e11, 1e10)),),
    (LogBench("l.jsonl", "0" * 64, 3),),
)
"""Two cells: one of a model that was tuned, and one of a model that cannot be built."""
