"""Routines of LAPACK on batches: each matrix as if it were alone, natively and from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.errors import LibraryError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.library import each, lapack, lapack_numpy, lapack_scipy, solvers
from nestwright.ir.library.tape import at_once

Routines = Callable[..., tuple[Array, ...]]
TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
WAYS = ["native", "python", "numpy"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Calls made by native code, by Python, or NumPy's functions in their place."""
    if request.param == "numpy":
        monkeypatch.setattr(solvers, "scipy", lambda name: None)
        return "numpy"
    pytest.importorskip("scipy")
    if request.param == "native":
        text = "ENTRY e { a = c64[2,2] parameter(0)\n ROOT r = c64[2,2] cholesky(a), lower=true }"
        nw.build(parse(f"HloModule m\n{text}"))(np.eye(2, dtype=np.complex64))
        assert each._native
    else:
        monkeypatch.setattr(each, "_native", [])
    return str(request.param)


def by(way: str, name: str) -> Routines:
    found: Routines = getattr(lapack_numpy if way == "numpy" else lapack_scipy, name)
    return found if way == "numpy" else partial(at_once, found)


def matrices(letter: str, *dims: int, seed: int = 1) -> Array:
    pair = np.random.default_rng(seed).standard_normal((2, *dims))
    whole = pair[0] + 1j * pair[1] if letter in "cz" else pair[0]
    return whole.astype(TYPES[letter])


def positive(letter: str, *dims: int) -> Array:
    a = matrices(letter, *dims)
    return (a @ np.swapaxes(a.conj(), -1, -2) + dims[-1] * np.eye(dims[-1])).astype(a.dtype)


