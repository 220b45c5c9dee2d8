"""Python functions that JAX's functions call back: renamed, registered, in order, and lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import LibraryError, UnsupportedError
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.frontends.load import as_module
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.library import registry

CALL = (
    'custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, '
    "backend_config={{index = {n} : ui64}}"
)
PURE = f"""HloModule jit_f
ENTRY main {{
  x = f32[3] parameter(0)
  y = f32[3] custom-call(x), {CALL.format(n=1)}
  ROOT z = f32[3] add(x, y)
}}
"""
PRINTED = f"""HloModule jit_f
ENTRY main {{
  x = f32[3] parameter(0)
  p = () custom-call(x), {CALL.format(n=0)}, custom_call_has_side_effect=true
  ROOT z = f32[3] add(x, x)
}}
"""
ORDERED = f"""HloModule jit_f
ENTRY main {{
  t = token[] parameter(0)
  x = f32[3] parameter(1)
  a = (token[], f32[3]) custom-call(t, x), {CALL.format(n=0)}, custom_call_has_side_effect=true
  u = token[] get-tuple-element(a), index=0
  y = f32[3] get-tuple-element(a), index=1
  b = (token[]) custom-call(u, y), {CALL.format(n=1)}, custom_call_has_side_effect=true
  v = token[] get-tuple-element(b), index=0
  ROOT r = (token[], RESULTS) tuple(v, y)
}}
"""
X = np.arange(3, dtype=np.float32)


class Lowering:
    def __init__(self, functions: Sequence[Any]) -> None:
        self.compile_args = {"host_callbacks": list(functions)}


class LoweredWithCallbacks:
    """As ``jax.stages.Lowered``: a proto, and a list of functions beside it."""

    def __init__(self, text: str, *functions: Any) -> None:
        self._text, self._lowering = text, Lowering(functions)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        return self

    def as_serialized_hlo_module_proto(self) -> bytes:
        return to_proto(parse(self._text))


def never(*args: Any) -> Any:
    raise AssertionError("another function is called")


def test_the_function_at_the_calls_place_is_called() -> None:
    model = LoweredWithCallbacks(PURE, never, lambda x: (np.sin(x),))
    np.testing.assert_allclose(nw.build(model)(X), X + np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(evaluate(as_module(model), [X]), X + np.sin(X), rtol=1e-6)


def test_an_effect_whose_result_nothing_reads_is_kept() -> None:
    seen: list[float] = []
    exe = nw.build(LoweredWithCallbacks(PRINTED, lambda x: seen.append(float(x.sum())) or ()))
    for _ in range(2):
        np.testing.assert_array_equal(exe(X), X + X)
    assert seen == [3.0, 3.0]


@pytest.mark.parametrize(
    ("results", "root"),
    [
        ("f32[3]", "tuple(v, y)"),
        ("f32[3], f32[3]", "tuple(v, y, x)"),
        ("", "tuple(v)"),
    ],
)
def test_tokens_order_calls_and_are_no_arguments(results: str, root: str) -> None:
    seen: list[str] = []

    def first(token: None, x: Any) -> Any:
        seen.append("first")
        return token, np.asarray(x) + 1

    def second(token: None, y: Any) -> Any:
        seen.append(f"second {np.asarray(y).sum()}")
        return (token,)

    text = ORDERED.replace("tuple(v, y)", root).replace("RESULTS", results).replace(", )", ")")
    exe = nw.build(LoweredWithCallbacks(text, first, second))
    found = exe(X)
    assert seen == ["first", "second 6.0"]
    arrays = found if isinstance(found, tuple) else (found,)
    for got, want in zip(arrays, (X + 1, X)[: root.count(",")], strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_a_function_raises_comes_through_and_ends_the_run_only() -> None:
    def check(x: Any) -> Any:
        if np.max(x) > 5:
            raise ValueError("too large")
        return (np.asarray(x),)

    exe = nw.build(LoweredWithCallbacks(PURE, never, check))
    with pytest.raises(ValueError, match="too large"):
        exe(X + 9)
    np.testing.assert_array_equal(exe(X), X + X)


def test_two_functions_of_one_text_are_two() -> None:
    first, second = (
        nw.build(LoweredWithCallbacks(PURE, never, lambda x, n=n: (np.full_like(x, n),)))
        for n in (1, 2)
    )
    np.testing.assert_array_equal(second(X) - first(X), np.ones(3))


def test_callbacks_are_no_names_that_other_builds_depend_on() -> None:
    before = registry.registered()
    nw.build(LoweredWithCallbacks(PURE, never, lambda x: (x,)))
    assert registry.registered() == before


def test_functions_are_lost_where_there_is_no_list_or_place() -> None:
    for model in (parse(PURE), LoweredWithCallbacks(PURE), LoweredWithCallbacks(PURE, never)):
        with pytest.raises(UnsupportedError, match=r"calls a Python function.*\n.*\n?.*nw\.jit"):
            nw.build(model)


def test_a_saved_executable_has_lost_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = nw.build(LoweredWithCallbacks(PURE, never, lambda x: (x,)))
    exe.save(tmp_path / "f.nw")
    monkeypatch.setattr(registry, "_callbacks", {})
    with pytest.raises(LibraryError, match="no function of this process"):
        nw.load(tmp_path / "f.nw")(X)


def test_callbacks_of_jax() -> None:
    jax = pytest.importorskip("jax")
    experimental = pytest.importorskip("jax.experimental")
    seen: list[float] = []

    def note(x: Any) -> Any:
        seen.append(float(x))
        return np.float32(x + 1)

    def f(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), np.float32)

        def turn(_: Any, c: Any) -> Any:
            return experimental.io_callback(note, shape, c, ordered=True)

        last = jax.lax.fori_loop(0, 3, turn, x.sum())
        jax.debug.callback(lambda c: seen.append(float(c)), last, ordered=True)
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * last

    np.testing.assert_allclose(nw.jit(f)(X), np.sin(X) * 6, rtol=1e-6)
    assert seen == [3.0, 4.0, 5.0, 6.0]
