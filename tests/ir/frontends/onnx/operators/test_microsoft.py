"""Operators of com.microsoft: beside NumPy, and beside ONNX Runtime where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(9)
DOMAIN = "com.microsoft"
ZERO = np.array(120, np.uint8)


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def codes(dtype, *dims):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, dims).astype(dtype)


def test_skipped_layer_norm_returns_the_sum(check):
    x, skip, gamma, beta, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    total = x + skip + bias
    mean, variance = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
    scale = 1 / np.sqrt(variance + np.float32(1e-3))
    wanted = [(total - mean) * scale * gamma + beta, mean, scale, total]
    inputs = [x, skip, gamma, beta, bias]
    check("SkipLayerNormalization", inputs, 4, wanted=wanted, domain_=DOMAIN, epsilon=1e-3)


@pytest.mark.parametrize("domain", ["", DOMAIN])
def test_rms_norm_as_onnx_runtime_writes_it(check, domain):
    x, gamma = floats(2, 3, 8), floats(8)
    wanted = [x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-3)) * gamma]
    attributes = {"domain_": domain, "epsilon": 1e-3} | ({} if domain else {"version_": 17})
    attributes |= {"axis": -1, "stash_type": 1}
    check("SimplifiedLayerNormalization", [x, gamma], wanted=wanted, **attributes)


def in_bytes(x, block):
    """Rows whose blocks are rounded to 8 bits, the largest of each exact."""
    apart = np.pad(x, ((0, 0), (0, -x.shape[1] % block))).reshape(len(x), -1, block)
    top = np.abs(apart).max(-1, keepdims=True)
    factor = np.where(top == 0, 0, np.float32(127) / np.where(top == 0, 1, top))
    rounded = np.rint(apart * factor) * (top / np.float32(127))
    return rounded.reshape(len(x), -1)[:, : x.shape[1]]


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits(check, bits, level):
    k, n, block = 40, 6, 16
    blocks = -(-k // block)
    packed = codes(np.uint8, n, blocks, block * bits // 8)
    scales = floats(n * blocks)
    parts = [(packed >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)]
    whole = np.stack(parts, -1).reshape(n, blocks, block).astype(np.float32)
    weights = (whole - (1 << (bits - 1))) * scales.reshape(n, blocks, 1)
    x = floats(3, k)
    x[1] = 0
    wanted = [(in_bytes(x, block) if level else x) @ weights.reshape(n, -1)[:, :k].T]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    check(
        "MatMulNBits", [x, packed, scales], wanted=wanted, domain_=DOMAIN, rtol_=1e-4, **attributes
    )


RUNTIME = {
    "Gelu": ([floats(3, 4)], {}),
    "BiasGelu": ([floats(3, 4), floats(4)], {}),
    "QuickGelu": ([floats(3, 4)], {"alpha": 1.5}),
    "FusedMatMul": ([floats(2, 3, 4), floats(2, 5, 4)], {"transB": 1, "alpha": 0.5}),
    "FusedConv": (
        [floats(1, 2, 5, 5), floats(4, 2, 3, 3), floats(4), floats(1, 4, 3, 3)],
        {"activation": "Relu"},
    ),
    "FusedGemm": (
        [floats(3, 4), floats(5, 4), floats(5)],
        {"transB": 1, "activation": "Relu", "alpha": 2.0},
    ),
    "SkipSimplifiedLayerNormalization": ([floats(2, 3, 8), floats(2, 3, 8), floats(8)], {}),
    "RotaryEmbedding": (
        [floats(2, 3, 16), np.array([[0, 1, 2], [3, 1, 0]]), floats(10, 4), floats(10, 4)],
        {"interleaved": 1},
    ),
    "QAttention": (
        [
            codes(np.uint8, 2, 5, 8),
            codes(np.int8, 8, 24),
            floats(24),
            np.float32(0.02),
            np.float32(0.01),
            np.array([5, 3], np.int32),
            ZERO,
            np.int8(0),
        ],
        {"num_heads": 2},
    ),
    "QLinearAveragePool": (
        [codes(np.uint8, 2, 3, 5, 4), np.float32(0.1), ZERO, np.float32(0.08), ZERO],
        {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [2, 1]},
    ),
    "QLinearConv": (
        [
            codes(np.uint8, 2, 5, 4, 6),
            np.float32(0.02),
            ZERO,
            codes(np.int8, 4, 3, 3, 3),
            np.float32([0.01, 0.02, 0.03, 0.01]),
            np.zeros(4, np.int8),
            np.float32(0.1),
            ZERO,
            RNG.integers(-999, 999, 4).astype(np.int32),
        ],
        {"group": 2, "channels_last": 1, "pads": [1, 0, 0, 1], "strides": [2, 1]},
    ),
    "NhwcMaxPool": (
        [codes(np.uint8, 2, 5, 4, 3)],
        {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [2, 1]},
    ),
    "GatherBlockQuantized": (
        [codes(np.uint8, 7, 12), np.array([[1, -1], [0, 6]]), floats(7, 2), codes(np.uint8, 7, 1)],
        {"bits": 4, "block_size": 16, "quantize_axis": 1},
    ),
    "QLinearAdd": (
        [
            codes(np.uint8, 3, 4),
            np.float32(0.1),
            ZERO,
            codes(np.uint8, 3, 4),
            np.float32(0.2),
            ZERO,
            np.float32(0.3),
            ZERO,
        ],
        {},
    ),
    "QGemm": (
        [
            *(codes(np.uint8, 3, 16), np.float32(0.1), ZERO),
            *(codes(np.int8, 4, 16), np.float32(0.05), np.array(0, np.int8)),
            *(codes(np.int32, 4) // 2**20, np.float32(0.8), ZERO),
        ],
        {"transB": 1},
    ),
    "DynamicQuantizeMatMul": (
        [floats(3, 16), codes(np.uint8, 16, 4), np.float32(0.1), np.array(128, np.uint8)],
        {},
    ),
    "MatMulInteger16": ([codes(np.int16, 2, 3, 16), codes(np.int16, 16, 4)], {}),
    "MatMulIntegerToFloat": (
        [
            codes(np.uint8, 3, 16),
            codes(np.uint8, 16, 4),
            np.float32(0.1),
            floats(4),
            ZERO,
            codes(np.uint8, 4),
            floats(4),
        ],
        {},
    ),
}
"""Operators, with inputs and attributes, that ONNX Runtime computes as well."""


@pytest.mark.parametrize("op", RUNTIME)
def test_as_onnx_runtime(check, op):
    runtime = pytest.importorskip("onnxruntime", reason="compares with ONNX Runtime")
    onnx = pytest.importorskip("onnx")
    inputs, attributes = RUNTIME[op]
    arrays = [np.asarray(x) for x in inputs]
    helper, names = onnx.helper, [f"x{n}" for n in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, arrays, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], "test", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, dict(zip(names, arrays, strict=True)))
    apart = 1 if wanted[0].dtype.kind in "iu" else 1e-4
    check(op, arrays, wanted=wanted, domain_=DOMAIN, rtol_=1e-4, atol_=apart, **attributes)


def dynamic_product(x, weight, scale, zero):
    """``x`` in 256 steps from its least to its greatest element, times a quantized matrix."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = np.float32((high - low) / 255) or np.float32(1)
    shift = np.clip(np.rint(-low / step), 0, 255)
    whole = np.clip(np.rint(x / step) + shift, 0, 255) - shift
    return ((whole @ (weight.astype(np.int32) - zero)) * (step * scale)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [False, True])
