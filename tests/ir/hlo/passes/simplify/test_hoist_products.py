"""Products of given rows by fixed weights leave loops; those that need the state, or gain nothing,
stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.simplify.dce import dce
from nestwright.ir.hlo.passes.simplify.hoist_products import ROWS, hoist_products
from nestwright.ir.hlo.passes.simplify.sink_constants import sink_constants
from nestwright.ir.hlo.passes.simplify.tuples import simplify_tuples

TEXT = """HloModule test
test {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[{m},5] get-tuple-element(s), index=1
  xs = f32[7,{m},3] get-tuple-element(s), index=2
  w = f32[3,5] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  last = s32[] constant(6)
  back = s32[] subtract(last, i)
  k = f32[3,5] constant({{{{1,0,.5,2,-1}},{{0,1,0,3,1}},{{.25,0,1,-2,4}}}})
  cut = f32[1,{m},3] dynamic-slice(xs, {index}, zero, zero), dynamic_slice_sizes={{1,{m},3}}
  x = f32[{m},3] reshape(cut)
  p = f32[{m},5] {product}
  y = f32[{m},5] add(h, p)
  {then}
  ROOT r = {state} tuple(j, y, {handed})
}}
ENTRY main {{
  h = f32[{m},5] parameter(0)
  xs = f32[7,{m},3] parameter(1)
  w = f32[3,5] parameter(2)
  zero = s32[] constant(0)
  s = {state} tuple(zero, h, xs, w)
  l = {state} while(s), condition=test, body=body
  a = f32[{m},5] get-tuple-element(l), index=1
  b = f32[7,{m},3] get-tuple-element(l), index=2
  c = f32[3,5] get-tuple-element(l), index=3
  ROOT t = (f32[{m},5], f32[7,{m},3], f32[3,5]) tuple(a, b, c)
}}
"""
CONTRACTED = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
PLAIN = {
    "m": "2",
    "trips": "7",
    "index": "i",
    "product": f"dot(x, w){CONTRACTED}",
    "then": "",
    "handed": "xs, w",
}


def text(**changes: str) -> str:
    parts = {**PLAIN, **changes}
    m = parts["m"]
    return TEXT.format(state=f"(s32[], f32[{m},5], f32[7,{m},3], f32[3,5])", **parts)


@pytest.fixture
def hoisted(same_meaning) -> Callable[[str], HloModule]:
    """Return a text's module after the pass, checked: well formed, and with the same results."""

    def run(text: str) -> HloModule:
        module = parse(text)
        after = hoist_products(module)
        verify(after)
        after = dce(simplify_tuples(sink_constants(after)))
        verify(after)
        same_meaning(module, after)
        return after

    return run


def products(module: HloModule) -> tuple[int, int]:
    """Return the number of products before the loops, and in them."""
    counts = [
        sum(i.opcode == "dot" for i in c.instructions)
        for c in (module.entry, *(c for c in module.computations if c is not module.entry))
    ]
    return counts[0], sum(counts[1:])


def state(module: HloModule) -> int:
    """Return the number of elements of the loop's state."""
    (loop,) = [i for i in module.entry.instructions if i.opcode == "while"]
    return len(loop.shape.elements)


@pytest.mark.parametrize("m", ["1", "2", "3"])
def test_a_product_leaves_and_rows_and_weights_with_it(m, hoisted):
    after = hoisted(text(m=m))
    assert products(after) == (1, 0)
    assert state(after) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"product": f"dot(x, k){CONTRACTED}"},
        {"index": "back"},
        {"index": "j"},  # the last step is clamped, as the product's rows are
        {"trips": "9"},
    ],
)
def test_any_step_of_any_fixed_weights(changes, hoisted):
    assert products(hoisted(text(**changes))) == (1, 0)


def test_weights_as_rows(hoisted):
    product = "dot(x, u), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    weights = "u = f32[5,3] constant({{1,2,3},{4,5,6},{7,8,9},{0,1,0},{2,0,2}})"
    turned = text(product=product).replace("  cut =", f"  {weights}\n  cut =")
    assert products(hoisted(turned)) == (1, 0)


def test_a_row_without_batch(hoisted):
    row = text(m="1").replace("x = f32[1,3] reshape(cut)", "x = f32[3] reshape(cut)")
    row = row.replace("p = f32[1,5] dot", "q = f32[5] dot")
    row = row.replace("lhs_contracting_dims={1}", "lhs_contracting_dims={0}")
    row = row.replace("  y =", "  p = f32[1,5] reshape(q)\n  y =")
    assert products(hoisted(row)) == (1, 0)


@pytest.mark.parametrize("m", ["1", "2", "3"])
def test_weights_before_the_rows(m, hoisted):
    """A loop of a function of one row that was mapped over a batch has its results turned."""
    product = "dot(u, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    weights = "u = f32[5,3] constant({{1,2,3},{4,5,6},{7,8,9},{0,1,0},{2,0,2}})"
    turned = text(m=m).replace(f"p = f32[{m},5] dot(x, w){CONTRACTED}", f"q = f32[5,{m}] {product}")
    turned = turned.replace("  cut =", f"  {weights}\n  cut =")
    turned = turned.replace("  y =", f"  p = f32[{m},5] transpose(q), dimensions={{1,0}}\n  y =")
    after = hoisted(turned)
    assert products(after) == (1, 0)
    assert state(after) == 3


def test_weights_before_a_row_without_batch(hoisted):
    row = text(m="1").replace("x = f32[1,3] reshape(cut)", "x = f32[3] reshape(cut)")
    row = row.replace(
        f"p = f32[1,5] dot(x, w){CONTRACTED}",
        "q = f32[5] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    )
    row = row.replace("  y =", "  p = f32[1,5] reshape(q)\n  y =")
    assert products(hoisted(row)) == (1, 0)


def test_two_products_of_the_same_rows(hoisted):
    then = f"p2 = f32[2,5] dot(x, k){CONTRACTED}  y2 = f32[2,5] multiply(y, p2)"
    two = text(then=then).replace("tuple(j, y,", "tuple(j, y2,")
    assert products(hoisted(two)) == (2, 0)


def test_rows_that_are_read_otherwise_stay_too(hoisted):
    then = (
        "top = f32[2,3] tanh(x)  low = f32[2,2] slice(top), slice={[0:2], [0:2]}"
        "  z = f32[] constant(0)  wide = f32[2,5] pad(low, z), padding=0_0x0_3"
        "  y2 = f32[2,5] add(y, wide)"
    )
    after = hoisted(text(then=then).replace("tuple(j, y,", "tuple(j, y2,"))
    assert products(after) == (1, 0)
    assert state(after) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"trips": "6"},  # more steps than are taken
        {"m": str(ROWS)},  # enough work by itself
        {"then": "xs2 = f32[7,2,3] negate(xs)", "handed": "xs2, w"},
        {"then": "w2 = f32[3,5] negate(w)", "handed": "xs, w2"},
    ],
)
def test_what_changes_or_does_not_pay_stays(changes, hoisted):
    assert products(hoisted(text(**changes))) == (0, 1)


def test_an_unknown_number_of_steps_stays(hoisted):
    within = text().replace("n = s32[] constant(7)", "n = s32[] subtract(i, i)")
    assert products(hoisted(within)) == (0, 1)
