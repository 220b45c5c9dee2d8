"""Vectors are not computed where only the values are read."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.simplify.values_alone import values_alone

EIGH = """HloModule e
ENTRY main {{ x = f32[2,5,5] parameter(0)
  c = (f32[2,5,5], f32[2,5], s32[2]) custom-call(x), custom_call_target="lapack_ssyevd_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={{mode = 86 : ui8, uplo = 76 : ui8}}
  v = f32[2,5,5] get-tuple-element(c), index=0
  w = f32[2,5] get-tuple-element(c), index=1
  i = s32[2] get-tuple-element(c), index=2
  ROOT r = {root} }}
"""
SVD = """HloModule s
ENTRY main {{ x = f64[6,4] parameter(0)
  c = (f64[6,4], f64[4], f64[6,4], f64[4,4], s32[]) custom-call(x),
    custom_call_target="lapack_dgesdd_ffi", api_version=API_VERSION_TYPED_FFI,
    backend_config={{mode = 83 : ui8}}
  u = f64[6,4] get-tuple-element(c), index=2
  s = f64[4] get-tuple-element(c), index=1
  t = f64[4,4] get-tuple-element(c), index=3
  ROOT r = {root} }}
"""


def flag(m: HloModule) -> str:
    made = values_alone(m)
    (call,) = (i for i in made.entry.instructions if i.opcode == "custom-call")
    return chr(int(call.attrs["backend_config"].text.split("mode = ")[1].split(" ")[0]))


@pytest.mark.parametrize(
    ("text", "root", "letter"),
    [
        (EIGH, "(f32[2,5], s32[2]) tuple(w, i)", "N"),
        (EIGH, "(f32[2,5], f32[2,5,5]) tuple(w, v)", "V"),
        (SVD, "f64[4] negate(s)", "N"),
        (SVD, "(f64[4], f64[4,4]) tuple(s, t)", "S"),
        (SVD, "(f64[4], f64[6,4]) tuple(s, u)", "S"),
    ],
)
def test_what_is_read_is_computed(text: str, root: str, letter: str) -> None:
    named = {w.strip(",()") for w in root.split("tuple")[-1].split()}
    lines = text.format(root=root).splitlines()
    dead = [x for x in lines if x.split(" = ")[0].strip() in {"v", "u", "t"} - named]
    m = parse("\n".join(x for x in lines if x not in dead))
    assert flag(m) == letter
    x = np.random.default_rng(5).standard_normal(m.entry.parameters[0].array.dims)
    x = x.astype(np.float32 if text is EIGH else np.float64)
    got, want = nw.build(m)(x), evaluate(m, [x])
    pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    for a, b in pairs:
        np.testing.assert_allclose(np.abs(a), np.abs(b), rtol=1e-4, atol=1e-6)


def test_a_call_that_is_the_result_stays() -> None:
    text = EIGH.format(root="f32[2,5] negate(w)")
    head = text[: text.index("  v = ")].replace("  c =", "  ROOT c =")
    m = parse(head + "}")
    assert values_alone(m) is m


def test_calls_on_what_a_changed_call_gives_change_too() -> None:
    call = """custom_call_target="lapack_ssyevd_ffi", api_version=API_VERSION_TYPED_FFI,
    backend_config={mode = 86 : ui8, uplo = 76 : ui8}"""
    m = parse(f"""HloModule two
ENTRY main {{ x = f32[4,4] parameter(0)
  c = (f32[4,4], f32[4], s32[]) custom-call(x), {call}
  w = f32[4] get-tuple-element(c), index=1
  y = f32[4,4] broadcast(w), dimensions={{1}}
  d = (f32[4,4], f32[4], s32[]) custom-call(y), {call}
  ROOT v = f32[4] get-tuple-element(d), index=1 }}""")
    calls = [i for i in values_alone(m).entry.instructions if i.opcode == "custom-call"]
    assert ["mode = 78" in i.attrs["backend_config"].text for i in calls] == [True, True]


def test_a_call_that_is_passed_on_whole_stays() -> None:
    whole = "((f32[2,5,5], f32[2,5], s32[2]), f32[2,5]) tuple(c, w)"
    lines = EIGH.format(root=whole).splitlines()
    assert flag(parse("\n".join(x for x in lines if not x.startswith("  v =")))) == "V"
