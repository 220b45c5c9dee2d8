"""Products of f32 as products of bytes: which, what becomes of their weights, and how they err."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.accuracy import BYTE_PRODUCTS
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import s8, u8
from nestwright.ir.hlo import freeze, optimize_narrow, parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.target import Target

SPEC = "cpu -mcpu=znver4 -threads=1"
DOT = """HloModule dense
ENTRY main {
  x = f32[ROWS,TERMS] parameter(0)
  w = f32[TERMS,COLUMNS] parameter(1)
  ROOT y = f32[ROWS,COLUMNS] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def dense(rows: int, terms: int, columns: int, weights: Array | None) -> HloModule:
    text = DOT.replace("ROWS", str(rows)).replace("TERMS", str(terms))
    module = parse(text.replace("COLUMNS", str(columns)))
    return module if weights is None else freeze(module, {1: weights})


def drawn(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def bytes_of(
    module: HloModule, accuracy: float = 0.02, spec: str = SPEC, weights: str | None = None
) -> tuple[HloModule, tuple[Any, ...]]:
    return optimize_narrow(module, weights, Target.parse(f"{spec} -accuracy={accuracy}"))


def kinds(module: HloModule) -> list[str]:
    (product,) = (i for i in module.entry.instructions if i.opcode == "dot")
    return [str(o.array.dtype) for o in product.operands]


@pytest.mark.parametrize("terms", [256, 384, 500])
def test_the_error_is_within_the_bound(terms: int) -> None:
    w, x = drawn(terms, 256), drawn(20, terms, seed=1)
    module = dense(20, terms, 256, w)
    new, (row,) = bytes_of(module)
    assert kinds(new) == [str(s8), str(u8)]
    expected = evaluate(module, [x])
    error = np.sqrt(np.square(evaluate(new, [x]) - expected).mean() / np.square(expected).mean())
    assert BYTE_PRODUCTS / 2 < error < BYTE_PRODUCTS
    assert row.form == "int8" and row.before == w.nbytes and row.relative < BYTE_PRODUCTS
    assert row.after == w.size + -(-terms // 128) * 256 * 4


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "accuracy", "spec", "weights"),
    [
        (8, 256, 256, 0.02, SPEC, None),
        (20, 128, 256, 0.02, SPEC, None),
        (20, 256, 128, 0.02, SPEC, None),
        (20, 256, 256, 0.01, SPEC, None),
        (20, 256, 256, 0.02, "cpu -mcpu=haswell", None),
        (20, 256, 256, 0.02, "cpu -mcpu=x86-64", None),
        (20, 256, 256, 0.02, SPEC, "f32"),
    ],
    ids=["rows", "terms", "columns", "accuracy", "words", "neither", "f32"],
)
def test_what_does_not_gain_or_may_not_is_left(
    rows: int, terms: int, columns: int, accuracy: float, spec: str, weights: str | None
) -> None:
    new, _ = bytes_of(dense(rows, terms, columns, drawn(terms, columns)), accuracy, spec, weights)
    assert str(s8) not in kinds(new)


def test_given_weights_and_those_without_codes_are_left() -> None:
    assert str(s8) not in kinds(bytes_of(dense(20, 256, 256, None))[0])
    bad = drawn(256, 256)
    bad[3, 3] = np.inf
    new, found = bytes_of(dense(20, 256, 256, bad))
    assert str(s8) not in kinds(new)
    assert all(row.kept == "it contains infinities" for row in found)


def test_one_weight_of_two_products_is_coded_once() -> None:
    text = DOT.replace("ROOT y", "y").replace("ROWS", "20").replace("TERMS", "256")
    text = text.replace("COLUMNS", "256").replace(
        "}\n}",
        """}
  z = f32[20,256] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[20,256], f32[20,256]) tuple(y, z)
}""",
    )
    new, rows = bytes_of(freeze(parse(text), {1: drawn(256, 256)}))
    assert len(rows) == 1
    codes = [i for i in new.entry.instructions if i.opcode == "constant" and i.array.size > 1000]
    assert len([c for c in codes if c.array.dtype == u8]) == 1
    assert isinstance(new.entry.root, Instruction)
