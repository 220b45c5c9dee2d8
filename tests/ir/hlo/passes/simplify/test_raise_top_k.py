"""Sorts whose first elements alone are read: which become topk, and that results stay."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize

PAIRS = """HloModule m
c {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  i = {p}[] parameter(2)
  j = {p}[] parameter(3)
  ROOT r = pred[] compare({sides}), direction={direction}, type={order} }}
ENTRY e {{ x = {t}[3,{n}] parameter(0)
  places = {p}[3,{n}] iota(), iota_dimension={dim}
  s = ({t}[3,{n}], {p}[3,{n}]) sort(x, places), dimensions={{1}}, is_stable=true, to_apply=c
  v = {t}[3,{n}] get-tuple-element(s), index=0
  n = {p}[3,{n}] get-tuple-element(s), index=1
  first = {t}[3,{k}] slice(v), slice={{[0:3], [0:{k}]}}
  at = {p}[2,3] slice(n), slice={{[1:3], [1:7:2]}}
  ROOT t = ({t}[3,{k}], {p}[2,3]) tuple(first, at) }}
"""
USUAL = {
    "t": "f32",
    "p": "s32",
    "sides": "a, b",
    "direction": "GT",
    "order": "TOTALORDER",
    "dim": 1,
    "k": 9,
    "n": 640,
}
ALONE = """HloModule m
c { a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e { x = s8[3,640] parameter(0)
  s = s8[3,640] sort(x), dimensions={1}, to_apply=c
  ROOT first = s8[3,4] slice(s), slice={[0:3], [2:6]} }
"""


def arguments(dtype: str) -> np.ndarray:
    values = np.random.default_rng(3).integers(-9, 9, (3, 640)).astype(np.float32)
    if dtype == "f32":
        values[0, :5] = [np.nan, -np.nan, -0.0, np.inf, -np.inf]
    return values.astype({"f32": "float32", "f64": "float64", "s8": "int8", "s64": "int64"}[dtype])


def opcodes(text: str) -> list[str]:
    return [i.opcode for i in optimize(nw.parse(text)).entry.instructions]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"direction": "LT"},
        {"sides": "b, a"},
        {"t": "f64", "p": "s64"},
        {"t": "s64", "order": "SIGNED"},
        {"t": "s8", "p": "u16", "order": "SIGNED"},
        {"k": 80},
    ],
)
def test_the_first_of_sorted_rows_are_found(changes: dict[str, object]) -> None:
    text = PAIRS.format_map(USUAL | changes)
    assert "topk" in opcodes(text) and "sort" not in opcodes(text)
    x = arguments(str(changes.get("t", "f32")))
    for a, b in zip(nw.build(nw.parse(text))(x), evaluate(nw.parse(text), [x]), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_values_alone_are_found() -> None:
    assert "topk" in opcodes(ALONE)
    x = arguments("s8")
    np.testing.assert_array_equal(nw.build(nw.parse(ALONE))(x), np.sort(x, 1)[:, 2:6])


@pytest.mark.parametrize(
    "changes",
    [
        {"order": "FLOAT"},
        {"sides": "i, j", "order": "SIGNED"},
        {"dim": 0},
        {"k": 81},
        {"n": 511},
    ],
)
def test_other_sorts_stay(changes: dict[str, object]) -> None:
    assert "sort" in opcodes(PAIRS.format_map(USUAL | changes))


def test_a_sort_that_is_read_otherwise_stays() -> None:
    text = PAIRS.format_map(USUAL).replace(
        "s32[2,3]) tuple(first, at)", "f32[3,640]) tuple(first, v)"
    )
    assert "sort" in opcodes(text)
