"""Attention of com.microsoft: masks, caches, grouped queries, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.errors import UnsupportedError

RNG = np.random.default_rng(9)
DOMAIN = "com.microsoft"


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads_of(x, n):
    b, s, h = x.shape
    return x.reshape(b, s, n, h // n).transpose(0, 2, 1, 3)


def attended(q, k, v, bias=0.0):
    """Attention of heads ``[b, n, s, d]``, joined again."""
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + bias
    y = softmax(scores) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1).astype(np.float32)


@pytest.mark.parametrize("mask", [[3, 5], [3, 5, 0, 1], [[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]])
def test_attention_leaves_out_what_its_mask_does(check, mask):
    x, weights, bias = floats(2, 5, 8), floats(8, 24), floats(24)
    q, k, v = (heads_of(p, 2) for p in np.split(x @ weights + bias, 3, -1))
    live = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    if np.size(mask) != 2:
        live[1] = [0, 1, 1, 1, 1]
    wanted = attended(q, k, v, (1 - np.array(live))[:, None, None] * -10000.0)
    inputs = [x, weights, bias, np.array(mask, np.int32)]
    check("Attention", inputs, wanted=[wanted], domain_=DOMAIN, num_heads=2, rtol_=1e-4)


def test_keys_and_values_may_come_packed(check):
    q, kv = floats(2, 5, 8), floats(2, 4, 2, 2, 4)
    k, v = (kv[:, :, :, n].transpose(0, 2, 1, 3) for n in range(2))
    wanted = [attended(heads_of(q, 2), k, v)]
    check("MultiHeadAttention", [q, kv], wanted=wanted, domain_=DOMAIN, num_heads=2, rtol_=1e-4)


def test_grouped_queries_with_rows_of_unequal_length_in_the_cache(check):
    q, k, v = floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16)
    past_k, past_v = floats(2, 2, 6, 8), floats(2, 2, 6, 8)
    lengths = np.array([4, 6], np.int32)  # keys after this call, less one
    rows, keys, values = [], [], []
    for b, n in enumerate(lengths):
        pair = []
        for past, new in ((past_k, k), (past_v, v)):
            wide = np.concatenate([past[b], np.zeros((2, 1, 8), np.float32)], 1)
            wide[:, n] = heads_of(new, 2)[b, :, 0]
            pair.append(wide)
        keys.append(pair[0])
        values.append(pair[1])
        of_heads = [np.repeat(t[:, : n + 1], 2, 0)[None] for t in pair]
        rows.append(attended(heads_of(q[b : b + 1], 4), *of_heads)[0])
    check(
        "GroupQueryAttention",
        [q, k, v, past_k, past_v, lengths, np.array(7, np.int32)],
        3,
        known=[6],
        wanted=[np.stack(rows), np.stack(keys), np.stack(values)],
        domain_=DOMAIN,
        num_heads=4,
        kv_num_heads=2,
        rtol_=1e-4,
    )


def test_a_causal_mask_counts_from_the_keys_of_the_past(check):
    q, k, v = floats(1, 3, 8), floats(1, 5, 8), floats(1, 5, 8)
    later = np.where(np.arange(5) > np.arange(3)[:, None], -np.inf, 0)
    wanted = [attended(*(heads_of(t, 2) for t in (q, k, v)), later)]
    attributes = {"num_heads": 2, "unidirectional": 1}
    check("MultiHeadAttention", [q, k, v], wanted=wanted, domain_=DOMAIN, rtol_=1e-4, **attributes)


GROUPED = {
    "sinks": ({11: floats(4)}, {}),
    "smooth": ({}, {"smooth_softmax": 1}),
    "both directions": ({}, {"causal": 0}),
    "bias": ({10: floats(1, 4, 3, 3)}, {}),
    "positions": ({9: np.array([[4, 0, 2]] * 2)}, {"do_rotary": 1}),
}


@pytest.mark.parametrize("kind", GROUPED)
def test_prompts_of_unequal_lengths_with_room_for_more(check, kind):
    more, attributes = GROUPED[kind]
    q, k, v = floats(2, 3, 32), floats(2, 3, 16), floats(2, 3, 16)
    cos, sin = floats(6, 4), floats(6, 4)
    room = [np.zeros((2, 2, 5, 8), np.float32)] * 2
    lengths = np.array([1, 2], np.int32)  # keys after this call, less one
    inputs = [q, k, v, *room, lengths, np.array(3, np.int32), *[None] * 5]
    for n, x in more.items():
        inputs[n] = x
    q, k, v = (heads_of(t, t.shape[2] // 8) for t in (q, k, v))
    if "do_rotary" in attributes:
        inputs[7:9] = cos, sin
        q, k = (turned(t, cos[more[9]][:, None], sin[more[9]][:, None]) for t in (q, k))
    held = [np.pad(t, ((0, 0), (0, 0), (0, 2), (0, 0))) for t in (k, v)]
    i, j = np.indices((3, 3))
    seen = j <= i if "causal" not in attributes else j[None, None] <= lengths[:, None, None, None]
    bias = np.where(seen, more.get(10, 0), -np.inf)
    k, v = (np.repeat(t, 2, 1) for t in (k, v))
    if kind in ("sinks", "smooth"):  # as one more key, which has no value
        sink = np.broadcast_to(more.get(11, np.zeros(4))[:, None, None], (2, 4, 3, 1))
        bias = np.concatenate([np.broadcast_to(bias, (2, 4, 3, 3)), sink], 3)
        k, v = (np.pad(t, ((0, 0), (0, 0), (0, 1), (0, 0))) for t in (k, v))
    wanted = attended(q, k, v, bias)
    heads = {"num_heads": 4, "kv_num_heads": 2}
    check(
        "GroupQueryAttention",
        inputs,
        3,
        known=[6],
        wanted=[wanted, *held],
        domain_=DOMAIN,
        rtol_=1e-4,
        **heads,
        **attributes,
    )


def turned(x, cos, sin):
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def test_inputs_that_are_not_computed_with_are_refused(read):
    q, k, v, norm = floats(1, 1, 16), floats(1, 1, 16), floats(1, 1, 16), floats(8)
    inputs = [q, k, v, None, None, np.zeros(1, np.int32), None, *[None] * 7, norm]
    with pytest.raises(UnsupportedError, match="what its input 14 means is not computed"):
        read("GroupQueryAttention", inputs, domain_=DOMAIN, num_heads=2, kv_num_heads=2)


@pytest.mark.parametrize(
    ("outputs", "attributes", "why"),
    [(1, {"do_rotary": 1}, "it rotates"), (2, {"qkv_hidden_sizes": [4, 4, 6]}, "unequal sizes")],
)
def test_forms_of_attention_that_are_refused(read, outputs, attributes, why):
    x, weights = floats(1, 3, 4), floats(4, 14 if outputs == 2 else 12)
    with pytest.raises(UnsupportedError, match=why):
        read(
            "Attention",
            [x, weights],
            outputs=outputs,
            domain_=DOMAIN,
            num_heads=2,
            **attributes,
        )


IDLE = {"qk_output": 0, "sliding_window_cache": 0, "kv_cache_bit_width": 0, "k_quant_type": "NONE"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("qk_output", 1), ("k_quant_type", "PER_TENSOR"), ("of_a_later_version", 0)],
)
def test_attributes_that_ask_for_more_are_refused_by_name(read, name, value):
    q, k, v = floats(1, 1, 8), floats(1, 1, 8), floats(1, 1, 8)
    inputs = [q, k, v, None, None, np.array([0], np.int32)]
    given = {"domain_": DOMAIN, "num_heads": 2, "kv_num_heads": 2, "qk_norm_epsilon": 0.5}
    read("GroupQueryAttention", inputs, outputs=3, **given, **IDLE)
    with pytest.raises(UnsupportedError, match=f"attribute `{name}` means"):
        read("GroupQueryAttention", inputs, outputs=3, **given, **IDLE | {name: value})
