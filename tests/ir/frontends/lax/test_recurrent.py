"""Steps of LSTM and GRU cells beside plain NumPy: any order of gates, backwards, short rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.frontends.lax import recurrent

T, B, N, H = 5, 3, 2, 4
LENGTHS = np.array([5, 0, 3], np.int32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def weights(gates: int) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(T, B, N), (gates * H, N), (gates * H, H), (gates * H,), (gates * H,), (B, H), (B, H)]
    return [(rng.standard_normal(s) * 0.5).astype(np.float32) for s in shapes]


def walked(step: Any, x: Any, state: Any, backwards: bool) -> list[Any]:
    """The states of all steps and the last ones; a row stops after its own length."""
    states, y = [s.copy() for s in state], np.zeros((T, B, H), np.float32)
    for row in range(B):
        order = range(LENGTHS[row])
        for t in reversed(order) if backwards else order:
            new = step(x[t, row], [s[row] for s in states])
            for s, n in zip(states, new, strict=True):
                s[row] = n
            y[t, row] = new[0]
    return [y, *states]


def compared(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("order", ["ifgo", "iofg"])
def test_lstm(order: str, backwards: bool, run: Any) -> None:
    def layer(x, w, r, wb, rb, h, c, lengths):  # type: ignore[no-untyped-def]
        step = recurrent.lstm_step(r, rb, order)
        return recurrent.run(step, x, w, wb, [h, c], backwards=backwards, lengths=lengths)

    x, w, r, wb, rb, h, c = weights(4)

    def step(row: Any, state: Any) -> Any:
        parts = np.split(w @ row + wb + r @ state[0] + rb, 4)
        i, f, g, o = (parts[order.index(gate)] for gate in "ifgo")
        cell = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(cell), cell

    found = run(layer, x, w, r, wb, rb, h, c, LENGTHS)
    compared(found, walked(step, x, [h, c], backwards))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("order", ["rz", "zr"])
def test_gru(order: str, linear: bool, run: Any) -> None:
    def layer(x, w, r, wb, rb, h, lengths):  # type: ignore[no-untyped-def]
        step = recurrent.gru_step(r, rb, order, linear_before_reset=linear)
        return recurrent.run(step, x, w, wb, [h], lengths=lengths)

    x, w, r, wb, rb, h, _ = weights(3)

    def step(row: Any, state: Any) -> Any:
        old = state[0]
        given, own = w @ row + wb, r @ old + rb
        reset, update = (sigmoid(given + own)[k * H : (k + 1) * H] for k in map(order.index, "rz"))
        inner = reset * own[2 * H :] if linear else r[2 * H :] @ (reset * old) + rb[2 * H :]
        new = np.tanh(given[2 * H :] + inner)
        return [(1 - update) * new + update * old]

    compared(run(layer, x, w, r, wb, rb, h, LENGTHS), walked(step, x, [h], False))
