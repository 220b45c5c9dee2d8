"""Fourier transforms as machine code: every radix, direction and layout, and what rows share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.nodes import LibraryThunk

KINDS = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}
COMPLEX = {"f32": "c64", "f64": "c128"}
NUMPY = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
TOLERANCE = {"f32": 2e-6, "f64": 1e-14}


class Transform:
    """A transform of the last dimensions of an array: its text, argument and result."""

    def __init__(self, kind: str, real: str, outer: tuple[int, ...], *lengths: int) -> None:
        whole = (*outer, *lengths)
        half = (*whole[:-1], whole[-1] // 2 + 1)
        self.kind, self.lengths, self.real = kind, lengths, real
        spectrum, row = (COMPLEX[real], half), (real, whole)
        both = (COMPLEX[real], whole)
        self.made, self.given = {"RFFT": (spectrum, row), "IRFFT": (row, spectrum)}.get(
            kind, (both, both)
        )

    def rows(self, number: int) -> str:
        made, given = (f"{t}[{','.join(map(str, dims))}]" for t, dims in (self.made, self.given))
        lengths = ",".join(map(str, self.lengths))
        return (
            f"x{number} = {given} parameter({number})\n"
            f"y{number} = {made} fft(x{number}), fft_type={self.kind}, fft_length={{{lengths}}}\n"
        )

    def argument(self) -> Any:
        name, dims = self.given
        parts = np.random.default_rng(5).standard_normal((2, *dims))
        return (parts[0] + 1j * parts[1] if name[0] == "c" else parts[0]).astype(NUMPY[name])

    def wanted(self, x: Any) -> Any:
        wide = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)
        axes = range(x.ndim - len(self.lengths), x.ndim)
        return KINDS[self.kind](wide, s=self.lengths, axes=axes)

    def check(self, found: Any, x: Any) -> None:
        wanted = self.wanted(x)
        size = np.sqrt(np.mean(np.abs(wanted) ** 2))
        assert found.dtype == NUMPY[self.made[0]]
        assert np.abs(found - wanted).max() <= TOLERANCE[self.real] * size, self.lengths


def built(*transforms: Transform) -> nw.Executable:
    rows = "".join(t.rows(n) for n, t in enumerate(transforms))
    results = ", ".join(f"y{n}" for n in range(len(transforms)))
    types = ", ".join(f"{t.made[0]}[{','.join(map(str, t.made[1]))}]" for t in transforms)
    text = f"HloModule m\nENTRY e {{ {rows} ROOT r = ({types}) tuple({results}) }}"
    exe = nw.build(nw.parse(text), target="cpu", cache=False)
    assert not any(isinstance(t, LibraryThunk) for t in exe.plan.thunks)
    return exe


def check(*transforms: Transform) -> None:
    arguments = [t.argument() for t in transforms]
    for t, x, found in zip(transforms, arguments, built(*transforms)(*arguments), strict=True):
        t.check(found, x)


LENGTHS = (2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 16, 18, 25, 26, 27, 32)


@pytest.mark.parametrize(("kind", "real"), [("FFT", "f64"), ("RFFT", "f32"), ("IRFFT", "f32")])
def test_lengths(kind: str, real: str) -> None:
    """Every radix and products of some; the last strip of rows is not full."""
    lengths = LENGTHS if kind == "FFT" else LENGTHS[1::2]
    check(*(Transform(kind, real, (19,), n) for n in lengths))


@pytest.mark.parametrize(
    ("kind", "real"), [("FFT", "f32"), ("IFFT", "f64"), ("RFFT", "f64"), ("IRFFT", "f32")]
)
def test_layouts(kind: str, real: str) -> None:
    """Fewer rows than lanes, as many, more; inner dimensions; two steps; several strips."""
    shapes = [
        ((), (36,)),
        ((3,), (66,)),
        ((16,), (24,)),
        ((2, 3, 7), (20,)),
        ((2,), (9, 10)),
        ((2,), (3, 4, 6)),
        ((3,), (1024,)),
        ((70,), (100,)),
    ]
    check(*(Transform(kind, real, outer, *lengths) for outer, lengths in shapes))


def test_long_rows() -> None:
    """Rows of two steps, the first with tails: 3 x 6000 = 3 x 75 x 80."""
    check(
        Transform("FFT", "f32", (3,), 6000),
        Transform("IFFT", "f32", (), 1 << 16),
        Transform("RFFT", "f32", (5,), 4096),
        Transform("RFFT", "f64", (3,), 10000),
        Transform("IRFFT", "f64", (2,), 1024),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_meet(kind: str) -> None:
    """A row with NaN or huge numbers leaves its neighbors as they are, to the bit."""
    t = Transform(kind, "f32", (18,), 60)
    exe, x = built(t), t.argument()
    (found,) = exe(x)
    for value in (np.nan, np.inf, 1e30):
        other = x.copy()
        other[[4, 17]] *= value
        (changed,) = exe(other)
        kept = [n for n in range(18) if n not in (4, 17)]
        np.testing.assert_array_equal(changed[kept], found[kept])


def test_the_ends_of_half_a_spectrum_are_real() -> None:
    t, back = Transform("RFFT", "f32", (17,), 24), Transform("IRFFT", "f32", (17,), 24)
    odd, long = Transform("IRFFT", "f32", (17,), 15), Transform("IRFFT", "f32", (), 128)
    exe = built(t, back, odd, long)
    x, *spectra = (each.argument() for each in (t, back, odd, long))
    half, *rows = exe(x, *spectra)
    assert not half[:, [0, 12]].imag.any()
    for y, ends in zip(spectra, ([0, 12], [0], [0, 64]), strict=True):
        y.imag[..., ends] = np.nan  # NumPy reads them no more than XLA does
    for row, again in zip(rows, exe(x, *spectra)[1:], strict=True):
        np.testing.assert_array_equal(again, row)


@pytest.mark.parametrize("dims", [(2, 0, 8), (0, 3, 8), (2, 3, 1)])
def test_no_rows_and_no_neighbors(dims: tuple[int, ...]) -> None:
    listed, n = ",".join(map(str, dims)), dims[-1]
    text = (
        f"HloModule m\nENTRY e {{ x = c64[{listed}] parameter(0)\n w = f32[{n},2] parameter(1)\n"
        f"ROOT r = c64[{listed}] dft(x, w), fft_type=IFFT, fft_length={{{n}}}, "
        "dimensions={2,2} }"
    )
    x = np.full(dims, 1 - 2j, np.complex64)
    found = nw.build(nw.parse(text), target="cpu", cache=False)(x, np.ones((n, 2), np.float32))
    np.testing.assert_array_equal(found, x)


def test_what_makes_an_operand_is_computed_where_it_is_read() -> None:
    """Windowed frames of a signal; both parts of a complex array, along the inner dimension too."""
    text = """HloModule m
    ENTRY e {
      x = f32[500] parameter(0)
      w = f32[40] parameter(1)
      y = f32[3,12,20] parameter(2)
      first = s32[23] iota(), iota_dimension=0
      step = s32[] constant(20)
      steps = s32[23] broadcast(step), dimensions={}
      starts = s32[23] multiply(first, steps)
      frames = f32[23,40] gather(x, starts), offset_dims={1}, collapsed_slice_dims={},
        start_index_map={0}, index_vector_dim=1, slice_sizes={40}
      window = f32[23,40] broadcast(w), dimensions={1}
      windowed = f32[23,40] multiply(frames, window)
      s = c64[23,21] fft(windowed), fft_type=RFFT, fft_length={40}
      z = f32[3,12,20] negate(y)
      c = c64[3,12,20] complex(y, z)
      t = c64[3,12,20] fft(c), fft_type=FFT, fft_length={12,20}
      u = c64[3,12,20] complex(z, y)
      v = c64[3,12,20] fft(u), fft_type=IFFT, fft_length={12,20}
      ROOT r = (c64[23,21], c64[3,12,20], c64[3,12,20]) tuple(s, t, v)
    }"""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal(500, np.float32), rng.random(40, np.float32)
    y = rng.standard_normal((3, 12, 20), np.float32)
    exe = nw.build(nw.parse(text), target="cpu", cache=False)
    assert len(exe.plan.thunks) == 5  # a kernel for each dimension of a transform
    found = exe(x, w, y)
    frames = np.stack([x[20 * k : 20 * k + 40] for k in range(23)]) * w.astype(np.float64)
    wide = y.astype(np.float64)
    wanted = np.fft.rfft(frames), np.fft.fftn(wide - 1j * wide, axes=(1, 2))
    for a, b in zip(found, (*wanted, np.fft.ifftn(-wide + 1j * wide, axes=(1, 2))), strict=True):
        assert np.abs(a - b).max() <= 2e-6 * np.sqrt(np.mean(np.abs(b) ** 2))


def test_a_transform_between_others_is_compiled_with_them() -> None:
    """A filter: half a spectrum times a window, and back."""
    text = """HloModule m
    ENTRY e {
      x = f32[20,48] parameter(0)
      w = f32[25] parameter(1)
      s = c64[20,25] fft(x), fft_type=RFFT, fft_length={48}
      a = f32[20,25] real(s)
      b = f32[20,25] imag(s)
      v = f32[20,25] broadcast(w), dimensions={1}
      c = f32[20,25] multiply(a, v)
      d = f32[20,25] multiply(b, v)
      f = c64[20,25] complex(c, d)
      ROOT r = f32[20,48] fft(f), fft_type=IRFFT, fft_length={48}
    }"""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((20, 48), np.float32), rng.random(25, np.float32)
    found = nw.build(nw.parse(text), target="cpu", cache=False)(x, w)
    wanted = np.fft.irfft(np.fft.rfft(x.astype(np.float64)) * w)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
