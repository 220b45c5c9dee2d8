"""Reshapes of arithmetic on parameters: which move to the parameters, and which stay."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.simplify.raise_reshapes import raise_reshapes
from nestwright.ir.hlo.text import parse


def reshaped(body: str) -> HloModule:
    return parse(f"""HloModule m
ENTRY e {{
 x = f32[2,3,4,8] parameter(0)
 mean = f32[8] parameter(1)
 far = f32[2,3,4,8] broadcast(mean), dimensions={{3}}
 {body}
 ROOT r = f32[24,8] reshape(y)
}}""")


@pytest.mark.parametrize(
    "body",
    [
        "y = f32[2,3,4,8] subtract(x, far)",
        "d = f32[2,3,4,8] subtract(x, far)  y = f32[2,3,4,8] multiply(d, d)",
        "z = f32[] constant(0)  b = f32[2,3,4,8] broadcast(z), dimensions={}"
        "  y = f32[2,3,4,8] maximum(b, x)",
    ],
)
def test_parameters_are_reshaped_instead(body: str) -> None:
    module = reshaped(body)
    raised = raise_reshapes(module)
    root = raised.entry.root
    assert root.opcode in ("subtract", "multiply", "maximum") and root.array.dims == (24, 8)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    np.testing.assert_array_equal(evaluate(raised, given), evaluate(module, given))


@pytest.mark.parametrize(
    "body",
    [
        "e = f32[2,3,4,8] exponential(x)  y = f32[2,3,4,8] subtract(e, far)",  # not cheap
        "y = f32[2,3,4,8] negate(far)",  # no parameter of this size
        "t = f32[2,3] parameter(2)  b = f32[2,3,4,8] broadcast(t), dimensions={0,1}"
        "  y = f32[2,3,4,8] multiply(x, b)",  # rows of which several have one factor
        "t = f32[2,3,4,8] reverse(x), dimensions={1}  y = f32[2,3,4,8] add(t, far)",
    ],
)
def test_other_reshapes_stay(body: str) -> None:
    module = reshaped(body)
    assert raise_reshapes(module).entry.root.opcode == "reshape"


def test_a_sum_down_the_columns_reads_its_parameter_in_order() -> None:
    """The gradient of batch normalization, whose factor a product left as a matrix."""
    module = optimize(
        parse("""HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
 g = f32[24,16] parameter(0)
 w = f32[16,8] parameter(1)
 x = f32[2,3,4,8] parameter(2)
 mean = f32[8] parameter(3)
 d = f32[24,8] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 far = f32[2,3,4,8] broadcast(mean), dimensions={3}
 y = f32[2,3,4,8] subtract(x, far)
 r = f32[24,8] reshape(y)
 p = f32[24,8] multiply(d, r)
 zero = f32[] constant(0)
 ROOT s = f32[8] reduce(p, zero), dimensions={0}, to_apply=add
}""")
    )
    views = [i for i in module.entry.instructions if i.opcode == "reshape"]
    assert views and all(v.operands[0].opcode == "parameter" for v in views)
