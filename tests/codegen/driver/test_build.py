"""Small modules from HLO text to a call, against the interpreter; and what a build refuses."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nestwright.codegen.driver import parallel
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.groups import fuse_module, symbol
from nestwright.codegen.plan.nodes import CopyThunk, WhileThunk, walk
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cpu import toolchain
from nestwright.codegen.targets.cpu.backend import has_shared_runtime, shared_runtime
from nestwright.ir.errors import ArgumentError, ArtifactError, UnsupportedError
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.hlo.text.canonical import canonical_text
from nestwright.ir.target import HERE, Target
from nestwright.schedule.language.trace import Trace

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"

ELEMENTWISE = """
ENTRY e {
  x = f32[37,5] parameter(0)
  y = f32[5] parameter(1)
  b = f32[37,5] broadcast(y), dimensions={1}
  s = f32[37,5] add(x, b)
  ROOT m = f32[37,5] multiply(s, x)
}"""

SOFTMAX = f"""
max {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] maximum(a, b) }}
{ADD}
ENTRY e {{
  x = f32[7,33] parameter(0)
  low = f32[] constant(-inf)
  m = f32[7] reduce(x, low), dimensions={{1}}, to_apply=max
  mb = f32[7,33] broadcast(m), dimensions={{0}}
  d = f32[7,33] subtract(x, mb)
  e = f32[7,33] exponential(d)
  zero = f32[] constant(0)
  s = f32[7] reduce(e, zero), dimensions={{1}}, to_apply=add
  sb = f32[7,33] broadcast(s), dimensions={{0}}
  ROOT r = f32[7,33] divide(e, sb)
}}"""

MLP = """
ENTRY e {
  x = f32[9,17] parameter(0)
  w = f32[17,31] parameter(1)
  b = f32[31] parameter(2)
  d = f32[9,31] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bb = f32[9,31] broadcast(b), dimensions={1}
  s = f32[9,31] add(d, bb)
  zero = f32[] constant(0)
  z = f32[9,31] broadcast(zero), dimensions={}
  r = f32[9,31] maximum(s, z)
  t = f32[31,9] transpose(r), dimensions={1,0}
  ROOT out = (f32[9,31], f32[31,9], f32[9,17]) tuple(r, t, x)
}"""

# the state's two arrays change places in every turn; the counter is a third
SWAP = """
cond { s = (s32[], f32[4], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(5)
 ROOT l = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 a = f32[4] get-tuple-element(s), index=1
 b = f32[4] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 ROOT t = (s32[], f32[4], f32[4]) tuple(j, b, a) }
ENTRY e { x = f32[4] parameter(0)
 y = f32[4] parameter(1)
 zero = s32[] constant(0)
 s = (s32[], f32[4], f32[4]) tuple(zero, x, y)
 ROOT w = (s32[], f32[4], f32[4]) while(s), condition=cond, body=body }"""

NESTED = """
icond { s = (s32[], s32[], f32[8]) parameter(0)
 j = s32[] get-tuple-element(s), index=1
 n = s32[] constant(11)
 ROOT l = pred[] compare(j, n), direction=LT }
ibody { s = (s32[], s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 j = s32[] get-tuple-element(s), index=1
 v = f32[8] get-tuple-element(s), index=2
 one = s32[] constant(1)
 k = s32[] add(j, one)
 f = f32[] convert(i)
 fb = f32[8] broadcast(f), dimensions={}
 w = f32[8] add(v, fb)
 ROOT t = (s32[], s32[], f32[8]) tuple(i, k, w) }
ocond { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(4)
 ROOT l = pred[] compare(i, n), direction=LT }
obody { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 v = f32[8] get-tuple-element(s), index=1
 zero = s32[] constant(0)
 t = (s32[], s32[], f32[8]) tuple(i, zero, v)
 w = (s32[], s32[], f32[8]) while(t), condition=icond, body=ibody
 u = f32[8] get-tuple-element(w), index=2
 m = f32[8] multiply(u, v)
 one = s32[] constant(1)
 k = s32[] add(i, one)
 ROOT r = (s32[], f32[8]) tuple(k, m) }
ENTRY e { x = f32[8] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], f32[8]) tuple(zero, x)
 w = (s32[], f32[8]) while(s), condition=ocond, body=obody
 ROOT r = f32[8] get-tuple-element(w), index=1 }"""

BRANCHES = """
first { p = f32[6] parameter(0)
 ROOT r = f32[6] negate(p) }
