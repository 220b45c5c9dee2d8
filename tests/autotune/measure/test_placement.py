"""Where code runs when it is timed, and what it finds there: own cores, caches as in a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.autotune.measure.host import placement
from nestwright.autotune.measure.worker import child_environment
from nestwright.autotune.tasks.counting import certain_flops, certain_reads, flops
from nestwright.autotune.tasks.reuse import reuse_distances
from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.errors import ArgumentError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse

PINNED = """
import os
from nestwright.autotune.measure.host.placement import placed

def cores():
    tasks = map(int, os.listdir("/proc/self/task"))
    return sorted(tuple(sorted(os.sched_getaffinity(t))) for t in tasks)

allowed = os.sched_getaffinity(0)
with placed(2):
    inside = cores()
    assert os.sched_getaffinity(0) == {min(allowed)}
assert os.sched_getaffinity(0) == allowed
with placed(1):
    assert os.sched_getaffinity(0) == allowed, "one thread may run anywhere"
print([c for c in inside if len(c) == 1])
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores to place threads on",
)
def test_main_thread_and_worker_never_share_a_core() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PINNED], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    first, second = sorted(os.sched_getaffinity(0))[:2]
    assert done.stdout.strip() == str([(first,), (second,)])


def test_priority_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(
        placement, "_schedule", lambda t, policy, n: asked.append((t, policy)) is None
    )
    monkeypatch.setattr(placement, "_throttled", lambda: True)
    monkeypatch.setenv(placement.VARIABLE, "off")
    with placement.placed(1):
        pass
    assert not asked
    assert placement.priority() == "off (NESTWRIGHT_REALTIME)"
    monkeypatch.delenv(placement.VARIABLE)
    with placement.placed(1):
        assert asked == [(0, "SCHED_FIFO")]
    assert asked[1:] == [(0, "SCHED_OTHER")]
    assert placement.priority().startswith("taken while code is timed")
    monkeypatch.setattr(placement, "_schedule", lambda t, policy, n: False)
    assert placement.priority() == "not granted by the system"
    monkeypatch.setenv(placement.VARIABLE, "maybe")
    with pytest.raises(ArgumentError, match="NESTWRIGHT_REALTIME='maybe': it must be on or off"):
        child_environment(1)


CHAIN = """HloModule chain
ENTRY main {
  x = f32[64,64] parameter(0)
  w = f32[64,64] parameter(1)
  v = f32[64,64] parameter(2)
  a = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,64] tanh(a)
  b = f32[64,64] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,64] exponential(b)
  ROOT c = f32[64,64] dot(e, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_weights_are_a_run_old_and_results_as_old_as_what_passed_since() -> None:
    groups = fuse_module(optimize(parse(CHAIN)))
    (fusion,) = groups.fusions.values()
    found = reuse_distances(groups)
    rows = [(g, found[groups.keys[g]]) for g in fusion.groups]
    total = sum(4 * 64 * 64 * (len(g.inputs) + len(g.outputs)) for g in fusion.groups)
    assert {row[-1] for _, row in rows} == {total}
    ages = {i.name: age for g, row in rows for i, age in zip(g.inputs, row, strict=False)}
    assert ages["w"] == ages["v"] == ages["x"] == total
    *inputs, result, _ = rows[-1][1]
    hot, old = sorted(inputs)
    assert hot == 0, "the group before made it"
    middle = fusion.groups[1]
    assert old == 4 * 64 * 64 * (len(middle.inputs) + len(middle.outputs))
    assert result == total, "the caller may have had it for a whole run"
    assert rows[0][1][-2] == 0, "in the arena"


REFUSED = """
import os
from nestwright.autotune.measure.host.placement import placed

def refuse(thread, cores):
    raise PermissionError(1, "not allowed here")

allowed = os.sched_getaffinity(0)
os.sched_setaffinity = refuse
with placed(2):
    pass