def test_lstm_of_quantized_weights(check, dtype, columns):
    steps, b, n, hidden = 5, 2, 7, 3
    x, bias = floats(steps, b, n), floats(2, 8 * hidden)
    w, r = codes(dtype, 2, n, 4 * hidden), codes(dtype, 2, hidden, 4 * hidden)
    sizes = (2, 4 * hidden) if columns else (2,)
    scales = [(0.01 + 0.01 * RNG.random(sizes)).astype(np.float32) for _ in range(2)]
    zeros = [np.full(2, 128 if dtype == np.uint8 else 0, dtype) for _ in range(2)]
    ys, hs, cs = [], [], []
    for k in range(2):
        x_weight, h_weight = (
            (part[k], scale[k], int(zero[k]))
            for part, scale, zero in zip((w, r), scales, zeros, strict=True)
        )
        own = dynamic_product(x, *x_weight) + bias[k, : 4 * hidden] + bias[k, 4 * hidden :]
        h, c, y = np.zeros((b, hidden), np.float32), np.zeros((b, hidden), np.float32), {}
        for t in range(steps)[:: -1 if k else 1]:
            i, o, f, g = np.split(own[t] + dynamic_product(h, *h_weight), 4, -1)
            i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
            c = f * c + i * np.tanh(g)
            y[t] = h = o * np.tanh(c)
        ys.append(np.stack([y[t] for t in range(steps)]))
        hs.append(h)
        cs.append(c)
    inputs = [x, w, r, bias, None, None, None, None]
    inputs += [scales[0], zeros[0], scales[1], zeros[1]]
    wanted = [np.stack(ys, 1), np.stack(hs), np.stack(cs)]
    given = {"hidden_size": hidden, "direction": "bidirectional"}
    check("DynamicQuantizeLSTM", inputs, 3, wanted=wanted, domain_=DOMAIN, atol_=2e-3, **given)


