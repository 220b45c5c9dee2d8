"""The custom calls for LAPACK that JAX makes on a processor: by SciPy, the plainer ones by NumPy.

Their names are ``lapack_<type><routine>_ffi``, their attributes LAPACK's letters as numbers. Each
matrix of a batch goes through the routine alone (triangular systems apart), as LAPACK has it:
matrices column by column, so that a matrix is what the model says it is; pivots count from 1;
``info`` is 0 where all went well.
What LAPACK leaves undefined is zero or the operand's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..errors import LibraryError
from . import lapack_numpy
from .call import LibraryCall
from .solvers import routine, scipy, solve
from .tridiagonal import solve_perturbed

Array: TypeAlias = np.ndarray[Any, Any]
Routine: TypeAlias = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Flags:
    """A call's attributes by name, or by place among the sorted names."""

    call: LibraryCall

    def letter(self, name: str, place: int = 0) -> str:
        """A letter that LAPACK takes as a flag."""
        value = self.call.attribute(name, place, 0)
        if isinstance(value, int) and 65 <= value <= 90:
            return chr(value)
        raise LibraryError(self.call.target, f"{name}={value!r} is not a letter")

    def truth(self, name: str, place: int) -> bool:
        """True or false."""
        value = self.call.attribute(name, place, False)
        if isinstance(value, bool):
            return value
        raise LibraryError(self.call.target, f"{name}={value!r} is neither true nor false")

    def number(self, name: str, place: int) -> int:
        """An integer."""
        value = self.call.attribute(name, place, 0)
        if isinstance(value, int):
            return value
        raise LibraryError(self.call.target, f"{name}={value!r} is not an integer")


_routine = partial(routine, "lapack")


def _is_complex(a: Array) -> bool:
    return np.iscomplexobj(a)


def _potrf(flags: Flags, a: Array) -> tuple[Any, ...]:
    lower = flags.letter("uplo") == "L"
    if scipy("linalg.lapack") is None:
        return lapack_numpy.potrf(a, lower)
    found, failed = _routine(a, "potrf")(a.T, lower=int(not lower), clean=0)
    return found.T, failed


def _getrf(flags: Flags, a: Array) -> tuple[Any, ...]:
    if scipy("linalg.lapack") is None:
        return lapack_numpy.getrf(a)
    lu, pivots, info = _routine(a, "getrf")(a)
    return lu, pivots + 1, info


def _gesv(flags: Flags, a: Array, b: Array) -> tuple[Any, ...]:
    """L and U, pivots, and what solves ``a x = b``; not a call of JAX's, which solves by parts."""
    if scipy("linalg.lapack") is None:
        return lapack_numpy.gesv(a, b)
    lu, pivots, x, info = _routine(a, "gesv")(a, b)
    return lu, pivots + 1, x, info


def _geqrf(flags: Flags, a: Array) -> tuple[Any, ...]:
    if scipy("linalg.lapack") is None:
        return lapack_numpy.geqrf(a)
    return tuple(_routine(a, "geqrf")(a)[:2])


def _orgqr(flags: Flags, a: Array, tau: Array) -> tuple[Any, ...]:
    if scipy("linalg.lapack") is None or not len(tau):
        return (lapack_numpy.orgqr(a, tau),)
    return (_routine(a, "ungqr" if _is_complex(a) else "orgqr")(a, tau)[0],)


def _ormqr(flags: Flags, a: Array, tau: Array, c: Array) -> tuple[Any, ...]:
    """``Q c``, ``Q^H c``, ``c Q`` or ``c Q^H`` of the Q whose reflectors ``a`` holds.

    There may be fewer reflectors than ``a`` has columns.
    """
    left, turned = flags.truth("left", 0), flags.truth("transpose", 1)
    rows = c.shape[0 if left else 1]
    if len(a) != rows or not len(tau) <= min(a.shape):
        why = f"{len(tau)} reflectors of {len(a)} rows for a side of {rows}"
        raise LibraryError(flags.call.target, why)
    a = a[:, : len(tau)]
    if scipy("linalg.lapack") is None or not len(tau):
        return (lapack_numpy.ormqr(a, tau, c, left, turned),)
    routine = _routine(a, "unmqr" if _is_complex(a) else "ormqr")
    letter = "N" if not turned else "C" if _is_complex(a) else "T"
    multiply = partial(routine, "L" if left else "R", letter, a, tau, c)
    size = int(multiply(-1)[1][0].real)
    return (multiply(size)[0],)


