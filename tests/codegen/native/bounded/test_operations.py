"""Bounded sizes natively: every operation, several live sizes, with rubbish in the padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.artifact import load
from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.signature import ArraySpec
from nestwright.codegen.runtime import bounded, converted
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.errors import ArgumentError, UnsupportedError, VerifyError
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Shape
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
MAX = "max { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] maximum(a, b) }\n"
GE = """ge { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=GE }
"""
LT = """lt { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
"""
# not commutative, and no neutral element is known: the last that is not below 0, or the first
LAST = """last { a = f32[] parameter(0)
 b = f32[] parameter(1)
 z = f32[] constant(0)
 p = pred[] compare(b, z), direction=LT
 ROOT c = f32[] select(p, a, b) }
"""
ARGMAX = """argmax { a = f32[] parameter(0)
 i = s32[] parameter(1)
 b = f32[] parameter(2)
 j = s32[] parameter(3)
 k = pred[] compare(a, b), direction=GE
 v = f32[] select(k, a, b)
 n = s32[] select(k, i, j)
 ROOT t = (f32[], s32[]) tuple(v, n) }
"""

CASES: dict[str, str] = {
    "elementwise": """ENTRY e { x = f32[<=5,3] parameter(0)
 y = f32[<=5,3] parameter(1)
 c = f32[] constant(2)
 b = f32[5,3] broadcast(c), dimensions={}
 s = f32[<=5,3] add(x, y)
 m = f32[<=5,3] multiply(s, b)
 p = pred[<=5,3] compare(x, m), direction=LT
 ROOT r = f32[<=5,3] select(p, m, x) }""",
    "two_dims": """ENTRY e { x = f32[<=4,<=3] parameter(0)
 n = f32[<=4,<=3] negate(x)
 t = f32[<=3,<=4] transpose(n), dimensions={1,0}
 r = f32[<=4,<=3] reverse(x), dimensions={0,1}
 ROOT o = (f32[<=3,<=4], f32[<=4,<=3]) tuple(t, r) }""",
    "sizes": """ENTRY e { x = f32[<=4,6] parameter(0)
 n = s32[] parameter(1)
 a = s32[] get-dimension-size(x), dimensions={0}
 b = s32[] get-dimension-size(x), dimensions={1}
 y = f32[<=4,<=6] set-dimension-size(x, n), dimensions={1}
 c = s32[] get-dimension-size(y), dimensions={1}
 z = f32[<=4,<=6] set-dimension-size(y, c), dimensions={0}
 six = s32[] constant(6)
 w = f32[<=4,6] set-dimension-size(z, six), dimensions={1}
 ROOT o = (s32[], s32[], s32[], f32[<=4,<=6], f32[<=4,<=6], f32[<=4,6]) tuple(a, b, c, y, z,
   w) }""",
    "broadcast": """ENTRY e { x = f32[<=5] parameter(0)
 b = f32[2,<=5,3] broadcast(x), dimensions={1}
 i = f32[2,5,3] iota(), iota_dimension=1
 ROOT o = f32[2,<=5,3] add(b, i) }""",
    "slices": """ENTRY e { x = f32[<=7,2] parameter(0)
 a = f32[<=3,2] slice(x), slice={[1:6:2], [0:2]}
 b = f32[1,2] slice(x), slice={[3:4], [0:2]}
 c = f32[<=7,1] slice(x), slice={[0:7], [1:2]}
 ROOT o = (f32[<=3,2], f32[1,2], f32[<=7,1]) tuple(a, b, c) }""",
    "pad": """ENTRY e { x = f32[<=4,3] parameter(0)
 c = f32[] constant(7)
 a = f32[<=13,3] pad(x, c), padding=1_2_2x0_0
 b = f32[<=2,4] pad(x, c), padding=-1_-1x0_1
 ROOT o = (f32[<=13,3], f32[<=2,4]) tuple(a, b) }""",
    "concatenate": """ENTRY e { x = f32[<=3,<=2] parameter(0)
 y = f32[2,2] parameter(1)
 z = f32[<=4,<=2] parameter(2)
 a = f32[<=9,<=2] concatenate(x, y, z), dimensions={0}
 b = f32[<=5,<=2] concatenate(y, x), dimensions={0}
 ROOT o = (f32[<=9,<=2], f32[<=5,<=2]) tuple(a, b) }""",
    "dynamic_slice": """ENTRY e { x = f32[<=6,<=3] parameter(0)
 i = s32[] parameter(1)
 j = s32[] constant(0)
 a = f32[2,<=3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}
 k = u8[] convert(i)
 l = u8[] constant(1)
 b = f32[1,1] dynamic-slice(x, k, l), dynamic_slice_sizes={1,1}
 ROOT o = (f32[2,<=3], f32[1,1]) tuple(a, b) }""",
    "dynamic_update_slice": """ENTRY e { x = f32[<=6,3] parameter(0)
 u = f32[<=4,2] parameter(1)
 i = s32[] parameter(2)
 j = s32[] constant(1)
 a = f32[<=6,3] dynamic-update-slice(x, u, i, j)
 y = f32[6,3] broadcast(j2), dimensions={}
 b = f32[6,3] dynamic-update-slice(y, u, i, j)
 ROOT o = (f32[<=6,3], f32[6,3]) tuple(a, b) }""".replace(
        " y = f32", " j2 = f32[] constant(3)\n y = f32"
    ),
    "merge": """ENTRY e { x = f32[3,<=4,2] parameter(0)
 a = f32[<=24] reshape(x)
 b = f32[3,<=8] reshape(x)
 c = f32[<=12,2] reshape(x)
 d = f32[1,3,1,<=4,2] reshape(x)
 ROOT o = (f32[<=24], f32[3,<=8], f32[<=12,2], f32[1,3,1,<=4,2]) tuple(a, b, c, d) }""",
    "divide": """ENTRY e { x = f32[<=12,2] parameter(0)
 a = f32[<=4,3,2] reshape(x)
 b = f32[3,<=4,2] reshape(x)
 c = f32[3,<=8] reshape(x)
 ROOT o = (f32[<=4,3,2], f32[3,<=4,2], f32[3,<=8]) tuple(a, b, c) }""",
    "merge_two": """ENTRY e { x = f32[<=3,<=4] parameter(0)
 a = f32[<=12] reshape(x)
 b = f32[<=3,2,<=2] reshape(x)
 ROOT o = (f32[<=12], f32[<=3,2,<=2]) tuple(a, b) }""",
    "unit": """ENTRY e { x = f32[<=1,3] parameter(0)
 s = f32[<=1] slice(x), slice={[0:1], [0:1]}
 s1 = f32[<=1,1] slice(x), slice={[0:1], [0:1]}
 a = f32[3] reshape(x)
 b = f32[] reshape(s1)
 ROOT o = (f32[3], f32[]) tuple(a, b) }""".replace(
        " s = f32[<=1] slice(x), slice={[0:1], [0:1]}\n", ""
    ),
    "dynamic_reshape": """ENTRY e { x = f32[6] parameter(0)
 m = s32[] parameter(1)
 n = s32[] parameter(2)
 a = f32[<=2,<=3] dynamic-reshape(x, m, n)
 y = f32[<=6] set-dimension-size(x, n), dimensions={0}
 b = f32[<=4,<=2] dynamic-reshape(y, m, n)
 ROOT o = (f32[<=2,<=3], f32[<=4,<=2]) tuple(a, b) }""",
    "reduce": f"""{ADD}{MAX}ENTRY e {{ x = f32[<=5,<=4] parameter(0)
 z = f32[] constant(3)
 low = f32[] constant(-inf)
 a = f32[<=4] reduce(x, z), dimensions={{0}}, to_apply=add
 b = f32[] reduce(x, low), dimensions={{0,1}}, to_apply=max
 ROOT o = (f32[<=4], f32[]) tuple(a, b) }}""",
    "reduce_last": f"""{LAST}ENTRY e {{ x = f32[<=6,3] parameter(0)
 z = f32[] constant(3)
 ROOT a = f32[3] reduce(x, z), dimensions={{0}}, to_apply=last }}""",
    "reduce_pair": f"""{ARGMAX}ENTRY e {{ x = f32[3,<=5] parameter(0)
 i = s32[3,5] iota(), iota_dimension=1
 low = f32[] constant(-inf)
 z = s32[] constant(-1)
 ROOT r = (f32[3], s32[3]) reduce(x, i, low, z), dimensions={{1}}, to_apply=argmax }}""",
    "reduce_window": f"""{ADD}{MAX}ENTRY e {{ x = f32[<=7,2] parameter(0)
 z = f32[] constant(0)
 low = f32[] constant(-inf)
 a = f32[<=7,2] reduce-window(x, z), window={{size=7x1 pad=6_0x0_0}}, to_apply=add
 b = f32[<=3,2] reduce-window(x, low), window={{size=3x1 stride=2x1}}, to_apply=max
 ROOT o = (f32[<=7,2], f32[<=3,2]) tuple(a, b) }}""",
    "select_and_scatter": f"""{ADD}{GE}ENTRY e {{ x = f32[2,<=6] parameter(0)
 s = f32[2,<=3] parameter(1)
 z = f32[] constant(1)
 ROOT r = f32[2,<=6] select-and-scatter(x, s, z), window={{size=1x2 stride=1x2}}, select=ge,
   scatter=add }}""",
    "dot": """ENTRY e { x = f32[<=4,<=5] parameter(0)
 y = f32[<=5,3] parameter(1)
 z = f32[5,3] parameter(2)
 a = f32[<=4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[<=4,3] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 c = f32[<=5,<=4] dot(y, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
 ROOT o = (f32[<=4,3], f32[<=4,3], f32[<=5,<=4]) tuple(a, b, c) }""",
    "dot_batch": """ENTRY e { x = f32[<=3,2,4] parameter(0)
 y = f32[<=3,4,5] parameter(1)
 ROOT a = f32[<=3,2,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
   lhs_contracting_dims={2}, rhs_contracting_dims={1} }""",
    "convolution": """ENTRY e { x = f32[<=2,<=6,3] parameter(0)
 w = f32[3,3,2] parameter(1)
 a = f32[<=2,<=3,2] convolution(x, w), window={size=3 stride=2 pad=1_1}, dim_labels=b0f_0io->b0f
 b = f32[<=2,<=10,2] convolution(x, w), window={size=3 pad=0_1 lhs_dilate=2},
   dim_labels=b0f_0io->b0f
 ROOT o = (f32[<=2,<=3,2], f32[<=2,<=10,2]) tuple(a, b) }""",
    "convolution_features": """ENTRY e { x = f32[2,6,<=3] parameter(0)
 w = f32[3,3,<=2] parameter(1)
 ROOT a = f32[2,4,<=2] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f }""",
    "gather_rows": """ENTRY e { x = f32[<=6,3] parameter(0)
 i = s32[<=4] parameter(1)
 a = f32[<=4,3] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
   index_vector_dim=1, slice_sizes={1,3}
 ROOT b = f32[<=4,3] negate(a) }""",
    "gather_parts": """ENTRY e { x = f32[<=6,<=3] parameter(0)
 i = s32[2,2] parameter(1)
 a = f32[2,2,2] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1},
   index_vector_dim=1, slice_sizes={2,2}
 b = f32[2,2,<=3] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={},
   start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}
 ROOT o = (f32[2,2,2], f32[2,2,<=3]) tuple(a, b) }""",
    "gather_batch": """ENTRY e { x = f32[<=3,4] parameter(0)
 i = s32[<=3,2] parameter(1)
 ROOT a = f32[<=3,2] gather(x, i), offset_dims={}, collapsed_slice_dims={1},
   operand_batching_dims={0}, start_indices_batching_dims={0}, start_index_map={1},
   index_vector_dim=2, slice_sizes={1,1} }""",
    "scatter": f"""{ADD}ENTRY e {{ x = f32[<=6,2] parameter(0)
 i = s32[<=5,1] parameter(1)
 u = f32[<=5,2] parameter(2)
 ROOT a = f32[<=6,2] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
   scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add }}""",
    "scatter_equal_windows": """new { a = f32[] parameter(0)
 ROOT b = f32[] parameter(1) }
ENTRY e { x = f32[6,<=3] parameter(0)
 i = s32[2,1] parameter(1)
 w = f32[2,3] parameter(2)
 n = s32[] get-dimension-size(x), dimensions={1}
 u = f32[2,<=3] set-dimension-size(w, n), dimensions={1}
 ROOT a = f32[6,<=3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
   scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=new }""",
    "scatter_windows": f"""{ADD}ENTRY e {{ x = f32[<=6,<=3] parameter(0)
 i = u8[4] parameter(1)
 u = f32[4,2,<=3] broadcast(y), dimensions={{2}}
 ROOT a = f32[<=6,<=3] scatter(x, i, u), update_window_dims={{1,2}}, inserted_window_dims={{}},
   scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add }}""".replace(
        " u = f32[4",
        " n = f32[1,<=3] slice(x), slice={[0:1], [0:3]}\n y = f32[<=3] reshape(n)\n u = f32[4",
    ),
    "sort": f"""{LT}ENTRY e {{ x = f32[<=6,2] parameter(0)
 ROOT s = f32[<=6,2] sort(x), dimensions={{0}}, is_stable=true, to_apply=lt }}""",
    "sort_pairs": """gt { a = s32[] parameter(0)
 b = s32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT p = pred[] compare(a, b), direction=GT }
ENTRY e { k = s32[2,<=6] parameter(0)
 v = f32[2,<=6] parameter(1)
 s = (s32[2,<=6], f32[2,<=6]) sort(k, v), dimensions={1}, is_stable=true, to_apply=gt
 ROOT r = f32[2,<=6] get-tuple-element(s), index=1 }""",
    "topk": """ENTRY e { x = f32[2,<=6] parameter(0)
 ROOT t = (f32[2,4], s32[2,4]) topk(x), k=4, largest=true }""",
    "convert": """ENTRY e { x = s32[<=4] parameter(0)
 f = f32[<=4] convert(x)
 b = u32[<=4] bitcast-convert(f)
 l = s32[] constant(1)
 h = s32[] constant(3)
 c = s32[<=4] clamp(l, x, h)
 ROOT o = (u32[<=4], s32[<=4]) tuple(b, c) }""",
    "batch_norm": """ENTRY e { x = f32[<=4,3] parameter(0)
 v = f32[3] parameter(1)
 w = f32[3] multiply(v, v)
 ROOT r = f32[<=4,3] batch-norm-inference(x, v, v, v, w), epsilon=0.001, feature_index=1 }""",
    "while_grows": """cond { s = (s32[], f32[<=5]) parameter(0)
 x = f32[<=5] get-tuple-element(s), index=1
 n = s32[] get-dimension-size(x), dimensions={0}
 l = s32[] constant(3)
 ROOT r = pred[] compare(n, l), direction=GT }
body { s = (s32[], f32[<=5]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[<=5] get-tuple-element(s), index=1
 n = s32[] get-dimension-size(x), dimensions={0}
 one = s32[] constant(1)
 m = s32[] subtract(n, one)
 y = f32[<=5] set-dimension-size(x, m), dimensions={0}
 j = s32[] add(i, n)
 ROOT t = (s32[], f32[<=5]) tuple(j, y) }
ENTRY e { x = f32[5] parameter(0)
 z = s32[] constant(0)
 t = (s32[], f32[5]) tuple(z, x)
 ROOT w = (s32[], f32[<=5]) while(t), condition=cond, body=body }""",
    "conditional": """yes { x = f32[<=5] parameter(0)
 n = s32[] constant(2)
 ROOT r = f32[<=5] set-dimension-size(x, n), dimensions={0} }
no { x = (f32[5], f32[<=5]) parameter(0)
 ROOT y = f32[5] get-tuple-element(x), index=0 }
ENTRY e { p = pred[] parameter(0)
 x = f32[<=5] parameter(1)
 y = f32[5] parameter(2)
 t = (f32[5], f32[<=5]) tuple(y, x)
 ROOT c = f32[<=5] conditional(p, x, t), true_computation=yes, false_computation=no }""",
    "tuples": """inner { t = (f32[<=3], (s32[<=4], f32[2])) parameter(0)
 a = f32[<=3] get-tuple-element(t), index=0
 u = (s32[<=4], f32[2]) get-tuple-element(t), index=1
 ROOT r = ((s32[<=4], f32[2]), f32[<=3]) tuple(u, a) }
ENTRY e { t = (f32[<=3], (s32[<=4], f32[2])) parameter(0)
 ROOT c = ((s32[<=4], f32[2]), f32[<=3]) call(t), to_apply=inner }""",
    "root_is_parameter": "ENTRY e { ROOT x = f32[<=4,<=2] parameter(0) }",
    "complex": """ENTRY e { x = c64[<=4] parameter(0)
 y = c64[<=4] multiply(x, x)
 r = f32[<=4] real(y)
 ROOT o = (c64[<=4], f32[<=4]) tuple(y, r) }""",
    "layouts": """ENTRY e { x = f32[<=4,3,<=2]{0,2,1} parameter(0)
 ROOT y = f32[<=4,3,<=2]{1,0,2} negate(x) }""",
}

ROUNDS = 4  # live sizes for each module, 0 and the bound among them


def module_of(name: str) -> HloModule:
    return parse(f"HloModule {name}\n{CASES[name]}")


def arguments(module: HloModule, round_: int) -> list[Any]:
    """Arguments of one round: all bounded dimensions at 0, all at their bounds, or between."""
    rng = np.random.default_rng([round_, 7])

    def draw(shape: Any) -> Any:
        if not isinstance(shape, Shape):
            return tuple(map(draw, shape.elements))
        dims = list(shape.dims)
        for d, dynamic in enumerate(shape.dynamic):
            if dynamic:
                middle = int(rng.integers(0, dims[d] + 1))
                dims[d] = {0: 0, 1: dims[d]}.get(round_, middle)
        if shape.dtype.kind == "pred":
            return np.asarray(round_ % 2 == 0)
        if shape.dtype.is_int:
            return np.asarray(rng.integers(0, 6, dims), to_numpy(shape.dtype))
        found = rng.standard_normal(dims)
        if shape.dtype.kind == "complex":
            found = found + 1j * rng.standard_normal(dims)
        return np.asarray(found).astype(to_numpy(shape.dtype))

    return [draw(p.shape) for p in module.entry.parameters]


def rubbish(arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """As ``bounded.padded``, but what stands in the padding would show in any result."""
    found = bounded.padded(arrays, specs)
    wanted = iter(arrays)
    rest = iter(found)
    for spec in specs:
        array, whole = next(wanted), next(rest)
        for _ in bounded.bounded_dims(spec):
            next(rest)
        if array.shape != whole.shape:
            whole[...] = np.nan if whole.dtype.kind in "fc" else 77
            whole[tuple(map(slice, array.shape))] = array
    return found


def leaves(value: Any) -> list[Array]:
    return [a for v in value for a in leaves(v)] if isinstance(value, tuple) else [value]


def agree(found: Any, wanted: Any) -> None:
    for f, w in zip(leaves(found), leaves(wanted), strict=True):
        assert f.shape == w.shape and f.dtype == w.dtype
        np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_native_agrees_with_the_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converted, "padded", rubbish)
    module = module_of(name)
    exe = build(module)
    for round_ in range(ROUNDS):
        args = arguments(module, round_)
        agree(exe(*args), evaluate(module, args))


@pytest.mark.parametrize("name", [n for n in CASES if n != "layouts"])  # it takes other shapes
def test_the_optimized_module_means_the_same(name: str) -> None:
    module = module_of(name)
    optimized = optimize(module)
    for round_ in range(ROUNDS):
        args = arguments(module, round_)
        agree(evaluate(optimized, args), evaluate(module, args))


def test_a_size_that_is_set_again_costs_nothing() -> None:
    module = parse("""HloModule again
ENTRY e { x = f32[<=5] parameter(0)
 c = s32[] get-dimension-size(x), dimensions={0}
 y = f32[<=5] exponential(x)
 z = f32[<=5] set-dimension-size(y, c), dimensions={0}
 ROOT r = f32[<=5] negate(z) }""")
    made = {i.opcode for i in optimize(module).entry.instructions}
    assert not made & {"select", "compare", "maximum", "minimum"}


def refusal(text: str) -> str:
    with pytest.raises(UnsupportedError) as found:
        build(parse(f"HloModule m\n{text}"))
    return str(found.value)


def test_what_has_no_clear_meaning_is_refused_by_name() -> None:
    text = refusal("""ENTRY e { x = f32[<=6] parameter(0)
 w = f32[<=3,4,2] parameter(1)
 v = f32[2,5,4] parameter(2)
 split = f32[2,3] reshape(x)
 kernel = f32[2,5,2] convolution(v, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f
 ROOT o = (f32[2,3], f32[2,5,2]) tuple(split, kernel) }""")
    assert "`split` in `e`" in text and "`kernel` in `e`" in text
    assert "mark one dimension" in text


def test_the_interpreter_refuses_an_unclear_reshape_too() -> None:
    module = parse(
        "HloModule m\nENTRY e { x = f32[<=6] parameter(0)\n ROOT r = f32[2,3] reshape(x) }"
    )
    with pytest.raises(UnsupportedError, match="which one varies is not clear"):
        evaluate(module, [np.zeros(4, np.float32)])


@pytest.mark.parametrize(
    "call",
    [
        "x = f32[<=4] parameter(0)\n n = f32[] constant(1)\n"
        " ROOT r = f32[<=4] set-dimension-size(x, n), dimensions={0}",
        "x = f32[<=4] parameter(0)\n ROOT r = s32[] get-dimension-size(x), dimensions={0,1}",
        "x = f32[<=4] parameter(0)\n ROOT r = f32[<=4] dynamic-reshape(x)",
    ],
)
def test_sizes_are_integer_scalars_one_for_a_dimension(call: str) -> None:
    with pytest.raises(VerifyError):
        build(parse(f"HloModule m\nENTRY e {{ {call} }}"))


def test_arguments_have_any_size_within_the_bound(tmp_path: Path) -> None:
    built = build(module_of("two_dims"))
    built.save(tmp_path / "m.nw")
    for exe in (built, load(tmp_path / "m.nw")):
        assert "f32[<=4,<=3]" in repr(exe)
        for m, n in product((0, 2, 4), (0, 3)):
            x = np.arange(m * n, dtype=np.float32).reshape(m, n)
            turned, back = exe(x)
            np.testing.assert_array_equal(turned, -x.T)
            np.testing.assert_array_equal(back, x[::-1, ::-1])
        for shape in ((5, 3), (4, 4), (4,), (2, 2, 1)):
            with pytest.raises(ArgumentError, match=r"expected f32\[<=4,<=3\]"):
                exe(np.zeros(shape, np.float32))
        with pytest.raises(ArgumentError, match="allocated by the call"):
            exe(x, out=(np.zeros((3, 4), np.float32), np.zeros((4, 3), np.float32)))
    exe.profile(np.zeros((2, 2), np.float32), rounds=1)


def test_bounded_sizes_on_a_simulated_gpu() -> None:
    for name in ("merge", "while_grows", "reduce_pair"):
        module = module_of(name)
        exe = build(module, "cuda-sim")
        for round_ in range(ROUNDS):
            args = arguments(module, round_)
            agree(exe(*args), evaluate(module, args))


def test_bounded_sizes_on_a_gpu_by_way_of_the_host(fake: Any) -> None:
    exe = fake.simulated(f"HloModule two\n{CASES['two_dims']}")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for given in (x, exe.put(x)):
        turned, back = exe(given)
        np.testing.assert_array_equal(turned, -x.T)
        np.testing.assert_array_equal(back, x[::-1, ::-1])
    with pytest.raises(ArgumentError, match="allocated by the call"):
        exe(x, out=(turned, back))
    exe.profile(x, rounds=1)


def test_results_of_fixed_size_go_to_out(fake: Any) -> None:
    text = f"HloModule m\n{CASES['reduce_last']}"
    x, zeros = np.ones((2, 3), np.float32), np.zeros(3, np.float32)
    for exe in (build(parse(text)), fake.simulated(text)):
        out = zeros.copy()
        assert exe(x, out=out) is out
        np.testing.assert_array_equal(out, np.ones(3))
