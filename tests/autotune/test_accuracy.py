"""``accuracy=``: schedules that add an error are tuned, logged and used only where allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nestwright.autotune.api import tune
from nestwright.autotune.build import build
from nestwright.autotune.explain.model import explain_model
from nestwright.autotune.log.automatic import related_devices
from nestwright.autotune.log.contents import Log
from nestwright.autotune.log.journal import LogWriter, read
from nestwright.autotune.log.records import DeviceRecord, device_id
from nestwright.autotune.lowered import lower
from nestwright.autotune.measure.harness import MARGIN, Harness
from nestwright.autotune.measure.protocol import Candidate, Job
from nestwright.autotune.measure.reference import ExpectedOutput, ReferenceCase, judge
from nestwright.cli.main import main
from nestwright.codegen.driver.compile_group import apply, outdone
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.target import Target, with_arithmetic
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.analyze import work_share
from nestwright.te.from_hlo import lower_group

MODEL = """HloModule conv
ENTRY main {
  x = f32[1,28,28,64] parameter(0)
  w = f32[3,3,64,64] parameter(1)
  c = f32[1,28,28,64] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT r = f32[1,28,28,64] negate(c)
}
"""
SPEC = "cpu -threads=1"
LOOSE = 1e-4


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "measure.lock"))


@pytest.fixture(scope="module")
def arrays() -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 28, 28, 64)).astype(np.float32)
    return x, rng.standard_normal((3, 3, 64, 64)).astype(np.float32)


def error(got: Array, want: Array) -> float:
    off = np.sqrt(np.mean((got.astype(np.float64) - want) ** 2))
    return float(off / np.sqrt(np.mean(want.astype(np.float64) ** 2)))


def kernel() -> Func:
    return FROZEN.put(lower_group(parse(MODEL).entry, "kernel"), (1,))


def transformed(func: Func) -> Schedule:
    target = with_arithmetic(SPEC, LOOSE)
    sketch = next(s for s in generate(func, target) if s.name == "winograd@1")
    sch = Schedule(func)
    sketch.apply(sch, sketch.default)
    return sch


def test_only_who_asks_gets_it(arrays: tuple[Array, Array]) -> None:
    x, w = arrays
    exact = build(parse(MODEL), SPEC, constants={1: w}, cache=False)
    fast = build(parse(MODEL), SPEC, constants={1: w}, cache=False, accuracy=LOOSE)
    tight = build(parse(MODEL), SPEC, constants={1: w}, cache=False, accuracy=1e-8)
    assert np.array_equal(tight(x), exact(x))
    assert 0 < error(fast(x), exact(x)) < 1e-5


@pytest.mark.filterwarnings("ignore:.*no record")
def test_a_build_takes_records_of_its_accuracy_and_of_tighter_ones(
    arrays: tuple[Array, Array], tmp_path: Path
) -> None:
    x, w = arrays
    exact = build(parse(MODEL), SPEC, constants={1: w}, cache=False)(x)
    path = tmp_path / "log.jsonl"
    tune(
        parse(MODEL), SPEC, trials=3, log=path, constants={1: w}, simulate_cost=True, accuracy=LOOSE
    )
    held = read(path)
    [device] = held.devices.values()
    assert device.accuracy == LOOSE and device.id.startswith(Target.parse(SPEC).key + "-accuracy")
    [key] = held.workloads
    (measured,) = (t for t in held.trials if t.sketch == "default")
    direct = Schedule(kernel())
    for accuracy, schedule in ((LOOSE, transformed(kernel())), (0.0, direct)):
        machine = with_arithmetic(SPEC, accuracy)
        facts = {"accuracy": accuracy} if accuracy else {}
        with LogWriter(path, {}) as log:
            log.append(DeviceRecord(device_id(machine), machine.spec, facts))
            log.append(
                replace(
                    measured,
                    id="",
                    device=device_id(machine),
                    status="ok",
                    trace=schedule.trace.to_json(),
                )
            )

    def built(accuracy: float) -> Array:
        made = build(
            parse(MODEL), SPEC, path, constants={1: w}, cache=False, accuracy=accuracy or None
        )
        return np.asarray(made(x))

    assert key in held.winners(with_arithmetic(SPEC, LOOSE))
    plainest = built(0.0)
    assert error(plainest, exact) < 1e-6
    assert np.array_equal(built(1e-7), plainest)  # the record without an added error
    assert error(built(LOOSE), exact) > error(plainest, exact)
    assert np.array_equal(built(2 * LOOSE), built(LOOSE))


def test_looser_processors_of_the_family_lend_nothing() -> None:
    emerald = Target.parse("cpu -mcpu=emeraldrapids -threads=1")
    loose = with_arithmetic("cpu -mcpu=sapphirerapids -threads=1", LOOSE)
    exact = Target.parse("cpu -mcpu=sapphirerapids -threads=1")
    records = [DeviceRecord(device_id(t), t.spec, {}) for t in (loose, exact)]
    log = Log((), devices={r.id: r for r in records})
    assert [d for d, _ in related_devices(log, emerald)] == [device_id(exact)]
    assert len(list(related_devices(log, with_arithmetic(emerald, LOOSE)))) == 2


def test_a_schedule_in_the_wrong_place_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    func = kernel()
    trace = transformed(func).trace
    assert excess_error(apply(func, with_arithmetic(SPEC, LOOSE), trace).func) > 0
    with caplog.at_level("WARNING", "nestwright"):
        assert excess_error(apply(func, Target.parse(SPEC), trace).func) == 0
    assert "adds an error of about" in caplog.text


def test_the_harness_judges_by_the_error_and_counts_the_products(tmp_path: Path) -> None:
    text = MODEL.replace("28,28", "9,10").replace("64", "24")
    sch = Schedule(lower_group(parse(text).entry, "kernel"))
    sch.winograd("conv", 4)
    candidate = Candidate("by trace", {}, sch.trace.to_json())
    for spec, status in ((SPEC, "invalid"), (f"{SPEC} -accuracy={LOOSE}", "ok")):
        reference = str(tmp_path / "reference.npz")
        job = Job(1, "measure", "k", "hlo", text, spec, (candidate,), reference, fill=1e-3)
        (outcome,) = Harness(lambda phase: None).run(job)
        assert outcome.status == status, outcome.note
    assert 0.25 < work_share(lower_group(parse(text).entry, "kernel"), sch.func) < 0.5


def test_results_may_be_as_wrong_as_the_schedule_explains_and_the_target_allows(
    tmp_path: Path,
) -> None:
    text = MODEL.replace("28,28", "9,10").replace("64", "24")
    sch = Schedule(lower_group(parse(text).entry, "kernel"))
    sch.winograd("conv", 4)
    error, candidate = excess_error(sch.func), Candidate("by trace", {}, sch.trace.to_json())
    for accuracy, allowed in ((1.5 * error, 1.5 * error), (10 * error, MARGIN * error)):
        spec, reference = f"{SPEC} -accuracy={accuracy}", str(tmp_path / "reference.npz")
        job = Job(1, "measure", "k", "hlo", text, spec, (candidate,), reference)
        harness = Harness(lambda phase: None)
        built = harness._compile(harness._load(job), candidate)
        assert built.excess == pytest.approx(allowed)


def expected(values: Array, bound: Array | None) -> ReferenceCase:
    rms = float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))
    return ReferenceCase("case", (), (ExpectedOutput(values, bound, rms),))


def test_an_added_error_widens_the_bounds_but_not_for_all_elements() -> None:
    func = kernel()
    rng = np.random.default_rng(5)
    values = rng.standard_normal(func.params[-1].shape).astype(np.float32)
    noise = rng.standard_normal(values.shape).astype(np.float32)
    case = expected(values, None)

    def told(got: Array, excess: float) -> str:
        return judge([got], case, func.params[-1:], excess)[1]

    assert told(values, 0.0) == ""
    assert "differs in" in told(values + np.float32(1e-5) * noise, 0.0)
    assert told(values + np.float32(1e-5) * noise, 2e-5) == ""
    assert "errs by" in told(values + np.float32(6e-5) * noise, 2e-5)
    one = values.copy()
    one[0, 0, 0, 0] += 1e-2
    assert "differs in" in told(one, 2e-5)
    one[0, 0, 0, 0] = np.nan
    assert "differs in" in told(one, 2e-5)


def plain_log(path: Path, allowed: float, w: Array) -> str:
    """Write a log whose winner is the direct convolution, tuned with an error allowed."""
    machine = with_arithmetic(SPEC, allowed)
    tune(parse(MODEL), machine, trials=1, log=path, constants={1: w}, simulate_cost=True)
    [key] = (held := read(path)).workloads
    measured = next(t for t in held.trials if t.sketch == "default")
    steps = Schedule(kernel()).trace.to_json()
    device = device_id(machine)
    with LogWriter(path, {}) as log:
        log.append(DeviceRecord(device, machine.spec, {"accuracy": allowed}))
        log.append(replace(measured, id="", device=device, status="ok", trace=steps))
    return key


@pytest.mark.parametrize("allowed", [0.0, LOOSE])
def test_a_record_of_a_tighter_accuracy_gives_way_to_a_default_that_does_less(
    arrays: tuple[Array, Array], tmp_path: Path, allowed: float
) -> None:
    """Unless it was tuned with an accuracy that allows what the default does."""
    x, w = arrays
    path = tmp_path / "log.jsonl"
    key = plain_log(path, allowed, w)
    target = with_arithmetic(SPEC, LOOSE)
    trace = read(path).trace(read(path).winners(target)[key])
    assert trace.accuracy == allowed
    assert outdone(kernel(), target, trace) == (allowed == 0.0)
    assert not outdone(kernel(), Target.parse(SPEC), trace)
    assert not outdone(kernel(), target, Trace(trace.steps))
    told = explain_model(lower(parse(MODEL), target=target, constants={1: w}), path)
    assert ("was tuned with no added error" in str(told)) == (allowed == 0.0)
    with_log = build(parse(MODEL), target, path, constants={1: w}, cache=False)(x)
    default = build(parse(MODEL), target, constants={1: w}, cache=False)(x)
    assert np.array_equal(with_log, default) == (allowed == 0.0)


def test_the_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, weights = tmp_path / "model.hlo", tmp_path / "weights.npz"
    model.write_text(MODEL)
    values = np.random.default_rng(1).standard_normal((3, 3, 64, 64))
    np.savez(weights, **{"1": values.astype(np.float32)})
    show = ["show", str(model), "--stage", "scheduled", "--constants", str(weights)]
    assert main([*show, "--target", SPEC]) == 0
    assert "excess_error" not in capsys.readouterr().out
    assert main([*show, "--target", SPEC, "--accuracy", "1e-5"]) == 0
    assert "excess_error" in capsys.readouterr().out
    run = ["run", str(model), "--random", "1", "--check", "--constants", str(weights)]
    assert main([*run, "--accuracy", "1e-5"]) == 0
    assert "all outputs match" in capsys.readouterr().out
    for command in (show, run):
        assert main([*command, "--target", SPEC, "--accuracy", "1"]) == 2
        assert "a number from 0 to 0.03" in capsys.readouterr().err


def test_a_device_of_an_unusable_accuracy_serves_nobody(tmp_path: Path) -> None:
    record = DeviceRecord("d", "cpu", {"accuracy": "much"})
    assert record.accuracy == float("inf")
    assert json.loads(json.dumps(dict(record.facts))) == {"accuracy": "much"}
