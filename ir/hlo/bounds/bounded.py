"""Values with their errors: what a computation gives in f64, and how far a right result may be off.

``Bounded`` is every array within ``error`` of ``value``, element by element. What rounds
adds to the error what rounding once in its own type may add, and nothing where the value needs no
rounding; so whole numbers stay exact as long as the type can hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ...dtypes import DType, f32, f64, to_numpy
from ...formats import FORMATS

LIBRARY = 4  # units in the last place by which a function such as exp may be off


@dataclass(frozen=True, slots=True)
class Bounded:
    """``value`` is f64 for floats, c128 for complex numbers, else of the type itself.

    ``error`` is f64 of the value's shape: 0 where the element is certain, infinite where nothing
    is known of it. None: all elements are certain.
    """

    value: Array
    error: Array | None = None

    @property
    def errors(self) -> Array:
        """The error as an array."""
        return np.zeros(self.value.shape) if self.error is None else self.error

    @property
    def certain(self) -> bool:
        """True if no element has an error."""
        return self.error is None or not self.error.any()


@dataclass(frozen=True, slots=True)
class MachineRounding:
    """The rounding of the machine in question. ``operands`` is the relative error of a factor of an
    f32 product (TF32), else 0; ``steady`` is false where sums may be cut rather than rounded, as
    tensor cores do; sums of products of 8-bit floats have significands of ``f8_sums`` bits.
    A computed factor of f32 may be rounded to the type of the other one, as an attention's weights
    are, where that has ``factors`` bytes or more."""

    operands: float = 0.0
    steady: bool = True
    f8_sums: int = 24
    factors: int = 4


def unit(dtype: DType) -> float:
    """Half a unit in the last place of 1: the relative error of rounding to nearest.

    For f64 twice that, for the value that it is compared with is rounded as well.
    """
    if dtype.kind == "complex":
        return unit(f32 if dtype.bits == 64 else f64)
    return 2.0 ** -(FORMATS[dtype].mantissa + (0 if dtype == f64 else 1))


def least(dtype: DType) -> float:
    """Return the distance between the smallest numbers of a type: what underflow may lose."""
    form = FORMATS[dtype]
    return 2.0 ** (1 - form.bias - form.mantissa)


def largest(dtype: DType) -> float:
    """Return the largest finite number of a type."""
    form = FORMATS[dtype]
    whole = to_numpy(dtype)
    bits = np.array(form.largest, f"u{whole.itemsize}")
    return float(bits.view(whole).astype(np.float64))


def beyond(dtype: DType) -> float:
    """Return what a number too large for a type becomes: infinity, NaN, or the largest."""
    if FORMATS[dtype].special == "ieee":
        return float("inf")
    return float(convert(np.array(np.finfo(np.float32).max), to_numpy(dtype)).astype(np.float64))


def exact(array: Array, dtype: DType) -> Bounded:
    """Return an array of the type itself, all of whose elements are certain."""
    return Bounded(wide(array, dtype))


def wide(array: Array, dtype: DType) -> Array:
    """Return an array in the type in which its values are kept."""
    match dtype.kind:
        case "float":
            return np.asarray(array).astype(np.float64)
        case "complex":
            return np.asarray(array).astype(np.complex128)
        case _:
            return np.asarray(array)


def narrow(x: Bounded, dtype: DType) -> Array:
    """Return the value in the type itself."""
    if dtype.kind == "complex":
        return x.value.astype(to_numpy(dtype))
    return convert(x.value, to_numpy(dtype)) if dtype.is_float else x.value


def fits(value: Array, dtype: DType) -> Array:
    """True where a value is one of the type, so that computing it rounded nothing.

    f64 is the type of the values too, where that shows for whole numbers alone.
    """
    if dtype == f64:
        return np.asarray((np.rint(value) == value) & (np.abs(value) < 2.0**52))
    if dtype == f32:
        return np.asarray(value.astype(np.float32) == value)
    return np.asarray(convert(value, to_numpy(dtype)).astype(np.float64) == value)


def flushed(x: Bounded) -> Bounded:
    """Return factors of bf16, whose denormals instructions of products count as 0."""
    size = np.abs(x.value)
    denormal = size < float(np.finfo(np.float32).tiny)
    return Bounded(x.value, x.errors + np.where(denormal, size, 0.0)) if denormal.any() else x


def represents(x: Bounded, dtype: DType) -> bool:
    """True if every element is certain and a number of the type: its bits are known then."""
    return x.certain and (
        dtype == f64 or bool((fits(x.value, dtype) | ~np.isfinite(x.value)).all())
    )


def rounded(
    value: Array, error: Array | None, dtype: DType, units: float = 1.0, always: bool = False
) -> Bounded:
    """Return a value with the error it came with, rounded to a type by as many ``units``.

    Unless ``always``, what is a number of the type already is not rounded.
    """
    with np.errstate(all="ignore"):
        if dtype.kind == "complex":
            own = 8 * unit(dtype) * np.abs(value) + least(f32 if dtype.bits == 64 else f64)
            return Bounded(value, own if error is None else own + error)
        odd = ~np.isfinite(value)
        kept = odd if always else fits(value, dtype) | odd
        if error is None and kept.all():
            return Bounded(value)
        if error is not None and not always:
            kept = odd | (kept & (error == 0))  # what is off already is rounded all the same
        size = np.abs(value) if error is None else np.abs(value) + error  # of what is rounded
        own = np.where(kept, 0.0, size * (units * unit(dtype)) + units * least(dtype))
        found = own if error is None else own + error
        return _in_range(value, found, dtype)


def _in_range(value: Array, error: Array, dtype: DType) -> Bounded:
    """Numbers that the type cannot hold become what it has for them."""
    size, top = np.abs(value), largest(dtype)
    high = np.asarray(~(size + error <= top))
    odd = ~np.isfinite(value)
    if not (high.any() or odd.any()):
        return Bounded(value, error)
    error = np.where(np.isnan(error), np.inf, error)
    # Infinities and NaNs that came from certain operands, or from a finite error, are certain.
    error = np.where(odd & np.isfinite(error), 0.0, error)
    over = ~odd & (size - error > top * (1 + unit(dtype)))
    error = np.where(over, 0.0, np.where(high & ~odd & ~over, np.inf, error))
    value = np.where(over, np.copysign(beyond(dtype), value), value)
    if FORMATS[dtype].special != "ieee":
        value = np.where(np.isinf(value) & odd, np.copysign(beyond(dtype), value), value)
    return Bounded(value, error)


def hull(value: Array, *others: Array) -> Array:
    """Return how far any of ``others`` is from ``value``; infinity where only some are numbers."""
    with np.errstate(all="ignore"):
        far = np.zeros(np.shape(value))
        for other in others:
            same = (value == other) | (np.isnan(value) & np.isnan(other))
            apart = np.abs(np.asarray(value, np.float64) - np.asarray(other, np.float64))
            far = np.maximum(far, np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)))
        return far


def ends(x: Bounded) -> tuple[Array, Array]:
    """Return the least and the largest value of every element."""
    error = x.errors
    loose = error > 0  # infinity minus nothing stays infinity, also where nothing is known
    with np.errstate(all="ignore"):
        return (
            np.where(loose, x.value - error, x.value),
            np.where(loose, x.value + error, x.value),
        )


def both(*errors: Array | None) -> bool:
    """True if all of them are None."""
    return all(e is None for e in errors)


def moved(x: Bounded, move: Callable[[Array], Array]) -> Bounded:
    """Apply ``move``, which moves elements and computes nothing, to the errors too."""
    return Bounded(move(x.value), None if x.error is None else move(x.error))


def moved_all(xs: Sequence[Bounded], move: Callable[[Sequence[Array]], Array]) -> Bounded:
    """Return the same for what moves elements of several arrays into one."""
    value = move([x.value for x in xs])
    if both(*(x.error for x in xs)):
        return Bounded(value)
    return Bounded(value, move([x.errors for x in xs]))


def unknown(value: Array) -> Bounded:
    """Return a value of which nothing is known but what it might be."""
    return Bounded(value, np.full(np.shape(value), np.inf))