def _syevd(flags: Flags, a: Array) -> tuple[Any, ...]:
    vectors, lower = flags.letter("mode", 0) == "V", flags.letter("uplo", 1) == "L"
    if scipy("linalg.lapack") is None:
        return lapack_numpy.syevd(a, lower)
    solver = _routine(a, "heevd" if _is_complex(a) else "syevd")
    values, v, info = solver(a, compute_v=int(vectors), lower=int(lower))
    return v, values, info


def _eigh(flags: Flags, a: Array) -> tuple[Any, ...]:
    """XLA's own: its configuration begins with 1 where the lower triangle counts, else 0."""
    lower = flags.call.backend_config.partition(",")[0].strip() == "1"
    if scipy("linalg.lapack") is None:
        return lapack_numpy.syevd(a, lower)[:2]
    values, v, _ = _routine(a, "heevd" if _is_complex(a) else "syevd")(a, lower=int(lower))
    return v, values


def _svd(name: str, flags: Flags, a: Array) -> tuple[Any, ...]:
    """Singular values by divide and conquer (``gesdd``) or by QR iteration (``gesvd``)."""
    mode = flags.letter("mode")
    if mode not in "ASN":
        raise LibraryError(flags.call.target, f"mode {mode}", hint="modes are A, S and N")
    vectors, full = mode != "N", mode == "A"
    if scipy("linalg.lapack") is None:
        u, s, vt, info = lapack_numpy.svd(a, vectors, full)
    else:
        svd = partial(_routine(a, name), compute_uv=int(vectors), full_matrices=int(full))
        u, s, vt, info = svd(a)
    if not vectors:
        u, vt = (np.zeros(flags.call.results[k].shape[-2:], a.dtype) for k in (2, 3))
    return a, s, u, vt, info


def _geev(flags: Flags, a: Array) -> tuple[Any, ...]:
    left, right = (flags.letter(f"compute_{side}", k) == "V" for k, side in enumerate(_SIDES))
    made = _routine(a, "geev")(a, compute_vl=int(left), compute_vr=int(right))
    *values, vl, vr, info = made
    n = len(a)
    vectors = [v if keep else np.zeros((n, n)) for v, keep in ((vl, left), (vr, right))]
    if not _is_complex(a):
        vectors = [_unpacked(v, values[1]) for v in vectors]
    return *values, *vectors, info


_SIDES = ("left", "right")


def _unpacked(v: Array, imaginary: Array) -> Array:
    """Eigenvectors of a real matrix: of each pair LAPACK gives real and imaginary parts."""
    out = v.astype(np.result_type(v.dtype, np.complex64))
    first = np.flatnonzero(imaginary > 0)
    first = first[first + 1 < len(imaginary)]
    out[:, first] = v[:, first] + 1j * v[:, first + 1]
    out[:, first + 1] = np.conj(out[:, first])
    return out


def _gehrd(flags: Flags, a: Array) -> tuple[Any, ...]:
    high, low = flags.number("high", 0), flags.number("low", 1)
    if not 1 <= low <= high <= len(a):
        raise LibraryError(flags.call.target, f"low={low}, high={high} of {len(a)} rows")
    made: tuple[Any, ...] = _routine(a, "gehrd")(a, lo=low - 1, hi=high - 1)
    return made


def _gees(flags: Flags, a: Array) -> tuple[Any, ...]:
    if flags.letter("sort", 1) != "N":
        raise LibraryError(flags.call.target, "sorted eigenvalues need a function to choose them")
    vectors = flags.letter("mode", 0) == "V"
    made = _routine(a, "gees")(lambda *_: 0, a, compute_v=int(vectors))
    t, count, *values, vs, _, info = made
    vs = vs if vectors else np.zeros_like(a)
    return t, vs, *values, count, info


def _sytrd(flags: Flags, a: Array) -> tuple[Any, ...]:
    lower = flags.letter("uplo") == "L"
    made: tuple[Any, ...] = _routine(a, "hetrd" if _is_complex(a) else "sytrd")(a, lower=int(lower))
    return made


