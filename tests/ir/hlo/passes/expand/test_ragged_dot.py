"""``ragged-dot``: what it means, and the loops that compute it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.errors import NestwrightError
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.expand.ragged_dot import expand_ragged_dot
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.simplify.raise_ragged_dot import raise_ragged_dot

FREE = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"


def module(x: str, w: str, groups: int, out: str, attrs: str, sizes: str = "s32") -> Any:
    return parse(
        f"""HloModule ragged
ENTRY main {{
  x = {x} parameter(0)
  w = {w} parameter(1)
  n = {sizes}[{groups}] parameter(2)
  ROOT r = {out} ragged-dot(x, w, n), {attrs}
}}"""
    )


def whole(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, dims).astype(np.float32)


def agree(asked: Any, x: Array, w: Array, sizes: list[int], wanted: Array) -> None:
    """The meaning, its expansion and the compiled program give what is wanted."""
    n = np.array(sizes, np.int32)
    np.testing.assert_array_equal(np.asarray(evaluate(asked, (x, w, n))), wanted)
    expanded = expand_ragged_dot(asked)
    assert not any(i.opcode == "ragged-dot" for i in expanded.entry.instructions)
    np.testing.assert_array_equal(np.asarray(evaluate(expanded, (x, w, n))), wanted)
    np.testing.assert_array_equal(nw.build(asked, target="cpu")(x, w, n), wanted)


def by_rows(x: Array, w: Array, sizes: list[int]) -> Array:
    out, at = np.zeros((len(x), w.shape[2]), np.float32), 0
    for g, size in enumerate(sizes):
        rows = slice(at, min(len(x), at + max(0, size)))
        out[rows] = x[rows] @ w[g]
        at = rows.stop
    return out


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (40, [3, 0, 30, 7]),
        (40, [0, 0, 0, 0]),
        (40, [40, 0, 0, 0]),
        (40, [0, 0, 0, 40]),
        (40, [5, 5, 5, 5]),
        (40, [30, 30, 30, 30]),
        (40, [-3, 9, 2, 1]),
        (5, [1, 2, 1, 1]),
        (1, [0, 1, 0, 0]),
        (700, [9, 650, 0, 41]),
    ],
)
def test_rows_are_multiplied_by_the_operand_of_their_group(rows: int, sizes: list[int]) -> None:
    x, w = whole(rows, 16), whole(4, 16, 32, seed=1)
    asked = module(f"f32[{rows},16]", "f32[4,16,32]", 4, f"f32[{rows},32]", FREE)
    agree(asked, x, w, sizes, by_rows(x, w, sizes))


def test_rows_may_be_any_free_dimension_and_groups_any() -> None:
    x, w, sizes = whole(3, 16, 40), whole(32, 4, 16, seed=1), [11, 20, 0, 9]
    asked = module(
        "f32[3,16,40]",
        "f32[32,4,16]",
        4,
        "f32[3,40,32]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={2}, "
        "lhs_ragged_dims={2}, rhs_group_dims={1}",
    )
    wanted = np.stack([by_rows(a.T, w.transpose(1, 2, 0), sizes) for a in x])
    agree(asked, x, w, sizes, wanted)


def test_groups_within_batches() -> None:
    x, w, sizes = whole(3, 40, 16), whole(4, 3, 16, 32, seed=1), [11, 20, 0, 5]
    asked = module(
        "f32[3,40,16]",
        "f32[4,3,16,32]",
        4,
        "f32[3,40,32]",
        "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={1}, "
        "rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={0}",
    )
    wanted = np.stack([by_rows(a, w[:, n], sizes) for n, a in enumerate(x)])
    agree(asked, x, w, sizes, wanted)


def test_groups_of_terms_give_a_product_each() -> None:
    """The gradient of the right operands, to which other groups' infinities do not come."""
    x, w, sizes = whole(40, 16), whole(40, 32, seed=1), [11, 20, 0, 5]
    x[35:], w[2] = np.inf, np.nan
    x[2] = 0
    asked = module(
        "f32[40,16]",
        "f32[40,32]",
        4,
        "f32[4,16,32]",
        "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}",
    )
    ends = np.cumsum([0, *sizes])
    parts = [slice(a, b) for a, b in pairwise(ends)]
    with np.errstate(invalid="ignore"):
        agree(asked, x, w, sizes, np.stack([x[p].T @ w[p] for p in parts]))


def test_groups_of_batches_are_a_product() -> None:
    x, w = whole(5, 7, 16), whole(5, 16, 8, seed=1)
    asked = module(
        "f32[5,7,16]",
        "f32[5,16,8]",
        2,
        "f32[5,7,8]",
        "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}",
    )
    agree(asked, x, w, [2, 3], x @ w)


def test_an_infinity_of_another_group_stays_there() -> None:
    x, w, sizes = whole(40, 16), whole(4, 16, 32, seed=1), [3, 0, 30, 7]
    x[0], w[1], w[3] = np.inf, np.nan, 1
    with np.errstate(invalid="ignore"):
        wanted = by_rows(x, w, sizes)
    assert np.isfinite(wanted[3:]).all()
    asked = module("f32[40,16]", "f32[4,16,32]", 4, "f32[40,32]", FREE)
    with np.errstate(invalid="ignore"):
        agree(asked, x, w, sizes, wanted)


