"""The custom calls for LAPACK that JAX makes on a processor: by SciPy, the plainer ones by NumPy.

Their names are ``lapack_<type><routine>_ffi``, their attributes LAPACK's letters as numbers. The
results are LAPACK's: a matrix is what the model says it is, pivots count from 1, ``info`` is 0
where all went well. A batch is computed at once, and each matrix as if it were alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import Array
from ..errors import LibraryError
from . import lapack_numpy, lapack_scipy
from .call import LibraryCall
from .each import LETTERS, scipy
from .solvers import add_solution, solve
from .tape import Prepared, Tape, at_once, prepare
from .tridiagonal import solve_perturbed

Results: TypeAlias = tuple[Array, ...]
Routine: TypeAlias = Callable[..., Results]


@dataclass(frozen=True, slots=True)
class Flags:
    """A call's attributes by name, or by place among the sorted names; a tape to record it on."""

    call: LibraryCall
    tape: Tape | None = None

    def routine(self, name: str) -> Routine:
        """The function of a plainer routine, on whole batches; with a tape it is recorded there."""
        if not _has_scipy():
            plain: Routine = getattr(lapack_numpy, name)
            return plain
        found: Routine = getattr(lapack_scipy, name)
        return partial(at_once, found) if self.tape is None else partial(found, self.tape)

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
    return flags.routine("potrf")(a, flags.letter("uplo") == "L")


def _getrf(flags: Flags, a: Array) -> Results:
    return flags.routine("getrf")(a)


def _gesv(flags: Flags, a: Array, b: Array) -> Results:
    """L and U, pivots, and what solves ``a x = b``; not a call of JAX's, which solves by parts."""
    n = _rows(flags, a)
    _require(flags, b.shape[1] == n, f"{b.shape[1]} rows for {n}")
    return flags.routine("gesv")(a, b)


def _geqrf(flags: Flags, a: Array) -> Results:
    return flags.routine("geqrf")(a)


def _geqp3(flags: Flags, a: Array, first: Array) -> Results:
    if first.any():
        raise LibraryError(flags.call.target, "columns that must come first are not supported")
    return flags.routine("geqp3")(a)


def _orgqr(flags: Flags, a: Array, tau: Array) -> Results:
    (_, m, n), k = a.shape, tau.shape[1]
    _require(flags, m >= n >= k, f"{k} reflectors of {m} rows for {n} columns")
    return flags.routine("orgqr")(a, tau)


def _ormqr(flags: Flags, a: Array, tau: Array, c: Array) -> Results:
    """``Q c``, ``Q^H c``, ``c Q`` or ``c Q^H`` of the Q whose reflectors ``a`` holds.

    There may be fewer reflectors than ``a`` has columns.
    """
    left, turned = flags.truth("left", 0), flags.truth("transpose", 1)
    (_, m, n), k, rows = a.shape, tau.shape[1], c.shape[1 if left else 2]
    if m != rows or not k <= min(m, n):
        why = f"{k} reflectors of {m} rows for a side of {rows}"
        raise LibraryError(flags.call.target, why)
    return flags.routine("ormqr")(a, tau, c, left, turned)


