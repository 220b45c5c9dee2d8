"""Narrow floats kept as f32 inside of groups, natively: accuracy, both modes, what records them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune.tasks.extract import extract
from nestwright.codegen.driver import store
from nestwright.codegen.driver.build_key import build_key
from nestwright.codegen.driver.options import BuildOptions
from nestwright.codegen.driver.oracle import Oracle, reference
from nestwright.codegen.replay import archive
from nestwright.codegen.replay.locate import locate
from nestwright.codegen.replay.run import Setting, replay
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.target import Target

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
LAYER_NORM = Path(__file__).parents[4] / (
    "shared/corpus/xla_hlo/backends__cpu__benchmarks__hlo__layer_norm_1x4096x768_bf16.hlo"
)

REDUCERS = "".join(
    f"{op}_{t} {{ a = {t}[] parameter(0) b = {t}[] parameter(1) ROOT r = {t}[] {op}(a, b) }}\n"
    for op in ("add", "maximum")
    for t in TYPES
)

OVERFLOW = """HloModule overflow
ENTRY main {
  x = f16[40] parameter(0)
  k = f16[] constant(300)
  b = f16[40] broadcast(k), dimensions={}
  m = f16[40] multiply(x, b)
  n = f16[40] multiply(m, b)
  ROOT d = f16[40] divide(n, b)
}"""


def rounding(excess: bool) -> BuildOptions:
    return BuildOptions(Target.parse("cpu"), excess_precision=excess)


def leaves(value: Any) -> list[Array]:
    return [
        np.asarray(v).astype(np.float64) for v in (value if isinstance(value, tuple) else [value])
    ]


def near(found: Any, wanted: Any, dtype: str) -> bool:
    """Within one step of the type, and what f32 may lose of the largest value."""
    step = 2.0**-7 if dtype == "bf16" else 2.0**-10
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return False
        large = np.abs(b[finite]).max(initial=0)
        if not np.all(np.abs(a[finite] - b[finite]) <= step * np.abs(b[finite]) + 1e-4 * large):
            return False
    return True


ONE = ("negate", "abs", "tanh", "logistic", "sqrt", "cosine")
TWO = ("add", "subtract", "multiply", "maximum", "minimum")
EXACT_ONE, EXACT_TWO = ("negate", "abs", "sqrt", "floor"), (*TWO, "divide")


class Chain:
    """A random chain of operations on arrays of one type, with rows' sums where asked."""

    def __init__(self, rng: np.random.Generator, dtype: str, one: Any, two: Any, rows: bool):
        self.rng, self.dtype = rng, dtype
        self.dims = (int(rng.integers(1, 9)), int(rng.integers(1, 70)))
        self.shape = f"{dtype}[{self.dims[0]},{self.dims[1]}]"
        self.lines = [f"p{k} = {self.shape} parameter({k})" for k in range(3)]
        self.values = ["p0", "p1", "p2"]
        for n in range(int(rng.integers(2, 12))):
            self.add(n, one, two, rows)
        outs = [self.values[-1], self.values[int(rng.integers(3, len(self.values)))]]
        shapes = f"({self.shape}, {self.shape})"
        self.lines.append(f"ROOT z = {shapes} tuple({', '.join(outs)})")

    def pick(self) -> str:
        return self.values[int(self.rng.integers(max(0, len(self.values) - 4), len(self.values)))]

    def add(self, n: int, one: Any, two: Any, rows: bool) -> None:
        a, b, name, kind = self.pick(), self.pick(), f"v{n}", self.rng.random()
        if kind < 0.3:
            made = f"{name} = {self.shape} {self.rng.choice(one)}({a})"
        elif kind < 0.75 or not rows:
            made = f"{name} = {self.shape} {self.rng.choice(two)}({a}, {b})"
        elif kind < 0.85:
            order = self.rng.choice(["LT", "GE", "EQ", "NE"])
            of = f"pred[{self.dims[0]},{self.dims[1]}]"
            self.lines.append(f"c{n} = {of} compare({a}, {b}), direction={order}")
            made = f"{name} = {self.shape} select(c{n}, {a}, {b})"
        else:
            op, start = (("add", "0"), ("maximum", "-inf"))[int(self.rng.integers(2))]
            self.lines += [
                f"i{n} = {self.dtype}[] constant({start})",
                f"r{n} = {self.dtype}[{self.dims[0]}] reduce({a}, i{n}), dimensions={{1}}, "
                f"to_apply={op}_{self.dtype}",
                f"b{n} = {self.shape} broadcast(r{n}), dimensions={{0}}",
            ]
            made = f"{name} = {self.shape} subtract({b}, b{n})"
        self.lines.append(made)
        self.values.append(name)

    def case(self) -> tuple[Any, list[Array]]:
        module = nw.parse(
            f"HloModule c\n{REDUCERS}ENTRY main {{\n" + "\n".join(self.lines) + "\n}\n"
        )
        draws = [self.rng.standard_normal(self.dims) for _ in range(3)]
        return module, [d.astype(TYPES[self.dtype]) for d in draws]


