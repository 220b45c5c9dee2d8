"""Builds with narrow weights: results, the report, the cache, tuning."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.oracle import Oracle
from nestwright.ir.errors import ArgumentError, NestwrightWarning
from nestwright.ir.hlo import freeze, parse

TEXT = """HloModule layers
ENTRY main {
  x = f32[ROWS,96] parameter(0)
  v = f32[96,161] parameter(1)
  w = f32[70,161] parameter(2)
  b = f32[161] parameter(3)
  d = f32[ROWS,161] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[ROWS,161] broadcast(b), dimensions={1}
  s = f32[ROWS,161] add(d, c)
  t = f32[ROWS,161] tanh(s)
  ROOT y = f32[ROWS,70] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def text(rows: int) -> str:
    return TEXT.replace("ROWS", str(rows))


def constants(seed: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {1: (96, 161), 2: (70, 161), 3: (161,)}
    return {n: (rng.standard_normal(s) / 8).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_build_computes_what_the_interpreter_does_with_these_weights(rows: int, form: str) -> None:
    module, frozen = parse(text(rows)), constants()
    x = np.random.default_rng(1).standard_normal((rows, 96)).astype(np.float32)
    exe = nw.build(module, "cpu -threads=2", constants=frozen, weights=form, cache=False)
    oracle = Oracle.of(freeze(module, frozen), [x], weights=form)
    assert all(r.ok for r in oracle.judge([exe(x)]))
    exact = nw.build(module, constants=frozen, cache=False)
    assert not np.array_equal(exe(x), exact(x))
    assert np.abs(exe(x) - exact(x)).max() < 0.2
    smaller = exe.memory_analysis()["constant_size_in_bytes"]
    ratio = exact.memory_analysis()["constant_size_in_bytes"] / smaller
    assert ratio > (1.8 if form == "bf16" else 3)


def test_report_goes_with_a_saved_model(tmp_path: Path) -> None:
    exe = nw.build(parse(text(1)), constants=constants(), weights="int8", cache=False)
    exe.save(tmp_path / "m.nw")
    found = nw.load(tmp_path / "m.nw").weights_analysis()
    assert found == exe.weights_analysis() and found["form"] == "int8"
    assert [(r["shape"], r["kept"]) for r in found["weights"]] == [([96, 161], ""), ([161, 70], "")]
    assert all(0 < r["relative_rms_error"] < 0.02 for r in found["weights"])
    assert nw.build(parse(text(1)), constants=constants()).weights_analysis() == {}


def test_cache_tells_forms_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_CACHE", str(tmp_path))
    forms = [None, "bf16", "int8"]
    for _ in range(2):
        built = [nw.build(parse(text(1)), constants=constants(), weights=f) for f in forms]
        assert [e.weights_analysis().get("form") for e in built] == forms


def test_weights_that_cannot_be_narrowed_draw_one_warning() -> None:
    bad = constants()
    bad[2][0, 0] = np.nan
    with pytest.warns(NestwrightWarning, match="1 weight of layers left f32: .* contains NaN"):
        exe = nw.build(parse(text(1)), constants=bad, weights="int8", cache=False)
    assert [bool(r["kept"]) for r in exe.weights_analysis()["weights"]] == [False, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nw.build(parse(text(1)), constants=constants(), weights="int8", cache=False)


def test_unknown_form_names_the_known_ones() -> None:
    for call in (nw.build, nw.tune):
        with pytest.raises(ArgumentError, match="use bf16 or int8"):
            call(parse(text(1)), constants=constants(), weights="int3")


def test_stages_show_the_narrow_graph() -> None:
    exe = nw.build(parse(text(1)), constants=constants(), weights="int8", cache=False)
    assert "s8[96,161]" in exe.as_text("optimized") and "s8[96, 161]" in exe.as_text("loop")


def test_tuning_measures_the_narrow_kernels(tmp_path: Path) -> None:
    given = {"constants": constants(), "weights": "int8", "log": tmp_path / "l.jsonl"}
    found = nw.tune(parse(text(1)), "cpu -threads=1", trials=2, simulate_cost=True, **given)
    assert found.measured == 2
    assert "s8[" in (tmp_path / "l.jsonl").read_text()
