"""Jitted functions inside ``jax.jit``, ``grad``, ``vmap`` and other transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw

jax = pytest.importorskip("jax", reason="transformations are JAX's")
jnp = jax.numpy

KEY = jax.random.key(0).dtype
X = np.linspace(0.1, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)


def layer(params: Any, x: Any, *, scale: float = 1.0) -> Any:
    return {"y": jnp.tanh(x @ params["w"]) * scale, "n": jnp.sum(x)}


PARAMS = {"w": W}
JITTED = nw.jit(layer, static_argnames="scale")


def close(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_inside_jit() -> None:
    before = nw.counters().shapes
    f = jax.jit(lambda p, x: JITTED(p, x, scale=2.0)["y"] + 1)
    for _ in range(3):
        close(f(PARAMS, X), layer(PARAMS, X, scale=2.0)["y"] + 1)
    assert nw.counters().shapes == before + 1


def test_gradients_are_those_of_jax() -> None:
    def loss(f: Any) -> Any:
        return lambda p, x: f(p, x)["y"].sum() + f(p, x)["n"]

    for transform in (jax.grad, lambda f: jax.jit(jax.grad(f, argnums=(0, 1)))):
        close(transform(loss(JITTED))(PARAMS, X), transform(loss(layer))(PARAMS, X))
    close(
        jax.hessian(lambda x: loss(JITTED)(PARAMS, x))(X),
        jax.hessian(lambda x: loss(layer)(PARAMS, x))(X),
    )
    tangents = jax.tree.map(np.ones_like, (PARAMS, X))
    close(jax.jvp(JITTED, (PARAMS, X), tangents), jax.jvp(layer, (PARAMS, X), tangents))


def test_batches_are_compiled_as_one() -> None:
    many = np.stack([X, 2 * X, -X])
    before = nw.counters().shapes
    close(jax.vmap(JITTED, (None, 0))(PARAMS, many), jax.vmap(layer, (None, 0))(PARAMS, many))
    assert nw.counters().shapes == before + 1
    one = {"w": np.stack([W, W + 1, W - 1])}
    close(jax.vmap(JITTED)(one, many), jax.vmap(layer)(one, many))
    twice = jax.vmap(jax.vmap(JITTED, (None, 0)), (0, None))
    close(twice(one, many), jax.vmap(jax.vmap(layer, (None, 0)), (0, None))(one, many))


def test_gradients_of_batches_and_batches_of_gradients() -> None:
    many = np.stack([X, 2 * X])

    def total(f: Any) -> Any:
        return lambda p: jax.vmap(lambda x: f(p, x)["y"].sum())(many).sum()

    def each(f: Any) -> Any:
        return jax.vmap(jax.grad(lambda p, x: f(p, x)["y"].sum()), (None, 0))

    close(jax.grad(total(JITTED))(PARAMS), jax.grad(total(layer))(PARAMS))
    close(each(JITTED)(PARAMS, many), each(layer)(PARAMS, many))


def test_inside_loops() -> None:
    f = nw.jit(lambda x: x * 0.5 + 1)
    found = jax.lax.fori_loop(0, 5, lambda _, x: f(x), jnp.asarray(X))
    x = X
    for _ in range(5):
        x = x * np.float32(0.5) + 1
    close(found, x)


def test_integers_have_no_gradient() -> None:
    f = nw.jit(lambda table, ids: table[ids])
    ids = np.array([2, 0, 1, 2])
    found = jax.grad(lambda t: f(t, ids).sum())(X)
    close(found, jax.grad(lambda t: t[ids].sum())(X))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_arrays_of_jax_are_taken_where_they_are(dtype: str) -> None:
    x = jnp.asarray(X).astype(dtype)
    f = nw.jit(lambda a, b: (jnp.maximum(a, b), a))
    most, same = f(x, x)
    np.testing.assert_array_equal(most, np.asarray(x))
    assert isinstance(same, np.ndarray) and same.dtype == x.dtype


def test_jitted_functions_are_lowered_and_tuned(tmp_path: Any) -> None:
    lowered = JITTED.lower(PARAMS, X, scale=3.0)
    assert lowered.imported.inputs == ("params['w']", "x")
    close(lowered.compile()(PARAMS["w"], x=X), layer(PARAMS, X, scale=3.0))
    log = tmp_path / "log.jsonl"
    result = nw.tune(nw.jit(layer), PARAMS, X, trials=2, simulate_cost=True, log=log)
    assert result.trials == 2
    exe = nw.build(nw.jit(layer), example=(PARAMS, X), log=log)
    assert exe.input_names == ("params['w']", "x")
    plain = nw.build(lambda x, w: x @ w, example=(X, W))
    assert plain.input_names == ("x", "w")
    close(plain(w=W, x=X), X @ W)


def test_why_it_compiled_again() -> None:
    f = nw.jit(layer, static_argnames="scale")
    f(PARAMS, X)
    f(PARAMS, X[:2])
    f(PARAMS, X[:2], scale=2.0)
    first, rows, scale = map(str, nw.explain_recompile(f))
    assert first.startswith("1. first call")
    assert "argument 1: float32[3,4] -> float32[2,4]" in rows
    assert "scale" in scale and "2.0" in scale


def test_compiled_as_in_jax() -> None:
    """``jit(f).lower(*args).compile()`` takes and gives the function's own trees."""
    wanted = layer(PARAMS, X)
    for model in (layer, jax.jit(layer), nw.jit(layer)):
        close(nw.lower(model, PARAMS, X).compile()(PARAMS, X), wanted)
    for model in (jax.jit(layer).lower(PARAMS, X), jax.jit(layer).trace(PARAMS, X)):
        close(nw.lower(model).compile()(PARAMS, X), wanted)
    exported = jax.export.export(jax.jit(layer))(PARAMS, X)
    close(nw.lower(exported).compile()(PARAMS, X), wanted)
    named = nw.jit(layer).lower(PARAMS, x=X, scale=2.0).compile()
    close(named(PARAMS, x=X, scale=np.float32(3)), layer(PARAMS, X, scale=3.0))


