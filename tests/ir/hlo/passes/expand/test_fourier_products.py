"""Short Fourier transforms are products: what they give, and which are left to the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.nodes import LibraryThunk
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.expand.fourier.products import (
    expand_transforms,
    product_transforms,
)

FUNCTIONS = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
NAMES = {"f32": "c64", "f64": "c128"}
KINDS = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def transform(kind: str, outer: tuple[int, ...], lengths: tuple[int, ...], real: str) -> HloModule:
    whole = (*outer, *lengths)
    half = (*whole[:-1], whole[-1] // 2 + 1)
    made, given = {
        "RFFT": ((NAMES[real], half), (real, whole)),
        "IRFFT": ((real, whole), (NAMES[real], half)),
    }.get(kind, ((NAMES[real], whole), (NAMES[real], whole)))
    types = [f"{name}[{','.join(map(str, dims))}]" for name, dims in (made, given)]
    length = ",".join(map(str, lengths))
    return parse(
        f"HloModule m\nENTRY e {{ x = {types[1]} parameter(0)\n"
        f"ROOT r = {types[0]} fft(x), fft_type={kind}, fft_length={{{length}}} }}"
    )


def argument(module: HloModule, seed: int = 0) -> Any:
    (x,) = module.entry.parameters
    pair = np.random.default_rng(seed).standard_normal((2, *x.array.dims))
    whole = pair[0] + 1j * pair[1] if x.array.dtype.name[0] == "c" else pair[0]
    return whole.astype(KINDS[x.array.dtype.name])


def wanted(kind: str, x: Any, lengths: tuple[int, ...]) -> Any:
    wide = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    return FUNCTIONS[kind](wide, s=lengths, axes=axes)


def opcodes(module: HloModule) -> set[str]:
    return {i.opcode for i in module.entry.instructions}


def close(found: Any, expected: Any, real: str) -> None:
    size = np.sqrt(np.mean(np.abs(expected) ** 2))
    assert np.abs(found - expected).max() <= size * (4e-6 if real == "f32" else 1e-13)


@pytest.mark.parametrize("real", NAMES)
@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(
    ("outer", "lengths"),
    [
        ((), (2,)),
        ((3,), (5,)),
        ((2, 3), (16,)),
        ((), (17,)),
        ((5,), (18,)),
        ((1,), (31,)),
        ((2,), (15 * 17,)),
        ((), (1024,)),
        ((2,), (8, 9)),
        ((), (4, 6, 30)),
        ((3,), (33, 2)),
        ((2,), (1056,)),
        ((), (32 * 31 * 9,)),
        ((), (7**5,)),
    ],
)
def test_products_give_the_transform(
    kind: str, outer: tuple[int, ...], lengths: tuple[int, ...], real: str
) -> None:
    module = transform(kind, outer, lengths, real)
    expanded = product_transforms(module)
    assert "fft" not in opcodes(expanded) and "dot" in opcodes(expanded)
    x = argument(module)
    found = evaluate(expanded, [x])
    assert found.dtype == KINDS[module.entry.root.array.dtype.name]
    close(found, wanted(kind, x, lengths), real)


@pytest.mark.parametrize("target", ["cpu", "cuda-sim -arch=sm_80"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_built_for_a_processor_and_for_a_gpu(kind: str, target: str) -> None:
    module = transform(kind, (3,), (36,), "f32")
    exe = nw.build(module, target=target, cache=False)
    assert not any(isinstance(t, LibraryThunk) for t in exe.plan.thunks)
    x = argument(module)
    close(exe(x), wanted(kind, x, (36,)), "f32")


@pytest.mark.parametrize(("kind", "weights"), [("FFT", "int8"), ("RFFT", "bf16")])
def test_roots_are_no_weights(kind: str, weights: str) -> None:
    module = transform(kind, (3,), (961,), "f32")
    x = argument(module)
    exe = nw.build(module, target="cpu", cache=False, weights=weights)
    close(exe(x), wanted(kind, x, (961,)), "f32")


@pytest.mark.parametrize(
    ("outer", "lengths"),
    [
        ((), (1,)),  # nothing to sum: a product would add 0 times the other part
        ((), (37,)),
        ((), (2 * 37,)),
        ((), (1 << 21,)),
        ((4, 1), (8, 1)),
        ((0,), (8,)),
    ],
)
def test_others_are_left(outer: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    module = transform("FFT", outer, lengths, "f32")
    assert product_transforms(module) is module


@pytest.mark.parametrize(
    ("outer", "lengths", "made"),
    [
        ((3,), (64,), False),  # for processors by `dft`
        ((3,), (31,), True),
        ((3,), (8, 34), True),
        ((3,), (37,), False),
        ((), (17 * 31 * 3,), False),
        ((1 << 12,), (34,), True),
        ((1 << 13,), (34,), False),  # the library's many threads are faster
    ],
)
def test_before_a_target_is_known_those_that_need_products(
    outer: tuple[int, ...], lengths: tuple[int, ...], made: bool
) -> None:
    module = transform("FFT", outer, lengths, "f32")
    assert ("fft" not in opcodes(expand_transforms(module))) is made


def test_what_half_a_spectrum_cannot_say_is_not_read() -> None:
    """The imaginary parts at zero and at half the sampling rate: NumPy reads neither."""
    module = transform("IRFFT", (), (12,), "f64")
    x = argument(module)
    found = evaluate(product_transforms(module), [x])
    for k in (0, 6):
        x[k] = x[k].real + 5j
    same = evaluate(product_transforms(module), [x])
    close(same, found, "f64")


@pytest.mark.parametrize("kind", ["RFFT", "FFT"])
def test_a_sum_of_what_is_far_apart_is_exact(kind: str) -> None:
    module = transform(kind, (), (64,), "f32")
    x = np.zeros(64, np.float32 if kind == "RFFT" else np.complex64)
    x[0] = 3
    found = evaluate(product_transforms(module), [x])
    np.testing.assert_array_equal(found, np.full_like(found, 3))
