"""Random arguments: one per parameter, an array or tuples of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.analysis.inputs import draws, random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

TUPLES = """HloModule m
ENTRY e {
  p = (f32[3,50], ((f32[50,4], s32[]), ()), f32[3]) parameter(0)
  s = f32[3,4] parameter(1)
  x = f32[3,50] get-tuple-element(p), index=0
  q = ((f32[50,4], s32[]), ()) get-tuple-element(p), index=1
  r = (f32[50,4], s32[]) get-tuple-element(q), index=0
  w = f32[50,4] get-tuple-element(r), index=0
  b = f32[3] get-tuple-element(p), index=2
  l = f32[3] log(b)
  ll = f32[3,4] broadcast(l), dimensions={0}
  d = f32[3,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[3,4] add(d, ll)
  ROOT z = f32[3,4] multiply(y, s)
}
"""


def test_tuples_are_drawn_as_their_shape_says() -> None:
    module = parse(TUPLES)
    given = random_arguments(module.entry, 3)
    (x, ((w, n), empty), b), s = given
    assert (x.shape, w.shape, n.shape, n.dtype, empty) == ((3, 50), (50, 4), (), np.int32, ())
    assert (b.shape, s.shape) == ((3,), (3, 4))
    assert np.isfinite(evaluate(module, given)).all()


def test_a_tuples_elements_are_drawn_for_what_they_are_used_for() -> None:
    x, w, _, b, s = draws(parse(TUPLES).entry)
    assert w.scale == pytest.approx(50**-0.5) and b.positive
    assert (x.scale, s.scale) == (1.0, 1.0) and not (x.positive or w.positive or s.positive)


def test_no_token_is_drawn() -> None:
    text = "HloModule m\nENTRY e {\n p = (f32[2], token[]) parameter(0)\n"
    text += " ROOT x = f32[2] get-tuple-element(p), index=0\n}\n"
    with pytest.raises(UnsupportedError, match="cannot draw random values for parameter p"):
        draws(parse(text).entry)