def chain(
    seed: int, one: Any = ONE, two: Any = TWO, rows: bool = True
) -> tuple[Any, list[Array], str]:
    dtype = ("bf16", "f16")[seed % 2]
    return *Chain(np.random.default_rng([9, seed]), dtype, one, two, rows).case(), dtype


def test_chains_agree_with_the_interpreter_on_the_fused_module() -> None:
    unlike = 0
    for seed in range(40):
        module, args, dtype = chain(seed)
        wide = reference(module, args)
        assert near(nw.build(module)(*args), wide, dtype), f"seed {seed}"
        unlike += not near(evaluate(module, args), wide, dtype)
    assert unlike > 5, "rounding after every operation is seen by this test"


def test_strict_chains_are_the_interpreters_bit_for_bit() -> None:
    for seed in range(40):
        module, args, _ = chain(seed, EXACT_ONE, EXACT_TWO, rows=False)
        found = nw.build(module, excess_precision=False)(*args)
        for a, b in zip(found, evaluate(module, args), strict=True):
            assert np.array_equal(a, b, equal_nan=True), f"seed {seed}"


@pytest.mark.parametrize("excess", [True, False])
def test_a_gpu_computes_the_same(excess: bool) -> None:
    for seed in range(3):
        module, args, dtype = chain(seed)
        found = nw.build(module, "cuda-sim", excess_precision=excess)(*args)
        assert near(found, reference(module, args, rounding(excess)), dtype), f"seed {seed}"


def normalized(x: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    centered = wide - wide.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps)


@pytest.mark.corpus
@pytest.mark.skipif(not LAYER_NORM.exists(), reason="the corpus is not beside this checkout")
def test_a_layer_norm_is_as_exact_as_xlas() -> None:
    """Its error is that of rounding the result once, and so is that of XLA's stored result."""
    x = np.random.default_rng(1).standard_normal((1, 4096, 768)).astype(ml_dtypes.bfloat16)
    eps = float(ml_dtypes.bfloat16(1.001e-05))
    exact = normalized(x, eps)

    def error(result: Any) -> tuple[float, float]:
        off = np.asarray(result).astype(np.float64) - exact
        return float(np.sqrt(np.mean(off**2))), float(np.abs(off).max())

    wide, strict = (nw.build(LAYER_NORM, excess_precision=e) for e in (True, False))
    rms, largest = error(wide(x))
    best = error(exact.astype(np.float32).astype(ml_dtypes.bfloat16))
    assert rms <= 1.01 * best[0] and largest <= 1.01 * best[1]
    assert error(strict(x))[0] > 1.8 * rms


GRADIENT = """HloModule gradient
add_bf16 { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a, b) }
ENTRY main {
  x = bf16[64,96] parameter(0)
  w = bf16[96,48] parameter(1)
  g = bf16[64,48] parameter(2)
  d = bf16[64,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = bf16[64,48] logistic(d)
  one = bf16[] constant(1)
  ones = bf16[64,48] broadcast(one), dimensions={}
  r = bf16[64,48] subtract(ones, s)
  ds = bf16[64,48] multiply(d, r)
  in = bf16[64,48] add(ones, ds)
  sl = bf16[64,48] multiply(s, in)
  gd = bf16[64,48] multiply(g, sl)
  zero = bf16[] constant(0)
  gb = bf16[48] reduce(gd, zero), dimensions={0}, to_apply=add_bf16
  gw = bf16[96,48] dot(x, gd), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT t = (bf16[96,48], bf16[48]) tuple(gw, gb)
}"""


def test_a_gradient_is_nearer_to_its_value_in_f64() -> None:
    module, rng = nw.parse(GRADIENT), np.random.default_rng(3)
    args = [rng.standard_normal(d).astype(TYPES["bf16"]) for d in ((64, 96), (96, 48), (64, 48))]
    exact = evaluate(
        nw.parse(GRADIENT.replace("bf16", "f64")), [a.astype(np.float64) for a in args]
    )
    rms = {}
    for excess in (True, False):
        found = nw.build(module, excess_precision=excess)(*args)
        assert near(found, reference(module, args, rounding(excess)), "bf16")
        rms[excess] = [
            float(np.sqrt(np.mean((a - b) ** 2)))
            for a, b in zip(leaves(found), leaves(exact), strict=True)
        ]
    assert all(a < 0.9 * b for a, b in zip(rms[True], rms[False], strict=True)), rms


