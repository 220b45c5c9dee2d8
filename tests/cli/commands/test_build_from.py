"""`nestwright build --from STAGE`: what `show --stage` prints is built from that stage on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.from_stage import STARTS, build_from
from nestwright.codegen.driver.stages import STAGES, stage_text
from nestwright.codegen.plan.code.form import code_pieces
from nestwright.codegen.targets.cuda import ptxas
from nestwright.ir.errors import (
    ArgumentError,
    LimitError,
    NestwrightError,
    ParseError,
    TargetError,
    UnsupportedError,
    VerifyError,
)
from nestwright.ir.hlo import parse

HLO = """HloModule m
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,16] parameter(1)
  d = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[4,16] exponential(d)
  ROOT y = f32[4,16] add(e, e)
}
"""
UPDATE = """HloModule u
ENTRY main {
  x = f32[8] parameter(0)
  v = f32[2] parameter(1)
  i = s32[] parameter(2)
  ROOT y = f32[8] dynamic-update-slice(x, v, i)
}
"""
TWO = """HloModule two
ENTRY main {
  x = f32[4,4] parameter(0)
  d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[4,4] exponential(d)
  ROOT y = f32[4,4] dot(e, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SUM = """HloModule sum
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[3,4] parameter(0)
  z = f32[] constant(0)
  ROOT y = f32[3] reduce(x, z), dimensions={1}, to_apply=add
}
"""
SORT = """HloModule sorted
less {
  a = u8[] parameter(0)
  b = u8[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}
ENTRY main {
  x = u8[5,7] parameter(0)
  ROOT y = u8[5,7] sort(x), dimensions={1}, to_apply=less
}
"""
TURNED = """HloModule turned
ENTRY main {
  x = f32[4,2] parameter(0)
  ROOT y = f32[2,2] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
CPU, SIM, GPU = "cpu", "cuda-sim -arch=sm_80", "cuda -arch=sm_80"
X, W = np.random.default_rng(0).normal(size=(4, 8)).astype("f4"), np.eye(8, 16, dtype="f4")
WANT = 2 * np.exp(X @ W)
MODELS = [s for s, row in STARTS.items() if row.sort in ("HLO", "a loop function")]
FLAT = "@func(outputs=1)\ndef f(A: f32[64], B: f32[64]):\n    {}\n"


def test_every_stage_has_a_row() -> None:
    assert tuple(STARTS) == tuple(s for s in (*STAGES[:8], "ptx", "asm", "plan"))
    assert set(STARTS) == set(STAGES)


@pytest.mark.parametrize("target", [CPU, SIM, GPU])
@pytest.mark.parametrize("stage", MODELS)
def test_what_show_prints_becomes_the_same_model(stage: str, target: str) -> None:
    module = parse(HLO)
    exe = build_from(stage, stage_text(module, target, stage), target)
    assert isinstance(exe, nw.Executable)
    whole = nw.build(module, target=target, cache=False)
    if target == GPU:  # needs none to compile
        (made,) = exe.bundle.kernels.values()
        (wanted,) = whole.bundle.kernels.values()
        kinds = set(code_pieces(made))
        assert kinds == set(code_pieces(wanted)) and kinds
        return
    flat = stage == "flat"
    x, w = (X.ravel(), W.ravel()) if flat else (X, W)
    found = exe(x, w)
    np.testing.assert_array_equal(found, np.asarray(whole(X, W)).reshape(found.shape))
    np.testing.assert_allclose(found.reshape(WANT.shape), WANT, rtol=1e-5)


def test_a_fused_group_brings_the_computations_that_it_calls() -> None:
    text = stage_text(parse(SUM), CPU, "fused")
    exe = build_from("fused", text, CPU)
    assert isinstance(exe, nw.Executable)
    np.testing.assert_array_equal(exe(np.arange(12, dtype="f4").reshape(3, 4)), [6, 22, 38])


@pytest.mark.parametrize("stage", MODELS)
def test_a_group_that_is_lowered_with_vectors_in_it_is_not_scheduled(stage: str) -> None:
    exe = build_from(stage, stage_text(parse(SORT), CPU, stage), CPU)
    assert isinstance(exe, nw.Executable)
    x = np.random.default_rng(1).integers(0, 256, (5, 7), np.uint8)
    found = exe(x.ravel() if stage == "flat" else x)
    np.testing.assert_array_equal(found.reshape(5, 7), np.sort(x, axis=1))


@pytest.mark.parametrize("target", [CPU, SIM, GPU])
def test_llvm_text_becomes_the_targets_code(target: str) -> None:
    module = parse(HLO)
    code = build_from("llvm", stage_text(module, target, "llvm"), target)
    assert isinstance(code, bytes)
    if target == GPU:
        assert code.decode() in stage_text(module, target, "ptx")
    else:
        (kernel,) = nw.build(module, target=target, cache=False).bundle.kernels.values()
        assert code == kernel


@pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas here")
def test_ptx_becomes_machine_code() -> None:
    text = stage_text(parse(HLO), GPU, "ptx")
    code = build_from("ptx", text, GPU)
    assert isinstance(code, bytes) and code.startswith(b"\x7fELF")


def test_ptx_without_an_assembler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "find", lambda: None)
    with pytest.raises(TargetError, match="no ptxas on this machine"):
        build_from("ptx", ".version 7.8\n", GPU)


@pytest.mark.parametrize("stage", ["loop", "scheduled", "flat"])
@pytest.mark.parametrize("target", [CPU, SIM])
def test_an_output_begins_as_the_input_that_it_updates(stage: str, target: str) -> None:
    text = stage_text(parse(UPDATE), target, stage)
    exe = build_from(stage, text, target)
    assert isinstance(exe, nw.Executable)
    x, v, i = np.arange(8, dtype="f4"), np.full(2, 9, "f4"), np.int32(3)
    i = np.array([3], "s4".replace("s", "i")) if stage == "flat" else i
    np.testing.assert_array_equal(exe(x, v, i), [0, 1, 2, 9, 9, 5, 6, 7])


@pytest.mark.parametrize("stage", ["te", "asm", "plan"])
@pytest.mark.parametrize("target", [CPU, SIM, GPU])
def test_what_cannot_begin_says_what_can(stage: str, target: str) -> None:
    with pytest.raises(ArgumentError, match=f"cannot start at stage {stage}: ") as told:
        build_from(stage, "", target)
    assert "start at stage" in told.value.hint


@pytest.mark.parametrize("stage", ["loop", "scheduled", "flat", "llvm"])
def test_several_groups_are_not_one(stage: str) -> None:
    text = stage_text(parse(TWO), CPU, stage)
    with pytest.raises(ArgumentError, match=r"this is \d groups"):
        build_from(stage, text, CPU)


def test_groups_that_are_connected_are_not_one() -> None:
    text = stage_text(parse(TWO), CPU, "fused")
    with pytest.raises(ArgumentError, match="more than one group"):
        build_from("fused", text, CPU)


@pytest.mark.parametrize("content", ["hlo", "scheduled", "llvm", "ptx"])
@pytest.mark.parametrize("stage", ["hlo", "optimized", "fused", "loop", "flat", "llvm", "ptx"])
def test_text_of_another_stage_is_recognized(stage: str, content: str) -> None:
    text = stage_text(parse(HLO), GPU, content)
    if STARTS[stage].sort == STARTS[content].sort:
        return
    with pytest.raises(ArgumentError, match=f"this is not stage {stage}: it looks like") as told:
        build_from(stage, text, GPU)
    assert content in told.value.hint


@pytest.mark.parametrize(
    ("stage", "content", "told"),
    [
        (
            "optimized",
            TURNED,
            "this module is not optimized: <dot y> in main is there, but dots are",
        ),
        ("flat", "scheduled", "cannot be at stage flat: .* intermediate buffer is allocated"),
        ("loop", "flat", "cannot be at stage loop: .* buffers are listed"),
        ("scheduled", "flat", "cannot be at stage scheduled: .* buffers are listed"),
        ("loop", "scheduled", "this function is scheduled already"),
    ],
)
def test_a_stage_of_the_same_sort_is_told(stage: str, content: str, told: str) -> None:
    text = stage_text(parse(HLO), CPU, content) if content in STAGES else content
    with pytest.raises(NestwrightError, match=told):
        build_from(stage, text, CPU, "d.txt")


@pytest.mark.parametrize(
    ("stage", "text", "error"),
    [
        ("hlo", "", ParseError),
        ("hlo", "HloModule m\nENTRY e { ROOT x = f32[", ParseError),
        ("fused", "nothing", ParseError),
        ("fused", "g {\n ROOT x = f32[4] sin()\n}\n", NestwrightError),
        ("loop", "", ParseError),
        ("flat", "def", ParseError),
        ("flat", "import os", ParseError),
        ("flat", FLAT.format("B[64] = A[0]"), VerifyError),
        ("flat", FLAT.format("B[0] = C[0]"), ParseError),
        ("flat", FLAT.replace("outputs=1", "outputs=0").format("pass"), ArgumentError),
        ("flat", FLAT.replace("B: f32[64]", "B: f32[64], n: s64").format("pass"), ArgumentError),
        ("flat", FLAT.replace("A: f32[64]", f"A: f32[{10**30}]").format("pass"), LimitError),
        ("scheduled", FLAT.format(f"T = alloc(f32[{1 << 60}])\n    T[0] = A[0]"), LimitError),
        ("flat", FLAT.format("for i in unroll(1000000000):\n        B[0] = A[0]"), LimitError),
        ("flat", FLAT.replace("=1", "=1, updates=((0, 5),)").format("pass"), VerifyError),
        ("llvm", "define void @f( {", VerifyError),
        ("llvm", "define i32 @f() {\n  ret float 0.0\n}", VerifyError),
        ("llvm", "no code", VerifyError),
    ],
)
def test_hostile_text_is_refused(stage: str, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        build_from(stage, text, CPU)


@pytest.mark.parametrize("target", [CPU, SIM, GPU])
def test_text_that_ends_llvm_ends_no_more_than_its_child(target: str) -> None:
    text = """
define void @f() gc "no such collector" {
  ret void
}
"""
    with pytest.raises(UnsupportedError, match="LLVM gave up: LLVM ERROR: unsupported GC"):
        build_from("llvm", text, target)
    assert build_from("llvm", "define void @g() {\n  ret void\n}\n", CPU)


def test_names_of_a_text_are_not_symbols() -> None:
    exe = build_from("flat", FLAT.replace("def f", "def memcpy").format("B[0] = A[0]"), CPU)
    assert isinstance(exe, nw.Executable) and exe.name == "memcpy"
    assert all(s.startswith("nw_") for s in exe.bundle.kernels)
    quoted = FLAT.format("B[0] = A[0]").replace("=1", r"=1, name='a\" {\n'")
    assert build_from("flat", quoted, CPU)


def test_the_command_builds_and_runs(nestwright, tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(HLO)
    shown = nestwright("show", "m.hlo", "--stage", "scheduled")
    Path("k.txt").write_text(shown.out)
    said = nestwright("build", "--from", "scheduled", "k.txt", "-o", "k.nw")
    assert said.status == 0 and "built a model from stage scheduled of k.txt" in said.out
    np.savez("in.npz", X, W)
    ran = nestwright("run", "k.nw", "--inputs", "in.npz", "--outputs", "out.npz")
    assert ran.status == 0
    np.testing.assert_allclose(np.load("out.npz")["out0"], WANT, rtol=1e-5)
    assert nestwright("run", "k.nw", "--random", "1").status == 0


def test_the_command_writes_code(nestwright, tmp_path: Path) -> None:
    (tmp_path / "k.ll").write_text("define void @f() {\n  ret void\n}\n")
    said = nestwright("build", "--from", "llvm", "k.ll", "-o", "k.o", "--json")
    facts = json.loads(said.out)
    assert facts["made"] == "object code" and facts["from"] == "llvm"
    assert Path("k.o").read_bytes().startswith((b"\x7fELF", b"\xcf\xfa", b"d\x86"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("k.txt", "--from", "flatt"), "did you mean 'flat'?"),
        (("k.txt", "--from", "te"), "cannot start at stage te"),
        (("nowhere.txt", "--from", "flat"), "cannot read the text"),
        (("k.txt", "--from", "flat", "--log", "l.jsonl"), "--log cannot be used with --from"),
        (("k.txt", "--from", "flat"), "k.txt:1:4: not Python syntax"),
    ],
)
def test_the_command_tells_what_is_wrong(nestwright, tmp_path, arguments, told: str) -> None:
    (tmp_path / "k.txt").write_bytes(b"no function")
    answer = nestwright("build", *arguments)
    assert answer.status == 2 and told in answer.err
