"""Products of f32 as products of bf16: which, where they are rounded, and by how much they err."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from nestwright.ir.accuracy import BF16_PRODUCTS
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import bf16, f32
from nestwright.ir.hlo import freeze, optimize_narrow, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.hlo.passes.weights.rounded.bf16_products import bf16_products
from nestwright.ir.hlo.rewrite import users
from nestwright.ir.target import Target

SPEC = "cpu -mcpu=znver4 -threads=1"
DOT = """HloModule dense
ENTRY main {
  x = f32[ROWS,TERMS] parameter(0)
  w = f32[TERMS,COLUMNS] parameter(1)
  ROOT y = f32[ROWS,COLUMNS] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
CONV = """HloModule conv
ENTRY main {
  x = f32[2,9,7,CHANNELS] parameter(0)
  w = f32[3,3,TERMS,32] parameter(1)
  ROOT y = f32[2,9,7,32] convolution(x, w), window={size=3x3 pad=1_1x1_1},
      dim_labels=b01f_01io->b01f, feature_group_count=GROUPS
}
"""
CHAIN = """HloModule chain
ENTRY main {
  x = f32[4,8,64] parameter(0)
  w = f32[64,64] parameter(1)
  v = f32[64,64] parameter(2)
  a = f32[4,8,64] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  h = f32[4,8,64] tanh(a)
  b = f32[4,8,64] dot(h, v), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  ROOT y = f32[4,8,64] add(b, h)
}
"""


def rounded(
    module: HloModule, constants: Mapping[int, Array], accuracy: float = 0.01, **options: Any
) -> tuple[HloModule, tuple[Any, ...]]:
    target = Target.parse(f"{options.pop('spec', SPEC)} -accuracy={accuracy}")
    given = freeze(module, constants) if constants else module
    return optimize_narrow(given, options.pop("weights", None), target)


def products(module: HloModule) -> list[Instruction]:
    found = [i for c in module.computations for i in c.instructions]
    return [i for i in found if i.opcode in ("dot", "convolution")]


def types(module: HloModule) -> set[str]:
    return {str(o.array.dtype) for i in products(module) for o in i.operands}


def drawn(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def filled(text: str, **sizes: int) -> HloModule:
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return parse(text)


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "frozen", "expected"),
    [
        (40, 64, 80, True, "bf16"),
        (40, 64, 80, False, "bf16"),
        (3, 64, 80, True, "bf16"),
        (3, 64, 80, False, "f32"),
        (40, 63, 80, True, "f32"),
        (40, 8, 80, True, "f32"),
        (40, 64, 8, False, "f32"),
    ],
)
def test_products_that_gain(
    rows: int, terms: int, columns: int, frozen: bool, expected: str
) -> None:
    module = filled(DOT, ROWS=rows, TERMS=terms, COLUMNS=columns)
    x, w = drawn(rows, terms), drawn(terms, columns, seed=1)
    found, _ = rounded(module, {1: w} if frozen else {})
    assert types(found) == {expected}
    (product,) = products(found)
    assert str(product.array.dtype) == "f32"
    value = evaluate(found, [x] if frozen else [x, w])
    exact = x.astype(np.float64) @ w
    error = np.sqrt(np.mean(np.square(value - exact)) / np.mean(np.square(exact)))
    assert error < (BF16_PRODUCTS if expected == "bf16" else 1e-6)