@pytest.mark.parametrize(
    ("activation", "given", "wanted"),
    [
        ("LeakyRelu", {"alpha": 0.25}, lambda x: np.where(x < 0, x / 4, x)),
        ("Elu", {"alpha": 0.5}, lambda x: np.where(x < 0, np.expm1(x) / 2, x)),
        ("HardSigmoid", {"alpha": 0.25}, lambda x: np.clip(x / 4 + 0.5, 0, 1)),
        ("Selu", {"gamma": 2.0, "alpha": 0.5}, lambda x: np.where(x < 0, np.expm1(x), 2 * x)),
        ("Softplus", {}, lambda x: np.log1p(np.exp(x))),
        ("ThresholdedRelu", {}, lambda x: np.where(x > 1, x, 0)),
    ],
)
def test_parameters_of_a_fused_activation_have_names(check, activation, given, wanted):
    a, b, c = floats(3, 4), floats(4, 5), floats(5)
    named = {f"activation_{k}": v for k, v in given.items()}
    result = wanted(a @ b + c).astype(np.float32)
    more = {"wanted": [result], "domain_": DOMAIN, "atol_": 1e-5}
    check("FusedGemm", [a, b, c], activation=activation, **named, **more)


def test_a_product_of_no_addend_may_say_how_it_is_scaled(check):
    a, b = floats(3, 4), floats(4, 5)
    more = {"wanted": [np.maximum(a @ b, 0)], "domain_": DOMAIN, "atol_": 1e-5}
    check("FusedGemm", [a, b], activation="Relu", beta=2.0, activation_alpha=0.5, **more)


@pytest.mark.parametrize("silu", [0, 1])
@pytest.mark.parametrize("skips", [False, True])
def test_group_norm_with_channels_last(check, silu, skips):
    x, gamma, beta, skip, bias = floats(2, 3, 5, 8), floats(8), floats(8), floats(2, 8), floats(8)
    total = x + skip[:, None, None] + bias if skips else x
    groups = total.reshape(2, 15, 4, 2)
    mean, variance = (f(axis=(1, 3), keepdims=True) for f in (groups.mean, groups.var))
    y = ((groups - mean) / np.sqrt(variance + np.float32(1e-3))).reshape(x.shape) * gamma + beta
    y = y / (1 + np.exp(-y)) if silu else y
    more = {"domain_": DOMAIN, "epsilon": 1e-3, "groups": 4, "activation": silu, "atol_": 1e-5}
    if skips:
        check("SkipGroupNorm", [x, gamma, beta, skip, bias], 2, wanted=[y, total], **more)
    else:
        check("GroupNorm", [x, gamma, beta], wanted=[y], **more)


def test_convolution_with_all_channels_last(check):
    x, w, bias = floats(1, 5, 4, 6), floats(4, 3, 2, 3), floats(4)
    wanted = np.zeros((1, 3, 3, 4), np.float32) + bias
    for g in range(2):
        for i, j in np.ndindex(3, 3):
            part = x[:, i : i + 3, j : j + 2, 3 * g : 3 * g + 3]
            wanted[:, i, j, 2 * g : 2 * g + 2] += np.einsum(
                "nhwc,ohwc->no", part, w[2 * g : 2 * g + 2]
            )
    check("NhwcConv", [x, w, bias], wanted=[wanted], domain_=DOMAIN, group=2, atol_=1e-5)
