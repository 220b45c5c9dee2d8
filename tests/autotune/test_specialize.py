"""One executable for each combination of shapes, and what the counters say of it."""

from __future__ import annotations

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.autotune import recompile
from nestwright.ir.errors import ArgumentError, TargetError
from nestwright.ir.hlo.nodes import HloModule


def scale(x: Any, by: Any) -> HloModule:
    """x * by, for a vector of any length."""
    n = np.asarray(x).shape[0]
    return nw.parse(
        f"HloModule scale_{n}\nENTRY main {{\n  x = f32[{n}] parameter(0)\n"
        "  by = f32[] parameter(1)\n"
        f"  b = f32[{n}] broadcast(by), dimensions={{}}\n  ROOT y = f32[{n}] multiply(x, b)\n}}"
    )


def test_a_new_shape_compiles_once() -> None:
    f = nw.Specialized(scale)
    before = nw.counters()
    two = np.float32(2)
    for n in (3, 5, 3, 5, 3):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x, two), x * 2)
    after = nw.counters()
    assert after.shapes - before.shapes == 2
    assert after.built - before.built == 2
    assert after.kernels - before.kernels == 2
    assert len(f.shapes) == 2
    assert f.executable(np.zeros(3, np.float32), two).name == "scale_3"


def test_an_error_is_allowed_for_every_shape() -> None:
    f = nw.Specialized(scale, accuracy=1e-5)
    found = f.executable(np.zeros(3, np.float32), np.float32(2))
    assert found.bundle.target.accuracy == 1e-5
    with pytest.raises(TargetError, match="accuracy"):
        nw.Specialized(scale, accuracy=2.0)


def test_other_element_types_and_python_scalars_are_converted() -> None:
    f = nw.Specialized(scale)
    x = np.arange(4.0)
    np.testing.assert_array_equal(f(x, 3.0), np.float32(x * 3))
    np.testing.assert_array_equal(f(x, 4.0), np.float32(x * 4))
    np.testing.assert_array_equal(f([1.0, 2.0], 4), np.float32([4, 8]))
    assert len(f.shapes) == 2


def test_threads_that_meet_a_shape_together_compile_it_once() -> None:
    f = nw.Specialized(scale)
    before = nw.counters().built
    x = np.arange(7, dtype=np.float32)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: f(x, np.float32(2)), range(8)))
    assert all((r == x * 2).all() for r in results)
    assert nw.counters().built == before + 1


def test_a_wrong_number_of_arguments_is_the_executables_to_refuse() -> None:
    f = nw.Specialized(lambda *args: scale(args[0], 1))
    with pytest.raises(ArgumentError, match="argument"):
        f(np.zeros(2, np.float32))


def test_self_is_a_keyword_like_any_other() -> None:
    f = nw.Specialized(scale)
    for call in (f, f.lower, f.executable):
        with pytest.raises(ArgumentError, match="unknown keyword 'self'"):
            call(self=np.zeros(3, np.float32))


def test_a_jax_function_is_lowered_for_its_shapes() -> None:
    pytest.importorskip("jax")
    f = nw.jit(lambda x, by: {"b": x["a"] * by, "a": x["a"].sum()})
    for n in (3, 4, 3):
        x = np.arange(n, dtype=np.float32)
        found = f({"a": x}, 2.0)
        np.testing.assert_allclose(found["a"], x.sum())
        np.testing.assert_allclose(found["b"], 2 * x)
    assert len(f.shapes) == 2


def test_what_is_no_array_is_refused() -> None:
    f = nw.Specialized(scale)
    with pytest.raises(ArgumentError, match="argument 0"):
        f([[1.0], [1.0, 2.0]], 2.0)
    with pytest.raises(ArgumentError, match="unknown keyword 'by'"):
        f(np.ones(3, np.float32), by=2.0)
    with pytest.raises(ArgumentError, match="masked"):
        f(np.ma.masked_array(np.ones(3), mask=[1, 0, 0]), 2.0)


def test_a_compilation_that_takes_long_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recompile, "LONG", 0.05)

    def slow(x: Any, by: Any) -> HloModule:
        time.sleep(0.3)
        return scale(x, by)

    f = nw.Specialized(slow)
    for _ in range(2):
        f(np.ones(3, np.float32), np.float32(2))
    told = capsys.readouterr().err
    assert told == "nestwright: compiling slow for (float32[3], float32[])\n"


def test_why_each_was_compiled() -> None:
    f = nw.Specialized(scale)
    for n, by in ((3, np.float32(2)), (5, np.float32(2)), (3, 2)):
        f(np.ones(n, np.float32), by)
    first, second, third = nw.explain_recompile(f)
    assert first.changes == () and str(first).startswith("1. first call (")
    assert second.changes == (("argument 0", "float32[3]", "float32[5]"),)
    assert third.changes == (("argument 1", "float32[]", "int[]"),)
    with pytest.raises(ArgumentError, match="compiled once"):
        nw.explain_recompile(nw.build(scale(np.ones(3), 2)))  # type: ignore[arg-type]


def test_what_is_compiled_for_shapes_is_copied_as_functions_are() -> None:
    made = nw.Specialized(len)
    assert copy.deepcopy(made) is copy.copy(made) is made
    assert repr(made) == "<Specialized len for cpu: 0 combinations of shapes>"
    with pytest.raises(ArgumentError, match="cannot be pickled: its code is loaded"):
        pickle.dumps(made)