@pytest.mark.parametrize("dims", [(0, 16, 32), (5, 0, 32), (5, 16, 0)])
def test_nothing_is_multiplied(dims: tuple[int, int, int]) -> None:
    m, k, n = dims
    asked = module(f"f32[{m},{k}]", f"f32[4,{k},{n}]", 4, f"f32[{m},{n}]", FREE)
    agree(asked, whole(m, k), whole(4, k, n), [1, 1, 1, 1], np.zeros((m, n), np.float32))


@pytest.mark.parametrize("form", ["bf16", "f16", "f64", "s32", "c64"])
def test_element_types(form: str) -> None:
    asked = module(f"{form}[40,16]", f"{form}[4,16,32]", 4, f"{form}[40,32]", FREE, "s64")
    exe = nw.build(asked, target="cpu")
    x, w, sizes = whole(40, 16), whole(4, 16, 32, seed=1), [3, 0, 30, 7]
    given = [a.astype(to_numpy(BY_NAME[form])) for a in (x, w)]
    found = exe(*given, np.array(sizes))
    np.testing.assert_array_equal(np.asarray(found).real.astype(np.float64), by_rows(x, w, sizes))


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ("lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}", "group_dims"),
        (FREE.replace("rhs_group_dims={0}", "rhs_group_dims={1}"), "group"),
        (FREE.replace("lhs_ragged_dims={0}", "lhs_ragged_dims={0,1}"), "ragged_dims"),
        (FREE.replace("lhs_ragged_dims={0}", "lhs_ragged_dims={2}"), "ragged_dims"),
    ],
)
def test_what_does_not_fit_is_refused(attrs: str, why: str) -> None:
    with pytest.raises(NestwrightError, match=why):
        nw.build(module("f32[40,16]", "f32[4,16,32]", 4, "f32[40,32]", attrs), target="cpu")


def test_its_text_is_read_again() -> None:
    asked = module("f32[40,16]", "f32[4,16,32]", 4, "f32[40,32]", FREE)
    assert show(parse(show(asked))) == show(asked)


MASKED = """HloModule masked
sum { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }
ENTRY main {
  n = s32[4] parameter(2)
  nought = s32[] constant(0)
  ends = s32[4] reduce-window(n, nought), window={size=4 pad=3_0}, to_apply=sum
  zero = s32[1] constant({0})
  most = s32[3] slice(ends), slice={[0:3]}
  starts = s32[4] concatenate(zero, most), dimensions={0}
  first = s32[4,40,16] broadcast(starts), dimensions={0}
  row = s32[40] iota(), iota_dimension=0
  rows = s32[4,40,16] broadcast(row), dimensions={1}
  begun = pred[4,40,16] compare(first, rows), direction=LE
  last = s32[4,40,16] broadcast(ends), dimensions={0}
  left = pred[4,40,16] compare(rows, last), direction=LT
  own = pred[4,40,16] and(begun, left)
  x = f32[40,16] parameter(0)
  xs = f32[4,40,16] broadcast(x), dimensions={1,2}
  none = f32[] constant(0)
  nones = f32[4,40,16] broadcast(none), dimensions={}
  masked = f32[4,40,16] select(own, xs, nones)
  w = f32[4,16,32] parameter(1)
  ROOT r = f32[40,32] dot(masked, w), lhs_contracting_dims={2,0}, rhs_contracting_dims={1,0}
}"""


def test_the_masked_form_of_jax_is_raised() -> None:
    masked = parse(MASKED)
    raised = raise_ragged_dot(masked)
    assert raised.entry.root.opcode == "ragged-dot"
    x, w, sizes = whole(40, 16), whole(4, 16, 32, seed=1), [3, 0, 30, 7]
    n = np.array(sizes, np.int32)
    for one in (masked, raised):
        np.testing.assert_array_equal(np.asarray(evaluate(one, (x, w, n))), by_rows(x, w, sizes))
    optimized = show(optimize(masked))
    assert "while" in optimized
    assert "f32[4,40,16]" not in optimized


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pad=3_0", "pad=0_3"),
        ("size=4 pad=3_0", "size=3 pad=2_0"),
        ("constant({0})", "constant({1})"),
        ("slice={[0:3]}", "slice={[1:4]}"),
        ("direction=LE", "direction=LT"),
        ("direction=LT", "direction=LE"),
        ("iota_dimension=0\n  rows = s32[4,40,16] broadcast(row), dimensions={1}", ""),
        ("none = f32[] constant(0)", "none = f32[] constant(1)"),
        ("and(begun", "or(begun"),
        ("s32[] add(", "s32[] maximum("),
    ],
)
def test_another_mask_stays(old: str, new: str) -> None:
    assert old in MASKED
    text = MASKED.replace(old, new)
    if not new:
        text = MASKED.replace("row = s32[40] iota()", "row = s32[16] iota()")
        text = text.replace("broadcast(row), dimensions={1}", "broadcast(row), dimensions={2}")
    assert raise_ragged_dot(parse(text)).entry.root.opcode == "dot"


def test_an_outer_product_is_not_raised() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[3] parameter(0)
  b = f32[4] parameter(1)
  ROOT r = f32[3,4] dot(a, b)
}
"""
    module = parse(text)
    assert raise_ragged_dot(module) is module
