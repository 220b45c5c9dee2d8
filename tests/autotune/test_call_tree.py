"""Executables that take and give the trees of a model's own call; a front-end is made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError
from nestwright.ir.frontends.imported import Imported

TEXT = """HloModule pair
ENTRY main {
  x = f32[3] parameter(0)
  w = f32[3] parameter(1)
  y = f32[3] multiply(x, w)
  z = f32[3] add(x, w)
  ROOT r = (f32[3], f32[3]) tuple(y, z)
}
"""
X, W = np.arange(3, dtype=np.float32), np.full(3, 2, np.float32)


def taken_apart(args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
    """The leaves of a call ``f({"x": x}, w=w)``."""
    if len(args) == 1 and isinstance(args[0], dict) and {*args[0], *named} == {"x", "w"}:
        return [args[0]["x"], named["w"]]
    return None


def model(**options: Any) -> nw.Lowered:
    found = Imported(
        module=nw.parse(TEXT),
        rebuild=lambda flat: {"product": flat[0], "sum": flat[1]},
        flatten=taken_apart,
    )
    return nw.lower(found, **options)


def right(found: Any) -> None:
    np.testing.assert_array_equal(found["product"], X * W)
    np.testing.assert_array_equal(found["sum"], X + W)


def test_the_models_own_call() -> None:
    exe = model().compile()
    right(exe({"x": X}, w=W))
    right(exe(X, W))
    right(exe(w=W, x=X))
    right(exe(X, w=W))


def test_flat_calls_stay_flat() -> None:
    exe = model().compile()
    for flat in (exe.flat, exe.flat.flat, nw.build(model().imported)):
        y, z = flat(X, w=W)
        right({"product": y, "sum": z})
        with pytest.raises(ArgumentError, match="expected 2 arguments, got 1"):
            flat({"x": X})


def test_results_in_out_are_flat() -> None:
    exe = model().compile()
    out = np.zeros(3, np.float32), np.zeros(3, np.float32)
    for args, named in (([{"x": X}], {"w": W}), ([X, W], {}), ([X], {"w": W})):
        assert exe(*args, **named, out=out) is out
        right({"product": out[0], "sum": out[1]})
        out[0][:] = 9
    right(exe({"x": X}, w=W, out=None))


def test_another_structure_is_refused_with_what_would_work() -> None:
    exe = model().compile()
    calls: list[tuple[list[Any], dict[str, Any]]] = [
        ([{"x": X}], {}),
        ([{"y": X}], {"w": W}),
        ([X, W, W], {}),
        ([X], {"v": W}),
    ]
    for args, named in calls:
        with pytest.raises(ArgumentError, match="those it was lowered for, or their leaves"):
            exe(*args, **named)
    with pytest.raises(ArgumentError, match=r"expected f32\[3\]"):
        exe({"x": X[:2]}, w=W)


def test_frozen_parameters_leave_leaves() -> None:
    exe = model(constants={"w": W}).compile()
    assert exe.input_names == ("x",)
    right(exe(X))
    with pytest.raises(ArgumentError):
        exe({"x": X}, w=W)


def test_saved_executables_are_flat(tmp_path: Any) -> None:
    exe = model().compile()
    exe.save(tmp_path / "pair.nw")
    loaded = nw.load(tmp_path / "pair.nw")
    assert type(loaded(X, W)) is tuple and loaded is loaded.flat
    right(exe(*exe.random_arguments()) and exe({"x": X}, w=W))
