"""Groups that are not compiled run in the interpreter, if that is asked for, and are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver import build as driver
from nestwright.ir.errors import ArgumentError, UnsupportedError

MODEL = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4,8] parameter(0)
  y = f32[4,8] exponential(x)
  w = f32[8,8] parameter(1)
  z = f32[4,8] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  s = f32[4] reduce(z, zero), dimensions={1}, to_apply=add
  ROOT t = (f32[4,8], f32[4]) tuple(z, s)
}
"""
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
W = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def no_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that refuses every group with a dot."""
    compiled = driver.compile_all

    def refusing(jobs: Any, *args: Any) -> Any:
        dots = {key for key, job in jobs.items() if "dot(" in job.text}
        done, errors = compiled({k: j for k, j in jobs.items() if k not in dots}, *args)
        return done, errors | {k: UnsupportedError("no dots today") for k in dots}

    monkeypatch.setattr(driver, "compile_all", refusing)
    monkeypatch.setenv("NESTWRIGHT_CACHE", "off")


def test_what_is_refused_can_be_interpreted(no_dots: None, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no dots today"):
        nw.build(nw.parse(MODEL))
    exe = nw.build(nw.parse(MODEL), fallback="interpreter")
    (name,) = exe.fallbacks()
    assert (
        "no dots today" in exe.fallbacks()[name]
        and f"{name} (library: interpreter)" in exe.as_text()
    )
    exe.save(tmp_path / "m.nw")
    z = np.exp(X) @ W
    for found in (exe(X, W), nw.load(tmp_path / "m.nw")(X, W)):
        np.testing.assert_allclose(found[0], z, rtol=1e-5)
        np.testing.assert_allclose(found[1], z.sum(1), rtol=1e-5)


def test_what_is_compiled_stays_so() -> None:
    exe = nw.build(nw.parse(MODEL), fallback="interpreter")
    assert exe.fallbacks() == {} and "interpreter" not in exe.as_text()


def test_what_has_no_meaning_is_refused_all_the_same() -> None:
    text = "HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] custom-call(x), "
    with pytest.raises(UnsupportedError, match="nobody"):
        nw.build(nw.parse(text + 'custom_call_target="nobody" }'), fallback="interpreter")
    with pytest.raises(ArgumentError, match="no such fallback"):
        nw.build(nw.parse(MODEL), fallback="numpy")
