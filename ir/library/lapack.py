"""The custom calls for LAPACK that JAX makes on a processor: by SciPy, the plainer ones by NumPy.

Their names are ``lapack_<type><routine>_ffi``, their attributes LAPACK's letters as numbers. The
results are LAPACK's: a matrix is what the model says it is, pivots count from 1, ``info`` is 0
where all went well. A batch is computed at once, and each matrix as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..errors import LibraryError
from . import lapack_numpy, lapack_scipy
from .call import LibraryCall
from .each import LETTERS, scipy
from .solvers import solve
from .tridiagonal import solve_perturbed

Array: TypeAlias = np.ndarray[Any, Any]
Results: TypeAlias = tuple[Array, ...]
Routine: TypeAlias = Callable[..., Results]


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


def _has_scipy() -> bool:
    return scipy("linalg.cython_lapack") is not None


def _plain(name: str) -> Routine:
    """The function of a plainer routine, on whole batches."""
    found: Routine = getattr(lapack_scipy if _has_scipy() else lapack_numpy, name)
    return found


def _require(flags: Flags, fits: bool, why: str) -> None:
    if not fits:
        raise LibraryError(flags.call.target, f"the operands do not fit: {why}")


def _rows(flags: Flags, a: Array) -> int:
    """The rows of a square matrix."""
    _, m, n = a.shape
    _require(flags, m == n, f"a matrix of {m} x {n}")
    return int(m)


def _potrf(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    return _plain("potrf")(a, flags.letter("uplo") == "L")


def _getrf(flags: Flags, a: Array) -> Results:
    return _plain("getrf")(a)


def _gesv(flags: Flags, a: Array, b: Array) -> Results:
    """L and U, pivots, and what solves ``a x = b``; not a call of JAX's, which solves by parts."""
    n = _rows(flags, a)
    _require(flags, b.shape[1] == n, f"{b.shape[1]} rows for {n}")
    return _plain("gesv")(a, b)


def _geqrf(flags: Flags, a: Array) -> Results:
    return _plain("geqrf")(a)


def _geqp3(flags: Flags, a: Array, first: Array) -> Results:
    if first.any():
        raise LibraryError(flags.call.target, "columns that must come first are not supported")
    return lapack_scipy.geqp3(a)


def _orgqr(flags: Flags, a: Array, tau: Array) -> Results:
    (_, m, n), k = a.shape, tau.shape[1]
    _require(flags, m >= n >= k, f"{k} reflectors of {m} rows for {n} columns")
    return _plain("orgqr")(a, tau)


def _ormqr(flags: Flags, a: Array, tau: Array, c: Array) -> Results:
    """``Q c``, ``Q^H c``, ``c Q`` or ``c Q^H`` of the Q whose reflectors ``a`` holds.

    There may be fewer reflectors than ``a`` has columns.
    """
    left, turned = flags.truth("left", 0), flags.truth("transpose", 1)
    (_, m, n), k, rows = a.shape, tau.shape[1], c.shape[1 if left else 2]
    if m != rows or not k <= min(m, n):
        why = f"{k} reflectors of {m} rows for a side of {rows}"
        raise LibraryError(flags.call.target, why)
    return _plain("ormqr")(a, tau, c, left, turned)