def test_what_overflows_f16_in_between_stays_a_number() -> None:
    module, x = nw.parse(OVERFLOW), np.linspace(-200, 200, 40).astype(np.float16)
    wide, strict = (nw.build(module, excess_precision=e)(x) for e in (True, False))
    assert np.isfinite(wide).all() and np.array_equal(wide, reference(module, [x]))
    assert np.isinf(strict).sum() == 40 and np.array_equal(strict, evaluate(module, [x]))


def test_partial_sums_are_not_rounded() -> None:
    text = f"""HloModule long
{REDUCERS}ENTRY main {{
  x = bf16[32,64,5] parameter(0)
  z = bf16[] constant(0)
  ROOT s = bf16[5] reduce(x, z), dimensions={{0,1}}, to_apply=add_bf16
}}"""
    module = nw.parse(text)
    x = np.random.default_rng(0).random((32, 64, 5)).astype(ml_dtypes.bfloat16)
    wanted = evaluate(module, [x])
    assert np.array_equal(evaluate(optimize(module), [x]), wanted)
    assert np.array_equal(nw.build(module, excess_precision=False)(x), wanted)


def test_a_rounding_that_is_asked_for_is_done() -> None:
    text = """HloModule asked
ENTRY main {
  x = f32[50] parameter(0)
  h = bf16[50] convert(x)
  p = bf16[50] reduce-precision(h), exponent_bits=8, mantissa_bits=7
  ROOT w = f32[50] convert(p)
}"""
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(nw.build(nw.parse(text))(x), rounded)
    assert np.array_equal(nw.build(nw.parse(text.replace("(p)", "(h)")))(x), x)


def test_the_kept_build_and_the_saved_one_know_their_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    module, x = nw.parse(OVERFLOW), np.full(40, 100, np.float16)
    for _ in range(2):  # compiled, then from disk
        for excess in (True, False):
            exe = nw.build(module, excess_precision=excess)
            assert exe.bundle.excess_precision is excess
            assert np.isfinite(exe(x)).all() == excess
            exe.save(tmp_path / "m.nw")
            again = nw.load(tmp_path / "m.nw")
            assert again.bundle.excess_precision is excess
    assert build_key(b"m", rounding(True), {}, None) != build_key(b"m", rounding(False), {}, None)


def test_tasks_of_the_two_modes_are_different_ones() -> None:
    module = optimize(nw.parse(GRADIENT))
    wide, strict = (extract(module, Target.parse("cpu"), excess) for excess in (True, False))
    assert {t.key for t in wide} != {t.key for t in strict}
    assert any("f32[64,48]" in t.program.text for t in wide)
    assert not any("f32" in t.program.text for t in strict)
    for task in (*wide, *strict):
        args = task.program.arguments(0)
        assert all(a.dtype == TYPES["bf16"] for a in (*args, *task.program.expect(args)))


def test_the_oracle_of_a_module_without_narrow_floats_is_the_module() -> None:
    text = GRADIENT.replace("bf16", "f32")
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(d).astype(np.float32) for d in ((64, 96), (96, 48), (64, 48))]
    assert Oracle.of(nw.parse(text), args).wide is None


def test_the_oracle_judges_the_graph_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestwright.codegen.driver import oracle

    module, x = nw.parse(OVERFLOW), np.full(40, 0.5, np.float16)
    right = oracle.optimize_narrow
    wrong = nw.parse(OVERFLOW.replace("constant(300)", "constant(200)").replace("divide", "add"))
    monkeypatch.setattr(oracle, "optimize_narrow", lambda m, *rest: right(wrong, *rest))
    rows = Oracle.of(module, [x]).judge(nw.build(wrong)(x))
    assert not rows[0].ok


