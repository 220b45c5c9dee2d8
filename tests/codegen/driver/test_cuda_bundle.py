"""Building for a GPU that is not here: what the bundle holds, and what is refused when read."""

from __future__ import annotations

import ctypes
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver import parallel
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build, compile_groups
from nestwright.codegen.driver.kernel import Kernel
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.plan.code.device import DeviceCode, LaunchConfig
from nestwright.codegen.plan.code.form import code_pieces
from nestwright.codegen.plan.code.reader import DEVICE
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.ir.errors import ArgumentError, ArtifactError, TargetError
from nestwright.ir.gpus import runs_here
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

TARGET = "cuda -arch=sm_90"
TEXT = """HloModule two
ENTRY main {
  x = f32[64,96] parameter(0)
  w = f32[96,32] parameter(1)
  d = f32[64,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,32] tanh(d)
}
"""
nowhere = pytest.mark.skipif(runs_here("sm_90"), reason="there is such a GPU here")


@pytest.fixture(scope="module")
def made() -> Executable:
    return build(parse(TEXT), TARGET)


def codes(exe: Executable) -> list[DeviceCode]:
    found = list(exe.bundle.kernels.values())
    assert all(isinstance(c, DeviceCode) for c in found)
    return found  # type: ignore[return-value]


def test_a_bundle_for_a_gpu_holds_ptx_and_launches(made: Executable) -> None:
    for code in codes(made):
        assert ".target sm_90" in code.ptx
        for launch in code.launches:
            assert f".entry {launch.symbol}(" in code.ptx.replace("\n", "")
    assert made.bundle.program == b"" and made.bundle.runtime == ()
    assert made.memory_analysis()["generated_code_size_in_bytes"] > 0
    assert made.cost_analysis()["flops"] > 0


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
def test_with_ptxas_it_holds_machine_code_and_its_figures(made: Executable) -> None:
    for code in codes(made):
        assert code.cubin[:4] == b"\x7fELF"
        assert len(code.registers) == len(code.spills) == len(code.launches)
        assert all(0 < r <= 255 for r in code.registers)


def test_without_ptxas_it_holds_ptx_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: None)
    exe = build(parse(TEXT), TARGET)
    assert all(c.ptx and not c.cubin and not c.registers for c in codes(exe))


def test_a_saved_bundle_is_the_same_when_read(made: Executable, tmp_path: Path) -> None:
    made.save(tmp_path / "a.nw")
    again = load(tmp_path / "a.nw")
    assert again.bundle.kernels == made.bundle.kernels
    assert again.plan == made.plan and again.as_text("plan") == made.as_text("plan")
    again.save(tmp_path / "b.nw")
    assert (tmp_path / "a.nw").read_bytes() == (tmp_path / "b.nw").read_bytes()


@nowhere
def test_without_a_gpu_a_call_raises_one_clear_error(made: Executable, tmp_path: Path) -> None:
    made.save(tmp_path / "a.nw")
    args = random_arguments(parse(TEXT).entry, 0)
    for exe in (made, load(tmp_path / "a.nw")):
        for action in (lambda e=exe: e(*args), lambda e=exe: e.profile(*args)):
            with pytest.raises(TargetError, match=f"two was built for {TARGET}: no NVIDIA GPU"):
                action()


def test_frozen_weights_are_packed_here(tmp_path: Path) -> None:
    module = parse(TEXT)
    _, w = random_arguments(module.entry, 0)
    exe = build(module, TARGET, constants={1: w})
    assert exe.plan.constant_bytes >= w.nbytes
    exe.save(tmp_path / "a.nw")
    again = load(tmp_path / "a.nw")
    assert (again.bundle.constants == exe.bundle.constants).all()
    assert [p.name for p in again.plan.params] == ["x"]


# ---- what is read is checked ----------------------------------------------------------------