def _syevd(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    vectors, lower = flags.letter("mode", 0) == "V", flags.letter("uplo", 1) == "L"
    return _plain("syevd")(a, lower, vectors)


def _eigh(flags: Flags, a: Array) -> Results:
    """XLA's own: its configuration begins with 1 where the lower triangle counts, else 0."""
    _rows(flags, a)
    lower = flags.call.backend_config.partition(",")[0].strip() == "1"
    return _plain("syevd")(a, lower, True)[:2]


def _svd(name: str, flags: Flags, a: Array) -> Results:
    """Singular values by divide and conquer (``gesdd``) or by QR iteration (``gesvd``)."""
    mode = flags.letter("mode")
    if mode not in "ASN":
        raise LibraryError(flags.call.target, f"mode {mode}", hint="modes are A, S and N")
    u, s, vt, info = _plain("svd")(a, name, mode)
    if mode == "N":
        u, vt = (np.zeros((len(a), *t.shape[-2:]), a.dtype) for t in flags.call.results[2:4])
    return a, s, u, vt, info


def _geev(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    left, right = (flags.letter(f"compute_{side}", k) == "V" for k, side in enumerate(_SIDES))
    return lapack_scipy.geev(a, left, right)


_SIDES = ("left", "right")


def _gehrd(flags: Flags, a: Array) -> Results:
    n, high, low = _rows(flags, a), flags.number("high", 0), flags.number("low", 1)
    if not 1 <= low <= high <= n:
        raise LibraryError(flags.call.target, f"low={low}, high={high} of {n} rows")
    return lapack_scipy.gehrd(a, low, high)


def _gees(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    if flags.letter("sort", 1) != "N":
        raise LibraryError(flags.call.target, "sorted eigenvalues need a function to choose them")
    return lapack_scipy.gees(a, flags.letter("mode", 0) == "V")


def _sytrd(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    return lapack_scipy.sytrd(a, flags.letter("uplo") == "L")


def _diagonals(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> None:
    sizes = {x.shape[1] for x in (low, middle, high, b)}
    if len(sizes) > 1:
        why = f"diagonals of {middle.shape[1]}, {b.shape[1]} rows"
        raise LibraryError(flags.call.target, why)


def _gtsv(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> Results:
    """The first of the diagonal below and the last of the one above are not used."""
    _diagonals(flags, low, middle, high, b)
    return (low, middle, high, *lapack_scipy.gtsv(low[:, 1:], middle, high[:, :-1], b))


def _perturbed(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> Results:
    _diagonals(flags, low, middle, high, b)
    return (np.stack(list(map(solve_perturbed, low, middle, high, b))),)


def _trsm(flags: Flags, a: Array, b: Array) -> Results:
    trans = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    unit, left = flags.letter("diag", 0) == "U", flags.letter("side", 1) == "L"
    turned, lower = trans.get(flags.letter("trans_x", 2), ""), flags.letter("uplo", 3) == "L"
    n, rows = _rows(flags, a), b.shape[1 if left else 2]
    _require(flags, n == rows, f"{rows} rows for {n}")
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
"""By routine: the types it has, the function, and which operands are matrices, which vectors, of
integers where it says i."""

_SCIPY: Mapping[str, tuple[str, Routine, str]] = {
    "geev": ("sdcz", _geev, "m"),
    "gehrd": ("sdcz", _gehrd, "m"),
    "gees": ("sdcz", _gees, "m"),
    "sytrd": ("sd", _sytrd, "m"),
    "hetrd": ("cz", _sytrd, "m"),
    "gtsv": ("sdcz", _gtsv, "vvvm"),
    "geqp3": ("sdcz", _geqp3, "mi"),
}
"""Those that need SciPy."""


def _batched(routine: Routine, kinds: str, call: LibraryCall, *operands: Array) -> Results:
    """The routine's results, of operands with one dimension before matrices and vectors.

    Where matrices are empty, nothing is to be done.
    """
    if len(operands) != len(kinds):
        raise LibraryError(call.target, f"it takes {len(kinds)} operands, not {len(operands)}")
    ranks = [2 if kind == "m" else 1 for kind in kinds]
    if any(a.ndim < rank for a, rank in zip(operands, ranks, strict=True)):
        raise LibraryError(call.target, "an operand has too few dimensions")
    flags = Flags(call)
    batch, *others = [a.shape[: a.ndim - rank] for a, rank in zip(operands, ranks, strict=True)]
    _require(flags, all(b == batch for b in others), "their batches differ")
    types = {a.dtype.char for a, kind in zip(operands, kinds, strict=True) if kind != "i"}
    _require(flags, len(types) == 1 and types <= LETTERS.keys(), "their types do not fit")
    if not all(a.size for a, kind in zip(operands, kinds, strict=True) if kind == "m"):
        return tuple([np.zeros(t.shape, t.dtype) for t in call.results])
    if len(batch) == 1:
        return routine(flags, *operands)
    made = routine(flags, *[a.reshape(prod(batch), *a.shape[len(batch) :]) for a in operands])
    return tuple([x.reshape((*batch, *x.shape[1:])) for x in made])


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
    return target in FUNCTIONS and not (target in _NEEDS_SCIPY and not _has_scipy())


def needs_scipy(target: str) -> bool:
    """Would a custom call of this name be computed if SciPy were installed?"""
    return target in _NEEDS_SCIPY