def test_static_arguments_of_what_was_compiled() -> None:
    exe = JITTED.lower(PARAMS, X, scale=3.0).compile()
    for named in ({}, {"scale": 3.0}):
        close(exe(PARAMS, X, **named), layer(PARAMS, X, scale=3.0))
    with pytest.raises(nw.ir.errors.ArgumentError, match="unknown keyword 'scale'"):
        exe(PARAMS, X, scale=4.0)


def test_numbers_are_taken_as_jax_takes_them() -> None:
    exe = nw.lower(lambda x, n: (x * n,), X.astype(np.float64), 3.0).compile()
    close(exe(X.astype(np.float64), 2.0), (X * 2,))
    with pytest.raises(nw.ir.errors.ArgumentError, match=r"expected f32\[3,4\], got s32"):
        exe(X.astype(np.int64), 2.0)


def test_arguments_that_jax_dropped() -> None:
    def first(d: Any) -> Any:
        return [d["a"] + 1]

    given = {"a": X, "unused": W}
    close(nw.lower(first, given).compile()(given), [X + 1])
    close(nw.lower(jax.jit(first), given).compile()(given), [X + 1])
    exported = jax.export.export(jax.jit(first))(given)
    close(nw.lower(exported).compile()(given), [X + 1])
    close(nw.lower(jax.jit(first).lower(given)).compile()(X), [X + 1])


def test_jitted_functions_inside_a_jitted_function_are_part_of_it() -> None:
    outer = nw.jit(
        lambda p, x: JITTED(p, x, scale=2.0)["y"] + jax.grad(lambda v: twice(v).sum())(x)[0, 0]
    )
    twice = nw.jit(jnp.sin)
    close(outer(PARAMS, X), layer(PARAMS, X, scale=2.0)["y"] + jnp.cos(X)[0, 0])
    close(nw.jit(JITTED)(PARAMS, X), layer(PARAMS, X))
    assert "custom-call" not in outer.lower(PARAMS, X).as_text("hlo")


