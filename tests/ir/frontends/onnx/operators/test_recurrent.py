"""RNN, GRU and LSTM beside plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(5)


def floats(*dims):
    return (RNG.standard_normal(dims) * 0.5).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_cell(x, h, c, w, r, b, p):
    i, o, f, g = np.split(x @ w.T + h @ r.T + b[: len(w)] + b[len(w) :], 4, -1)
    pi, po, pf = np.split(p, 3)
    new = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g)
    h = sigmoid(o + po * new) * np.tanh(new)
    return h, new


def one_direction(x, lengths, h, c, weights, backwards):
    """States of all steps and the last ones; a row stops after its own length."""
    steps, batch = x.shape[:2]
    y = np.zeros((steps, batch, h.shape[-1]), np.float32)
    h, c = h.copy(), c.copy()
    for row in range(batch):
        order = range(lengths[row])
        for t in reversed(order) if backwards else order:
            h[row], c[row] = lstm_cell(x[t, row], h[row], c[row], *weights)
            y[t, row] = h[row]
    return y, h, c


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
def test_lstm_of_rows_of_unequal_length(check, direction, layout):
    steps, batch, size, hidden = 5, 3, 2, 4
    d = 2 if direction == "bidirectional" else 1
    x = floats(steps, batch, size)
    w, r = floats(d, 4 * hidden, size), floats(d, 4 * hidden, hidden)
    b, p = floats(d, 8 * hidden), floats(d, 3 * hidden)
    h, c = floats(d, batch, hidden), floats(d, batch, hidden)
    lengths = np.array([5, 1, 3], np.int32)
    parts = [
        one_direction(x, lengths, h[k], c[k], (w[k], r[k], b[k], p[k]), k or direction == "reverse")
        for k in range(d)
    ]
    y = np.stack([a for a, _, _ in parts], 1)
    ends = [np.stack([part[n] for part in parts]) for n in (1, 2)]
    if layout:
        x, h, c = (np.swapaxes(t, 0, 1) for t in (x, h, c))
        y, ends = y.transpose(2, 0, 1, 3), [np.swapaxes(e, 0, 1) for e in ends]
    check(
        "LSTM",
        [x, w, r, b, lengths, h, c, p],
        3,
        hidden_size=hidden,
        direction=direction,
        layout=layout,
        wanted=[y, *ends],
    )


@pytest.mark.parametrize("linear", [0, 1])
def test_gru(check, linear):
    x, w, r, b = floats(4, 2, 3), floats(1, 15, 3), floats(1, 15, 5), floats(1, 30)
    inputs = [x, w, r, b, None, floats(1, 2, 5)]
    check("GRU", inputs, 2, hidden_size=5, linear_before_reset=linear)


def test_rnn_with_other_activations_and_a_clip(check):
    x, w, r = floats(3, 2, 4) * 4, floats(2, 5, 4), floats(2, 5, 5)
    h = np.zeros((2, 5), np.float32)
    rows = []
    for step in x:
        h = np.maximum(np.clip(step @ w[0].T + h @ r[0].T, -0.5, 0.5), 0)
        rows.append(h)
    back, h = [], np.zeros((2, 5), np.float32)
    for step in x[::-1]:
        h = 0.5 * np.clip(step @ w[1].T + h @ r[1].T, -0.5, 0.5) + 0.25
        back.append(h)
    y = np.stack([np.stack(rows), np.stack(back[::-1])], 1).astype(np.float32)
    check(
        "RNN",
        [x, w, r],
        wanted=[y],
        hidden_size=5,
        direction="bidirectional",
        activations=["Relu", "Affine"],
        activation_alpha=[0.5],
        activation_beta=[0.25],
        clip=0.5,
    )


def test_an_unknown_activation_is_named(check):
    from nestwright.ir.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="'mish'"):
        check("RNN", [floats(3, 2, 4), floats(1, 5, 4), floats(1, 5, 5)], activations=["Mish"])


@pytest.mark.parametrize("lengths", [None, np.zeros(2, np.int32)])
def test_no_steps_leave_the_state(check, lengths):
    start = floats(1, 2, 3)
    inputs = [floats(0, 2, 4), floats(1, 9, 4), floats(1, 9, 3), None, lengths, start]
    wanted = [np.zeros((0, 1, 2, 3), np.float32), start]
    check("GRU", inputs, 2, wanted=wanted, hidden_size=3)
