"""What XLA's verifier refuses is refused in one line that says what does not fit."""

from __future__ import annotations

import pytest

from nestwright.ir.errors import NestwrightError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.support import require_supported
from nestwright.ir.hlo.analysis.verify import verify

HEAD = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
whole { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b) }
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=GE }
ENTRY e {
  x = f32[2,3] parameter(0)
  n = s32[2,3] parameter(1)
  u = u8[2,3] parameter(2)
  p = pred[2,3] parameter(3)
  h = f16[2,3] parameter(4)
  i = s32[] parameter(5)
  j = s64[] parameter(6)
  z = f32[] parameter(7)
  c = c64[2,3] parameter(8)
  s = f32[3,3] parameter(9)
  v = f32[6] parameter(10)
  t = token[] after-all()
  many = s32[2,1] parameter(11)
  cube = f32[4,5,6] parameter(12)
"""
GATHER = "start_index_map={0}, index_vector_dim=1, slice_sizes={1,1,6}"
SCATTER = "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
GROUP = "replica_groups={{0}}"


def refused(text: str) -> str:
    with pytest.raises(NestwrightError) as caught:
        module = parse(f"{HEAD}  ROOT r = {text}\n}}\n")
        verify(module)
        require_supported(module)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("f32[2,3] negate(x), dimensions={0}", "`negate` has no attribute `dimensions`"),
        ("pred[2,3] compare(x, x), direction=LT, type=SIGNED", "not as SIGNED"),
        ("pred[2,3] compare(n, n), direction=LT, type=FLOAT", "compared as SIGNED"),
        ("pred[2,3] compare(p, p), direction=EQ, type=SIGNED", "compared as UNSIGNED"),
        ("pred[2,3] compare(c, c), direction=EQ, type=TOTALORDER", "compared as FLOAT"),
        ("s32[2,3] imag(n)", "s32 has no real and imaginary part"),
        ("pred[2,3] real(p)", "pred has no real"),
        ("c64[2,3] complex(x, n)", "both are f32 or both f64"),
        ("c64[2,3] complex(h, h)", "both are f32 or both f64"),
        ("u8[2,3] abs(u)", "abs does not take u8"),
        ("u8[2,3] sign(u)", "sign does not take u8"),
        ("f32[2,3] clamp(x, z, z)", "operands of clamp differ"),
        ("f32[2,3] select(p, x, z)", "operands of select differ"),
        ("s32[2,3] convert(x, x)", "takes 1 operands and has 2"),
        ("f32[2,3] broadcast(z, z), dimensions={}", "takes 1 operands and has 2"),
        ("pred[2,3] iota(), iota_dimension=0", "pred is none"),
        ("f32[2,<=3] set-dimension-size(x, j), dimensions={1}", "s64[], not s32[]"),
        ("f32[9] concatenate(x, v), dimensions={0}", "operand 1"),
        ("f32[1,1] dynamic-slice(x, i, j), dynamic_slice_sizes={1,1}", "the types s32, s64"),
        (
            f"f32[2,6] gather(cube, many), {GATHER}, offset_dims={{1}}, "
            "collapsed_slice_dims={1,0}",
            "`collapsed_slice_dims={1,0}` is not in order",
        ),
        (
            f"f32[2,6,1] gather(cube, many), {GATHER}, offset_dims={{2,1}}, "
            "collapsed_slice_dims={0}",
            "`offset_dims={2,1}` is not in order",
        ),
        (
            "f32[2,3] scatter(x, many, x), update_window_dims={}, inserted_window_dims={1,0}, "
            f"{SCATTER}",
            "`inserted_window_dims={1,0}` is not in order",
        ),
        ("f32[2] reduce(x, z), dimensions={1}, to_apply=whole", "not a scalar that takes f32"),
        ("s64[2] reduce(j, j), dimensions={}, to_apply=whole", "not a scalar that takes s64"),
        ("pred[2,3] map(x, x), dimensions={1,0}, to_apply=ge", "all 2 dimensions in order"),
        (
            "f32[2,4] reduce-window(x, z), window={size=1x0}, to_apply=add",
            "a size, a stride or a dilation below 1",
        ),
        (
            "f32[2,3] select-and-scatter(x, x, i), window={size=1x1}, select=ge, scatter=add",
            "the initial value s32[] does not fit",
        ),
        (
            "f32[3,3] dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
            "algorithm=best",
            "algorithm=best is not known",
        ),
        ("f32[3,3] triangular-solve(s, s), lower=true", "`transpose_a` is missing"),
        ("f32[3,3] cholesky(s), lower=1", "neither true nor false"),
        (
            "f32[6,2] ragged-dot(x, x, i), lhs_ragged_dims={0}, rhs_group_dims={0}",
            "`lhs_contracting_dims` is missing",
        ),
        ("f32[2,3] copy()", "takes 1 operands and has 0"),
        ("f32[2,3] add-dependency(x, x)", "operand 1 is not a token"),
        ("token[] after-all(t, x)", "operand 1 is not a token"),
        (
            "f32[2,3] all-gather(x), replica_groups={{9223372036854775807}}, dimensions={0}",
            "cannot be read",
        ),
        (f"f32[2,3] all-gather(x), {GROUP}, dimensions={{0,1}}", "`dimensions` is one dimension"),
        (
            f"f32[2,3] all-reduce(x), {GROUP}, use_global_device_ids=true, to_apply=add",
            "needs a channel_id",
        ),
    ],
)
def test_what_xla_refuses(text: str, why: str) -> None:
    assert why in refused(text)
