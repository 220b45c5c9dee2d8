"""The recipe for a target: a row of its kind, a row and a backend to compile it, a loader.

The toy is this machine's processor under another name, with a pass, a listing and a loader of its
own. All that is touched is what the recipe in ``docs/architecture.md`` names.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.log.journal import LogWriter, read
from nestwright.autotune.measure.harness import Harness
from nestwright.autotune.measure.protocol import Job, Outcome, Watch
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tuner.tune import Tuner, TuningPlan
from nestwright.codegen.driver.kernel import Kernel
from nestwright.codegen.lower.pipeline import PASSES, Lowering, LoweringPass
from nestwright.codegen.plan.bundle import Bundle
from nestwright.codegen.plan.function import CompiledFunc
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.runtime.native import Native
from nestwright.codegen.targets import registry
from nestwright.codegen.targets.cpu import backend as cpu
from nestwright.ir import target as targets
from nestwright.ir.errors import TargetError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import HERE, Target, TargetKind

SPEC = "toy -threads=1"
TEXT = """HloModule product
ENTRY main {
  x = f32[24,40] parameter(0)
  w = f32[40,32] parameter(1)
  d = f32[24,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[24,32] tanh(d)
}
"""


def toy(used: Counter[str]) -> ModuleType:
    """A module with all that the two rows ask for; ``used`` counts what is called."""

    def parsed(spec: str, options: Mapping[str, str]) -> Target:
        host = Target.parse(f"{HERE} -threads={options.get('threads', '1')}")
        return replace(host, spec=spec, kind="toy")

    def counted(func: Func, target: Target) -> Func:
        used["pass"] += 1
        return func

    def stages(text: str, target: Target) -> Iterator[registry.Stage]:
        yield "toy", lambda: f"toy code of {len(text)} characters"

    def load(bundle: Bundle) -> Native:
        used["load"] += 1
        return Native(bundle)

    def load_function(compiled: CompiledFunc) -> NativeFunc:
        used["load_function"] += 1
        return NativeFunc.load(compiled)

    made = ModuleType("toy_target")
    rows = (*PASSES, LoweringPass("count", counted, "Nothing else holds."))
    found = {
        "KIND": TargetKind(
            name="toy",
            options=("threads",),
            specs={"toy": "this machine by another name"},
            parse=parsed,
            key=lambda target: f"toy-{target.host.cpu}",
            missing=lambda target: (),
        ),
        "BACKEND": replace(
            cpu.BACKEND, lowering=Lowering(rows), listings=("toy",), stages=stages, alignment=128
        ),
        "load": load,
        "load_function": load_function,
    }
    vars(made).update(found)
    return made


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The toy's rows stand, and say what of the toy was called."""
    calls: Counter[str] = Counter()
    monkeypatch.setitem(sys.modules, "toy_target", toy(calls))
    monkeypatch.setitem(targets.KINDS, "toy", "toy_target")
    monkeypatch.setitem(registry.ROWS, "toy", registry.Row("toy_target", "toy_target"))
    return calls


def arguments() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((24, 40), (40, 32)))
    return x, w, np.tanh(x.astype(np.float64) @ w.astype(np.float64))


def test_without_its_rows_there_is_no_toy() -> None:
    with pytest.raises(TargetError, match="unknown target 'toy -threads=1'"):
        Target.parse(SPEC)


def test_a_model_is_built_run_saved_and_loaded(used: Counter[str], tmp_path: Path) -> None:
    x, w, wanted = arguments()
    exe = nw.build(parse(TEXT), target=SPEC, cache=False)
    assert used == {"pass": 1}, "one kernel is lowered, nothing is loaded before the first call"
    np.testing.assert_allclose(exe(x, w), wanted, rtol=1e-4, atol=1e-5)
    assert used["load"] == 1
    exe.save(tmp_path / "toy.nw")
    again = nw.load(tmp_path / "toy.nw")
    assert again.bundle.target.key == f"toy-{Target.parse(HERE).cpu}"
    np.testing.assert_array_equal(again(x, w), exe(x, w))
    assert used == {"pass": 1, "load": 2}
    assert "toy code of" in exe.as_text("toy")
    assert any("this machine by another name" in kind.specs.values() for kind in targets.kinds())


def test_a_function_is_built_and_run(used: Counter[str]) -> None:
    a = nw.te.placeholder((100,), name="A")
    func = nw.te.create_func([a, nw.te.compute((100,), lambda i: a[i] + a[i], name="B")])
    kernel = nw.build(func, target=SPEC)
    assert isinstance(kernel, Kernel)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    assert kernel(x, out=out) is out
    np.testing.assert_array_equal(out, x + x)
    assert used == {"pass": 1, "load_function": 1}


class Here:
    """Measures in this process: a child knows no toy."""

    slots = 1

    def __init__(self) -> None:
        self.harness = Harness(lambda phase: None)

    def run(
        self, jobs: Iterable[Job], until: float = math.inf, watch: Watch | None = None
    ) -> Iterator[tuple[Job, tuple[Outcome, ...]]]:
        for job in jobs:
            yield job, self.harness.run(job)


def test_it_is_tuned(used: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))
    target, path = Target.parse(SPEC), tmp_path / "toy.jsonl"
    tasks = extract(optimize(parse(TEXT)), target)
    with LogWriter(path) as writer:
        tuner = Tuner(TuningPlan("product", target, tasks, 2), writer, read(path), Here(), None)
        try:
            result = tuner.run()
        finally:
            tuner.close()
    assert result.trials == 2
    assert [t.status for t in read(path).trials] == ["ok", "ok"]
    assert used["load_function"] >= 2 and used["pass"] >= 2
    x, w, wanted = arguments()
    exe = nw.build(parse(TEXT), target=SPEC, log=path, cache=False)
    np.testing.assert_allclose(exe(x, w), wanted, rtol=1e-4, atol=1e-5)
