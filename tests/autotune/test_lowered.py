"""``lower``: one object for all stages, and what it freezes, shows and compiles."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, ArtifactError
from nestwright.ir.frontends.imported import Imported

AFFINE = """HloModule affine
ENTRY main {
  x = f32[3,64] parameter(0)
  w = f32[64,4096] parameter(1)
  ROOT y = f32[3,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
X = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)


def carrying() -> tuple[Imported, np.ndarray]:
    """A model that carries its weights, 1 MiB of them, and an array equal to these."""
    w = np.arange(64 * 4096, dtype=np.float32).reshape(64, 4096) % 7
    names = {"inputs": ("images",), "outputs": ("scores",)}
    return Imported(module=nw.parse(AFFINE), weights={1: w.copy()}, **names), w


def test_all_stages_of_one_object(tmp_path: Path) -> None:
    model, w = carrying()
    lowered = nw.lower(model)
    assert "constant(" in lowered.as_text() and "parameter(1)" not in lowered.as_text()
    assert "fusion" in lowered.as_text("fused") or "group" in lowered.as_text("fused")
    assert lowered.cost_analysis()["flops"] == 2 * 3 * 64 * 4096
    assert lowered.memory_analysis()["argument_size_in_bytes"] == X.nbytes
    log = tmp_path / "log.jsonl"
    assert lowered.tune(trials=2, simulate_cost=True, log=log).model == "affine"
    exe = lowered.compile(log=log)
    assert exe.input_names == ("images",) and exe.output_names == ("scores",)
    np.testing.assert_allclose(exe(images=X), X @ w, rtol=1e-4, atol=1e-4)


def test_files_are_read_when_they_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "affine.hlo"
    path.write_text(AFFINE)
    lowered = nw.lower(path, target="cpu")
    path.write_text(AFFINE.replace("affine", "other"))
    assert lowered.name == "affine" and lowered.as_text().startswith("HloModule other")


def test_an_unknown_stage_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no stage 'hllo'"):
        nw.lower(tmp_path / "none.hlo").as_text("hllo")


def test_weights_are_in_memory_once() -> None:
    model, _ = carrying()
    held = weakref.ref(model.weights[1])
    exe = nw.build(model)
    del model
    gc.collect()
    assert held() is None
    assert exe.memory_analysis()["constant_size_in_bytes"] < 3 * 64 * 4096 * 4
    with pytest.raises(ArtifactError, match="is gone"):
        exe.as_text("optimized")


def test_arguments_have_to_fit_the_kind_of_model() -> None:
    with pytest.raises(ArgumentError, match="takes no example arguments"):
        nw.lower(nw.parse(AFFINE), X)
    with pytest.raises(ArgumentError, match="constants of type list"):
        nw.lower(nw.parse(AFFINE), constants=[X])
    with pytest.raises(ArgumentError, match=r"input 'x' cannot have the shape \[3,5\]"):
        nw.lower(nw.parse(AFFINE), shapes={"x": (3, 5)})
    assert nw.lower(nw.parse(AFFINE), shapes={"x": (None, 64)}).name == "affine"


def test_it_shows_what_it_takes_and_not_what_it_holds() -> None:
    model, _ = carrying()
    shown = repr(nw.lower(model))
    assert shown == "<Lowered affine(images: f32[3,64]{1,0}) -> f32[3,4096]{1,0} for cpu>"
