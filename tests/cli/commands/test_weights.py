"""`--weights`: what the commands print and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

TEXT = """HloModule layers
ENTRY main {
  x = f32[2,96] parameter(0)
  v = f32[96,161] parameter(1)
  w = f32[70,161] parameter(2)
  s = f32[2,161] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[2,161] tanh(s)
  ROOT y = f32[2,70] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def test_commands_print_errors_and_bytes(nestwright) -> None:
    rng = np.random.default_rng(0)
    Path("m.hlo").write_text(TEXT)
    v, w = (rng.standard_normal(s).astype(np.float32) / 8 for s in ((96, 161), (70, 161)))
    np.savez("w.npz", v=v, w=w)
    given = ("m.hlo", "--constants", "w.npz", "--weights")
    said = nestwright("build", *given, "int8", "-o", "out.nw")
    assert said.status == 0 and "weights int8: 2 of 2 narrowed, 0.1 -> 0.0 MB, 7" in said.out
    assert said.out.count("relative rms") == 2
    facts = json.loads(nestwright("build", *given, "bf16", "--json").out)["narrow_weights"]
    assert facts["form"] == "bf16" and len(facts["weights"]) == 2
    ran = nestwright("run", *given, "int8", "--random", "0", "--check")
    assert ran.status == 0 and "all outputs match" in ran.out and "2 of 2 narrowed" in ran.out
    again = nestwright("run", "out.nw", "--weights", "int8", "--random", "0")
    assert again.status == 2 and "already built" in again.err
    assert nestwright("build", *given, "int3").status == 2
    shown = nestwright("show", *given, "bf16", "--stage", "fused")
    assert shown.status == 0 and "bf16[96,161]" in shown.out
