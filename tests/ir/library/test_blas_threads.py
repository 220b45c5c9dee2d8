"""BLAS starts no threads while a batch is shared, and has as many as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier, Thread

import numpy as np
import pytest

from nestwright.ir.library import blas_threads, each
from nestwright.ir.library.blas_threads import libraries, one_thread

pytest.importorskip("threadpoolctl")
pytest.importorskip("scipy.linalg.cython_blas")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Let BLAS have two threads in the test, whatever the environment says."""
    before = counts()
    for x in libraries():
        x.set(2)
    yield
    for x, threads in zip(libraries(), before, strict=True):
        x.set(threads)


def counts() -> list[int]:
    return [x.get() for x in libraries()]


def test_one_thread_until_the_last_caller_has_left() -> None:
    many = counts()
    assert many and set(many) == {2}
    with one_thread():
        with pytest.raises(ValueError), one_thread():
            raise ValueError
        assert set(counts()) == {1}
    assert counts() == many


def test_callers_on_several_threads() -> None:
    both, seen = Barrier(2, timeout=60), list[list[int]]()

    def call(first: bool) -> None:
        if first:
            with one_thread():
                both.wait()  # the other is about to enter
                both.wait()  # it has
            both.wait()
        else:
            both.wait()
            with one_thread():
                both.wait()
                both.wait()  # the one that came first has left
                seen.append(counts())

    threads = [Thread(target=call, args=(first,)) for first in (True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(seen[0]) == {1} and set(counts()) == {2}


@pytest.mark.parametrize(
    ("shape", "controlled", "chunks", "alone"),
    [
        ((8, 20, 20), True, 8, False),  # too small for threads of BLAS
        ((8, 100, 100), True, 8, True),
        ((3, 100, 100), True, 3, True),
        ((8, 300, 300), True, 8, True),
        ((1, 100, 100), True, 1, True),
        ((1, 600, 600), True, 1, False),
        ((8, 20, 20), False, 8, False),
        ((8, 100, 100), False, 1, True),
    ],
)
def test_either_the_pool_or_blas_has_threads(
    shape: tuple[int, ...],
    controlled: bool,
    chunks: int,
    alone: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(each, "_native", [lambda *arguments: None])
    if not controlled:
        monkeypatch.setattr(each, "libraries", lambda: ())
    x = np.zeros(shape, np.float32)
    call = each.prepared_call("lapack", "potrf", x, ("U", shape[1], x, shape[1], x))
    assert (call.chunks, call.alone) == (chunks, alone)


def test_a_call_in_python_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(each, "_native", [])
    x = np.eye(100, dtype=np.float32)[None].repeat(2, 0)
    seen: list[list[int]] = []
    routine = each._Routine(0, lambda *arguments: seen.append(counts()))
    monkeypatch.setattr(each, "_routine", lambda module, name: routine)
    each.each("lapack", "potrf", x, "U", 100, x, 100)
    assert len(seen) == 2 and all(set(s) == {1} for s in seen)


def test_nothing_is_set_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(blas_threads, "import_module", missing)
    monkeypatch.setattr(blas_threads, "libraries", libraries.__wrapped__)
    before = counts()
    with one_thread():
        assert not blas_threads.libraries() and counts() == before
