"""One file for several processors: constants in common, the best variant is taken, or none fits."""

from __future__ import annotations

import json
import platform
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.cli.main import main
from nestwright.codegen.driver.artifact import load
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.errors import ArtifactError, TargetError
from nestwright.ir.target import Target
from nestwright.ir.targets import processor

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="variants of x86-64")
SPEC = "cpu -mcpu=x86-64,x86-64-v2,x86-64-v3 -threads=1"
MODEL = """HloModule layers
ENTRY main { x = f32[3,70] parameter(0)  w = f32[70,129] parameter(1)  b = f32[129] parameter(2)
  d = f32[3,129] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[3,129] broadcast(b), dimensions={1}
  s = f32[3,129] add(d, c)
  ROOT y = f32[3,129] tanh(s) }
"""
V2 = "sse sse2 pni ssse3 sse4_1 sse4_2 popcnt"


def weights() -> dict[int | str, Any]:
    r = np.random.default_rng(0)
    return {
        1: r.standard_normal((70, 129), np.float32),
        2: r.standard_normal(129, np.float32),
    }


@pytest.fixture(scope="module")
def made() -> Executable:
    return nw.build(nw.parse(MODEL), SPEC, constants=weights(), cache=False)


@pytest.fixture
def saved(made: Executable, tmp_path: Path) -> Path:
    made.save(tmp_path / "m.nw")
    return tmp_path / "m.nw"


X = np.random.default_rng(1).standard_normal((3, 70)).astype(np.float32)


def expected() -> Any:
    w, b = weights().values()
    return np.tanh(X @ w + b)


def has(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    monkeypatch.setattr(processor, "features_here", lambda: frozenset(flags.split()))


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [("sse sse2", "x86-64"), (V2, "x86-64-v2"), (f"{V2} avx avx2", "x86-64-v2")],
)
def test_the_best_variant_that_fits_is_loaded(
    saved: Path, monkeypatch: pytest.MonkeyPatch, flags: str, chosen: str
) -> None:
    has(monkeypatch, flags)
    exe = load(saved)
    assert exe.bundle.target.cpu == chosen
    assert [v.target for v in exe.variants if v.in_force] == [f"cpu -mcpu={chosen} -threads=1"]
    np.testing.assert_allclose(exe(X), expected(), rtol=1e-5, atol=1e-5)


def test_all_variants_compute_the_same(made: Executable, saved: Path) -> None:
    np.testing.assert_allclose(made(X), expected(), rtol=1e-5, atol=1e-5)
    assert (load(saved)(X) == made(X)).all()
    assert len(made.variants) == 3


def test_nothing_fits(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "sse")
    exe = load(saved)
    assert {v.missing for v in exe.variants} >= {("sse2",)}
    with pytest.raises(TargetError, match="this machine cannot run its code: it lacks sse2"):
        exe(X)


def test_equal_constants_are_stored_once(saved: Path, made: Executable) -> None:
    alone = sum(
        nw.build(nw.parse(MODEL), t, constants=weights(), cache=False).plan.constant_bytes
        for t in Target.several(SPEC)
    )
    with zipfile.ZipFile(saved) as archive:
        stored = archive.getinfo("constants").file_size
    assert stored == made.plan.constant_bytes
    assert stored < alone - 129 * 4


def test_one_variant_of_a_file_is_not_saved_as_the_whole(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"it has others(.|\n)*copy the file"):
        load(saved).save(tmp_path / "again.nw")
    assert not (tmp_path / "again.nw").exists()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("cpu -mcpu=x86-64-v2,x86-64-v2", "twice"),
        ("cpu -mcpu=x86-64-v2,", "has no value"),
        ("cpu -mcpu=x86-64-v2,cortex-a72", "unknown processor"),
    ],
)
def test_lists_that_make_no_sense_are_refused(spec: str, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        nw.build(nw.parse(MODEL), spec)


def test_one_target_is_asked_for_elsewhere() -> None:
    with pytest.raises(TargetError, match="names several"):
        nw.tune(nw.parse(MODEL), SPEC, trials=1)


def test_run_and_show_tell_which_is_in_force(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(saved), "--random", "0"]) == 0
    assert "variant cpu -mcpu=x86-64-v3 -threads=1: in force" in capsys.readouterr().out
    assert main(["show", str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [v["in_force"] for v in told["variants"]].count(True) == 1
    assert "result 0" in told["text"]