def _syevd(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    vectors, lower = flags.letter("mode", 0) == "V", flags.letter("uplo", 1) == "L"
    return flags.routine("syevd")(a, lower, vectors)


def _eigh(flags: Flags, a: Array) -> Results:
    """XLA's own: its configuration begins with 1 where the lower triangle counts, else 0."""
    _rows(flags, a)
    lower = flags.call.backend_config.partition(",")[0].strip() == "1"
    return flags.routine("syevd")(a, lower, True)[:2]


def _svd(name: str, flags: Flags, a: Array) -> Results:
    """Singular values by divide and conquer (``gesdd``) or by QR iteration (``gesvd``)."""
    mode = flags.letter("mode")
    if mode not in "ASN":
        raise LibraryError(flags.call.target, f"mode {mode}", hint="modes are A, S and N")
    u, s, vt, info = flags.routine("svd")(a, name, mode)
    if mode == "N":
        u, vt = (np.zeros((len(a), *t.shape[-2:]), a.dtype) for t in flags.call.results[2:4])
    return a, s, u, vt, info


def _geev(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    left, right = (flags.letter(f"compute_{side}", k) == "V" for k, side in enumerate(_SIDES))
    return flags.routine("geev")(a, left, right)


_SIDES = ("left", "right")


def _gehrd(flags: Flags, a: Array) -> Results:
    n, high, low = _rows(flags, a), flags.number("high", 0), flags.number("low", 1)
    if not 1 <= low <= high <= n:
        raise LibraryError(flags.call.target, f"low={low}, high={high} of {n} rows")
    return flags.routine("gehrd")(a, low, high)


def _gees(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    if flags.letter("sort", 1) != "N":
        raise LibraryError(flags.call.target, "sorted eigenvalues need a function to choose them")
    return flags.routine("gees")(a, flags.letter("mode", 0) == "V")


def _sytrd(flags: Flags, a: Array) -> Results:
    _rows(flags, a)
    return flags.routine("sytrd")(a, flags.letter("uplo") == "L")


def _diagonals(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> None:
    sizes = {x.shape[1] for x in (low, middle, high, b)}
    if len(sizes) > 1:
        why = f"diagonals of {middle.shape[1]}, {b.shape[1]} rows"
        raise LibraryError(flags.call.target, why)


def _gtsv(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> Results:
    """The first of the diagonal below and the last of the one above are not used."""
    _diagonals(flags, low, middle, high, b)
    return (low, middle, high, *flags.routine("gtsv")(low[:, 1:], middle, high[:, :-1], b))


def _perturbed(flags: Flags, low: Array, middle: Array, high: Array, b: Array) -> Results:
    _diagonals(flags, low, middle, high, b)
    return (np.stack(list(map(solve_perturbed, low, middle, high, b))),)


def _trsm(flags: Flags, a: Array, b: Array) -> Results:
    trans = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    unit, left = flags.letter("diag", 0) == "U", flags.letter("side", 1) == "L"
    turned, lower = trans.get(flags.letter("trans_x", 2), ""), flags.letter("uplo", 3) == "L"
    n, rows = _rows(flags, a), b.shape[1 if left else 2]
    _require(flags, n == rows, f"{rows} rows for {n}")
    if flags.tape is not None:
        return (add_solution(flags.tape, a, b, left, lower, unit, turned),)
    return (solve(a, b, left=left, lower=lower, unit=unit, turned=turned),)


class _RoutineRow(NamedTuple):
    """A routine: its types, its function, and which operands are matrices, vectors, or integers."""

    letters: str
    function: Routine
    kinds: str
    fixed: bool = True
    """Do its steps depend on types and attributes alone?"""


_PLAIN: Mapping[str, _RoutineRow] = {
    "potrf": _RoutineRow("sdcz", _potrf, "m"),
    "getrf": _RoutineRow("sdcz", _getrf, "m"),
    "gesv": _RoutineRow("sdcz", _gesv, "mm"),
    "geqrf": _RoutineRow("sdcz", _geqrf, "m"),
    "orgqr": _RoutineRow("sd", _orgqr, "mv"),
    "ungqr": _RoutineRow("cz", _orgqr, "mv"),
    "syevd": _RoutineRow("sd", _syevd, "m"),
    "heevd": _RoutineRow("cz", _syevd, "m"),
    "gesdd": _RoutineRow("sdcz", partial(_svd, "gesdd"), "m"),
    "gesvd": _RoutineRow("sdcz", partial(_svd, "gesvd"), "m"),
    "ormqr": _RoutineRow("sd", _ormqr, "mvm"),
    "unmqr": _RoutineRow("cz", _ormqr, "mvm"),
    "trsm": _RoutineRow("sdcz", _trsm, "mm"),
}

_SCIPY: Mapping[str, _RoutineRow] = {
    "geev": _RoutineRow("sdcz", _geev, "m"),
    "gehrd": _RoutineRow("sdcz", _gehrd, "m"),
    "gees": _RoutineRow("sdcz", _gees, "m"),
    "sytrd": _RoutineRow("sd", _sytrd, "m"),
    "hetrd": _RoutineRow("cz", _sytrd, "m"),
    "gtsv": _RoutineRow("sdcz", _gtsv, "vvvm", fixed=False),
    "geqp3": _RoutineRow("sdcz", _geqp3, "mi", fixed=False),
}
"""Those that need SciPy."""


def _batched(row: _RoutineRow, call: LibraryCall, *operands: Array) -> Results:
    """The routine's results. Where matrices are empty, nothing is to be done."""
    given = _with_one_batch(row, call, operands)
    if given is None:
        return tuple([np.zeros(t.shape, t.dtype) for t in call.results])
    made = row.function(Flags(call), *given)
    if operands[0].ndim == given[0].ndim:
        return made
    batch = operands[0].shape[: operands[0].ndim - given[0].ndim + 1]
    return tuple([x.reshape((*batch, *x.shape[1:])) for x in made])


def _with_one_batch(
    row: _RoutineRow, call: LibraryCall, operands: Sequence[Array]
) -> Sequence[Array] | None:
    """The operands with one dimension before matrices and vectors; None if matrices are empty."""
    kinds = row.kinds
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
        return None
    if len(batch) == 1:
        return operands
    return [a.reshape(prod(batch), *a.shape[len(batch) :]) for a in operands]


def _by_target(table: Mapping[str, _RoutineRow]) -> dict[str, _RoutineRow]:
    return {
        f"lapack_{letter}{name}_ffi": row for name, row in table.items() for letter in row.letters
    }


_NEEDS_SCIPY = frozenset(_by_target(_SCIPY))
_ROWS: Mapping[str, _RoutineRow] = {
    **_by_target({**_PLAIN, **_SCIPY}),
    "Qr": _PLAIN["geqrf"],
    "ProductOfElementaryHouseholderReflectors": _PLAIN["orgqr"],
    "Eigh": _RoutineRow("sdcz", _eigh, "m"),
    "tridiagonal_solve_perturbed_ffi": _RoutineRow("sd", _perturbed, "vvvm", fixed=False),
}
"""By target: JAX's names for a processor, and XLA's own for three of them."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    target: partial(_batched, row) for target, row in _ROWS.items()
}


def prepared(call: LibraryCall) -> Prepared | None:
    """A call on tape; None where the routine looks at numbers, and where it would refuse."""
    row = _ROWS.get(call.target)
    if row is None or not row.fixed or not _has_scipy():
        return None
    try:
        given = _with_one_batch(row, call, [np.zeros(t.shape, t.dtype) for t in call.operands])
        if given is None:
            return None
        return prepare(call, given, lambda tape, *a: row.function(Flags(call, tape), *a))
    except LibraryError:
        return None


def knows(target: str) -> bool:
    """Can a custom call of this name be computed here?"""
    return target in FUNCTIONS and not (target in _NEEDS_SCIPY and not _has_scipy())


def needs_scipy(target: str) -> bool:
    """Would a custom call of this name be computed if SciPy were installed?"""
    return target in _NEEDS_SCIPY
