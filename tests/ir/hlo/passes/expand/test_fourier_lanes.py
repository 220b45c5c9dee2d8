"""Fourier transforms for vector registers: ``fft`` as ``dft``, and what ``dft`` takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import VerifyError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.expand.fourier.lanes import is_smooth, lane_transforms

KINDS = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


def module_of(kind: str, outer: tuple[int, ...], lengths: tuple[int, ...]) -> HloModule:
    whole = (*outer, *lengths)
    half = (*whole[:-1], whole[-1] // 2 + 1)
    made, given = {"RFFT": (("c128", half), ("f64", whole))}.get(
        kind, (("f64", whole), ("c128", half)) if kind == "IRFFT" else (("c128", whole),) * 2
    )
    types = [f"{name}[{','.join(map(str, dims))}]" for name, dims in (made, given)]
    return parse(
        f"HloModule m\nENTRY e {{ x = {types[1]} parameter(0)\n ROOT r = {types[0]} fft(x), "
        f"fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}} }}"
    )


def count(module: HloModule, opcode: str) -> int:
    return sum(i.opcode == opcode for i in module.entry.instructions)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("outer", "lengths", "steps"),
    [
        ((), (2,), 1),
        ((40,), (78,), 1),
        ((3,), (6, 5, 4), 3),
        ((40,), (64, 3), 2),
        ((2,), (1024,), 2),
        ((5,), (16640,), 2),
    ],
)
def test_one_step_for_each_dimension(
    kind: str, outer: tuple[int, ...], lengths: tuple[int, ...], steps: int
) -> None:
    """Two for a long row, of which there are few."""
    module = module_of(kind, outer, lengths)
    made = lane_transforms(module)
    verify(made)
    assert (count(made, "fft"), count(made, "dft")) == (0, steps)
    (p,) = module.entry.parameters
    parts = np.random.default_rng(0).standard_normal((2, *p.array.dims))
    x: Any = parts[0] if kind == "RFFT" else parts[0] + 1j * parts[1]
    axes = range(x.ndim - len(lengths), x.ndim)
    wanted = KINDS[kind](x, s=lengths, axes=axes)
    np.testing.assert_allclose(evaluate(made, [x]), wanted, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("kind", "outer", "lengths"),
    [
        ("FFT", (3,), (1,)),
        ("FFT", (3,), (17,)),
        ("FFT", (3,), (8, 34)),
        ("RFFT", (3,), (3**9,)),
        ("FFT", (), (1 << 22,)),
        ("FFT", (), (2 * 8191,)),
        ("FFT", (0,), (8,)),
    ],
)
def test_others_are_left(kind: str, outer: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    module = module_of(kind, outer, lengths)
    assert lane_transforms(module) is module


def test_transforms_of_a_length_share_their_roots() -> None:
    module = parse(
        "HloModule m\nENTRY e { x = c64[9,12] parameter(0)\n a = c64[9,12] fft(x), fft_type=FFT, "
        "fft_length={12}\n b = c64[9,12] fft(a), fft_type=IFFT, fft_length={12}\n"
        "ROOT t = (c64[9,12], c64[9,12]) tuple(a, b) }"
    )
    assert count(lane_transforms(module), "constant") == 1


def test_smooth_lengths() -> None:
    found = [n for n in range(40) if is_smooth(n)]
    assert found == [n for n in range(2, 40) if all(n % p for p in (17, 19, 23, 29, 31, 37))]


@pytest.mark.parametrize(
    ("operand", "rest", "why"),
    [
        ("c64[3,4]", "fft_type=FFT, fft_length={4}, dimensions={1,1}", "dimensions"),
        ("c64[2,3,4]", "fft_type=FFT, fft_length={4}, dimensions={0,0}", "dimensions"),
        ("c64[2,3,4]", "fft_type=FFT, fft_length={4}, dimensions={1,1}", "fft_length"),
        ("c64[2,3,4]", "fft_type=FFT, fft_length={}, dimensions={2,2}", "one dimension"),
        ("c64[2,3,0]", "fft_type=FFT, fft_length={0}, dimensions={2,2}", "1 or more"),
        ("c64[2,3,5]", "fft_type=FFT, fft_length={5}, dimensions={2,2}", r"where f32\[5,2\]"),
        ("c128[2,3,4]", "fft_type=FFT, fft_length={4}, dimensions={2,2}", r"where f64\[4,2\]"),
        ("f32[2,3,4]", "fft_type=FFT, fft_length={4}, dimensions={2,2}", "fft_type"),
        ("f32[2,3,4]", "fft_type=RFFT, fft_length={4}, dimensions={2,1}", "real rows"),
    ],
)
def test_a_dft_whose_shapes_do_not_fit_is_refused(operand: str, rest: str, why: str) -> None:
    text = (
        f"HloModule m\nENTRY e {{ x = {operand} parameter(0)\n w = f32[4,2] parameter(1)\n"
        f"ROOT r = c64[2,3,4] dft(x, w), {rest} }}"
    )
    with pytest.raises(VerifyError, match=why):
        verify(parse(text))


def test_factors_fit_the_result() -> None:
    text = (
        "HloModule m\nENTRY e { x = c64[2,3,4] parameter(0)\n w = f32[3,2] parameter(1)\n"
        "f = f32[3,5,2] parameter(2)\n ROOT r = c64[2,3,4] dft(x, w, f), fft_type=FFT, "
        "fft_length={3}, dimensions={1,1} }"
    )
    with pytest.raises(VerifyError, match=r"where f32\[3,4,2\]"):
        verify(parse(text))
