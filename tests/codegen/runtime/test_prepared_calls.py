"""Routines of LAPACK on tape: an executable prepares a call once, and then only runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.runtime import library_calls
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.arrays import Array
from nestwright.ir.errors import LibraryError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.library import session
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
NAMES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}

GEQRF = """HloModule qr
ENTRY e {{
  a = {t}[{b}{m},{n}] parameter(0)
  c = ({t}[{b}{m},{n}], {t}[{b}{k}]) custom-call(a), custom_call_target="lapack_{l}geqrf_ffi"
  h = {t}[{b}{m},{n}] get-tuple-element(c), index=0
  u = {t}[{b}{k}] get-tuple-element(c), index=1
  q = {t}[{b}{m},{n}] custom-call(h, u), custom_call_target="lapack_{l}{org}_ffi"
  ROOT r = ({t}[{b}{m},{n}], {t}[{b}{k}], {t}[{b}{m},{n}]) tuple(h, u, q)
}}
"""
GEEV = """HloModule eig
ENTRY e {
  a = f32[4,5,5] parameter(0)
  c = (f32[4,5], f32[4,5], c64[4,5,5], c64[4,5,5], s32[4]) custom-call(a),
    custom_call_target="lapack_sgeev_ffi",
    backend_config="{compute_left = 86 : ui8, compute_right = 86 : ui8}"
  w = f32[4,5] get-tuple-element(c), index=0
  i = f32[4,5] get-tuple-element(c), index=1
  v = c64[4,5,5] get-tuple-element(c), index=3
  ROOT r = (f32[4,5], f32[4,5], c64[4,5,5]) tuple(w, i, v)
}
"""
TRSM = """HloModule trsm
ENTRY e {{
  a = f64[{n},{n}] parameter(0)
  b = f64[{n},{m}] parameter(1)
  ROOT x = f64[{n},{m}] custom-call(a, b), custom_call_target="lapack_dtrsm_ffi",
    backend_config="{{diag = 78 : ui8, side = 76 : ui8, trans_x = {trans} : ui8, uplo = 76 : ui8}}"
}}
"""


SVD = """HloModule svd
ENTRY e {
  a = f32[40,36] parameter(0)
  c = (f32[40,36], f32[36], f32[40,36], f32[36,36], s32[]) custom-call(a),
    custom_call_target="lapack_sgesdd_ffi", backend_config="{mode = 83 : ui8}"
  x = f32[40,36] get-tuple-element(c), index=0
  s = f32[36] get-tuple-element(c), index=1
  u = f32[40,36] get-tuple-element(c), index=2
  v = f32[36,36] get-tuple-element(c), index=3
  i = s32[] get-tuple-element(c), index=4
  ROOT r = (f32[40,36], f32[36], f32[40,36], f32[36,36], s32[]) tuple(x, s, u, v, i)
}
"""


@pytest.fixture(autouse=True)
def scipy() -> None:
    pytest.importorskip("scipy")


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that were run as functions, not from a tape."""
    seen: list[str] = []
    run = session.Session.run

    def noted(self: session.Session, call: Any, operands: Sequence[Array]) -> list[Array]:
        seen.append(call.target)
        return run(self, call, operands)

    monkeypatch.setattr(session.Session, "run", noted)
    yield seen


def qr(letter: str, batch: tuple[int, ...], m: int, n: int) -> HloModule:
    text = GEQRF.format(
        t=NAMES[letter],
        b="".join(f"{d}," for d in batch),
        m=m,
        n=n,
        k=min(m, n),
        l=letter,
        org="orgqr" if letter in "sd" else "ungqr",
    )
    return parse(text)


def built(module: HloModule) -> Executable:
    return nw.build(module, target="cpu", cache=False)


def matrices(letter: str, *dims: int, seed: int = 0) -> Array:
    pair = np.random.default_rng(seed).standard_normal((2, *dims))
    whole = pair[0] + 1j * pair[1] if letter in "cz" else pair[0]
    return whole.astype(TYPES[letter])


def agree(exe: Executable, module: HloModule, *args: Array) -> None:
    for a, b in zip(exe(*args), evaluate(module, list(args)), strict=True):
        np.testing.assert_array_equal(a, b)


BATCHES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 2)]
SIZES = [(40, 40), (35, 2), (41, 33)]


