"""Builds with narrow weights: results, the report, the cache, tuning."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.log.journal import read
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.oracle import Oracle
from nestwright.ir.errors import ArgumentError, NestwrightWarning
from nestwright.ir.hlo import freeze, parse
from nestwright.ir.hlo.passes.weights.narrow.quantize import FORMS
from nestwright.ir.target import Target

HERE = "cpu -threads=2"
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


@cache
def exact_build(rows: int) -> nw.Executable:
    return nw.build(parse(text(rows)), constants=constants(), cache=False)


@pytest.mark.parametrize(
    ("form", "rows"),
    [*((form, rows) for form in (*FORMS, "int4") for rows in (1, 17)), ("int8", 3), ("int4", 3)],
)
def test_build_computes_what_the_interpreter_does_with_these_weights(rows: int, form: str) -> None:
    module, frozen = parse(text(rows)), constants()
    x = np.random.default_rng(1).standard_normal((rows, 96)).astype(np.float32)
    exe = nw.build(module, HERE, constants=frozen, weights=form, cache=False)
    oracle = Oracle.of(freeze(module, frozen), [x], BuildOptions.given(HERE, weights=form))
    assert all(r.ok for r in oracle.judge([exe(x)]))
    exact = exact_build(rows)
    assert not np.array_equal(exe(x), exact(x))
    assert np.abs(exe(x) - exact(x)).max() < {"int16": 1e-3, "int24": 1e-5, "int4": 1}.get(
        form, 0.2
    )
    smaller = exe.memory_analysis()["constant_size_in_bytes"]
    ratio = exact.memory_analysis()["constant_size_in_bytes"] / smaller
    assert ratio > {"int4": 4, "int8": 3, "int24": 1.2}.get(form, 1.8)


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
    forms = [None, *FORMS]
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
        with pytest.raises(ArgumentError, match="use int4, bf16, int8, int16, int24, or f32"):
            call(parse(text(1)), constants=constants(), weights="int3")


def test_stages_show_the_narrow_graph() -> None:
    exe = nw.build(parse(text(1)), constants=constants(), weights="int8", cache=False)
    assert "s8[96,161]" in exe.as_text("optimized") and "s8[96, 161]" in exe.as_text("loop")


def test_tuning_measures_the_narrow_kernels(tmp_path: Path) -> None:
    given = {"constants": constants(), "weights": "int8", "log": tmp_path / "l.jsonl"}
    found = nw.tune(parse(text(1)), "cpu -threads=1", trials=2, simulate_cost=True, **given)
    assert found.measured == 2
    assert "s8[" in (tmp_path / "l.jsonl").read_text()


LARGE = """HloModule large
ENTRY main {
  x = f32[ROWS,96] parameter(0)
  v = f32[96,161] parameter(1)
  ROOT y = f32[ROWS,161] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every target a last cache of 16 KiB, which no model's weights fit."""
    made = Target.parse

    def parsed(target: Target | str) -> Target:
        return replace(made(target), l3=1 << 14)

    monkeypatch.setattr(Target, "parse", parsed)


@pytest.mark.parametrize(
    ("accuracy", "form"), [(0.0, None), (1e-8, "f32"), (1e-5, "int24"), (1e-4, "int16")]
)
@pytest.mark.usefixtures("small_cache")
def test_an_allowed_error_makes_weights_narrow_that_memory_delivers(
    accuracy: float, form: str | None
) -> None:
    module, frozen = parse(LARGE.replace("ROWS", "1")), {1: constants()[1]}
    given = {"constants": frozen, "cache": False}
    exe = nw.build(module, "cpu -threads=1", accuracy=accuracy, **given)
    rows = exe.weights_analysis().get("weights", [])
    assert [r["form"] for r in rows] == ([] if form is None else [form])
    x = np.random.default_rng(1).standard_normal((1, 96)).astype(np.float32)
    exact = x.astype(np.float64) @ frozen[1]
    off = np.sqrt(np.square(exe(x) - exact).mean() / np.square(exact).mean())
    assert off < 2 * max(accuracy, 1e-6)
    if form in FORMS:
        assert 0 < rows[0]["relative_rms_error"] <= accuracy
        assert exe.weights_analysis()["form"] == f"accuracy={accuracy:g}"
        kept = nw.build(module, "cpu -threads=1", accuracy=accuracy, weights="f32", **given)
        assert kept.weights_analysis() == {} and not np.array_equal(kept(x), exe(x))


@pytest.mark.usefixtures("small_cache")
def test_weights_of_many_rows_stay() -> None:
    module = parse(LARGE.replace("ROWS", "640"))
    given = {"constants": {1: constants()[1]}, "cache": False, "accuracy": 1e-3}
    assert nw.build(module, **given).weights_analysis() == {}


def test_weights_that_stay_in_cache_stay_as_they_are() -> None:
    module = parse(LARGE.replace("ROWS", "1"))
    given = {"constants": {1: constants()[1]}, "cache": False, "accuracy": 1e-3}
    assert nw.build(module, **given).weights_analysis() == {}


@pytest.mark.parametrize("spec", ["cpu -threads=2", "cpu -mcpu=haswell", "cpu -mcpu=nehalem"])
@pytest.mark.parametrize("shape", [(1, 33, 129), (2, 768, 48), (5, 64, 65), (8, 257, 16)])
def test_two_parts_on_several_processors(spec: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    text = f"""HloModule parts
ENTRY main {{
  x = f32[{m},{k}] parameter(0)
  v = f32[{k},{n}] parameter(1)
  ROOT y = f32[{m},{n}] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    rng = np.random.default_rng(2)
    v, x = (rng.standard_normal(s).astype(np.float32) for s in ((k, n), (m, k)))
    exe = nw.build(parse(text), spec, constants={1: v}, weights="int24", cache=False)
    exact = x.astype(np.float64) @ v
    assert np.abs(exe(x) - exact).max() < 1e-5 * np.sqrt(np.square(exact).mean())
    assert [r["form"] for r in exe.weights_analysis()["weights"]] == ["int24"] * (k * n >= 4096)


@pytest.mark.parametrize(("form", "instead"), [("int24", "int16"), ("int4", "int8")])
def test_a_gpu_reads_weights_from_one_array(form: str, instead: str) -> None:
    with pytest.raises(ArgumentError, match=f"from one array[^$]*{instead}"):
        nw.build(parse(text(1)), "cuda -arch=sm_90", constants=constants(), weights=form)


@pytest.mark.parametrize("form", ["int24", "int4"])
def test_tuning_takes_weights_in_two_parts(form: str, tmp_path: Path) -> None:
    given = {"constants": constants(), "weights": form, "log": tmp_path / "l.jsonl"}
    found = nw.tune(parse(text(1)), "cpu -threads=1", trials=4, **given)
    assert found.measured == 4
    assert {t.status for t in read(tmp_path / "l.jsonl").trials} == {"ok"}