assert os.sched_getaffinity(0) == allowed
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nothing can be refused")
def test_where_threads_may_not_be_pinned_they_are_timed_unpinned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


CONVOLUTION = """HloModule conv
ENTRY main {{
  x = f32[1,8,8,4] parameter(0)
  k = f32[3,3,4,16] parameter(1)
  ROOT y = f32[1,{out},{out},16] convolution(x, k),
    window={{size=3x3 {window}}}, dim_labels=b01f_01io->b01f
}}
"""


def test_taps_in_padding_are_no_certain_work() -> None:
    inside = parse(CONVOLUTION.format(out=6, window="")).entry
    assert certain_flops(inside) == flops(inside) == 2 * 6 * 6 * 16 * 9 * 4
    padded = parse(CONVOLUTION.format(out=8, window="pad=1_1x1_1")).entry
    assert certain_flops(padded) == pytest.approx(2 * 22 * 22 * 16 * 4)
    assert certain_flops(padded) < flops(padded)


def test_nothing_is_certain_where_something_is_cut_out() -> None:
    cut = "  ROOT r = f32[2,64] slice(c), slice={[0:2], [0:64]}\n}\n"
    text = CHAIN.replace("ROOT c =", "c =").removesuffix("}\n") + cut
    assert certain_flops(parse(text).entry) == 0
    assert certain_flops(parse(CHAIN).entry) == 3 * 2 * 64**3


def test_only_inputs_that_are_read_in_full_are_certain_bytes() -> None:
    assert certain_reads(parse(CHAIN).entry) == (True, True, True)
    assert certain_reads(parse(CONVOLUTION.format(out=6, window="")).entry) == (True, True)
    narrow = CONVOLUTION.replace("[3,3,4,16]", "[1,1,4,16]").replace("3x3", "1x1")
    strided = parse(narrow.format(out=4, window="stride=2x2")).entry
    assert certain_reads(strided) == (False, False), "three of four pixels are never read"
    cut = "  ROOT r = f32[2,64] slice(c), slice={[0:2], [0:64]}\n}\n"
    text = CHAIN.replace("ROOT c =", "c =").removesuffix("}\n") + cut
    assert certain_reads(parse(text).entry) == (False, False, False)


RAISED = """
import os
from nestwright.autotune.measure.host import placement

def policies():
    return [os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task")]

with placement.placed({threads}):
    inside = policies()
assert set(policies()) == {{os.SCHED_OTHER}}, "everything is undone"
print(inside.count(os.SCHED_FIFO))
"""


def may_raise() -> bool:
    """True if this process may have real-time priority, and the system throttles it."""
    probe = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return (
        hasattr(os, "sched_setscheduler")
        and placement._throttled()
        and subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_that_are_timed_have_priority_only_meanwhile(threads: int) -> None:
    if not may_raise() or len(os.sched_getaffinity(0)) < threads:
        pytest.skip("the system grants no real-time priority")
    code = RAISED.format(threads=threads)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == threads


@pytest.mark.parametrize(
    ("period", "runtime", "kept"),
    [
        ("1000000", "950000", True),
        ("1000000", "-1", False),
        ("1000000", "1000000", False),
        ("", "x", False),
    ],
)
def test_priority_is_not_raised_where_a_hang_could_not_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: str, runtime: str, kept: bool
) -> None:
    (tmp_path / "sched_rt_period_us").write_text(period)
    (tmp_path / "sched_rt_runtime_us").write_text(runtime)
    monkeypatch.setattr(placement, "THROTTLE", tmp_path)
    placement._throttled.cache_clear()
    assert placement._throttled() is kept
    placement._throttled.cache_clear()


def test_priority_is_not_raised_where_the_system_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "THROTTLE", tmp_path)
    placement._throttled.cache_clear()
    assert not placement._throttled()
    placement._throttled.cache_clear()


def test_a_system_that_refuses_priority_is_timed_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "not allowed here")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with placement.placed(1):
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
