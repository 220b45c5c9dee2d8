"""Replaying a model: agreement, a planted fault found and shrunk, and reports for elsewhere."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.replay import archive
from nestwright.ir.errors import ArtifactError
from nestwright.ir.hlo.nodes import HloModule
from nestwright.te.from_hlo import group

CHAIN = """HloModule chain

add_up { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

ENTRY main {
  x = f32[8,24] parameter(0)
  w = f32[24,16] parameter(1)
  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,16] tanh(d)
  zero = f32[] constant(0)
  r = f32[8] reduce(t, zero), dimensions={1}, to_apply=add_up
  b = f32[8,16] broadcast(r), dimensions={0}
  e = f32[8,16] exponential(t)
  c = f32[8,16] cosine(b)
  p = f32[8,16] multiply(c, e)
  ROOT out = (f32[8,16], f32[8]) tuple(p, r)
}
"""


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.hlo"
    path.write_text(CHAIN)
    return path


@pytest.fixture
def wrong_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowering takes a cosine for a sine."""
    right = group.elementwise

    def elementwise(x, args):
        if x.opcode == "cosine":
            from dataclasses import replace

            x = replace(x, opcode="sine")
        return right(x, args)

    monkeypatch.setattr(group, "elementwise", elementwise)


def test_a_right_model_agrees(nestwright, chain: Path) -> None:
    said = nestwright("replay", chain, "--random", 3)
    assert said.status == 0, said.err
    assert "agrees with the interpreter" in said.out
    facts = json.loads(nestwright("replay", "--json", chain).out)
    assert facts["ok"] and facts["fault"] is None and len(facts["checks"]) == 2


def test_a_built_model_is_replayed_from_its_hlo(nestwright, chain: Path) -> None:
    assert nestwright("build", chain, "-o", "chain.nw", "--target", "cpu -threads=1").status == 0
    said = nestwright("replay", "chain.nw")
    assert said.status == 0 and "agrees with the interpreter" in said.out


def test_the_first_wrong_group_is_named(nestwright, chain: Path, wrong_cosine: None) -> None:
    said = nestwright("replay", chain)
    assert said.status == 1
    assert "DIFFERS" in said.out
    assert "is the first that goes wrong" in said.out
    facts = json.loads(nestwright("replay", chain, "--json").out)
    assert facts["fault"]["kind"] == "group"


COLUMNS = """HloModule columns, entry_computation_layout={(f32[3,4]{0,1})->f32[3,4]{0,1}}
ENTRY main {
  x = f32[3,4]{0,1} parameter(0)
  e = f32[3,4]{1,0} exponential(x)
  ROOT c = f32[3,4]{0,1} cosine(e)
}
"""


def test_layouts_of_the_signature_are_minded(nestwright, wrong_cosine: None) -> None:
    Path("columns.hlo").write_text(COLUMNS)
    said = nestwright("replay", "columns.hlo", "--bisect", "-o", "small.zip")
    assert "is the first that goes wrong" in said.out
    assert len(nw.parse(Path("small.hlo").read_text()).entry.instructions) == 2


def test_bisect_leaves_the_wrong_instruction(nestwright, chain: Path, wrong_cosine: None) -> None:
    said = nestwright("replay", chain, "--bisect", "-o", "small.zip")
    assert said.status == 1
    module = nw.parse(Path("small.hlo").read_text())
    opcodes = [i.opcode for i in module.entry.instructions]
    assert sorted(opcodes) == ["cosine", "parameter"]
    assert "shrunk to 2 instructions" in said.out
    again = nestwright("replay", "small.zip")
    assert again.status == 1 and "DIFFERS" in again.out


