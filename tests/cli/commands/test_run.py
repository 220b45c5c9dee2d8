"""`build` and `run`: HLO text and built models, arguments from files, the check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nestwright.codegen.driver.oracle as oracle
from nestwright.autotune.lowered import Lowered
from nestwright.cli.inputs.arrays import in_order
from nestwright.cli.syntax.options import read_open_shapes
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import bf16, f32


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def test_both_ends_of_a_range_of_sizes_belong_to_it() -> None:
    assert read_open_shapes(["x=1..3x2", "0=?"]) == {"x": (range(1, 4), 2), 0: (None,)}


def test_built_model_gives_the_same_bits_in_a_new_process(nestwright, dense: Path) -> None:
    said = nestwright("build", dense, "-o", "out.nw", "--timings")
    assert said.status == 0 and "written to out.nw" in said.out
    for stage in ("optimize", "fuse", "te", "schedule", "lower", "llvm", "plan", "link"):
        assert f"\n  {stage} " in said.out
    assert nestwright("run", dense, "--random", 3, "--outputs", "here.npz").status == 0
    command = [sys.executable, "-m", "nestwright", "run", "out.nw", "--random", "3", "--check"]
    done = subprocess.run([*command, "--outputs", "there.npz"], capture_output=True, text=True)
    assert done.returncode == 0 and "all outputs match the interpreter" in done.stdout
    assert Path("here.npz").read_bytes() == Path("there.npz").read_bytes()


def test_frozen_parameters_are_no_arguments_any_more(nestwright, dense: Path) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((8, 24), (24, 16)))
    saved(Path("w.npz"), w=w)
    saved(Path("x.npz"), x=x)
    assert nestwright("build", dense, "--constants", "w.npz", "-o", "out.nw").status == 0
    assert nestwright("run", "out.nw", "--inputs", "x.npz", "--outputs", "y.npz").status == 0
    with np.load("y.npz") as y:
        assert np.allclose(y["out0"], np.tanh(x @ w), atol=1e-5)
    drawn = ("--random", 5, "--outputs")
    assert nestwright("run", "out.nw", *drawn, "a.npz").status == 0
    checked = nestwright("run", dense, "--constants", "w.npz", *drawn, "b.npz", "--check")
    assert checked.status == 0
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes(), "the same arguments drawn"
    refused = nestwright("run", "out.nw", "--random", 5, "--check")
    assert refused.status == 2 and "weights were frozen into it" in refused.err


def test_json_answers(nestwright, softmax: Path) -> None:
    built = json.loads(nestwright("build", softmax, "--json").out)
    assert built["memory"]["argument_size_in_bytes"] == 8 * 24 * 4 and built["timings"]
    ran = json.loads(nestwright("run", softmax, "--random", 0, "--check", "--json").out)
    assert ran["ok"] and ran["outputs"] == [{"dtype": "float32", "shape": [8, 24]}]
    assert ran["checks"][0]["error"] <= ran["checks"][0]["tolerance"]


def test_a_wrong_result_is_status_1(nestwright, softmax: Path, monkeypatch) -> None:
    right = oracle.evaluate
    monkeypatch.setattr(oracle, "evaluate", lambda m, a: right(m, a) + np.float32(0.5))
    said = nestwright("run", softmax, "--random", 0, "--check")
    assert said.status == 1 and "1 of 1 outputs are WRONG" in said.out
    assert json.loads(nestwright("run", softmax, "--random", 0, "--check", "--json").out)["ok"] is (
        False
    )


def test_arguments_go_by_number_by_name_or_as_they_stand() -> None:
    params = [ArraySpec(name, f32, (1,)) for name in ("x", "w")]
    a, b = np.zeros(1, np.float32), np.ones(1, np.float32)
    for arrays in ({"arg1": b, "arg0": a}, {"w": b, "x": a}, {"first": a, "second": b}):
        assert [v[0] for v in in_order(arrays, params)] == [0.0, 1.0]
    eleven = {f"arg{i}": np.full(1, i) for i in reversed(range(11))}
    assert [v[0] for v in in_order(eleven, params)] == list(range(11)), "10 comes after 9"


def test_types_that_npz_does_not_know_come_back(tmp_path: Path) -> None:
    x = np.arange(4).astype(ml_dtypes.bfloat16)
    with np.load(saved(tmp_path / "x.npz", arg0=x)) as data:
        bare = dict(data)
    assert bare["arg0"].dtype == np.dtype("V2")
    (back,) = in_order(bare, [ArraySpec("x", bf16, (4,))])
    assert back.dtype == ml_dtypes.bfloat16 and np.array_equal(back, x)
    (kept,) = in_order(bare, [ArraySpec("x", f32, (4,))])
    assert kept.dtype == np.dtype("V2"), "bytes of another size stay what they are"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (dict(arg0=np.ones((8, 24), np.float64)), "expected f32[8,24], got f64[8,24]"),
        (dict(arg0=np.ones((24, 8), np.float32)), "expected f32[8,24], got f32[24,8]"),
        (dict(arg0=np.ones((8, 24), ml_dtypes.bfloat16)), "expected f32[8,24], got"),
        (dict(a=np.ones(1), b=np.ones(1)), "expected 1 argument, got 2: the parameters are x"),
        ({}, "expected 1 argument, got 0"),
        (dict(arg0=np.array([{}], dtype=object)), "pickled objects, which are never loaded"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(nestwright, softmax, arrays, message: str) -> None:
    said = nestwright("run", softmax, "--inputs", saved(Path("x.npz"), **arrays))
    assert said.status == 2 and message in said.err


def damaged(data: bytes) -> dict[str, bytes]:
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 255
    return {"cut": data[: len(data) // 2], "flipped": bytes(flipped), "text": b"x = 1\n", "no": b""}


@pytest.mark.parametrize("how", ["cut", "flipped", "text", "no"])
@pytest.mark.parametrize("option", ["--inputs", "--constants"])
def test_damaged_npz_is_refused(nestwright, softmax: Path, how: str, option: str) -> None:
    whole = saved(Path("x.npz"), arg0=np.random.default_rng(0).random((8, 24)).astype("f4"))
    Path("bad.npz").write_bytes(damaged(whole.read_bytes())[how])
    said = nestwright("run" if option == "--inputs" else "build", softmax, option, "bad.npz")
    assert said.status == 2 and "cannot read bad.npz as .npz" in said.err


def test_an_array_that_claims_to_be_huge_is_refused(nestwright, softmax: Path) -> None:
    import io
    import zipfile

    head = {"descr": "<f4", "fortran_order": False, "shape": (10**13,)}
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(data, head)
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("arg0.npy", data.getvalue())
    said = nestwright("run", softmax, "--inputs", "x.npz")
    assert said.status == 2 and "cannot read x.npz" in said.err


@pytest.mark.parametrize("name", ["nope.npz", "."])
def test_missing_arguments_are_told(nestwright, softmax: Path, name: str) -> None:
    said = nestwright("run", softmax, "--inputs", name)
    assert said.status == 2 and f"cannot read {name}: " in said.err


@pytest.mark.parametrize(
    "given", ["", "--inputs nope.npz", "--inputs bad.npz", "--random 0 --inputs x.npz"]
)
def test_bad_arguments_are_told_before_anything_is_built(
    nestwright, dense: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(Path("x.npz"), x=np.zeros((8, 24), np.float32), w=np.zeros((24, 16), np.float32))
    Path("bad.npz").write_bytes(Path("x.npz").read_bytes()[:99])
    monkeypatch.setattr(Lowered, "compile", lambda *_: pytest.fail("it is built"))
    said = nestwright("run", dense, *given.split())
    assert said.status == 2 and said.err.startswith("nestwright: cannot r")


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_damaged_built_models_are_refused(nestwright, softmax: Path, how: str) -> None:
    assert nestwright("build", softmax, "-o", "out.nw").status == 0
    Path("bad.nw").write_bytes(damaged(Path("out.nw").read_bytes())[how])
    said = nestwright("run", "bad.nw", "--random", 0)
    assert said.status == 2 and said.err.startswith("nestwright: bad.nw")


def test_built_models_take_no_build_options_and_other_machines_code_does_not_run(
    nestwright, softmax: Path
) -> None:
    aarch64 = "llvm -mtriple=aarch64-linux-gnu"
    assert nestwright("build", softmax, "-o", "out.nw", "--target", aarch64).status == 0
    said = nestwright("run", "out.nw", "--random", 0)
    assert said.status == 2 and "this machine cannot run its code" in said.err
    said = nestwright("run", "out.nw", "--random", 0, "--log", "l.jsonl")
    assert said.status == 2 and "it is already built" in said.err


def test_a_model_without_parameters_needs_no_arguments(nestwright) -> None:
    Path("m.hlo").write_text("HloModule m\nENTRY e { ROOT c = s32[3] iota(), iota_dimension=0 }\n")
    assert nestwright("run", "m.hlo", "--outputs", "y.npz").status == 0
    with np.load("y.npz") as y:
        assert y["out0"].tolist() == [0, 1, 2]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([1.0, 2.0], [1.0, 2.0005], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [1.0, 1.0], False),
        ([INF, 1.0], [INF, 1.0], True),
        ([INF, 1.0], [-INF, 1.0], False),
        ([NAN], [NAN], True),
        ([0.0], [0.0], True),
    ],
)
def test_floats_are_compared_by_size(got, want, ok: bool) -> None:
    assert compare(0, np.float32(got), np.float32(want)).ok is ok


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, ml_dtypes.int4])
def test_integers_are_compared_exactly(dtype) -> None:
    x = np.array([0, 1, 1]).astype(dtype)
    assert compare(0, x, x).ok
    assert compare(0, x, x[::-1]).mismatch == "2 elements differ"


def test_other_shapes_and_types_are_no_match() -> None:
    x = np.zeros((2, 3), np.float32)
    assert "expected float32[3, 2]" in compare(0, x, x.T).mismatch
    assert not compare(0, x, x.astype(np.float16)).ok


@pytest.mark.parametrize("names", [("x", "y"), ("arg0", "arg1"), ("arr_0", "arr_1")])
def test_open_sizes_are_those_of_the_inputs(nestwright, names: tuple[str, str]) -> None:
    onnx = pytest.importorskip("onnx", reason="the onnx package reads ONNX models")
    helper = onnx.helper
    infos = [helper.make_tensor_value_info(n, 1, ["rows", "columns"]) for n in "xyz"]
    node = helper.make_node("Add", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "sum", infos[:2], infos[2:])
    onnx.save(helper.make_model(graph), "sum.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    saved(Path("in.npz"), **{names[0]: x, names[1]: x + 1})
    done = nestwright("run", "sum.onnx", "--inputs", "in.npz", "--check", "--outputs", "out.npz")
    assert done.status == 0, done.err
    with np.load("out.npz") as found:
        assert np.array_equal(found["out0"], 2 * x + 1)
    refused = nestwright("run", "sum.onnx", "--random", 0)
    assert refused.status == 2 and "`rows` in the model" in refused.err
    drawn = nestwright("run", "sum.onnx", "--random", 0, "--shape", "x=4x5")
    assert drawn.status == 0 and "float32[4, 5]" in drawn.out
    saved(Path("odd.npz"), x=x, y=x[:1])
    odd = nestwright("run", "sum.onnx", "--inputs", "odd.npz")
    assert odd.status == 0, odd.err
