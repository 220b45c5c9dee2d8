"""Tensor expressions by hand: what they compute, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from nestwright import te
from nestwright.ir.errors import ArgumentError
from nestwright.ir.loop.interp import evaluate
from nestwright.ir.loop.nodes import Block
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import walk


def run(tensors: list[te.Tensor], *args: Any) -> list[Any]:
    func = te.create_func(tensors)
    verify(func)
    return evaluate.run(func, args)


def floats(*shape: int) -> Any:
    return np.random.default_rng(1).uniform(0.25, 2, shape).astype(np.float32)


def test_matmul_with_epilogue() -> None:
    A = te.placeholder((3, 5), "f32", "A")
    B = te.placeholder((5, 4), "f32", "B")
    k = te.reduce_axis(5, "k")
    C = te.compute((3, 4), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((3, 4), lambda i, j: te.maximum(C[i, j] - 1, 0.0), name="D")
    func = te.create_func([A, B, D], name="main")
    assert (
        show(func)
        == """\
@func(outputs=1)
def main(A: f32[3, 5], B: f32[5, 4], D: f32[3, 4]):
    C = alloc(f32[3, 4])
    for i in range(3):
        for j in range(4):
            for k in range(5):
                with block("C"):
                    vi, vj, vk = spatial(3, i), spatial(4, j), reduce(5, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i_1 in range(3):
        for j_1 in range(4):
            with block("D"):
                vi, vj = spatial(3, i_1), spatial(4, j_1)
                reads(C[vi, vj])
                writes(D[vi, vj])
                D[vi, vj] = max(C[vi, vj] - f32(1.0), f32(0.0))
"""
    )
    a, b = floats(3, 5), floats(5, 4)
    (d,) = run([A, B, D], a, b)
    np.testing.assert_allclose(d, np.maximum(a @ b - 1, 0), rtol=1e-6)


def test_argmax_reduces_two_values_at_once() -> None:
    A = te.placeholder((3, 7), "f32", "A")
    k = te.reduce_axis(7, "k")
    best = te.reduce(
        lambda a, b: (te.maximum(a[0], b[0]), te.select(a[0] >= b[0], a[1], b[1])),
        (float("-inf"), -1),
    )
    V, P = te.compute_many(
        (3,), lambda i: best((A[i, k], te.cast(k, "s32")), axis=k), names=("V", "P")
    )
    a = floats(3, 7)
    v, i = run([A, V, P], a)
    np.testing.assert_array_equal(v, a.max(1))
    np.testing.assert_array_equal(i, a.argmax(1))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (lambda x, y: te.exp(x) / (1 + te.tanh(y)), lambda x, y: np.exp(x) / (1 + np.tanh(y))),
        (lambda x, y: te.power(x, y) - abs(-x), lambda x, y: np.power(x, y) - x),
        (
            lambda x, y: te.select((x < y) & ~(x < 1), x, 2.0 - y),
            lambda x, y: np.where((x < y) & ~(x < 1), x, 2 - y),
        ),
        (lambda x, y: te.clamp(0.5, x, 1.0), lambda x, y: np.clip(x, 0.5, 1)),
        (
            lambda x, y: te.select(te.equal(x, x) & te.not_equal(x, y), x / x, 0.0) * te.floor(y),
            lambda x, y: np.floor(y),
        ),
        (
            lambda x, y: te.cast(te.cast(x * 8, "s32") // 3 % 2, "f32"),
            lambda x, y: ((x * 8).astype(np.int32) // 3 % 2).astype(np.float32),
        ),
        (
            lambda x, y: te.cast(te.bitcast(x, "u32") >= te.const(0x3F800000, "u32"), "f32"),
            lambda x, y: (x >= 1).astype(np.float32),
        ),
    ],
)
def test_elements(
    made: Callable[[te.Value, te.Value], te.Value], wanted: Callable[[Any, Any], Any]
) -> None:
    X, Y = te.placeholder((40,), "f32", "X"), te.placeholder((40,), "f32", "Y")
    Z = te.compute((40,), lambda i: made(X[i], Y[i]), name="Z")
    x, y = floats(40), floats(80)[40:]
    np.testing.assert_allclose(run([X, Y, Z], x, y)[0], wanted(x, y), rtol=2e-6)


@pytest.mark.parametrize(
    ("reducer", "wanted"),
    [(te.sum, np.sum), (te.prod, np.prod), (te.max, np.max), (te.min, np.min)],
)
def test_reductions(reducer: Any, wanted: Any) -> None:
    A = te.placeholder((3, 4, 5), "f32", "A")
    i, k = te.reduce_axis(3, "i"), te.reduce_axis(5, "k")
    B = te.compute((4,), lambda j: reducer(A[i, j, k], axis=[i, k]), name="B")
    a = floats(3, 4, 5)
    np.testing.assert_allclose(run([A, B], a)[0], wanted(a, axis=(0, 2)), rtol=1e-5)


def test_scalars_gathers_and_any_rank() -> None:
    A, P = te.placeholder((9,), "f32", "A"), te.placeholder((2, 3), "s32", "P")
    G = te.compute((2, 3), lambda *i: A[P[i]], name="G")
    S = te.compute((), lambda: G[0, 0] + G[1, 2], name="S")
    a, p = floats(9), np.array([[0, 8, 3], [2, 2, 7]], np.int32)
    g, s = run([A, P, G, S], a, p)
    np.testing.assert_array_equal(g, a[p])
    np.testing.assert_allclose(s, a[0] + a[7])


def test_a_value_used_twice_is_computed_once() -> None:
    A = te.placeholder((4,), "f32", "A")
    B = te.compute((4,), lambda i: reduce(lambda v, _: v * v + v, range(60), A[i]), name="B")
    assert len(show(te.create_func([A, B])).splitlines()) < 80


def test_one_reduce_axis_may_serve_two_tensors_and_names_may_repeat() -> None:
    A = te.placeholder((3, 4), "f32", "A")
    k = te.reduce_axis(4, "k")
    S = te.compute((3,), lambda i: te.sum(A[i, k], axis=k), name="S")
    T = te.compute((3,), lambda i: te.max(A[i, k] * S[i], axis=k), name="S")
    func = te.create_func([A, T])
    verify(func)
    assert [b.name for b in walk(func.body) if isinstance(b, Block)] == ["S", "S_1"]
    a = floats(3, 4)
    np.testing.assert_allclose(run([A, T], a)[0], (a * a.sum(1, keepdims=True)).max(1), rtol=1e-6)


A = te.placeholder((3, 4), "f32", "A")
N = te.placeholder((3, 4), "s32", "N")
K = te.reduce_axis(4, "k")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: A[0], "`A` has 2 dimensions and is indexed with 1"),
        (lambda: A[0, 4], "index 4 is outside `A`: dimension 1 has 4 elements"),
        (lambda: A[0, 1.5], "`A` is indexed with float: an index is an integer"),
        (lambda: A[0, A[0, 0]], "`A` is indexed with f32"),
        (lambda: A[0, 0] + N[0, 0], "cannot add: one operand is f32, another s32"),
        (lambda: N[0, 0] + 1.5, "1.5 is not a literal of type s32"),
        (lambda: N[0, 0] / N[0, 0], "`/` of integers"),
        (lambda: A[0, 0] & A[0, 0], "`and` is not defined for f32"),
        (lambda: A[0, 0] + A, "cannot add the tensor `A`"),
        (lambda: te.select(A[0, 0], 1.0, A[0, 0]), "the condition of select is f32"),
        (lambda: te.bitcast(A[0, 0], "s16"), "cannot take the bits of f32 for s16"),
        (lambda: te.placeholder((2,), "float32"), "unknown element type 'float32'"),
        (lambda: te.placeholder((-2,), "f32"), "`A` cannot have the extent -2"),
        (
            lambda: te.compute((3,), lambda i, j: A[i, j], name="B"),
            "the rule of `B` takes 2 indices, its shape has 1 dimensions",
        ),
        (
            lambda: te.compute((3,), lambda i: A[i, K], name="B"),
            "`B` uses the axis `k` outside a reduction over it",
        ),
        (
            lambda: te.compute((3,), lambda i: te.sum(A[i, K], axis=K) + 1.0, name="B"),
            "a reduction is used as a value",
        ),
        (
            lambda: te.compute((4,), lambda i: A[i, 0], name="B"),
            "`B` reads outside `A`: the index takes values 0..3, dimension 0 has 3 elements",
        ),
        (lambda: te.sum(A[0, 0], axis=[]), "a reduction needs reduce axes"),
        (lambda: te.create_func([A]), "function `main` computes nothing"),
        (
            lambda: te.create_func([te.compute((3,), lambda i: A[i, 0], name="B")]),
            "function `main` needs the input `A`: it is not listed",
        ),
        (
            lambda: te.create_func([te.compute((3,), lambda i: A[i, 0], name="B"), A]),
            "the tensors of function `main` are out of order",
        ),
    ],
)
def test_refusals(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        build()
    assert str(caught.value).startswith(message)


def test_python_cannot_ask_whether_a_value_is_true() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        assert A[0, 0] < 1.0
    with pytest.raises(TypeError, match=r"te\.equal"):
        assert A[0, 0] == 1.0
