"""Frozen parameters: what runs for its effect stays."""

import numpy as np

import nestwright as nw
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.library.registry import unregister_custom_call

TEXT = """HloModule told
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  told = () custom-call(x), custom_call_target="frozen_tell", custom_call_has_side_effect=true
  ROOT z = f32[2] add(x, y)
}
"""


def test_effects_stay() -> None:
    told = []
    nw.register_custom_call("frozen_tell", lambda call, x: told.append(list(x)) or ())
    try:
        module = freeze(nw.parse(TEXT), {1: np.ones(2, np.float32)})
        np.testing.assert_array_equal(evaluate(module, [np.array([3, 4], np.float32)]), [4, 5])
    finally:
        unregister_custom_call("frozen_tell")
    assert told == [[3, 4]]