def close(found: tuple[Array, ...], wanted: tuple[Array, ...], letter: str) -> None:
    tolerance = 1e-3 if letter in "sc" else 1e-10
    for a, b in zip(found, wanted, strict=True):
        if a.dtype.kind == "i":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def cases(way: str, letter: str, count: int, n: int) -> dict[str, tuple[Routines, list[Array]]]:
    """Routines with all their options, and operands for them."""
    a, wide, tall = (matrices(letter, count, *d) for d in ((n, n), (n, n + 2), (n + 2, n)))
    good, b = positive(letter, count, n, n), matrices(letter, count, n, 3, seed=2)
    found: dict[str, tuple[Routines, list[Array]]] = {
        "potrf": (lambda x: by(way, "potrf")(x, True), [good]),
        "potrf, upper": (lambda x: by(way, "potrf")(x, False), [good]),
        "getrf": (by(way, "getrf"), [a]),
        "getrf, wide": (by(way, "getrf"), [wide]),
        "getrf, tall": (by(way, "getrf"), [tall]),
        "gesv": (by(way, "gesv"), [good, b]),
        "geqrf": (by(way, "geqrf"), [tall]),
        "syevd": (lambda x: by(way, "syevd")(x, True, True)[1:], [a]),
        "gesdd": (lambda x: by(way, "svd")(x, "gesdd", "S")[1:2], [wide]),
        "gesvd": (lambda x: by(way, "svd")(x, "gesvd", "N")[1:2], [tall]),
    }
    if way != "numpy":
        found["geev"] = (lambda x: by(way, "geev")(x, True, True), [a])
        found["gehrd"] = (lambda x: by(way, "gehrd")(x, 1, n), [a])
        found["gees"] = (lambda x: by(way, "gees")(x, True), [a])
        found["sytrd"] = (lambda x: by(way, "sytrd")(x, True), [good])
        found["geqp3"] = (by(way, "geqp3"), [tall])
    return found


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("count", "n"), [(1, 7), (15, 5), (17, 33), (3, 65)])
def test_a_matrix_of_a_batch_is_as_if_alone(way: str, letter: str, count: int, n: int) -> None:
    for function, operands in cases(way, letter, count, n).values():
        before = [x.copy() for x in operands]
        whole = function(*operands)
        for k in {0, count // 2, count - 1}:
            alone = function(*(x[k : k + 1] for x in operands))
            close(tuple(x[k : k + 1] for x in whole), alone, letter)
        for x, y in zip(operands, before, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("name", ["potrf", "getrf", "syevd", "gesdd", "gesvd", "geev"])
def test_a_matrix_without_numbers_does_not_spoil_others(way: str, letter: str, name: str) -> None:
    table = cases(way, letter, 5, 6)
    if name not in table:
        pytest.skip("only SciPy has it")
    function, (a,) = table[name]
    bad = a.copy()
    bad[2, 3, 1] = bad[2, 1, 3] = np.nan
    good = [0, 1, 3, 4]
    with np.errstate(all="ignore"):
        found, wanted = function(bad), function(a)
    close(tuple(x[good] for x in found), tuple(x[good] for x in wanted), letter)


def test_what_has_no_factor_is_told_for_each_matrix(way: str) -> None:
    a = positive("d", 4, 6, 6)
    a[1, 2, 2], a[3, 0, 0] = -1, -1
    out, info = by(way, "potrf")(a, True)
    assert info.tolist() == [0, 3, 0, 1]
    np.testing.assert_allclose(np.tril(out[2]), np.linalg.cholesky(a[2]), rtol=1e-10)
    b = matrices("d", 3, 5, 5)
    b[1, :, 2] = 0
    assert by(way, "getrf")(b)[2].tolist() == [0, 3, 0]


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("left", [True, False])
def test_many_right_sides(way: str, letter: str, left: bool) -> None:
    """So many that BLAS would start threads of its own beside those that share the batch."""
    n = 33
    a = np.tril(matrices(letter, 3, n, n)) / n + 2 * np.eye(n, dtype=TYPES[letter])
    b = matrices(letter, *((3, n, 70) if left else (3, 70, n)))
    assert b[0].size > each.ALONE
    x = solvers.solve(a, b, left=left, lower=True, unit=False, turned="ADJOINT")
    turned = np.swapaxes(a.conj(), -1, -2)
    close((turned @ x if left else x @ turned,), (b,), letter)


def called(name: str, operands: list[str], results: list[str]) -> Any:
    given = "\n".join(f"  x{k} = {o} parameter({k})" for k, o in enumerate(operands))
    names, out = ", ".join(f"x{k}" for k in range(len(operands))), ", ".join(results)
    return parse(
        f"HloModule m\nENTRY e {{\n{given}\n  ROOT r = ({out}) custom-call({names}), "
        f'custom_call_target="lapack_{name}_ffi"\n}}'
    )


def test_a_compiled_call_is_the_interpreters() -> None:
    pytest.importorskip("scipy")
    text = ["c64[2,9,33,33]"], ["c64[2,9,33,33]", "s32[2,9,33]", "s32[2,9]"]
    module, a = called("cgetrf", *text), matrices("c", 2, 9, 33, 33)
    wanted = evaluate(module, [a])
    assert isinstance(wanted, tuple)
    close(nw.build(module)(a), wanted, "c")


@pytest.mark.parametrize(
    "name, operands",
    [
        ("sgesv", ["f32[3,3]", "f32[4,1]"]),
        ("sgesv", ["f32[3,3]", "f64[3,1]"]),
        ("sgesv", ["f32[2,3,3]", "f32[3,3,1]"]),
        ("spotrf", ["f32[3,4]"]),
        ("spotrf", ["f16[3,3]"]),
        ("sorgqr", ["f32[3,2]", "f32[3]"]),
        ("sorgqr", ["f32[2,3]", "f32[2]"]),
        ("sgeev", ["f32[2,3]"]),
        ("strsm", ["f32[3,3]", "f32[2,2]"]),
    ],
)
def test_operands_that_do_not_fit_are_refused(name: str, operands: list[str]) -> None:
    """No pointer is passed to a routine that would read beyond an array."""
    pytest.importorskip("scipy")
    module = called(name, operands, [operands[0]])
    types = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    shapes = [(o[:3], [int(n) for n in o[4:-1].split(",")]) for o in operands]
    with pytest.raises(LibraryError, match=r"do not fit|not a letter"):
        evaluate(module, [np.ones(dims, types[t]) for t, dims in shapes])


def test_workspaces_are_as_long_as_routines_ask_for() -> None:
    pytest.importorskip("scipy")
    routine = each._routine("lapack", "dgeqrf")
    workspace = each.Workspace(np.dtype(np.float64))
    (length,) = each._lengths(routine, (90, 40, None, 90, None, workspace, None))
    assert length >= 40
    assert lapack.knows("lapack_dgeqrf_ffi")