def _gtsv(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> tuple[Any, ...]:
    """The first of the diagonal below and the last of the one above are not used."""
    *_, x, info = _routine(b, "gtsv")(low[1:], middle, high[:-1], b)
    return low, middle, high, x, info


def _perturbed(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> tuple[Any, ...]:
    if not len(low) == len(middle) == len(high) == len(b):
        raise LibraryError(flags.call.target, f"diagonals of {len(middle)}, {len(b)} rows")
    return (solve_perturbed(low, middle, high, b),)


def _geqp3(flags: Flags, a: Array, first: Array) -> tuple[Any, ...]:
    if first.any():
        raise LibraryError(flags.call.target, "columns that must come first are not supported")
    made: tuple[Any, ...] = _routine(a, "geqp3")(a)
    return made[:3]


def _trsm(flags: Flags, a: Array, b: Array) -> tuple[Any, ...]:
    trans = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    unit, left = flags.letter("diag", 0) == "U", flags.letter("side", 1) == "L"
    turned, lower = trans.get(flags.letter("trans_x", 2), ""), flags.letter("uplo", 3) == "L"
    return (solve(a, b, left=left, lower=lower, unit=unit, turned=turned),)


_PLAIN: Mapping[str, tuple[str, Routine, str]] = {
    "potrf": ("sdcz", _potrf, "m"),
    "getrf": ("sdcz", _getrf, "m"),
    "gesv": ("sdcz", _gesv, "mm"),
    "geqrf": ("sdcz", _geqrf, "m"),
    "orgqr": ("sd", _orgqr, "mv"),
    "ungqr": ("cz", _orgqr, "mv"),
    "syevd": ("sd", _syevd, "m"),
    "heevd": ("cz", _syevd, "m"),
    "gesdd": ("sdcz", partial(_svd, "gesdd"), "m"),
    "gesvd": ("sdcz", partial(_svd, "gesvd"), "m"),
    "ormqr": ("sd", _ormqr, "mvm"),
    "unmqr": ("cz", _ormqr, "mvm"),
    "trsm": ("sdcz", _trsm, "mm"),
}
"""By routine: the types it has, the function, and which operands are matrices, which vectors."""

_WHOLE = frozenset({_trsm})
"""Those that take a whole batch: a step for many small matrices costs little more than for one."""

_SCIPY: Mapping[str, tuple[str, Routine, str]] = {
    "geev": ("sdcz", _geev, "m"),
    "gehrd": ("sdcz", _gehrd, "m"),
    "gees": ("sdcz", _gees, "m"),
    "sytrd": ("sd", _sytrd, "m"),
    "hetrd": ("cz", _sytrd, "m"),
    "gtsv": ("sdcz", _gtsv, "vvvm"),
    "geqp3": ("sdcz", _geqp3, "mv"),
}
"""Those that need SciPy."""


def _batched(routine: Routine, kinds: str, call: LibraryCall, *operands: Array) -> tuple[Any, ...]:
    """The routine on each matrix of a batch, or on all; nothing to do where they are empty."""
    outs = [np.zeros(t.shape, t.dtype) for t in call.results]
    flags = Flags(call)
    if len(operands) != len(kinds):
        raise LibraryError(call.target, f"it takes {len(kinds)} operands, not {len(operands)}")
    ranks = [2 if kind == "m" else 1 for kind in kinds]
    if any(a.ndim < rank for a, rank in zip(operands, ranks, strict=True)):
        raise LibraryError(call.target, "an operand has too few dimensions")
    batch = operands[0].shape[: operands[0].ndim - ranks[0]]
    if not all(a.size for a, kind in zip(operands, kinds, strict=True) if kind == "m"):
        return tuple(outs)
    for at in np.ndindex(() if routine in _WHOLE else batch):
        try:
            made = routine(flags, *(a[at] for a in operands))
            for out, value in zip(outs, made, strict=True):
                out[at] = value
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            raise LibraryError(call.target, f"the operands do not fit: {error}") from error
    return tuple(outs)


def _functions(table: Mapping[str, tuple[str, Routine, str]]) -> dict[str, Callable[..., Any]]:
    return {
        f"lapack_{letter}{name}_ffi": partial(_batched, routine, kinds)
        for name, (letters, routine, kinds) in table.items()
        for letter in letters
    }


_NEEDS_SCIPY = frozenset(_functions(_SCIPY))
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **_functions({**_PLAIN, **_SCIPY}),
    "Qr": partial(_batched, _geqrf, "m"),
    "ProductOfElementaryHouseholderReflectors": partial(_batched, _orgqr, "mv"),
    "Eigh": partial(_batched, _eigh, "m"),
    "tridiagonal_solve_perturbed_ffi": partial(_batched, _perturbed, "vvvm"),
}
"""By target: JAX's names for a processor, and XLA's own for three of them."""


def knows(target: str) -> bool:
    """Can a custom call of this name be computed here?"""
    return target in FUNCTIONS and not (target in _NEEDS_SCIPY and scipy("linalg.lapack") is None)


def needs_scipy(target: str) -> bool:
    """Would a custom call of this name be computed if SciPy were installed?"""
    return target in _NEEDS_SCIPY
