"""Linear algebra: dot, batch norm, Cholesky, triangular solve, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from ...arrays import Array
from ...conversion import convert, is_float, is_narrow_int
from ...dtypes import to_numpy
from ..nodes import Instruction
from .values import CallEvaluator, Value

NpType = np.dtype[np.generic]


def dot(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Contract two arrays into ``[batch.., lhs free.., rhs free..]``."""
    a, b = args
    return contract(i.attrs, a, b, to_numpy(i.array.dtype))


def ragged_dot(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Contract groups of consecutive rows, each with a right operand or to a result of its own.

    Rows of no group give zeros.
    """
    a, b, sizes = args
    to = to_numpy(i.array.dtype)
    (ragged,) = i.attrs["lhs_ragged_dims"]
    if ragged in i.attrs.get("lhs_batch_dims", ()):
        return contract(i.attrs, a, b, to)
    ends = np.minimum(np.cumsum(np.maximum(sizes, 0).astype(np.int64)), a.shape[ragged])
    spans = [slice(s, e) for s, e in zip([0, *ends[:-1]], ends, strict=True)]
    out = np.zeros(i.array.dims, to)
    if ragged in i.attrs["lhs_contracting_dims"]:
        place = i.attrs["lhs_contracting_dims"].index(ragged)
        theirs = i.attrs["rhs_contracting_dims"][place]
        for n, span in enumerate(spans):
            out[n] = contract(i.attrs, _cut(a, ragged, span), _cut(b, theirs, span), to)
        return out
    (group,) = i.attrs["rhs_group_dims"]
    attrs = {k: v for k, v in i.attrs.items() if k.startswith("lhs")}
    for k in ("rhs_batch_dims", "rhs_contracting_dims"):
        attrs[k] = tuple(d - (d > group) for d in i.attrs.get(k, ()))
    batch = i.attrs.get("lhs_batch_dims", ())
    fixed = (*batch, *i.attrs["lhs_contracting_dims"])
    at = len(batch) + [d for d in range(a.ndim) if d not in fixed].index(ragged)
    for n, span in enumerate(spans):
        rows = contract(attrs, _cut(a, ragged, span), np.take(b, n, group), to)
        _cut(out, at, span)[...] = rows
    return out


def _cut(a: Array, dim: int, span: slice) -> Array:
    """Return a view of ``a`` along one dimension."""
    return a[(slice(None),) * dim + (span,)]


def contract(attrs: Mapping[str, Any], a: Array, b: Array, to: NpType) -> Array:
    """Return the product of two arrays by the attributes of a ``dot``."""
    get = attrs.get
    a_batch, b_batch = list(get("lhs_batch_dims", ())), list(get("rhs_batch_dims", ()))
    a_sum, b_sum = list(get("lhs_contracting_dims", ())), list(get("rhs_contracting_dims", ()))
    a_free = [d for d in range(a.ndim) if d not in a_batch + a_sum]
    b_free = [d for d in range(b.ndim) if d not in b_batch + b_sum]
    batch = [a.shape[d] for d in a_batch]
    depth = prod(a.shape[d] for d in a_sum)
    rows, columns = [a.shape[d] for d in a_free], [b.shape[d] for d in b_free]
    left = a.transpose(a_batch + a_free + a_sum).reshape(*batch, prod(rows), depth)
    right = b.transpose(b_batch + b_sum + b_free).reshape(*batch, depth, prod(columns))
    out = matmul(left, right, to)
    return out.reshape((*batch, *rows, *columns))


def matmul(a: Array, b: Array, to: NpType) -> Array:
    """Return ``a @ b`` as ``to``, accumulated in the type that ``widen`` chooses.

    Integers wrap. They are multiplied in f64 where that is exact, since NumPy has no fast integer
    product. Complex products are computed by parts, because NumPy's lose infinities.
    """
    if to.kind == "c":
        return _complex_product(a, b).astype(to)
    whole = is_whole(a, b, to)
    a, b = widen(a, b, a.shape[-1], to)
    return narrow(np.matmul(a, b), to, whole)


def _complex_product(a: Array, b: Array) -> Array:
    """Return ``a @ b`` in c128; products with the imaginary part of a real factor are left out
    (they could be NaN)."""
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    real = np.matmul(ar, br)
    out = np.zeros(real.shape, np.complex128)
    out.real = real
    if bi is not None:
        out.imag = np.matmul(ar, bi)
    if ai is not None:
        out.imag += np.matmul(ai, br)
    if ai is not None and bi is not None:
        out.real -= np.matmul(ai, bi)
    return out


def _parts(a: Array) -> tuple[Array, Array | None]:
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    return wide.real, wide.imag if a.dtype.kind == "c" else None


def is_whole(a: Array, b: Array, to: NpType) -> bool:
    """True if products of two arrays are integers, and their sums for a result ``to`` as well."""
    return (
        not is_float(a.dtype) and not is_float(b.dtype) and (to.kind in "biu" or is_narrow_int(to))
    )


def narrow(a: Array, to: NpType, whole: bool) -> Array:
    """Convert from the type that ``widen`` chose to the result's; ``whole`` numbers wrap."""
    wraps = whole and to.kind != "b" and a.dtype.kind == "f"
    return convert(a.astype(np.int64) if wraps else a, to)


def widen(a: Array, b: Array, depth: int, to: NpType) -> tuple[Array, Array]:
    """Convert both factors to the type that accumulates ``depth`` products for a result ``to``.

    That is f32 for floats, f64 if any of the three types is f64; for integers f64 where sums are
    exact and s64 elsewhere; and the complex type itself.
    """
    if to.kind == "c":
        return a.astype(to), b.astype(to)
    if is_whole(a, b, to):
        exact = to.kind == "b" or depth * _largest(a) * _largest(b) < 1 << 53
        wide = np.float64 if exact else np.int64
        return a.astype(wide), b.astype(wide)
    double = np.float64 in (a.dtype, b.dtype, to)
    kept = np.float64 if double else np.float32
    return a.astype(kept, copy=False), b.astype(kept, copy=False)


def _largest(a: Array) -> int:
    if not a.size:
        return 0
    if is_narrow_int(a.dtype):
        return 1 << 3 if a.dtype.name[0] == "i" else (1 << 4) - 1
    return max(abs(int(a.max())), abs(int(a.min())))


def batch_norm_inference(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return ``(x - mean) / sqrt(variance + epsilon) * scale + offset``, per feature."""
    x, scale, offset, mean, variance = args
    kept, wide = x.dtype, _wide(x.dtype)
    scale, offset, mean, variance = (
        _per_feature(v.astype(wide), x.ndim, i.attrs["feature_index"])
        for v in (scale, offset, mean, variance)
    )
    inverse = 1 / np.sqrt(variance + wide.type(i.attrs["epsilon"]))
    return ((x.astype(wide) - mean) * inverse * scale + offset).astype(kept)


def batch_norm_training(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Normalize by the batch's own statistics; return output, mean and (biased) variance."""
    x, scale, offset = args
    f, wide = i.attrs["feature_index"], _wide(x.dtype)
    axes = tuple(d for d in range(x.ndim) if d != f)
    mean = x.astype(np.float64).mean(axes)
    variance = x.astype(np.float64).var(axes)
    values = [x, scale, offset, mean.astype(wide), variance.astype(wide)]
    out = batch_norm_inference(i, values, run)
    return out, mean.astype(x.dtype), variance.astype(x.dtype)


def batch_norm_grad(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the gradients of operand, scale and offset, given that of the output.

    With ``n`` elements per feature, ``r = 1 / sqrt(variance + epsilon)``, ``c = x - mean``:
    d_offset = sum(g), d_scale = sum(g c) r, d_x = scale r (g - d_offset / n - c r d_scale / n).
    """
    x, scale, mean, variance, grad = (a.astype(np.float64) for a in args)
    f = i.attrs["feature_index"]
    axes = tuple(d for d in range(x.ndim) if d != f)
    n = prod(x.shape[d] for d in axes)
    inverse = 1 / np.sqrt(variance + i.attrs["epsilon"])
    centered = x - _per_feature(mean, x.ndim, f)
    d_offset = grad.sum(axes)
    d_scale = (grad * centered).sum(axes) * inverse
    back = grad - _per_feature(d_offset / n, x.ndim, f)
    back = back - centered * _per_feature(inverse * d_scale / n, x.ndim, f)
    d_x = back * _per_feature(scale * inverse, x.ndim, f)
    return tuple(v.astype(args[0].dtype) for v in (d_x, d_scale, d_offset))


def _wide(dtype: NpType) -> NpType:
    return dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)


def _per_feature(v: Array, rank: int, feature: int) -> Array:
    return v.reshape([-1 if d == feature else 1 for d in range(rank)])


def _solver_type(dtype: NpType) -> NpType:
    return dtype if dtype.kind == "c" else np.dtype(np.float64)


def cholesky(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the Cholesky factor, lower or upper; NaN for matrices that are not positive definite.

    Only the triangle that ``lower`` names is read. f64 or the complex type is used throughout.
    """
    lower, a = i.attrs.get("lower", False), args[0]
    a = a.astype(_solver_type(a.dtype))
    half = np.tril(a) if lower else np.conj(np.swapaxes(np.triu(a), -1, -2))
    full = half + np.conj(np.swapaxes(np.tril(half, -1), -1, -2))
    flat = full.reshape(-1, *full.shape[-2:])
    out = np.full(flat.shape, np.nan, a.dtype)
    for k, matrix in enumerate(flat):
        try:
            out[k] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            continue
    out = out.reshape(full.shape).astype(args[0].dtype)
    return out if lower else np.conj(np.swapaxes(out, -1, -2))


def triangular_solve(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Solve ``op(a) x = b`` or ``x op(a) = b`` for x; only one triangle of ``a`` is read."""
    kept, wide = args[1].dtype, _solver_type(args[1].dtype)
    a, b = (v.astype(wide) for v in args)
    get = i.attrs.get
    lower, left = get("lower", False), get("left_side", False)
    match get("transpose_a", "NO_TRANSPOSE"):
        case "TRANSPOSE":
            a, lower = np.swapaxes(a, -1, -2), not lower
        case "ADJOINT":
            a, lower = np.conj(np.swapaxes(a, -1, -2)), not lower
        case _:
            pass
    if not left:  # x a = b  is  a' x' = b'
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x = substitute(a, b, lower, get("unit_diagonal", False))
    return (x if left else np.swapaxes(x, -1, -2)).astype(kept)


def substitute(a: Array, b: Array, lower: bool, unit: bool) -> Array:
    """Solve ``a x = b`` row by row for triangular ``a``; a zero on the diagonal divides by zero
    without an error. With ``unit`` the diagonal is taken to be 1."""
    x = np.zeros_like(b)
    n = a.shape[-1]
    for r in range(n) if lower else reversed(range(n)):
        known = slice(0, r) if lower else slice(r + 1, n)
        rest = b[..., r, :] - np.matmul(a[..., r : r + 1, known], x[..., known, :])[..., 0, :]
        x[..., r, :] = rest if unit else rest / a[..., r, r, None]
    return x


def fft(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Transform the last ``len(fft_length)`` dimensions; inverse transforms are scaled by 1/n."""
    lengths = list(i.attrs["fft_length"])
    axes = list(range(-len(lengths), 0))
    transforms: dict[str, Callable[..., Array]] = {
        "FFT": np.fft.fftn,
        "IFFT": np.fft.ifftn,
        "RFFT": np.fft.rfftn,
        "IRFFT": np.fft.irfftn,
    }
    transform = transforms[i.attrs["fft_type"]]
    return np.asarray(transform(args[0], lengths, axes)).astype(to_numpy(i.array.dtype))


def dft(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Transform one dimension of a, put it where the second number says, times a table of factors.

    The operands: a; the roots of unity ``exp(-2 pi i k / n)``, which only code reads; the factors.
    """
    a, _, *tables = args
    along, to = i.attrs["dimensions"]
    rows = np.moveaxis(np.asarray(a), along, -1)
    found = np.moveaxis(np.asarray(fft(i, [rows], run)), -1, to)
    for table in tables:
        parts = np.asarray(table)
        found = found * (parts[..., 0] + 1j * parts[..., 1])
    return found.astype(to_numpy(i.array.dtype))
