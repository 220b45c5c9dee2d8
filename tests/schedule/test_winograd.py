"""winograd: convolutions with 3 x 3 taps become products of transformed tiles."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.transforms import Matrix, filtering, relative_error
from nestwright.te.from_hlo import lower_group

PLAIN = "window={size=3x3}, dim_labels=b01f_01io->b01f"
PADDED = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
CASES = {
    "odd, padded": ("f32[1,7,9,5]", "f32[3,3,5,6]", "f32[1,7,9,6]", PADDED),
    "whole tiles": ("f32[2,10,6,3]", "f32[3,3,3,4]", "f32[2,8,4,4]", PLAIN),
    "one row": ("f32[1,3,8,2]", "f32[3,3,2,2]", "f32[1,1,6,2]", PLAIN),
    "padded on one side": (
        "f32[3,5,4,2]",
        "f32[3,3,2,3]",
        "f32[3,4,3,3]",
        "window={size=3x3 pad=0_1x1_0}, dim_labels=b01f_01io->b01f",
    ),
    "weights first, channels first": (
        "f32[2,3,6,7]",
        "f32[5,3,3,3]",
        "f32[2,5,6,7]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
    ),
    "reversed taps": (
        "f32[1,6,6,2]",
        "f32[3,3,2,3]",
        "f32[1,6,6,3]",
        "window={size=3x3 pad=1_1x1_1 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f",
    ),
}


def module(x: str, w: str, out: str, attributes: str) -> str:
    return f"""HloModule m
ENTRY main {{
  x = {x} parameter(0)
  w = {w} parameter(1)
  ROOT c = {out} convolution(x, w), {attributes}
}}"""


def func_of(case: Sequence[str]) -> Func:
    x, w, out, attributes = case
    return lower_group(parse(module(x, w, out, attributes)).entry, "kernel")


def drawn(func: Func) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in func.params[: -func.outputs]]


def error(got: Array, want: Array) -> float:
    off = np.sqrt(np.mean((got.astype(np.float64) - want) ** 2))
    return float(off / np.sqrt(np.mean(want.astype(np.float64) ** 2)))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_the_result_differs_by_rounding_only(name: str, size: int) -> None:
    func = func_of(CASES[name])
    sch = Schedule(func)
    anchor = next(b for b in sch.blocks() if sch.block(b).init is not None)
    sch.winograd(anchor, size)
    verify(sch.func)
    arguments = drawn(func)
    (want,), (got,) = run(func, arguments), run(sch.func, arguments)
    assert error(got, want) < 2 * excess_error(sch.func) + 1e-6
    assert not np.array_equal(got, want)
    direct = evaluate(parse(module(*CASES[name])), arguments)
    assert error(got, np.asarray(direct)) < 2 * excess_error(sch.func) + 1e-6


def test_the_padding_can_go_into_the_tiles_and_the_copy_into_the_consumer() -> None:
    text = module(*CASES["odd, padded"]).replace("ROOT c", "c")
    text = text[:-1] + "  ROOT r = f32[1,7,9,6] negate(c)\n}"
    func = lower_group(parse(text).entry, "kernel")
    sch = Schedule(func)
    _, _, _, _, copy = sch.winograd("conv", 4)
    sch.compute_inline("pad")
    sch.compute_inline(copy)
    verify(sch.func)
    arguments = drawn(func)
    (want,), (got,) = run(func, arguments), run(sch.func, arguments)
    assert error(got, want) < 1e-5


def test_the_trace_does_the_same_again() -> None:
    func = func_of(CASES["odd, padded"])
    sch = Schedule(func)
    blocks = sch.winograd("conv", 2)
    sch.vectorize(sch.get_loops(blocks[2])[-1])
    again = Trace.from_json(sch.trace.to_json()).replay(func)
    assert equal(again.func, sch.func)


@pytest.mark.parametrize("size", [2, 4])
def test_the_matrices_compute_a_filter_exactly(size: int) -> None:
    f = filtering(size, 3)

    def times(matrix: Matrix, values: Sequence[Fraction]) -> list[Fraction]:
        return [
            sum((a * b for a, b in zip(row, values, strict=True)), Fraction()) for row in matrix
        ]

    data = [Fraction(n * n - 3 * n + 1, n + 2) for n in range(size + 2)]
    taps = [Fraction(2), Fraction(-1, 3), Fraction(5, 7)]
    products = [u * v for u, v in zip(times(f.weights, taps), times(f.input, data), strict=True)]
    want = [sum(data[i + k] * taps[k] for k in range(3)) for i in range(size)]
    assert times(f.output, products) == want
    exact = [float(x) == x for row in (*f.output, *f.input) for x in row]
    assert all(exact)


def test_larger_tiles_and_more_channels_err_more() -> None:
    assert relative_error(2, 3, 64) < relative_error(4, 3, 64) < relative_error(4, 3, 512) < 1e-5


def refused(text: str, block: str = "conv", size: int = 2) -> str:
    sch = Schedule(lower_group(parse(text).entry, "kernel"))
    before = sch.func
    with pytest.raises(ScheduleError) as caught:
        sch.winograd(block, size)
    assert sch.func is before and not sch.trace.steps
    return str(caught.value)


def test_refusals_say_why() -> None:
    sized = "f32[1,7,7,4]", "f32[3,3,4,4]"
    good = module(*sized, "f32[1,5,5,4]", PLAIN)
    assert "tiles of 3 x 3" in refused(good, size=3)
    for bad in (
        module(*sized, "f32[1,3,3,4]", PLAIN.replace("3x3}", "3x3 stride=2x2}")),
        module(*sized, "f32[1,3,3,4]", PLAIN.replace("3x3}", "3x3 rhs_dilate=2x2}")),
        module("f32[1,7,7,4]", "f32[5,3,4,4]", "f32[1,3,5,4]", PLAIN.replace("3x3", "5x3")),
        module("f32[1,7,7,8]", "f32[3,3,4,4]", "f32[1,5,5,4]", PLAIN + ", feature_group_count=2"),
        good.replace("f32", "f64"),
        module("f32[1,7,7,1]", "f32[3,3,1,4]", "f32[1,5,5,4]", PLAIN),
        good.replace("f32[1,7", "bf16[1,7"),
    ):
        assert "not a dense convolution of f32 with 3 x 3 taps" in refused(bad)
    padded = module("f32[1,5,5,4]", "f32[3,3,4,4]", "f32[1,5,5,4]", PADDED)
    assert "pad" in refused(padded, "pad")
    sch = Schedule(lower_group(parse(padded).entry, "kernel"))
    sch.compute_at("pad", sch.get_loops("conv")[0])
    with pytest.raises(ScheduleError, match="under the same loops"):
        sch.winograd("conv", 2)


def test_the_error_of_a_schedule_is_a_note_that_schedules_cannot_change() -> None:
    sch = Schedule(func_of(CASES["whole tiles"]))
    assert excess_error(sch.func) == 0
    sch.winograd("conv", 4)
    noted = excess_error(sch.func)
    assert relative_error(4, 3, 3) <= noted < relative_error(4, 3, 3) + 1e-9
    with pytest.raises(ScheduleError, match="no note"):
        sch.unannotate("conv", "excess_error")
    with pytest.raises(ScheduleError, match="not a note of a schedule"):
        sch.annotate("conv", "excess_error", 1)
