"""Profiles: counts, sums, facts of the rows, the schedule in force, failures, what is saved."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.plan.facts import from_json as facts_from_json
from nestwright.codegen.plan.facts import to_json as facts_to_json
from nestwright.codegen.plan.notes import FACTS
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.runtime.profile import measure
from nestwright.codegen.runtime.profile.data import Profile
from nestwright.codegen.runtime.profile.figures import ProfileRow
from nestwright.ir.errors import ArgumentError, ArtifactError
from nestwright.ir.hlo.text import parse
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call
from nestwright.ir.target import Target
from nestwright.schedule import Schedule, default_schedule
from nestwright.schedule.language.trace import Trace
from nestwright.te.from_hlo import lower_group

NESTED = """
HloModule nested

inner_cond { s = (s32[], f32[64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(9)
 ROOT lt = pred[] compare(i, n), direction=LT }

inner_body { s = (s32[], f32[64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[64] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[64] tanh(x), metadata={op_name="jit(f)/tanh" source_file="model.py" source_line=12}
 ROOT t = (s32[], f32[64]) tuple(j, y) }

outer_cond { s = (s32[], f32[64], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=2
 ROOT lt = pred[] compare(i, n), direction=LT }

outer_body { s = (s32[], f32[64], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[64] get-tuple-element(s), index=1
 n = s32[] get-tuple-element(s), index=2
 zero = s32[] constant(0)
 start = (s32[], f32[64]) tuple(zero, x)
 w = (s32[], f32[64]) while(start), condition=inner_cond, body=inner_body
 y = f32[64] get-tuple-element(w), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 ROOT t = (s32[], f32[64], s32[]) tuple(j, y, n) }

ENTRY main { x = f32[64] parameter(0)
 n = s32[] parameter(1)
 zero = s32[] constant(0)
 start = (s32[], f32[64], s32[]) tuple(zero, x, n)
 w = (s32[], f32[64], s32[]) while(start), condition=outer_cond, body=outer_body
 ROOT y = f32[64] get-tuple-element(w), index=1 }
"""

CHOICE = """
HloModule choice

double { x = f32[128] parameter(0)
 ROOT y = f32[128] add(x, x) }

square { x = f32[128] parameter(0)
 a = f32[128] multiply(x, x)
 b = f32[128] tanh(a)
 ROOT y = f32[128] multiply(b, a) }

ENTRY main { p = pred[] parameter(0)
 x = f32[128] parameter(1)
 ROOT y = f32[128] conditional(p, x, x), true_computation=double, false_computation=square }
"""

DOT = """
HloModule product

ENTRY main { a = f32[96,160] parameter(0)
 b = f32[160,200] parameter(1)
 d = f32[96,200] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
   metadata={op_name="jit(f)/dot" source_file="net.py" source_line=7}
 ROOT t = f32[96,200] tanh(d), metadata={op_name="jit(f)/tanh" source_file="net.py" source_line=8}
}
"""


def made(text: str, target: str = "cpu -threads=1") -> Executable:
    return build(parse(text), target)


def named(profile: Profile, **like: object) -> Any:
    """The only row with these fields."""
    found = [r for r in profile.rows if all(getattr(r, k) == v for k, v in like.items())]
    assert len(found) == 1, [r.name for r in found]
    return found[0]


@pytest.mark.parametrize("outer", [0, 1, 5])
def test_calls_in_loops_are_counted(outer: int) -> None:
    found = made(NESTED).profile(np.ones(64, np.float32), np.int32(outer), rounds=2)
    tanh = named(found, transcendentals=64.0)
    assert tanh.calls == 9 * outer and tanh.depth == 2
    assert [m.source for m in tanh.members] == ["model.py:12"]
    assert tanh.members[0].origin == "jit(f)/tanh"
    loops = [r for r in found.rows if r.kind == "control flow"]
    assert [(r.calls, r.depth) for r in loops] == [(1, 0), (outer, 1)]
    tests = [r for r in found.rows if any(m.name == "lt" for m in r.members)]
    assert sorted(r.calls for r in tests) == [outer + 1, 10 * outer][:: 1 if outer else -1]
    assert found.rows[-1].kind == "call" and found.rows[-1].calls == 1


def test_own_times_add_up_to_the_call() -> None:
    """Loops do not count again what is inside them."""
    found = made(NESTED).profile(np.ones(64, np.float32), np.int32(50), rounds=7)
    assert found.sum == pytest.approx(found.probed, rel=1e-6)
    assert all(r.seconds >= 0 for r in found.rows)


def test_only_the_branch_that_runs_is_counted() -> None:
    exe, x = made(CHOICE), np.ones(128, np.float32)
    for chosen in (True, False):
        found = exe.profile(np.bool_(chosen), x, rounds=1)
        ran = {r.transcendentals: r.calls for r in found.rows if r.kind == "kernel"}
        assert ran == {0.0: int(chosen), 128.0: int(not chosen)}
        assert found.flops == (128 if chosen else 256)
    assert found.costs["flops"] == 256 and found.costs["transcendentals"] == 128


def test_a_fallback_that_does_not_run_does_not_count() -> None:
    exe = made("""HloModule m
ENTRY main { x = f32[1,12,12,8] parameter(0)
 k = f32[3,3,8,16] parameter(1)
 ROOT y = f32[1,12,12,16] convolution(x, k), window={size=3x3 pad=1_1x1_1},
   dim_labels=b01f_01io->b01f }
""")
    x, k = exe.random_arguments()
    rows = {r.name: r for r in exe.profile(x, k, rounds=1).rows}
    (second,) = [r for name, r in rows.items() if name.endswith(".always")]
    assert second.calls == 0 and second.flops == 2 * 144 * 16 * 9 * 8
    found = exe.profile(x, k, rounds=1)
    assert found.flops == found.costs["flops"] and found.bytes <= found.costs["bytes accessed"]
    k[0, 0, 0, 0] = np.inf
    assert named(exe.profile(x, k, rounds=1), name=second.name).calls == 1


def test_rows_agree_with_the_analyses() -> None:
    exe = made(DOT)
    found = exe.profile(*exe.random_arguments(), rounds=1)
    assert found.flops == exe.cost_analysis()["flops"] == 2 * 96 * 160 * 200
    assert found.bytes == exe.cost_analysis()["bytes accessed"]
    assert found.memory == exe.memory_analysis() and found.costs == exe.cost_analysis()
    row = named(found, kind="kernel")
    assert row.bytes >= 4 * (96 * 160 + 160 * 200 + 96 * 200)  # and its workspace
    assert row.flop_rate == pytest.approx(row.flops / row.seconds)
    assert row.sources == ("net.py:7", "net.py:8") and row.group == "dot"
    assert (row.schedule, row.record) == ("default", "")


def test_the_whole_is_near_the_sum() -> None:
    """On a machine that others use, too: the best of some tries."""
    exe = build(parse(DOT.replace("160", "1600").replace("200", "2000")), "cpu -threads=1")
    args = exe.random_arguments()
    tries = (exe.profile(*args) for _ in range(8))
    assert any(p.agrees and not p.notes for p in tries)


def test_rounds_go_on_while_other_programs_disturb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first probed calls take ten times as long: half of the rounds have to be others."""
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    monkeypatch.setattr(measure, "LEAST", 2)
    calls = 0

    def slow(call: object, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        nonlocal calls
        calls += 1
        time.sleep(0.02 if calls in (4, 6, 8) else 0.002)
        return x

    register_custom_call("profile_waits", slow)
    try:
        text = "HloModule w\nENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] custom-call(x), "
        exe = build(parse(f'{text}custom_call_target="profile_waits" }}'))
        assert exe.profile(np.ones(4, np.float32)).rounds >= 5
        assert exe.profile(np.ones(4, np.float32), rounds=2).rounds == 2
    finally:
        unregister_custom_call("profile_waits")


def test_what_timing_takes_is_told() -> None:
    short = made(NESTED).profile(np.ones(64, np.float32), np.int32(50), rounds=3)
    assert short.overhead > 0.05 and any("slower" in note for note in short.notes)
    exe = build(parse(DOT.replace("160", "1600")), "cpu -threads=1")
    assert 0 < exe.profile(*exe.random_arguments(), rounds=3).overhead < 0.01


@pytest.mark.skipif(Target.parse("cpu").threads < 2, reason="one core")
def test_parts_on_threads_are_seen() -> None:
    exe = build(parse(DOT.replace("96", "960")), "cpu -threads=2")
    found = exe.profile(*exe.random_arguments(), rounds=20)
    row = named(found, kind="kernel")
    assert row.parts > 1 and 0 < row.busy <= 2.2 * row.seconds
    parts = [e for e in found.events if e.part]
    assert len(parts) == row.parts and {e.thread for e in parts} <= {0, 1}
    own = next(e for e in found.events if not e.part)
    assert own.thread == 0
    for e in parts:
        assert own.begin <= e.begin and e.begin + e.seconds <= own.begin + own.seconds + 1e-9


def test_arguments_are_as_for_a_call() -> None:
    exe = made(DOT)
    a, b = exe.random_arguments()
    assert exe.profile(a, b=b, rounds=1).rows[0].calls == 1
    for wrong in ((a,), (a, a), (a, b, b)):
        with pytest.raises(ArgumentError):
            exe.profile(*wrong)
    with pytest.raises(ArgumentError, match="rounds=0"):
        exe.profile(a, b, rounds=0)
    with pytest.raises(ArgumentError, match="keeps no results"):
        exe.profile(a, b, out=np.empty((96, 200), np.float32))


def test_what_a_call_raises_is_raised_and_the_next_profile_works() -> None:
    fails = True

    def touchy(call: Any, x: Any) -> Any:
        if fails:
            raise ZeroDivisionError("as it was raised")
        return x + 1

    register_custom_call("touchy", touchy)
    exe = made("""HloModule m
ENTRY main { x = f32[8] parameter(0)
 y = f32[8] tanh(x)
 ROOT z = f32[8] custom-call(y), custom_call_target="touchy" }
""")
    x = np.ones(8, np.float32)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="as it was raised"):
            exe.profile(x)
    fails = False
    found = exe.profile(x, rounds=2)
    assert named(found, kind="library").calls == 1 and named(found, kind="kernel").calls == 1


@pytest.mark.parametrize("frozen", [False, True])
def test_a_saved_model_is_profiled_like_the_built_one(tmp_path: Path, frozen: bool) -> None:
    rng = np.random.default_rng(0)
    weights = {1: rng.random((160, 200), np.float32)} if frozen else None
    exe = build(parse(DOT), "cpu -threads=1", constants=weights)
    exe.save(tmp_path / "m.nw")
    again = nw.load(tmp_path / "m.nw")
    args = exe.random_arguments()
    one, two = (e.profile(*args, rounds=1) for e in (exe, again))
    timeless = [
        [replace(r, seconds=0.0, busy=None, parts=0) for r in found.rows] for found in (one, two)
    ]
    assert timeless[0] == timeless[1] and two.costs == one.costs and two.memory == one.memory
    assert named(two, kind="kernel").sources == ("net.py:7", "net.py:8")


def test_without_llvm_a_profile_is_refused_in_one_message(tmp_path: Path) -> None:
    exe = made(DOT)
    exe.save(tmp_path / "m.nw")
    code = f"""
import sys
sys.modules["llvmlite"] = None
import nestwright as nw
exe = nw.load({str(tmp_path / "m.nw")!r})
args = exe.random_arguments()
exe(*args)
try:
    exe.profile(*args)
except nw.codegen.runtime.native.TargetError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot profile product" in said.stdout and "llvmlite" in said.stdout


def test_a_model_without_facts_still_has_times(tmp_path: Path) -> None:
    exe = made(DOT)
    notes = {k: v for k, v in exe.bundle.notes.items() if k != FACTS}
    bare = Executable(replace(exe.bundle, notes=notes))
    row = bare.profile(*exe.random_arguments(), rounds=1).rows[0]
    assert row.seconds > 0 and row.bytes > 0 and not row.members
    torn = Executable(replace(exe.bundle, notes={**exe.bundle.notes, FACTS: '{"texts": [1]}'}))
    with pytest.raises(ArtifactError, match="facts"):
        torn.profile(*exe.random_arguments(), rounds=1)


def test_facts_are_read_as_they_were_written() -> None:
    note = made(NESTED).bundle.notes[FACTS]
    facts = facts_from_json(note)
    assert len(facts) > 3 and facts_from_json(facts_to_json(facts)) == facts
    for damaged in ("[]", "{", '{"texts": [], "facts": [[0, [], 0, 0, 0, 0]]}', "7"):
        with pytest.raises(ArtifactError):
            facts_from_json(damaged)


def test_the_schedule_in_force_and_its_record() -> None:
    prepared = PreparedModule(parse(DOT), "cpu -threads=1")
    ((key, group),) = prepared.groups.distinct.items()
    steps = default_schedule(lower_group(group.computation, "f"), prepared.target).trace.steps
    bad = Trace.from_json([["parallel", [{"loop": "nobody"}], []]], "r2")
    args = prepared.build({}).random_arguments()
    for trace, told in (
        (Trace(steps), ("trace", "")),
        (Trace(steps, "r1"), ("log", "r1")),
        (bad, ("default", "r2")),
    ):
        row = named(prepared.build({key: trace}).profile(*args, rounds=1), kind="kernel")
        assert (row.schedule, row.record) == told, trace.record


def test_bounded_sizes_are_told() -> None:
    exe = made("""HloModule b
ENTRY main { x = f32[<=8,4] parameter(0)
 ROOT y = f32[<=8,4] tanh(x) }
""")
    found = exe.profile(np.ones((3, 4), np.float32), rounds=1)
    assert found.bounded and any("bounds" in note for note in found.notes)


def test_a_simulated_gpu_says_that_its_times_are_not_a_gpus() -> None:
    exe = build(parse(DOT), "cuda-sim")
    found = exe.profile(*exe.random_arguments(), rounds=1)
    assert found.simulated and any("simulator" in note for note in found.notes)
    assert named(found, kind="kernel").flops == 2 * 96 * 160 * 200


def test_many_events_are_cut_and_told() -> None:
    found = made(NESTED).profile(np.ones(64, np.float32), np.int32(3000), rounds=1)
    assert found.lost > 0 and any(f"lacks {found.lost} events" in note for note in found.notes)
    assert named(found, transcendentals=64.0).calls == 27000


def test_operations_above_the_rate_of_fmas_have_no_share() -> None:
    row = ProfileRow("dot", "kernel", 1e-3, 1, flops=8e8, bytes=2e6)
    assert row.roofline((1e12, 1e10)) == pytest.approx(0.8)
    assert row.roofline((1e11, 1e10)) == pytest.approx(0.2), "the bytes have one"
    assert replace(row, bytes=0.0).roofline((1e11, 1e10)) is None


def test_json_reads_back() -> None:
    exe = made(NESTED)
    found = exe.profile(np.ones(64, np.float32), np.int32(2), rounds=1).against(1e11, 1e10)
    data = json.loads(json.dumps(found.to_json()))
    assert data == found.to_json() and Profile.from_json(data) == found
    assert sum(r["share"] for r in data["rows"]) == pytest.approx(1)
    best = max(found.rows, key=lambda r: found.roofline(r) or 0)
    assert found.roofline(best) == max(best.flop_rate / 1e11, best.byte_rate / 1e10)
    for broken in (
        {},
        [],
        {**data, "version": 99},
        {**data, "seconds": "x"},
        {**data, "rows": [{**data["rows"][0], "calls": 1.5}]},
        {**data, "events": [[1]]},
    ):
        with pytest.raises(ArtifactError):
            Profile.from_json(broken)


def test_two_threads_may_profile_one_model() -> None:
    from concurrent.futures import ThreadPoolExecutor

    exe, x = made(NESTED), np.ones(64, np.float32)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda n: exe.profile(x, np.int32(n), rounds=3), (2, 7)))
    assert [named(p, transcendentals=64.0).calls for p in found] == [18, 63]


def test_a_schedule_is_what_it_was() -> None:
    """A record's id is no part of a trace's value: caches and comparisons do not see it."""
    assert Trace((), "r1") == Trace((), "r2") and Trace((), "r1").to_json() == []
    assert isinstance(Schedule, type)