@pytest.mark.parametrize(
    ("channels", "groups", "expected"),
    [(16, 1, "bf16"), (3, 1, "bf16"), (32, 32, "f32"), (32, 2, "f32")],
)
def test_convolutions_of_one_group(channels: int, groups: int, expected: str) -> None:
    module = filled(CONV, CHANNELS=channels, TERMS=channels // groups, GROUPS=groups)
    x, w = drawn(2, 9, 7, channels), drawn(3, 3, channels // groups, 32, seed=1)
    found, _ = rounded(module, {1: w})
    assert types(found) == {expected}
    value, exact = evaluate(found, [x]), evaluate(module, [x, w])
    assert np.sqrt(np.mean(np.square(value - exact)) / np.mean(np.square(exact))) < BF16_PRODUCTS


def test_what_makes_an_operand_rounds_it_below_its_views() -> None:
    found, _ = rounded(parse(CHAIN), {1: drawn(64, 64), 2: drawn(64, 64, seed=1)})
    assert types(found) == {"bf16"}
    made = [i for i in found.entry.instructions if i.opcode == "convert" and i.array.dtype == bf16]
    assert len(made) == 2, "the chain's input, and what both products have between them"
    assert {i.operands[0].opcode for i in made} == {"parameter", "tanh"}


def test_what_products_read_rounded_is_stored_once() -> None:
    """The sum takes the rounded tanh, too; a parameter that it adds stays f32."""
    w, v = drawn(64, 64), drawn(64, 64, seed=1)
    found, _ = rounded(parse(CHAIN), {1: w, 2: v})
    (tanh,) = [i for i in found.entry.instructions if i.opcode == "tanh"]
    (stored,) = users(found.entry)[tanh]
    assert stored.opcode == "convert" and stored.array.dtype == bf16
    assert found.entry.root.array.dtype == f32
    x = drawn(4, 8, 64, seed=2)
    value, exact = evaluate(found, [x]), evaluate(parse(CHAIN), [x, w, v])
    assert (
        np.sqrt(np.mean(np.square(value - exact)) / np.mean(np.square(exact))) < 3 * BF16_PRODUCTS
    )


@pytest.mark.parametrize(
    ("root", "other"),
    [
        ("f32[4,8,64] add(b, h)", "f32[4,8,64] add(b, x)"),
        ("f32[4,8,64] add(b, h)", "(f32[4,8,64], f32[4,8,64]) tuple(b, h)"),
    ],
)
def test_what_is_stored_in_f32_in_any_case_is_not_rounded(root: str, other: str) -> None:
    """A parameter that is added, and a result that is multiplied, too."""
    found, _ = rounded(parse(CHAIN.replace(root, other)), {1: drawn(64, 64), 2: drawn(64, 64)})
    converts = [i for i in found.entry.instructions if i.opcode == "convert"]
    assert len(converts) == 2 and all(i.array.dtype == bf16 for i in converts)


@pytest.mark.parametrize(
    ("accuracy", "spec", "weights"),
    [
        (0.9 * BF16_PRODUCTS, SPEC, None),
        (0.01, "cpu -mcpu=skylake-avx512 -threads=1", None),
        (0.01, SPEC, "f32"),
        (0.01, SPEC, "int8"),
    ],
)
def test_products_stay_where_the_error_or_the_instruction_is_not_allowed(
    accuracy: float, spec: str, weights: str | None
) -> None:
    module = filled(DOT, ROWS=40, TERMS=64, COLUMNS=80)
    found, _ = rounded(module, {1: drawn(64, 80)}, accuracy, spec=spec, weights=weights)
    assert types(found) == {"f32"}


def test_weights_are_reported_and_those_that_bf16_does_not_hold_stay() -> None:
    module = filled(DOT, ROWS=40, TERMS=64, COLUMNS=80)
    w = drawn(64, 80)
    found, (row,) = rounded(module, {1: w})
    assert (row.name, row.form, row.before, row.after) == ("y", "bf16", w.nbytes, w.nbytes // 2)
    assert 1e-3 < row.relative < 2e-3
    w[3, 5] = np.inf
    for weights in (None, "int8", "bf16"):  # narrow_weights refuses them, too, and is told once
        found, (row,) = rounded(module, {1: w}, weights=weights)
        assert types(found) == {"f32"} and (row.name, row.form) == ("y", "f32")
        assert "infinities" in row.kept


def test_a_weight_whose_product_stays_for_the_other_operand_is_not_reported() -> None:
    text = DOT.replace("w = f32", "c = s8").replace(
        "parameter(1)\n", "parameter(1)\n  w = f32[TERMS,COLUMNS] convert(c)\n"
    )
    module = filled(text, ROWS=40, TERMS=64, COLUMNS=80)
    codes = np.ones((64, 80), np.int8)
    target = Target.parse(f"{SPEC} -accuracy=0.01")
    found, rows = bf16_products(freeze(module, {0: drawn(40, 64), 1: codes}), target)
    assert types(found) == {"f32"} and not rows
    _, (row,) = bf16_products(freeze(module, {0: drawn(40, 64)}), target)
    assert (row.name, row.dims, row.form) == ("y", (40, 64), "bf16")


def test_bf16_weights_of_the_model_are_multiplied_as_they_are() -> None:
    module = filled(DOT, ROWS=40, TERMS=64, COLUMNS=80)
    found, _ = rounded(module, {1: drawn(64, 80)}, weights="bf16")
    (product,) = products(found)
    assert [o.opcode for o in product.operands] == ["convert", "constant"]
    assert types(found) == {"bf16"}
