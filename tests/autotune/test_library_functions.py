"""Library functions as candidates: matched, checked, measured, built, told of when they fail."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.journal import LogWriter, read, stamped
from nestwright.autotune.log.records import (
    LIBRARY_SKETCH,
    Best,
    DeviceRecord,
    Verdict,
    device_id,
)
from nestwright.autotune.measure.harness import Harness
from nestwright.autotune.measure.library import library_trace
from nestwright.autotune.measure.protocol import Candidate, Job
from nestwright.autotune.tasks.extract import Task, extract
from nestwright.autotune.tuner.offers import candidates, complaints
from nestwright.codegen.driver.build import PreparedModule
from nestwright.ir.errors import ArgumentError, LibraryError, NestwrightWarning
from nestwright.ir.hlo.fuse.library_groups import matching, register_library, unregister_library
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.library import functions
from nestwright.ir.target import Target
from nestwright.schedule.language.trace import Trace

HLO = """HloModule product
ENTRY main {
  x = f32[24,32] parameter(0)
  w = f32[32,40] parameter(1)
  ROOT d = f32[24,40] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
RELU = HLO.replace("ROOT d", "d").replace(
    "\n}\n",
    "\n  zero = f32[] constant(0)\n  z = f32[24,40] broadcast(zero), dimensions={}\n"
    "  ROOT r = f32[24,40] maximum(d, z)\n}\n",
)
TARGET = Target.parse("cpu -threads=1")
X = np.arange(24 * 32, dtype=np.float32).reshape(24, 32) % 7
W = np.arange(32 * 40, dtype=np.float32).reshape(32, 40) % 5


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch) -> Iterator[None]:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    monkeypatch.setattr(functions, "_functions", {})
    yield
    for name in ("blas", "wrong", "raises", "short", "nowhere", "any", "matmul", "relu"):
        unregister_library(name)


def wrong(x, w, out):
    np.matmul(x, w, out=out)
    out[3, 3] += 1


def raises(x, w, out):
    raise ValueError("not today\nnor tomorrow")


def short(x, w, out):
    return np.matmul(x, w)[:3]


def spoils(x, w, out):
    np.matmul(x, w, out=out)
    x.flags.writeable = True
    x[0, 0] = 99


def task(text: str = HLO) -> Task:
    (found,) = extract(optimize(nw.parse(text)), TARGET)
    return found


def outcome(name: str, tmp_path: Path):
    t = task()
    c = Candidate(LIBRARY_SKETCH, {"library": name})
    job = Job(
        1,
        "measure",
        t.key,
        "hlo",
        t.program.text,
        TARGET.spec,
        (c,),
        str(tmp_path / "reference.npz"),
        fill=1e-3,
        reuse=t.reuse,
    )
    (found,) = Harness(lambda phase: None).run(job)
    return found


def test_patterns_are_an_opcode_a_text_with_any_sizes_or_a_predicate() -> None:
    plain, fused = task().program.computation, task(RELU).program.computation
    assert plain is not None and fused is not None
    register_library("dot", np.matmul, name="blas")
    assert (matching(plain), matching(fused)) == (("blas",), ())
    register_library(HLO.replace("24", "3").replace("40", "5"), np.matmul, name="any")
    assert matching(plain) == ("blas", "any")
    turned = HLO.replace("rhs_contracting_dims={0}", "rhs_contracting_dims={1}")
    register_library(turned.replace("[32,40]", "[40,32]"), np.matmul, name="any")
    assert matching(plain) == ("blas",), "other dimensions are contracted"
    register_library(lambda c: c.root.opcode == "maximum", np.matmul, name="relu")
    assert matching(fused) == ("relu",)


@pytest.mark.parametrize("pattern", ["no-such-opcode", 3])
def test_other_patterns_are_refused(pattern) -> None:
    with pytest.raises(ArgumentError, match="library pattern"):
        register_library(pattern, np.matmul)
    with pytest.raises(ArgumentError, match="not a function"):
        register_library("dot", 3)


