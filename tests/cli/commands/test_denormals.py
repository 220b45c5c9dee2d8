"""``--denormals``: what the commands compute, say and refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TEXT = """HloModule half
ENTRY main {
  x = f32[40] parameter(0)
  h = f32[] constant(0.5)
  b = f32[40] broadcast(h), dimensions={}
  ROOT y = f32[40] multiply(x, b)
}
"""


def test_commands_take_it(nestwright) -> None:
    Path("m.hlo").write_text(TEXT)
    x = np.full(40, 1e-40, np.float32)
    np.savez("x.npz", x=x)
    flush = ("--denormals", "flush")
    assert nestwright("build", "m.hlo", *flush, "-o", "out.nw").status == 0
    for model, options, zero in (
        ("m.hlo", (), False),
        ("m.hlo", ("--denormals", "keep"), False),
        ("m.hlo", flush, True),
        ("m.hlo", ("--target", "cpu -denormals=flush"), True),
        ("out.nw", (), True),
    ):
        said = nestwright(
            "run", model, *options, "--inputs", "x.npz", "--outputs", "y.npz", "--check"
        )
        assert said.status == 0 and "all outputs match" in said.out
        (y,) = np.load("y.npz").values()
        np.testing.assert_array_equal(y, 0 if zero else x / 2)
    shown = nestwright("show", "m.hlo", *flush, "--stage", "llvm")
    assert shown.status == 0 and "denormal-fp-math" in shown.out


def test_what_cannot_be_is_refused_in_a_line(nestwright) -> None:
    Path("m.hlo").write_text(TEXT)
    for command in ("build", "tune", "bench", "show --stage llvm", "run --random 0"):
        said = nestwright(*command.split(), "m.hlo", "--denormals", "no")
        assert said.status == 2 and "denormals=no: it is keep or flush" in said.err
        assert said.err.count("\n") == 1
    again = nestwright("run", "m.nw", "--denormals", "flush", "--random", "0")
    assert again.status == 2
