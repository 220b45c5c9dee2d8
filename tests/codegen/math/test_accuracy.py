"""What `docs/accuracy.md` promises, by `benchmarks/accuracy/ulp.py` on fewer numbers.

Every 16,411th f32, all f16 and bf16, samples of f64 and of pairs, and the numbers at which whole
sweeps found the largest errors of the code before and after it was made exact.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accuracy import ulp

from nestwright.codegen.emit.expr import Emitter
from nestwright.codegen.emit.llvm.tables import table_entries
from nestwright.ir.dtypes import BY_NAME, DType, bf16, f16, f32, f64
from nestwright.ir.target import Target

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "accuracy" / "ulp.py"
HOST = Target.parse("cpu")
FORMS = ["cpu", "cpu (bare)"]
if HOST.machine == "x86_64":
    FORMS.append("cpu -mcpu=haswell")
ONE = [
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "tanh",
    "erf",
    "erfc",
    "rsqrt",
    "sqrt",
    "cbrt",
    "sine",
    "cosine",
    "tan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
]
ALLOWED = {"erf": 1.3, "erfc": 2.0}
ESTIMATED = {op: 2.0 for op in ("exponential", "tanh", "erf", "erfc")}
"""By operation, where it is more than 1 unit: on processors, and on GPUs at worst (bare)."""
TWO = ["power", "atan2", "divide", "remainder"]
STRIDE = 16411

pytestmark = pytest.mark.skipif(
    not Emitter(HOST).has_fma, reason="the errors are those of machines with fused multiply-add"
)


@pytest.fixture(scope="module")
def script() -> Any:
    """``benchmarks/accuracy/ulp.py`` as a module."""
    return ulp


def measured(script: Any, op: str, dtype: DType, target: str = "cpu", samples: int = 1) -> Any:
    row = script.Row(op, dtype.name, target, STRIDE if dtype.bits == 32 else 1, samples, 7)
    script.sweep(row, dtype, None)
    return row


def allowed(op: str, form: str) -> float:
    return ESTIMATED.get(op, 1.1) if "bare" in form else ALLOWED.get(op, 1.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ONE)
def test_f32_is_within_one_unit(op: str, form: str, script: Any) -> None:
    """Or within what ``ALLOWED`` and ``ESTIMATED`` say."""
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    row = measured(script, op, f32, form)
    assert script.acceptable(row, f32, allowed(op, form)), row.show()
    assert row.count >= (1 << 32) // STRIDE


@pytest.mark.skipif(not table_entries(Emitter(HOST)), reason="no tables in registers here")
@pytest.mark.parametrize(
    ("op", "form", "most"),
    [("erf", "cpu", 0.93), ("erf", "cpu -mcpu=haswell", 0.93), ("tanh", "cpu", 0.9)],
)
def test_f32_by_intervals(op: str, form: str, most: float, script: Any) -> None:
    row = measured(script, op, f32, form)
    assert script.acceptable(row, f32, most), row.show()


@pytest.mark.parametrize("op", ["rsqrt", "sqrt", "cbrt", "sine", "cosine", "tan", "acos", "sinh"])
def test_f32_that_is_as_good_as_nearest(op: str, script: Any) -> None:
    row = measured(script, op, f32)
    assert row.most < 0.5001, row.show()


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("op", ONE)
def test_narrow_results_are_the_nearest(op: str, dtype: DType, script: Any) -> None:
    row = measured(script, op, dtype)
    assert row.count == 1 << 16
    assert row.misrounded == 0 and not row.classes, row.show()


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("op", TWO)
def test_narrow_pairs(op: str, dtype: DType, script: Any) -> None:
    row = measured(script, op, dtype, samples=1 << 18)
    assert row.misrounded == 0 and not row.classes, row.show()


@pytest.mark.parametrize("op", TWO)
def test_f32_pairs(op: str, script: Any) -> None:
    row = measured(script, op, f32, samples=1 << 18)
    assert row.most < 0.5001 and not row.classes, row.show()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", [*ONE, *TWO])
def test_f64_is_within_two_units(
    op: str, form: str, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    if not script.EXTENDED:
        pytest.skip("no extended precision to compare with")
    monkeypatch.setattr(script, "CHUNK", 1 << 15)
    row = measured(script, op, f64, form, 1 << 16)
    assert script.acceptable(row, f64, 1.3), row.show()


HARD: list[tuple[str, str, float]] = [
    ("logistic", "f32", -1.1463605165481567),
    ("logistic", "f32", -87.71183776855469),
    ("logistic", "f32", -103.97),
    ("tanh", "f32", 3.8123860359191895),
    ("tanh", "f32", 0.8695305585861206),
    ("tanh", "f32", 0.5500000715255737),
    ("exponential-minus-one", "f32", 17.011775970458984),
    ("exponential-minus-one", "f32", 1.401298464324817e-45),
    ("exponential-minus-one", "f32", -22.02206802368164),
    ("erf", "f32", 0.9245631098747253),
    ("erf", "f32", 1.0740622282028198),
    ("erf", "f32", 0.28014639019966125),
    ("rsqrt", "f32", 5.202059423008783e-26),
    ("rsqrt", "f32", 1.401298464324817e-45),
    ("exponential", "f32", 59.27500534057617),
    ("log", "f32", 1.4136420488357544),
    ("logistic", "f64", -709.8005406005835),
    ("logistic", "f64", -745.1),
    ("tanh", "f64", 0.2309428178735624),
    ("cbrt", "f64", -9.602296204275416e-05),
    ("erfc", "f64", 1.232795231806728),
    ("erfc", "f64", 15.540578208019744),
    ("acosh", "f64", 1.001840991030717),
    ("exponential", "f16", 0.0226898193359375),
    ("logistic", "f16", 0.0107421875),
    ("sine", "f16", 300.0),
    ("cosh", "f16", 0.03125),
    ("cbrt", "f16", 8.112192153930664e-05),
]


@pytest.mark.parametrize("op", sorted({op for op, _, _ in HARD}))
def test_where_the_largest_errors_were(op: str, script: Any) -> None:
    for name in ("f16", "f32", "f64"):
        points = [x for o, n, x in HARD if (o, n) == (op, name)]
        if not points or (name == "f64" and not script.EXTENDED):
            continue
        dtype = BY_NAME[name]
        x = np.resize(np.array(points), 64).astype(script.to_numpy(dtype))
        row = script.Row(op, name, "cpu", 1, 64, 1)
        script.judge(row, (x,), np.asarray(script.build(op, dtype, "cpu", 64)(x)), dtype)
        most = 2.0 if name == "f64" else ALLOWED.get(op, 1.0)
        assert script.acceptable(row, dtype, most), row.show()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["sine", "cosine", "tan"])
@pytest.mark.parametrize("size", [1, 3, 67])
def test_far_arguments_among_near_ones(op: str, form: str, size: int, script: Any) -> None:
    """Slow code for some lanes changes no other lane, and neither code is used beyond its limit."""
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    far = [2.0**30, np.nextafter(np.float32(2.0**30), np.float32(np.inf)), -3.4e38, 1e12, np.inf]
    run = script.build(op, f32, form, size)
    for k, value in enumerate([*far, -np.inf, np.nan, 0.0, -0.0]):
        x = np.random.default_rng(k).uniform(-1e5, 1e5, size).astype(np.float32)
        x[k * 7 % size] = value
        row = script.Row(op, "f32", form, 1, size, 1)
        script.judge(row, (x,), np.asarray(run(x)), f32)
        most = allowed(op, form) if "bare" in form else 0.5001
        assert script.acceptable(row, f32, most), (value, row.show())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["sine", "cosine", "tan"])
@pytest.mark.parametrize("size", [1, 3, 67])
def test_far_f64_and_those_next_to_zeros(op: str, form: str, size: int, script: Any) -> None:
    """Also the numbers next to multiples of pi/2, where nearly all digits cancel."""
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    if not script.EXTENDED:
        pytest.skip("no extended precision to compare with")
    run, rng = script.build(op, f64, form, size), np.random.default_rng(5)
    far = [2.0**30, np.nextafter(2.0**30, np.inf), 1e300, -1.7e308, 6381956970095103.0 * 2.0**797]
    for k, value in enumerate([*far, np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324, 1e-160]):
        number = np.where(np.arange(size) % 2, rng.integers(-9, 9, size), 2**29)
        x = (number - rng.integers(0, 2**27, size) * (number > 9)) * (np.pi / 2)
        x[k * 7 % size] = value
        row = script.Row(op, "f64", form, 1, size, 1)
        script.judge(row, (x,), np.asarray(run(x)), f64)
        assert script.acceptable(row, f64, 1.1), (value, row.show())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 4, 8, 13])
def test_f64_powers_next_to_the_ends(form: str, size: int, script: Any) -> None:
    """Subnormal results and infinite ones, at each width that has an instruction for it."""
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    if not script.EXTENDED:
        pytest.skip("no extended precision to compare with")
    run = script.build("exponential", f64, form, size)
    for low, high in ((-746, -745), (-745, -708), (709, 710), (-1e9, 1e9)):
        x = np.random.default_rng(size).uniform(low, high, size)
        row = script.Row("exponential", "f64", form, 1, size, 1)
        script.judge(row, (x,), np.asarray(run(x)), f64)
        assert script.acceptable(row, f64, 1.1), row.show()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["logistic", "cbrt", "log-plus-one"])
def test_where_the_code_for_f32_changes_its_ways(op: str, form: str, script: Any) -> None:
    """Next to each power of two, and where ``logistic`` loses its smaller terms."""
    if "haswell" in form and not Target.parse(form).is_host:
        pytest.skip("this machine lacks AVX2")
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    around = [np.nextafter(powers, np.float32(end)) for end in (0, np.inf)]
    x = np.concatenate([powers, *around, np.linspace(14, 21, 4001, dtype=np.float32)])
    x = np.concatenate([x, -x, np.linspace(-105, -85, 4001, dtype=np.float32)])
    row = script.Row(op, "f32", form, 1, x.size, 1)
    script.judge(row, (x,), np.asarray(script.build(op, f32, form, x.size)(x)), f32)
    assert script.acceptable(row, f32, allowed(op, form)), row.show()


def test_zeros_and_ends(script: Any) -> None:
    """Signs of zeros, infinities, NaN, what overflows and what becomes 0."""
    for op in ONE:
        for dtype in (f32, f64):
            if dtype == f64 and not script.EXTENDED:
                continue
            x = np.resize(script.special(dtype, 1)[0], 64)
            row = script.Row(op, dtype.name, "cpu", 1, 64, 1)
            script.judge(row, (x,), np.asarray(script.build(op, dtype, "cpu", 64)(x)), dtype)
            assert script.acceptable(row, dtype, 2.0), row.show()


def test_the_judge_sees_what_is_wrong(script: Any) -> None:
    """A unit too much, another sign of zero, a lost subnormal, NaN, infinity."""
    x = np.array([1.0, 0.0, 2.0**-140, 4.0, 9.0, 0.25], np.float32)
    got = np.sqrt(x)
    row = script.Row("sqrt", "f32", "cpu", 1, 1, 1)
    script.judge(row, (x,), got, f32)
    assert (row.most, row.misrounded, row.classes) == (0.5, 0, {})
    bad = np.array([np.nextafter(got[0], np.float32(2)), -0.0, 0.0, np.nan, np.inf, 0.5])
    script.judge(row, (x,), bad.astype(np.float32), f32)
    assert row.classes == {"nan": 1, "infinity": 1, "zero": 1, "flushed": 1}
    assert row.misrounded >= 2 and row.examples["flushed"][0] == 2.0**-140
    assert not script.acceptable(row, f32, 1e9)


def test_the_script_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its status is the answer, and a finished row is not measured again."""
    command = [sys.executable, SCRIPT, "--op", "exponential"]
    command += ["--stride", "1048573", "--json", tmp_path]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    again = subprocess.run([*command, "--most", "0.6"], capture_output=True, text=True)
    assert first.stdout == again.stdout and again.returncode == 1