def test_the_oracle_gives_layouts_as_the_caller_has_them() -> None:
    text = """HloModule turned
ENTRY main {
  x = bf16[3,5]{0,1} parameter(0)
  m = bf16[3,5]{0,1} multiply(x, x)
  ROOT a = bf16[3,5]{0,1} add(m, x)
}"""
    module = nw.parse(text)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(ml_dtypes.bfloat16)
    wanted = (x.astype(np.float32) ** 2 + x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(reference(module, [x]), wanted)
    assert np.array_equal(nw.build(module)(x), wanted)


LOOP = """HloModule loop
cond { s = (s32[], bf16[16]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], bf16[16]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  x = bf16[16] get-tuple-element(s), index=1  k = s32[] constant(1)  j = s32[] add(i, k)
  m = bf16[16] multiply(x, x)  a = bf16[16] add(m, x)  t = bf16[16] tanh(a)
  ROOT r = (s32[], bf16[16]) tuple(j, t) }
ENTRY main { x = bf16[16] parameter(0)  z = s32[] constant(0)
  s = (s32[], bf16[16]) tuple(z, x)
  w = (s32[], bf16[16]) while(s), condition=cond, body=body
  ROOT y = bf16[16] get-tuple-element(w), index=1 }"""


def test_bodies_of_loops_are_kept_wide_too() -> None:
    module = nw.parse(LOOP)
    x = np.random.default_rng(0).standard_normal(16).astype(ml_dtypes.bfloat16)
    found = nw.build(module)(x)
    assert near(found, reference(module, [x]), "bf16")
    state = x
    for _ in range(5):
        wide = state.astype(np.float32)
        state = np.tanh(wide * wide + wide).astype(ml_dtypes.bfloat16)
    assert near(found, state, "bf16")


@pytest.fixture
def wrong_cosine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The lowering takes a cosine for a sine."""
    from dataclasses import replace

    from nestwright.te.from_hlo import group

    right = group.elementwise

    def elementwise(x: Any, args: Any) -> Any:
        return right(replace(x, opcode="sine") if x.opcode == "cosine" else x, args)

    with monkeypatch.context() as patch:
        patch.setattr(group, "elementwise", elementwise)
        yield


FAULTY = """HloModule faulty
ENTRY main {
  x = bf16[32] parameter(0)
  m = bf16[32] multiply(x, x)
  a = bf16[32] add(m, x)
  c = bf16[32] cosine(a)
  ROOT t = bf16[32] multiply(c, x)
}"""


@pytest.mark.parametrize("excess", [True, False])
def test_a_fault_is_found_in_either_mode(excess: bool, wrong_cosine: None) -> None:
    module = nw.parse(FAULTY)
    x = np.random.default_rng(0).standard_normal(32).astype(ml_dtypes.bfloat16)
    setting = Setting(rounding(excess))
    assert not replay(module, [x], setting).ok
    fault = locate(module, [x], setting)
    assert fault.kind == "group" and not fault.setting.options.excess_precision
    assert not replay(fault.module, fault.arguments, fault.setting).ok
    types = {i.array.dtype.name for i in fault.module.entry.instructions}
    assert types == ({"bf16", "f32"} if excess else {"bf16"})


def test_replay_judges_by_the_mode_it_builds_in() -> None:
    module, x = nw.parse(OVERFLOW), np.full(40, 100, np.float16)
    for excess in (True, False):
        outcome = replay(module, [x], Setting(rounding(excess)))
        assert outcome.ok and np.isfinite(outcome.results).all() == excess


@pytest.mark.parametrize("flag", ["--excess-precision", "--no-excess-precision"])
def test_commands_take_and_keep_the_mode(flag: str, tmp_path: Path, capsys: Any) -> None:
    from nestwright.cli.main import main

    def run(*args: object) -> str:
        status = main([*map(str, args)])
        assert status == 0, capsys.readouterr()
        return str(capsys.readouterr().out)

    excess = flag == "--excess-precision"
    model, built, report = (tmp_path / n for n in ("m.hlo", "m.nw", "r.zip"))
    model.write_text(OVERFLOW)
    assert ("f32" in run("show", model, "--stage", "fused", flag)) == excess
    run("build", model, flag, "-o", built)
    inputs = tmp_path / "x.npz"
    np.savez(inputs, arg0=np.full(40, 100, np.float16))
    for what in ((model, flag), (built,)):
        said = json.loads(
            run(
                "run",
                *what,
                "--inputs",
                inputs,
                "--check",
                "--json",
                "--outputs",
                tmp_path / "y.npz",
            )
        )
        with np.load(tmp_path / "y.npz") as out:
            assert said["ok"] and np.isfinite(out["out0"]).all() == excess
    run("replay", "pack", model, flag, "--inputs", inputs, "-o", report)
    assert archive.read(report).excess_precision is excess
    assert json.loads(run("replay", report, "--json"))["ok"]
    log = tmp_path / "log.jsonl"
    run("tune", model, flag, "--trials", 2, "--simulate-cost", "--log", log)
    assert ("f32" in log.read_text()) == excess