def changed(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy whose first kernel's facts are changed, digests and all."""
    with zipfile.ZipFile(source) as old:
        members = {name: old.read(name) for name in old.namelist()}
    name = next(n for n in members if n.startswith("kernels/") and n.endswith(".json"))
    facts = json.loads(members[name])
    change(facts)
    members[name] = json.dumps(facts).encode()
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"][name] = sha256(members[name]).hexdigest()
    del manifest["digest"]
    manifest["digest"] = sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w") as new:
        for name, data in members.items():
            new.writestr(name, data)
    return target


LAUNCH = ["k", [1, 1, 1], [32, 1, 1], 0]


@pytest.mark.parametrize(
    "launch",
    [
        ["k", [0, 1, 1], [32, 1, 1], 0],
        ["k", [1, 1 << 17, 1], [32, 1, 1], 0],
        ["k", [1, 1, 1], [2048, 1, 1], 0],
        ["k", [1, 1, 1], [64, 64, 1], 0],
        ["k", [1, 1, 1], [32, 1, 1], 1 << 20],
        ["k", [1, 1, 1], [32, 1, 1], -1],
        ["k", [1, 1], [32, 1, 1], 0],
        ["k", [1, 1, 1.5], [32, 1, 1], 0],
        ["k", [1, 1, True], [32, 1, 1], 0],
        ["no symbol", [1, 1, 1], [32, 1, 1], 0],
        [7, [1, 1, 1], [32, 1, 1], 0],
        ["k", [1, 1, 1], [32, 1, 1]],
        "k",
        None,
    ],
)
def test_launches_that_no_device_takes_are_refused(
    made: Executable, tmp_path: Path, launch: Any
) -> None:
    made.save(tmp_path / "a.nw")

    def change(facts: dict[str, Any]) -> None:
        facts["launches"] = [launch]

    bad = changed(tmp_path / "a.nw", tmp_path / "b.nw", change)
    with pytest.raises(ArtifactError, match="a kernel cannot be read"):
        load(bad)


@pytest.mark.parametrize(
    "pieces",
    [
        {"json": b"{"},
        {"json": b"[" * 100_000},
        {"json": b"[]"},
        {"json": json.dumps({"launches": [], "registers": [], "spills": []}).encode()},
        {"json": json.dumps({"launches": [LAUNCH], "registers": [-1], "spills": []}).encode()},
        {"json": json.dumps({"launches": [LAUNCH], "registers": []}).encode()},
        {"ptx": b"\xff"},
        {"ptx": None},
    ],
)
def test_other_damage_is_refused(pieces: dict[str, bytes | None]) -> None:
    good: dict[str, Any] = code_pieces(
        DeviceCode("ptx", (LaunchConfig("k", (1, 1, 1), (32, 1, 1), 0),))
    )
    assert DEVICE.join(good, Target.parse(TARGET)).ptx == "ptx"  # type: ignore[union-attr]
    bad = {k: v for k, v in (good | pieces).items() if v is not None}
    with pytest.raises(ArtifactError, match="a kernel cannot be read"):
        DEVICE.join(bad, Target.parse(TARGET))


def test_one_flipped_bit_is_noticed(made: Executable, tmp_path: Path) -> None:
    made.save(tmp_path / "a.nw")
    data = (tmp_path / "a.nw").read_bytes()
    at = data.index(b".target sm_90") + 3
    (tmp_path / "b.nw").write_bytes(data[:at] + b"X" + data[at + 1 :])
    with pytest.raises(ArtifactError):
        load(tmp_path / "b.nw")


# ---- stages, helpers, functions -------------------------------------------------------------


def test_the_stages_of_a_gpu(made: Executable) -> None:
    ptx = made.as_text("ptx")
    assert ".visible .entry nw_" in ptx and ".target sm_90" in ptx
    assert "ptx_kernel" in made.as_text("llvm")
    assert made.as_text("asm").strip()
    assert "blockIdx.x" in made.as_text("scheduled") and "blockIdx.x" in made.as_text("flat")
    assert made.as_text("plan").startswith("arena")
    for spec in ("cpu", "cuda-sim -arch=sm_90"):
        with pytest.raises(ArgumentError, match="no stage 'ptx' for this target"):
            stage_text(parse(TEXT), spec, "ptx")


def test_stages_are_dumped_in_order(tmp_path: Path) -> None:
    from nestwright.codegen.driver.dump import dump_stages

    written = dump_stages(parse(TEXT), BuildOptions.of(TARGET), tmp_path, {})
    stages = [p.name.split("_", 1)[1] for p in written if p.parent == tmp_path]
    assert stages[-6:] == ["scheduled.txt", "flat.txt", "llvm.ll", "ptx.ptx", "asm.s", "plan.txt"]
    lowered = [p for p in written if p.is_relative_to(tmp_path / "lowering")]
    assert any("bind_threads" in p.name for p in lowered)


def test_helpers_give_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = fuse_module(optimize(parse(TEXT)))
    target = Target.parse(TARGET)
    monkeypatch.setattr(parallel, "_useful_helpers", lambda target, jobs: 0)
    here, refused = compile_groups(groups, target, {}, {})
    monkeypatch.setattr(parallel, "_useful_helpers", lambda target, jobs: 1)
    monkeypatch.setattr(parallel, "_compile_here", only_when_given_back(parallel._compile_here))
    assert compile_groups(groups, target, {}, {}) == (here, {}) and not refused


def only_when_given_back(work: Callable[..., None]) -> Callable[..., None]:
    """This process compiles nothing at first, so that the helper does it all."""
    calls: list[int] = []

    def turn(*args: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            work(*args)

    return turn


def test_the_time_of_the_assembler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: dict[str, float] = {}
    build(parse(TEXT.replace("96", "80")), TARGET, timings=spent)
    assert ("ptxas" in spent) == (ptxas.find() is not None)
    assert {"te", "schedule", "lower", "emit", "llvm"} <= set(spent)


def test_code_that_llvm_cannot_make_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, target: Target) -> str:
        raise nvptx.UnsupportedError("kernel k for sm_90", "LLVM gave up")

    monkeypatch.setattr(nvptx, "compile", refuse)
    monkeypatch.setattr(parallel, "_useful_helpers", lambda target, jobs: 0)
    with pytest.raises(nvptx.UnsupportedError, match="LLVM gave up"):
        build(parse(TEXT), TARGET)


def test_functions_of_the_dsl_build_too() -> None:
    from nestwright import te

    a = te.placeholder((256,), name="a")
    kernel = nw.build(te.create_func([a, te.compute((256,), lambda i: a[i] + a[i])]), target=TARGET)
    assert isinstance(kernel, Kernel)
    assert kernel.compiled.code.launches and ".entry main" in kernel.compiled.code.ptx
    if not runs_here("sm_90"):
        with pytest.raises(TargetError, match="no NVIDIA GPU"):
            kernel(np.zeros(256, np.float32))


def test_a_function_runs_over_the_driver(fake: Any) -> None:
    from nestwright import te

    a = te.placeholder((256,), name="a")
    kernel = nw.build(te.create_func([a, te.compute((256,), lambda i: a[i] + a[i])]), target=TARGET)
    assert isinstance(kernel, Kernel)
    compiled = replace(kernel.compiled, code=replace(kernel.compiled.code, cubin=b""))
    kernel = Kernel(compiled)
    launch = compiled.code.launches[0]

    def double(x: int, y: int) -> None:
        values = np.frombuffer(ctypes.string_at(x, 1024), np.float32) * 2
        ctypes.memmove(y, values.tobytes(), 1024)

    double.words = 2  # type: ignore[attr-defined]
    fake.kernels[launch.symbol] = double
    x = np.arange(256, dtype=np.float32)
    assert (kernel(x) == 2 * x).all()
    assert fake.launched[0][1] == (*launch.grid, *launch.block, launch.shared_bytes)


def test_values_begin_at_lines_of_the_gpus_cache(made: Executable) -> None:
    from nestwright.codegen.plan.nodes import accesses, walk

    more = """u = f32[32,50] parameter(2)
  e = f32[64,50] dot(d, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  v = f32[50,7] parameter(3)
  ROOT t = f32[64,7] dot(e, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    text = TEXT.replace("ROOT t = f32[64,32] tanh(d)", more)
    exe = build(parse(text), TARGET)
    inside = [s for t in walk(exe.plan.thunks) for part in accesses(t) for s in part]
    arena = [s for s in inside if s.memory == "arena"]
    assert arena and all(s.offset % 256 == 0 for s in arena)
    shown = stage_text(parse(text), TARGET, "plan")
    assert shown == exe.as_text("plan")
