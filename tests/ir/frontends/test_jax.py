"""Objects of JAX as models: known by their methods, and the real ones where jax is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, UnsupportedError, VerifyError
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.frontends.jax.lower import tracing
from nestwright.ir.frontends.load import as_model, as_module
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse, show

MODULE = """HloModule jit_f
ENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }
"""
STABLEHLO = """module @jit_f {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
X = np.arange(4, dtype=np.float32)


class Computation:
    """As XLA's: it serializes."""

    def as_serialized_hlo_module_proto(self) -> bytes:
        return to_proto(parse(MODULE))


class Lowered:
    def compiler_ir(self, dialect: str | None = None) -> Any:
        assert dialect == "hlo"
        return Computation()


class Traced:
    jaxpr = None

    def lower(self) -> Lowered:
        return Lowered()


class Exported:
    def mlir_module(self) -> str:
        return STABLEHLO


@pytest.mark.parametrize("kind", [Lowered, Traced, Exported])
def test_objects_are_known_by_their_methods(kind: Any) -> None:
    module = as_module(kind())
    assert module.name == "jit_f"
    assert evaluate(module, [X]).tolist() == (-X).tolist()


def test_build_takes_them() -> None:
    assert nw.build(Lowered())(X).tolist() == (-X).tolist()


def test_tune_and_stages_take_them(tmp_path: Path) -> None:
    result = nw.tune(Lowered(), trials=1, simulate_cost=True, log=tmp_path / "log.jsonl")
    assert result.model == "jit_f"


def test_paths_and_modules_stay_as_they_are(tmp_path: Path) -> None:
    path, module = tmp_path / "m.hlo", parse(MODULE)
    path.write_text(MODULE)
    assert as_model(path) is path and as_module(module) is module
    assert show(as_module(path)) == show(module)


def test_what_does_not_hang_together_is_refused() -> None:
    class Wrong(Computation):
        def as_serialized_hlo_module_proto(self) -> bytes:
            broken = MODULE.replace("y = f32[4]", "y = f32[5]")
            return to_proto(parse(broken))

    class Whole(Lowered):
        def compiler_ir(self, dialect: str | None = None) -> Any:
            return Wrong()

    with pytest.raises(VerifyError):
        as_module(Whole())


def double(x: Any) -> Any:
    return x + x


@pytest.mark.parametrize(
    ("model", "example", "why"),
    [
        (3, None, "not a model: a builtins.int"),
        (double, None, "cannot build the function double: no example arguments"),
        (3, (X,), "this model takes no example arguments"),
        ("m.hlo", (X,), "this model takes no example arguments"),
    ],
)
def test_what_is_no_model(model: Any, example: Any, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        as_module(model, example)


TRANSPOSED = """HloModule jit_f, entry_computation_layout={(f32[2,3]{1,0})->f32[3,2]{0,1}}
ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  ROOT y = f32[3,2]{0,1} transpose(x), dimensions={1,0}
}
"""


def test_results_are_row_major_whatever_the_lowering_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JAX has them: else native code could not take a call's arguments itself."""
    monkeypatch.setattr(
        Computation, "as_serialized_hlo_module_proto", lambda self: to_proto(parse(TRANSPOSED))
    )
    exe = nw.build(Lowered())
    assert [r.order for r in exe.plan.results] == [()]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = exe(x)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, x.T)
    kept = nw.build(parse(TRANSPOSED))(x)
    assert kept.T.flags.c_contiguous, "a text means what it says"


def test_functions_need_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UnsupportedError, match="JAX has to lower it, and is not installed"):
        nw.build(double, example=X)


def test_real_functions_and_objects() -> None:
    jax = pytest.importorskip("jax")
    jnp, export = jax.numpy, pytest.importorskip("jax.export")

    def dense(x: Any, layer: Any, unused: Any) -> Any:
        return {"sum": x.sum(), "out": jnp.tanh(x @ layer["w"] + layer["b"])}

    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    layer = {"w": np.ones((3, 4), np.float32), "b": np.arange(4, dtype=np.float32)}
    unused = np.zeros(7, np.float32)
    expected = [np.asarray(r) for r in jax.tree.leaves(dense(x, layer, unused))]
    flat = jax.tree.leaves((x, layer, unused))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (x, layer, unused))
    for model in (dense, jax.jit(dense)):
        for example in ((x, layer, unused), shapes):
            exe = nw.build(model, example=example)
            for got, want in zip(exe(*flat), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6)
    jitted = jax.jit(dense)
    for model in (
        jitted.lower(x, layer, unused),
        jitted.trace(x, layer, unused),
        export.export(jitted)(x, layer, unused),
    ):
        results = evaluate(as_module(model), flat[:-1])  # JAX leaves out what is not used
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_sizes_that_were_exported_as_symbols() -> None:
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    (n,) = export.symbolic_shape("n")
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

    def centered(x: Any) -> Any:
        return (x - x.mean(0)).reshape(-1)

    exported = export.export(jax.jit(centered))(jax.ShapeDtypeStruct((n, 3), np.float32))
    for model, given in (
        (exported, {"shapes": {0: (4, 3)}}),
        (exported, {"shapes": {0: (range(1, 9), 3)}, "rule": "buckets"}),
        (exported.call, {"example": (x,)}),
        (jax.jit(lambda x: exported.call(x)), {"example": (x,)}),
    ):
        np.testing.assert_allclose(nw.build(model, **given)(x), centered(x), atol=1e-6)


def test_constants_of_functions_are_kept() -> None:
    jax = pytest.importorskip("jax")
    table = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
    module = as_module(lambda i: jax.numpy.asarray(table)[i], (np.int32(3),))
    assert np.array_equal(evaluate(module, [np.int32(7)]), table[7])


def test_two_lines_are_told_of_what_a_function_raises() -> None:
    told = "when calling Add.call().\n\n\n\x1b[1mshapes (2, 3), (4, 3)\x1b[0m\n\nArguments: .."
    with (
        pytest.raises(ArgumentError, match=r"Add.call\(\). shapes \(2, 3\), \(4, 3\)\n"),
        tracing("f"),
    ):
        raise ValueError(told)


def test_functions_that_jax_cannot_lower() -> None:
    jax = pytest.importorskip("jax")
    power = jax.jit(lambda x, unused, n: x**n, static_argnums=2)
    with pytest.raises(ArgumentError, match="keep_unused=True"):
        nw.build(power, example=(X, X, 3))
    kept = jax.jit(lambda x, unused, n: x**n, static_argnums=2, keep_unused=True)
    assert nw.build(kept, example=(X, X, 3))(X, X).tolist() == (X**3).tolist()
    with pytest.raises(ArgumentError, match=r"JAX cannot lower double: TypeError"):
        nw.build(double, example=(X, X))