def test_typed_keys_go_in_and_out() -> None:
    many = jax.random.split(jax.random.key(7), 3)
    drawn = nw.jit(lambda k: jax.random.bits(k[1], (5,)))
    np.testing.assert_array_equal(drawn(many), jax.random.bits(many[1], (5,)))
    raw = nw.jit(lambda k: jax.random.bits(k, (5,)))
    typed, plain = jax.random.key(7), jax.random.PRNGKey(7)
    for key in (typed, plain, jax.random.key(7, impl="rbg"), typed):
        np.testing.assert_array_equal(raw(key), jax.random.bits(key, (5,)))
    split = nw.jit(lambda p: {"keys": jax.random.split(p["key"]), "x": p["x"]})
    found = split({"key": typed, "x": X})
    assert found["keys"].dtype == typed.dtype
    expected = jax.random.key_data(jax.random.split(typed))
    np.testing.assert_array_equal(jax.random.key_data(found["keys"]), expected)
    assert nw.lower(lambda k: k, typed).compile()(typed) == typed


def test_derivatives_by_integers_have_no_values() -> None:
    def picked(x: Any, i: Any) -> Any:
        return jax.grad(lambda x, i: x[i].sum(), argnums=(0, 1), allow_int=True)(x, i)

    rows = np.array([1, 0], np.int32)
    for call in (nw.jit(picked), jax.jit(nw.jit(picked)), nw.lower(picked, X, rows).compile()):
        by_x, by_rows = call(X, rows)
        close(by_x, picked(X, rows)[0])
        assert (by_rows.dtype, by_rows.shape) == (jax.dtypes.float0, (2,))


def test_64_bits_are_a_part_of_the_key() -> None:
    f = nw.jit(lambda x: (x + 1, jnp.arange(3)))
    x = np.array([1 / 3, 1e300])
    narrow = f(X)
    with jax.enable_x64(True):
        for a in (X, x):
            close(f(a), jax.jit(lambda x: (x + 1, jnp.arange(3)))(a))
            assert [r.dtype for r in f(a)] == [a.dtype, np.int64]
    assert [r.dtype for r in f(X)] == [r.dtype for r in narrow] == [np.float32, np.int32]


def test_random_keys_are_arguments_and_results() -> None:
    def drawn(key: Any, x: Any) -> Any:
        first, rest = jax.random.split(key)
        return {"x": x + jax.random.normal(first, x.shape), "key": rest}

    for key in (jax.random.key(3), jax.random.key(3, impl="rbg")):
        wanted = drawn(key, X)
        exported = jax.export.export(jax.jit(drawn))
        jitted = nw.jit(drawn)
        for call in (
            jitted,
            jitted,
            nw.lower(drawn, key, X).compile(),
            nw.lower(jax.jit(drawn), key, X).compile(),
            *([nw.lower(exported(key, X)).compile()] if key.dtype == KEY else []),
        ):
            found = call(key, X)
            assert found["key"].dtype == key.dtype
            bits = jax.random.key_data(found["key"]), jax.random.key_data(wanted["key"])
            np.testing.assert_array_equal(*bits)
            np.testing.assert_allclose(found["x"], wanted["x"], rtol=1e-5, atol=1e-6)
    split = nw.jit(jax.random.split)(jax.random.key(0))
    assert split.dtype == KEY and split.shape == (2,)


def test_no_argument_is_static_and_donated() -> None:
    for options in (
        {"static_argnums": 1, "donate_argnums": (0, 1)},
        {"static_argnums": 1, "donate_argnames": "x"},
        {"static_argnames": "x", "donate_argnums": -1},
    ):
        with pytest.raises(nw.ir.errors.ArgumentError, match="both static and donated"):
            nw.jit(lambda params, x: layer(params, x), **options)
