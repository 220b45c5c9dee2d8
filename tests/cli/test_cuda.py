"""The command and GPUs: what a machine without one is told, and what it can do all the same."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nestwright.cli.commands import machine
from nestwright.codegen.runtime.cuda import driver as driver_module
from nestwright.codegen.runtime.cuda.driver import Driver
from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir import gpus
from nestwright.ir.gpus import runs_here

SM90 = "cuda -arch=sm_90"
nowhere = pytest.mark.skipif(runs_here("sm_90"), reason="there is such a GPU here")


@pytest.fixture
def built(nestwright, softmax: Path, tmp_path: Path) -> Path:
    out = tmp_path / "softmax.nw"
    said = nestwright("build", softmax, "--target", SM90, "-o", out)
    assert said.status == 0 and "built" in said.out and not said.err
    return out


@nowhere
def test_running_a_built_model_without_a_gpu_is_one_line(nestwright, built: Path) -> None:
    said = nestwright("run", built, "--random", 0)
    assert said.status == 2 and not said.out
    (line,) = said.err.splitlines()
    assert line.startswith(
        f"nestwright: small was built for {SM90}: no NVIDIA GPU can be used here"
    )


@nowhere
@pytest.mark.parametrize("command", [("run", "--random", "0"), ("bench",), ("tune",)])
@pytest.mark.parametrize("target", ["cuda", SM90])
def test_what_needs_a_gpu_says_so(
    nestwright, softmax: Path, target: str, command: tuple[str, ...]
) -> None:
    name, *options = command
    said = nestwright(name, softmax, "--target", target, *options)
    assert said.status == 2
    assert "Traceback" not in said.err
    assert "GPU" in said.err or "this machine cannot run its code" in said.err


def test_building_tells_what_it_did(nestwright, softmax: Path, tmp_path: Path) -> None:
    made = ("-o", tmp_path / "a.nw", "--json", "--no-cache")
    said = nestwright("build", softmax, "--target", SM90, *made)
    facts = json.loads(said.out)
    assert facts["memory"]["generated_code_size_in_bytes"] > 0
    assert {"te", "lower", "emit", "llvm"} <= set(facts["timings"])


def test_a_gpus_stages_show(nestwright, softmax: Path) -> None:
    said = nestwright("show", softmax, "--stage", "ptx", "--target", SM90)
    assert said.status == 0 and ".visible .entry" in said.out
    assert nestwright("show", softmax, "--stage", "asm", "--target", SM90).status == 0
    wrong = nestwright("show", softmax, "--stage", "ptx")
    assert wrong.status == 2 and "its code is stage asm" in wrong.err


def test_a_simulated_gpu_runs_and_is_right(nestwright, softmax: Path) -> None:
    said = nestwright("run", softmax, "--target", "cuda-sim -arch=sm_80", "--random", 0, "--check")
    assert said.status == 0 and "all outputs match" in said.out


def test_architectures_that_do_not_exist_are_refused(nestwright, softmax: Path) -> None:
    said = nestwright("build", softmax, "--target", "cuda -arch=sm_91")
    assert said.status == 2 and "sm_91" in said.err and "sm_90" in said.err


@nowhere
def test_targets_and_doctor_tell_of_the_missing_gpu(nestwright) -> None:
    said = nestwright("targets")
    assert "cuda -arch=NAME" in said.out and "as `cuda` sees it:\n  none: " in said.out
    facts = json.loads(nestwright("targets", "--json").out)
    assert facts["gpu"] is None and "cuda" in facts["targets"]
    told = nestwright("doctor").out
    for name in ("cuda-python", "NVIDIA GPU", "ptxas"):
        (line,) = [x for x in told.splitlines() if x[4:].startswith(name)]
        assert line.startswith("ok ")


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        ({"cuda-python": "13.1", "cuda-bindings": "13.0"}, "13.1"),
        ({"cuda-bindings": "13.0"}, "13.0 (only its bindings, which is enough)"),
        ({}, "not installed: target cuda builds, but does not run"),
    ],
)
def test_the_doctor_asks_for_the_bindings_that_are_called(
    installed: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    assert machine._bindings().startswith(told)


class Api:
    """A driver that tells of one H200."""

    def __getattr__(self, name: str) -> Any:
        answers = {"cuDeviceGetName": b"NVIDIA H200\0\0", "cuDriverGetVersion": 13000}
        return lambda *args: (0, answers.get(name, 0))


def test_a_gpu_is_named_with_its_architecture_and_driver(
    nestwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "driver", lambda: Driver(Api()))
    monkeypatch.setattr(gpus, "capability", lambda: 90)
    for command in ("targets", "doctor"):
        assert "NVIDIA H200 (sm_90a), driver for CUDA 13.0" in nestwright(command).out


def test_doctor_tells_in_the_bindings_words_what_is_wrong(
    nestwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old:
        """A driver that lacks a function."""

        def cuInit(self, flags: int) -> Any:
            raise RuntimeError('Function "cuGetProcAddress_v2" not found')

    monkeypatch.setattr(driver_module, "bindings", Old)
    monkeypatch.setattr(driver_module, "driver", driver_module.driver.__wrapped__)
    told = 'none: cuInit: RuntimeError: Function "cuGetProcAddress_v2" not found'
    assert told in nestwright("doctor").out


def test_products_of_rounded_operands_are_checked_as_such(nestwright, tmp_path: Path) -> None:
    model = tmp_path / "dot.hlo"
    model.write_text(
        "HloModule dot\n\nENTRY main {\n  x = f32[64,64] parameter(0)\n"
        "  ROOT y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    told = {}
    for options in ("", " -tf32=1"):
        said = nestwright(
            "run", model, "--target", f"cuda-sim{options}", "--random", 0, "--check", "--json"
        )
        told[options] = json.loads(said.out)["checks"][0]
    assert told[""]["error"] < 1e-6 < told[" -tf32=1"]["error"]
    assert told[""]["tolerance"] < told[" -tf32=1"]["tolerance"]


def test_tuning_names_the_target_in_the_next_command(
    nestwright, softmax: Path, tmp_path: Path
) -> None:
    log = tmp_path / "a.jsonl"
    said = nestwright(
        "tune", softmax, "--target", SM90, "--simulate-cost", "--trials", 1, "--log", log
    )
    assert said.out.splitlines()[-1] == (
        f"next: nestwright build {softmax} --target '{SM90}' --log {log} -o model.nw"
    )


def test_a_simulation_is_not_timed(nestwright, softmax: Path) -> None:
    for command in ("bench", "tune"):
        said = nestwright(command, softmax, "--target", "cuda-sim")
        assert said.status == 2 and "a simulator's time says nothing about a GPU's" in said.err


def test_code_without_an_assembler_is_noted(
    nestwright, softmax: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: None)
    said = nestwright("build", softmax, "--target", SM90, "-o", tmp_path / "a.nw")
    assert said.status == 0 and "note: no ptxas was found" in said.out
    assert "note" not in nestwright("build", softmax, "-o", tmp_path / "b.nw").out


def test_a_gpu_by_another_name_is_guessed(nestwright, softmax: Path) -> None:
    said = nestwright("build", softmax, "--target", "gpu")
    assert said.status == 2 and "did you mean 'cuda'?" in said.err


def test_estimates_are_marked_wherever_they_show(nestwright, softmax: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    options = ("--target", SM90, "--simulate-cost", "--trials", 2, "--log", log)
    assert " -> ~" in nestwright("tune", softmax, *options).out
    for command in ("best", "show"):
        assert "~" in nestwright("log", command, log).out
    (best,) = json.loads(nestwright("log", "best", log, "--json").out)["best"]
    assert best["estimated"]
