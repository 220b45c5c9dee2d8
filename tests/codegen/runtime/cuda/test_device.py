"""On a machine with an NVIDIA GPU: models built for it are right, and arrays change hands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu.kit import right
from gpu.measure import peers
from gpu.places import case_folders

import nestwright as nw
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.runtime.cuda.arrays import DeviceArray
from nestwright.ir.accuracy import relative_error, tolerance
from nestwright.ir.dtypes import from_numpy
from nestwright.ir.errors import TargetError
from nestwright.ir.frontends.load import load_model
from nestwright.ir.gpus import capability
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse

ROOT = Path(__file__).parents[4]
LARGE = 100_000  # characters of HLO: larger models are for the benchmark


def why_not() -> str:
    try:
        capability()
    except TargetError as error:
        return error.why
    return ""


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(peers.WARNINGS),
    pytest.mark.skipif(bool(why_not()), reason=f"no GPU here: {why_not()[:60]}"),
]

CALLS = """HloModule loops
more { s = (s32[], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], f32[8,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8,64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[8,64] tanh(v)
  ROOT r = (s32[], f32[8,64]) tuple(j, w) }
double { x = f32[8,64] parameter(0)
  ROOT r = f32[8,64] add(x, x) }
same { x = f32[8,64] parameter(0)
  ROOT r = f32[8,64] negate(x) }
ENTRY main { i = s32[] parameter(0)
  v = f32[8,64] parameter(1)
  s = (s32[], f32[8,64]) tuple(i, v)
  w = (s32[], f32[8,64]) while(s), condition=more, body=step
  x = f32[8,64] get-tuple-element(w), index=1
  ROOT r = f32[8,64] conditional(i, x, x), branch_computations={double, same}
}
"""


def small_models() -> list[Path]:
    found = [p for folder in case_folders() for p in sorted(folder.glob("*.hlo"))]
    return [p for p in found if p.stat().st_size < LARGE]


def right_results(path: Path, module: HloModule, args: list[Any]) -> list[Any]:
    """What the kit holds of them beside the model, else what the interpreter says."""
    kept = path.with_suffix(right.SUFFIX)
    if kept.exists():
        return list(right.read(kept))
    with np.errstate(all="ignore"):
        return leaves(evaluate(module, args))


def assert_close(result: Any, wanted: list[Any]) -> None:
    for got, want in zip(leaves(result), wanted, strict=True):
        limit = tolerance(from_numpy(np.asarray(want).dtype))
        assert relative_error(np.asarray(got), np.asarray(want)) <= limit


def assert_right(module: HloModule, args: list[Any], result: Any) -> None:
    with np.errstate(all="ignore"):
        assert_close(result, leaves(evaluate(module, args)))


def leaves(x: Any) -> list[Any]:
    return [y for part in x for y in leaves(part)] if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("path", small_models(), ids=lambda p: p.stem)
def test_small_models_are_right(path: Path) -> None:
    module = load_model(path)
    exe = build(module, "cuda")
    args = random_arguments(module.entry, 0)
    wanted = right_results(path, module, args)
    for _ in range(3):  # one by one, recorded, replayed
        assert_close(exe(*args), wanted)


@pytest.mark.parametrize("start", [0, 1, 7, 9])
def test_decisions_are_the_hosts(start: int) -> None:
    module = parse(CALLS)
    exe = build(module, "cuda")
    args = [np.int32(start), random_arguments(module.entry, 1)[1]]
    for _ in range(3):
        assert_right(module, args, exe(*args))


def test_a_saved_model_runs_from_its_file(tmp_path: Path) -> None:
    module = load_model(ROOT / "examples" / "softmax.hlo")
    build(module, "cuda").save(tmp_path / "a.nw")
    args = random_arguments(module.entry, 2)
    assert_right(module, args, load(tmp_path / "a.nw")(*args))


def test_device_arrays_stay_on_the_device() -> None:
    module = load_model(ROOT / "examples" / "softmax.hlo")
    exe = build(module, "cuda")
    (x,) = random_arguments(module.entry, 3)
    once = exe(exe.put(x))
    assert isinstance(once, DeviceArray)
    assert_right(module, [once.numpy()], exe(once).numpy())
    assert exe(once, out=once) is once


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
def test_other_libraries_arrays_change_hands(library: str) -> None:
    with peers.theirs():
        other = pytest.importorskip(library, exc_type=ImportError)
    module = load_model(ROOT / "examples" / "softmax.hlo")
    exe = build(module, "cuda")
    (x,) = random_arguments(module.entry, 4)
    wide = np.repeat(x, 2, axis=1)
    with peers.theirs():
        if library == "torch":
            whole, strided = other.from_numpy(x).cuda(), other.from_numpy(wide).cuda()[:, ::2]
        elif library == "cupy":
            whole, strided = other.asarray(x), other.asarray(wide)[:, ::2]
        else:
            whole = strided = other.device_put(x)
    made = exe(whole)
    with peers.theirs():
        back = other.dlpack if library == "jax" else other
        taken = back.from_dlpack(made)
        if library == "torch":
            taken = taken.cpu().numpy()
        taken = taken.get() if library == "cupy" else np.asarray(taken)
    assert_right(module, [x], taken)
    assert_right(module, [x], exe(strided).numpy())


def test_a_profile_and_a_function_of_the_dsl() -> None:
    module = load_model(ROOT / "examples" / "softmax.hlo")
    exe = build(module, "cuda")
    assert all(r.seconds > 0 for r in exe.profile(*random_arguments(module.entry, 5)).rows)
    a = nw.te.placeholder((1000,), name="a")
    double = nw.te.create_func([a, nw.te.compute((1000,), lambda i: a[i] + a[i])])
    x = np.arange(1000, dtype=np.float32)
    assert (nw.build(double, target="cuda")(x) == 2 * x).all()  # type: ignore[operator]