second { p = f32[6] parameter(0)
 ROOT r = f32[6] add(p, p) }
third { p = f32[6] parameter(0)
 ROOT r = f32[6] copy(p) }
ENTRY e { i = s32[] parameter(0)
 x = f32[6] parameter(1)
 y = f32[6] parameter(2)
 c = f32[6] conditional(i, x, y, x), branch_computations={first, second, third}
 ROOT s = f32[6] add(c, y) }"""

TWO_WAY = """
yes { p = (f32[6], f32[6]) parameter(0)
 a = f32[6] get-tuple-element(p), index=0
 b = f32[6] get-tuple-element(p), index=1
 s = f32[6] subtract(a, b)
 ROOT t = (f32[6], f32[6]) tuple(s, a) }
no { p = f32[6] parameter(0)
 ROOT t = (f32[6], f32[6]) tuple(p, p) }
ENTRY e { f = pred[] parameter(0)
 x = f32[6] parameter(1)
 y = f32[6] parameter(2)
 t = (f32[6], f32[6]) tuple(x, y)
 ROOT c = (f32[6], f32[6]) conditional(f, t, y), true_computation=yes, false_computation=no }"""

PASSED_ON = """
ENTRY e { x = f32[2,3] parameter(0)
 c = f32[3] constant({1, 2, 3})
 r = f32[6] reshape(x)
 s = f32[2,3] add(x, x)
 q = f32[3,2] reshape(s)
 ROOT t = (f32[2,3], f32[3], f32[6], f32[2,3], f32[3,2], f32[2,3]) tuple(x, c, r, s, q, s) }"""

TUPLES = """
ENTRY e { p = (f32[3], (f32[3], f32[3])) parameter(0)
 a = f32[3] get-tuple-element(p), index=0
 q = (f32[3], f32[3]) get-tuple-element(p), index=1
 b = f32[3] get-tuple-element(q), index=0
 c = f32[3] get-tuple-element(q), index=1
 s = f32[3] add(a, b)
 u = (f32[3], f32[3]) tuple(s, c)
 ROOT t = (f32[3], (f32[3], f32[3])) tuple(a, u) }"""

NOTHING = """
ENTRY e { x = f32[0,4] parameter(0)
 y = f32[0,4] add(x, x)
 ROOT t = (f32[0,4]) tuple(y) }"""

SMALL = {
    "elementwise": ELEMENTWISE,
    "softmax": SOFTMAX,
    "mlp": MLP,
    "swap": SWAP,
    "nested": NESTED,
    "branches": BRANCHES,
    "two_way": TWO_WAY,
    "passed_on": PASSED_ON,
    "nothing": NOTHING,
}


def made(text: str) -> Executable:
    return build(parse(f"HloModule m\n{text}"))


def leaves(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [np.asarray(value)]


def check(text: str, args: list[np.ndarray], exe: Executable | None = None) -> None:
    exe = made(text) if exe is None else exe
    expected = leaves(evaluate(parse(f"HloModule m\n{text}"), args))
    for _ in range(2):
        actual = leaves(exe(*args))
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert a.dtype == e.dtype
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_module_matches_the_interpreter(name: str) -> None:
    text = SMALL[name]
    check(text, random_arguments(parse(f"HloModule m\n{text}").entry, 0))


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 100])
def test_a_branch_out_of_range_is_the_last_one(index: int) -> None:
    x, y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    check(BRANCHES, [np.array(index, np.int32), x, y])


@pytest.mark.parametrize("flag", [True, False])
def test_both_ways_of_a_two_way_branch(flag: bool) -> None:
    x, y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    check(TWO_WAY, [np.array(flag), x, y])


def test_tuples_in_and_out_keep_their_structure() -> None:
    a, b, c = (np.full(3, i, np.float32) for i in range(3))
    first, (second, third) = made(TUPLES)((a, (b, c)))
    assert (first == a).all()
    assert (second == a + b).all()
    assert (third == c).all()


def test_results_never_stand_on_arguments() -> None:
    x = np.ones((2, 3), np.float32)
    results = made(PASSED_ON)(x)
    for r in results:
        assert not np.shares_memory(r, x)
        r[...] = 7
    assert (x == 1).all()
    assert made(PASSED_ON)(x)[1].tolist() == [1, 2, 3]


def test_a_loop_writes_its_state_in_place() -> None:
    plan = made(NESTED).plan
    inner = [t for t in walk(plan.thunks) if isinstance(t, WhileThunk)][-1]
    assert not any(isinstance(t, CopyThunk) for t in inner.body)


STACK = """
cond { s = (s32[], f32[8,3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(8)
 ROOT l = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[8,3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 all = f32[8,3] get-tuple-element(s), index=1
 f = f32[] convert(i)
 row = f32[1,3] broadcast(f), dimensions={}
 zero = s32[] constant(0)
 new = f32[8,3] dynamic-update-slice(all, row, i, zero)
 one = s32[] constant(1)
 j = s32[] add(i, one)
 ROOT t = (s32[], f32[8,3]) tuple(j, new) }
ENTRY e { x = f32[8,3] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], f32[8,3]) tuple(zero, x)
 w = (s32[], f32[8,3]) while(s), condition=cond, body=body
 ROOT r = f32[8,3] get-tuple-element(w), index=1 }"""


def test_a_loop_that_fills_an_array_updates_it_in_place() -> None:
    exe = made(STACK)
    check(STACK, [np.full((8, 3), -1, np.float32)], exe)
    (loop,) = (t for t in exe.plan.thunks if isinstance(t, WhileThunk))
    assert sum(t.source.bytes for t in loop.body if isinstance(t, CopyThunk)) <= 4  # the counter


def test_an_update_of_what_is_needed_later_copies_it_first() -> None:
    text = """
ENTRY e { x = f32[8] parameter(0)
 i = s32[] parameter(1)
 y = f32[8] negate(x)
 u = f32[2] slice(y), slice={[3:5]}
 d = f32[8] dynamic-update-slice(y, u, i)
 ROOT t = (f32[8], f32[8]) tuple(d, y) }"""
    check(text, [np.arange(8, dtype=np.float32), np.array(5, np.int32)])


def test_frozen_parameters_are_folded() -> None:
    module = parse(f"HloModule m\n{MLP}")
    x, w, b = random_arguments(module.entry, 0)
    exe = build(module, constants={1: w, "b": b})
    assert [p.name for p in exe.plan.params] == ["x"]
    for a, e in zip(exe(x), evaluate(module, [x, w, b]), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


def test_a_saved_model_gives_the_same_bits_and_the_same_file(tmp_path: Path) -> None:
    exe = made(MLP)
    exe.save(tmp_path / "a.nw")
    made(MLP).save(tmp_path / "b.nw")
    assert (tmp_path / "a.nw").read_bytes() == (tmp_path / "b.nw").read_bytes()
    again = load(tmp_path / "a.nw")
    args = random_arguments(exe.module.entry, 3)
    for a, b in zip(exe(*args), again(*args), strict=True):
        assert a.tobytes() == b.tobytes()
    assert len(again.module.entry.parameters) == 3


@pytest.mark.parametrize("take", [pickle.dumps, copy.deepcopy])
def test_a_model_gets_into_other_processes_by_a_file(
    tmp_path: Path, take: Callable[[object], object]
) -> None:
    exe = made(ELEMENTWISE)
    exe.save(tmp_path / "a.nw")
    args = random_arguments(exe.module.entry, 3)
    for one in (exe, load(tmp_path / "a.nw")):
        with pytest.raises(ArtifactError, match=r"(?s)cannot be pickled.*exe\.save"):
            take(one)
        assert copy.copy(one)(*args).tobytes() == exe(*args).tobytes()


def test_a_model_with_frozen_weights_holds_no_hlo(tmp_path: Path) -> None:
    exe = build(parse(f"HloModule m\n{MLP}"), constants={2: np.zeros(31, np.float32)})
    exe.save(tmp_path / "a.nw")
    loaded = load(tmp_path / "a.nw")
    for asked in (lambda: loaded.module, lambda: loaded.as_text("hlo")):
        with pytest.raises(ArtifactError, match=r"does not contain its HLO: weights were frozen"):
            asked()


def test_a_schedule_that_no_longer_applies_is_reported_and_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = parse(f"HloModule m\n{ELEMENTWISE}")
    (key,) = fuse_module(optimize(module)).distinct
    trace = Trace.from_json([["parallel", [{"loop": "nobody"}], []]])
    with caplog.at_level(logging.WARNING, "nestwright"):
        exe = build(module, schedules={key: trace})
    assert "no longer applies" in caplog.text
    check(ELEMENTWISE, random_arguments(module.entry, 0), exe)


def test_everything_that_cannot_be_compiled_is_named_at_once() -> None:
    module = parse("""HloModule m
ENTRY e { x = f32[4,4] parameter(0)
 a = f32[4,4] shuffle(x), dimensions={0}, metadata={source_file="m.py" source_line=7}
 ROOT b = f32[4,4] custom-call(a), custom_call_target="mystery"
}""")
    with pytest.raises(UnsupportedError) as caught:
        build(module)
    text = str(caught.value)
    assert "shuffle" in text
    assert "m.py:7" in text
    assert "custom-call" in text
    assert [f.name for f in caught.value.findings] == ["a", "b"]


def test_freezing_a_parameter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArgumentError):
        build(parse(f"HloModule m\n{MLP}"), constants={"nobody": np.zeros(3)})


@pytest.mark.parametrize("again", ["b", "2"])
def test_freezing_a_parameter_twice_is_refused(again: str) -> None:
    zeros = np.zeros(31, np.float32)
    with pytest.raises(ArgumentError, match="frozen twice"):
        build(parse(f"HloModule m\n{MLP}"), constants={2: zeros, again: zeros + 1})


def test_timings_name_the_stages() -> None:
    spent: dict[str, float] = {}
    build(parse(f"HloModule m\n{MLP}"), timings=spent)
    assert {"optimize", "fuse", "te", "schedule", "lower", "emit", "llvm", "plan", "link"} <= set(
        spent
    )


def test_costs_count_what_the_module_does() -> None:
    exe = made(MLP)
    costs = exe.cost_analysis()
    assert costs["flops"] == 2 * 9 * 17 * 31 + 2 * 9 * 31
    assert costs["transcendentals"] == 0
    assert exe.memory_analysis()["temp_size_in_bytes"] == exe.plan.arena_bytes


@pytest.mark.parametrize("name", ["mlp", "swap", "passed_on"])
def test_a_profile_has_a_time_for_every_thunk(name: str) -> None:
    exe = made(SMALL[name])
    *rows, call = exe.profile(*random_arguments(exe.module.entry, 0), rounds=2).rows
    assert [r.name for r in rows] == [t.name for t in walk(exe.plan.thunks)]
    assert all(0 <= r.seconds < 60 for r in rows)
    assert all(r.bytes > 0 for r in rows)
    assert call.kind == "call" and not call.flops


def test_helpers_give_the_same_code_as_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = _jobs()
    monkeypatch.setattr(parallel, "_useful_helpers", lambda target, jobs: 0)
    alone, errors = parallel.compile_all(jobs, Target.parse("cpu"), {})
    assert not errors and alone == _helped(jobs, shares=False).done


def test_a_helper_compiles_what_executables_share(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Target.parse(HERE)
    here = shared_runtime(host)
    monkeypatch.setattr(toolchain, "_compiled", {})
    _helped({}, shares=False)
    assert not has_shared_runtime(host)
    _helped({}, shares=True)
    assert has_shared_runtime(host) and shared_runtime(host) == here


READY = """echo '{"sizes": []}'; read line"""


@pytest.mark.parametrize(
    "program", ["exit 1", "echo '{}'; read line", f"{READY}; read job", "exec sleep 10000"]
)
def test_a_helper_that_dies_or_dawdles_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o700)
    jobs = _jobs()
    monkeypatch.setattr(parallel.sys, "executable", str(script))
    monkeypatch.setattr(parallel, "_useful_helpers", lambda target, jobs: 1)
    done, errors = parallel.compile_all(jobs, Target.parse("cpu"), {})
    assert set(done) == set(jobs) and not errors


def test_a_helper_whose_parent_is_gone_says_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "nestwright.codegen.driver.worker"]
    asked = b'{"shared": false}\n'
    ended = subprocess.run(command, input=asked, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert ended.stderr == b""


def _jobs() -> dict[str, parallel.CompileJob]:
    groups = fuse_module(optimize(parse(f"HloModule m\n{MLP}")))
    return {
        f"{key}{n}": parallel.CompileJob(canonical_text(g.computation), f"{symbol(key)}_{n}", None)
        for key, g in groups.distinct.items()
        for n in range(2)
    }


def _helped(jobs: dict[str, parallel.CompileJob], shares: bool) -> parallel.Queue:
    """The queue when a helper has done all of its jobs."""
    queue = parallel.Queue(Target.parse("cpu"), jobs, parallel.deque(jobs))
    helper = parallel.Helper(shares)
    helper.feed(queue)
    assert helper._thread is not None
    helper._thread.join()
    helper.stop()
    return queue