def test_a_wrong_pass_is_named(nestwright, chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nestwright.ir.hlo.passes import pipeline
    from nestwright.ir.hlo.rewrite import map_computations, rebuild
    from nestwright.ir.passes import Pass, Pipeline

    def forget(module: HloModule) -> HloModule:
        """exponential(x) -> x"""
        return map_computations(
            module,
            lambda c: rebuild(c, lambda i: i.operands[0] if i.opcode == "exponential" else None),
        )

    passes = (*pipeline.PIPELINE.passes, Pass("forget", forget))
    monkeypatch.setattr(pipeline, "PIPELINE", Pipeline(passes))
    said = nestwright("replay", chain)
    assert said.status == 1
    assert f"graph pass {len(passes)}, forget changes what the model computes" in said.out


def test_a_build_that_fails_is_located(
    nestwright, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(x, args):
        if x.opcode == "cosine":
            raise ZeroDivisionError("planted")
        return right(x, args)

    right = group.elementwise
    monkeypatch.setattr(group, "elementwise", broken)
    said = nestwright("replay", chain, "--bisect", "-o", "small.zip")
    assert said.status == 1
    assert "ZeroDivisionError: planted" in said.out
    assert "cosine" in Path("small.hlo").read_text()
    assert len(nw.parse(Path("small.hlo").read_text()).entry.instructions) == 2


def test_a_report_holds_all_that_is_needed(nestwright, chain: Path, tuned: Path) -> None:
    w = np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 16)
    np.savez("w.npz", arg1=w)
    arguments = ("--random", 5, "--constants", "w.npz")
    built = ("--log", tuned, "--target", "cpu -threads=1")
    said = nestwright("replay", "pack", chain, *arguments, *built, "-o", "r.zip")
    assert said.status == 0, said.err
    report = archive.read(Path("r.zip"))
    assert (report.seed, report.inputs, report.target) == (5, None, "cpu -threads=1")
    np.testing.assert_array_equal(report.constants[1], w)
    assert report.records == tuned.read_bytes()
    assert report.results is not None
    assert {"python", "numpy", "llvmlite"} <= set(report.versions)
    assert report.machine["threads"] == "1"
    for against in ("interpreter", "bundle"):
        again = nestwright("replay", "r.zip", "--against", against)
        assert again.status == 0, again.out


def test_a_difference_to_the_report_alone_is_told(nestwright, chain: Path) -> None:
    assert nestwright("replay", "pack", chain, "-o", "r.zip").status == 0
    report = archive.read(Path("r.zip"))
    assert report.results is not None
    from dataclasses import replace

    other = [a + np.float32(1) for a in report.results]
    archive.write(replace(report, results=other), Path("other.zip"))
    said = nestwright("replay", "other.zip", "--against", "bundle")
    assert said.status == 1
    assert "the results differ on the report's machine" in said.out


def test_inputs_of_every_kind_survive(tmp_path: Path) -> None:
    import ml_dtypes

    arrays = [
        np.arange(6, dtype=t).reshape(2, 3)
        for t in (np.float32, np.int8, ml_dtypes.bfloat16, np.complex64, ml_dtypes.float8_e4m3fn)
    ] + [np.array(True), np.zeros((0, 4), np.uint16)]
    archive.write(archive.Report("m", "", "cpu", inputs=arrays), tmp_path / "r.zip")
    found = archive.read(tmp_path / "r.zip").inputs
    assert found is not None
    for a, b in zip(arrays, found, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_damaged_reports_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.zip"
    archive.write(archive.Report("m", "HloModule m", "cpu", records=b"x" * 99), path)
    with zipfile.ZipFile(path) as whole:
        members = {n: whole.read(n) for n in whole.namelist()}

    def written(**changes: bytes) -> Path:
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
            for name, data in {**members, **changes}.items():
                bad.writestr(name, data)
        return tmp_path / "bad.zip"

    manifest = json.loads(members["manifest.json"])
    for changes in (
        {"records.jsonl": b"other"},
        {"manifest.json": b"{"},
        {"manifest.json": b"[]"},
        {"manifest.json": json.dumps({**manifest, "format": 99}).encode()},
        {"manifest.json": json.dumps({**manifest, "sha256": 3}).encode()},
    ):
        with pytest.raises(ArtifactError):
            archive.read(written(**changes))
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(ArtifactError):
        archive.read(tmp_path / "no.zip")


def test_options_that_exclude_each_other(nestwright, chain: Path) -> None:
    assert nestwright("replay", chain, "--inputs", "a.npz", "--random", 1).status == 2
    said = nestwright("replay", chain, "--against", "bundle")
    assert said.status == 2 and "holds no results" in said.err
    assert nestwright("replay", "missing.hlo").status == 2