@pytest.mark.parametrize(
    ("letter", "batch", "m", "n"),
    [
        (letter, batch, m, n)
        for (i, letter), (j, batch), (k, (m, n)) in product(
            *map(enumerate, (TYPES, BATCHES, SIZES))
        )
        if (i + j + k) % 2 == 0
    ],
)
def test_every_call_is_computed_afresh(
    letter: str, batch: tuple[int, ...], m: int, n: int, in_turn: list[str]
) -> None:
    module = qr(letter, batch, m, n)
    exe = built(module)
    found = []
    for seed in range(3):
        a = matrices(letter, *batch, m, n, seed=seed)
        before = a.copy()
        found.append((a, exe(a)))
        np.testing.assert_array_equal(a, before)
    assert not in_turn
    for a, results in found:  # which none of the later calls overwrote
        for x, y in zip(results, evaluate(module, [a]), strict=True):
            np.testing.assert_array_equal(x, y)


def test_numpy_finishes_what_lapack_began(in_turn: list[str]) -> None:
    module = parse(GEEV)
    exe = built(module)
    for seed in range(3):
        a = matrices("s", 4, 5, 5, seed=seed)
        real, imaginary, vectors = exe(a)
        assert not in_turn
        values = real + 1j * imaginary
        np.testing.assert_allclose(a @ vectors, vectors * values[:, None], rtol=1e-3, atol=1e-4)
    agree(exe, module, matrices("s", 4, 5, 5, seed=7))


def test_what_a_routine_leaves_undone_is_not_of_an_earlier_call(in_turn: list[str]) -> None:
    """LAPACK refuses a NaN, and writes nothing."""
    module = parse(SVD)
    exe, a = built(module), matrices("s", 40, 36)
    agree(exe, module, a)
    a[3, 4] = np.nan
    given, *made, info = exe(a)
    assert info and not any(x.any() for x in made)
    np.testing.assert_array_equal(given, a)
    assert in_turn.count("lapack_sgesdd_ffi") == 1  # the interpreter's


@pytest.mark.parametrize(("n", "m"), [(40, 1), (40, 40), (50, 70)])
@pytest.mark.parametrize("trans", [78, 84])
def test_an_operand_is_read_where_it_lies(n: int, m: int, trans: int, in_turn: list[str]) -> None:
    exe = built(parse(TRSM.format(n=n, m=m, trans=trans)))
    for seed in range(3):
        a = np.tril(matrices("d", n, n, seed=seed)) / n + np.eye(n)
        b = matrices("d", n, m, seed=seed + 9)
        x = exe(a, b)
        np.testing.assert_allclose((a if trans == 78 else a.T) @ x, b, rtol=1e-9, atol=1e-9)
    assert not in_turn


def test_threads_have_tapes_of_their_own() -> None:
    module = qr("s", (), 40, 40)
    exe = built(module)
    given = [matrices("s", 40, 40, seed=k) for k in range(4)]
    wanted = [evaluate(module, [a]) for a in given]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not all(map(np.array_equal, exe(given[k]), wanted[k])):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_large_tapes_are_made_anew(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_calls, "KEPT_BYTES", kept)
    module = qr("d", (2,), 37, 34)
    exe = built(module)
    for seed in range(2):
        agree(exe, module, matrices("d", 2, 37, 34, seed=seed))
    host = exe.loaded().host  # type: ignore[attr-defined]
    assert [len(free) for free in host._prepared] == [1 if kept else 0] * 2


def test_a_function_that_is_registered_later_takes_over(in_turn: list[str]) -> None:
    module = qr("s", (), 40, 34)
    exe, a = built(module), matrices("s", 40, 34)
    agree(exe, module, a)
    target = "lapack_sgeqrf_ffi"
    register_custom_call(target, lambda call, x: (np.zeros_like(x), np.zeros(34, np.float32)))
    try:
        h, tau, _ = exe(a)
        assert not h.any() and not tau.any()
        assert in_turn[0] == target
    finally:
        unregister_custom_call(target)
    agree(exe, module, a)


def test_what_does_not_fit_is_refused_as_before() -> None:
    text = GEQRF.format(t="f32", b="", m=40, n=34, k=33, l="s", org="orgqr")
    exe = built(parse(text))
    for _ in range(2):
        with pytest.raises(LibraryError, match="result 1 must be"):
            exe(matrices("s", 40, 34))