def test_a_function_is_checked_and_timed_as_a_kernel_is(tmp_path: Path) -> None:
    register_library("dot", np.matmul, name="blas")
    found = outcome("blas", tmp_path)
    assert found.status == "ok", found.note
    assert found.trace == [["library", ["blas"], []]]
    assert min(found.runs) > 0


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (wrong, "differs in 0.10% of the elements"),
        (raises, "library function wrong: ValueError: not today"),
        (short, "result 0 must be f32[24,40], not float32[3,40]"),
        (spoils, "it overwrites input 0"),
    ],
)
def test_a_function_that_is_wrong_is_told_in_a_line(function, why: str, tmp_path: Path) -> None:
    register_library("dot", function, name="wrong")
    found = outcome("wrong", tmp_path)
    assert found.status == "wrong"
    assert why in found.note and "\n" not in found.note


def test_a_model_is_built_with_it_and_says_so(tmp_path: Path) -> None:
    register_library("dot", np.matmul, name="blas")
    builder = PreparedModule(nw.parse(HLO), TARGET)
    (key,) = builder.groups.distinct
    exe = builder.build({key: Trace.from_json(library_trace("blas"))})
    assert np.array_equal(exe(X, W), X @ W)
    row, _ = exe.profile(X, W, rounds=1).rows
    assert row.kind == "library" and row.schedule == "trace" and row.flops
    assert row.name.endswith("(library: blas)")
    assert "library blas" in exe.as_text("plan")
    exe.save(tmp_path / "m.nw")
    loaded = nw.load(tmp_path / "m.nw")
    assert np.array_equal(loaded(X, W), X @ W)
    unregister_library("blas")
    with pytest.raises(LibraryError, match="not registered in this process"):
        loaded(X, W)


def test_what_it_raises_ends_the_run_with_a_note() -> None:
    register_library("dot", raises)
    builder = PreparedModule(nw.parse(HLO), TARGET)
    (key,) = builder.groups.distinct
    exe = builder.build({key: Trace.from_json(library_trace("raises"))})
    with pytest.raises(ValueError, match="not today") as caught:
        exe(X, W)
    assert any("library function 'raises'" in n for n in caught.value.__notes__)


def test_children_are_told_what_they_can_import_and_the_user_of_the_rest() -> None:
    register_library("dot", np.matmul, name="blas")
    register_library("dot", lambda x, w, out: None, name="nowhere")
    assert [c.decisions for c in candidates(task(), TARGET, ())] == [{"library": "blas"}]
    assert candidates(task(), TARGET, {"blas"}) == []
    assert candidates(task(), Target.parse("cuda -arch=sm_80"), ()) == []
    (line,) = complaints([task()], TARGET)
    assert line.startswith("library function nowhere is not measured")
    text = functions.for_children()
    functions._functions.clear()
    functions.adopt(text)
    assert functions.find("blas") is np.matmul and not functions.has("nowhere")


def test_a_log_won_by_an_unknown_function_gives_the_best_kernel(tmp_path: Path) -> None:
    register_library("dot", np.matmul, name="blas")
    path, t, device = tmp_path / "log.jsonl", task(), device_id(TARGET)
    best = Best(
        t.key,
        device,
        "t1",
        LIBRARY_SKETCH,
        {"library": "blas"},
        library_trace("blas"),
        (1e-6,) * 3,
        (2e-6,) * 3,
        0.0,
        5.0,
    )
    kernel = replace(best, trial="t0", sketch="default", decisions={}, trace=[], ts=4.0)
    verdict = Verdict("m", device, ((t.key, "t1"),), (1e-6,) * 3, (2e-6,) * 3, False, 6.0)
    with LogWriter(path) as writer:
        writer.append(DeviceRecord(device, TARGET.spec, {}), t.workload)
        writer.append(stamped(kernel), stamped(best), stamped(verdict))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = nw.build(nw.parse(HLO), TARGET, log=path, cache=False)
    assert "library blas" in exe.as_text("plan")
    unregister_library("blas")
    log: Log = read(path)
    assert log.best(device)[t.key].sketch == "default"
    with pytest.warns(NestwrightWarning, match="not registered: blas; the best kernels are used"):
        exe = nw.build(nw.parse(HLO), TARGET, log=path, cache=False)
    assert np.array_equal(exe(X, W), X @ W)
    assert "library" not in exe.as_text("plan")
