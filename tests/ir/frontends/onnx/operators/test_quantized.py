"""Quantized operators beside NumPy: exact in 32 bits, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse

RNG = np.random.default_rng(11)


def codes(dtype, *dims):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, dims).astype(dtype)


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, "symmetric", "odd"])
def test_integer_products(check, left, right, zero):
    a, b = codes(left, 3, 300), codes(right, 300, 5)
    inputs, za, zb = [a, b], 0, 0
    if zero:
        za = 7 if zero == "odd" else 128 * (left == np.uint8)
        zb = 3 if zero == "odd" else 128 * (right == np.uint8)
        inputs += [np.array(za, left), np.array(zb, right)]
    wanted = [(a.astype(np.int32) - za) @ (b.astype(np.int32) - zb)]
    check("MatMulInteger", inputs, wanted=wanted, known=range(2, len(inputs)), rtol_=0, atol_=0)


def test_integer_products_of_rows_and_columns_with_zero_points_of_their_own(check):
    a, b = codes(np.uint8, 3, 7), codes(np.int8, 7, 4)
    za, zb = codes(np.uint8, 3), codes(np.int8, 4)
    wanted = [(a.astype(np.int32) - za[:, None]) @ (b.astype(np.int32) - zb)]
    check("MatMulInteger", [a, b, za, zb], wanted=wanted, rtol_=0, atol_=0)
    wanted = [(a.astype(np.int32) - za[:, None]) @ b.astype(np.int32)]
    check("MatMulInteger", [a, b, za], wanted=wanted, rtol_=0, atol_=0)


@pytest.mark.parametrize("zero", [0, 113])
def test_zero_points_of_many_columns_keep_products_of_bytes(tmp_path, zero):
    """There are more columns than a value may have elements that is known while reading."""
    onnx = pytest.importorskip("onnx")
    kind = np.uint8 if zero else np.int8
    a, b, zb = codes(np.uint8, 4, 12), codes(kind, 12, 2000), np.full(2000, zero, kind)
    weights = {"b": b, "za": np.array(9, np.uint8), "zb": zb}
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["a", *weights], ["y"])],
        "wide",
        [tensor("a", onnx.TensorProto.UINT8, a.shape)],
        [tensor("y", onnx.TensorProto.INT32, (4, 2000))],
        [onnx.numpy_helper.from_array(x, name) for name, x in weights.items()],
    )
    opset, path = [onnx.helper.make_opsetid("", 20)], str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    lowered = nw.lower(path, target="cpu -mcpu=icelake-server")
    dots = [i for i in parse(lowered.as_text("optimized")).entry.instructions if i.opcode == "dot"]
    assert [[o.array.dtype.name for o in i.operands] for i in dots] == [["u8", "s8"]]
    wanted = (a.astype(np.int32) - 9) @ (b.astype(np.int32) - zero)
    np.testing.assert_array_equal(nw.build(path)(a), wanted)


def test_vectors_in_integer_products(check):
    a, b, z = codes(np.uint8, 9), codes(np.int8, 9, 4), np.array(5, np.uint8)
    wanted = [(a.astype(np.int32) - 5) @ b.astype(np.int32)]
    check("MatMulInteger", [a, b, z], wanted=wanted, rtol_=0, atol_=0)
    wanted = [b.T.astype(np.int32) @ (a.astype(np.int32) - 5)]
    check("MatMulInteger", [b.T.copy(), a, None, z], wanted=wanted, rtol_=0, atol_=0)


EACH = [3, 128, 0, 255, 17, 200]  # zero points of six channels


@pytest.mark.parametrize(
    ("weights", "zero"),
    [
        (np.uint8, 128),
        (np.int8, 0),
        (np.uint8, 0),
        (np.uint8, 120),
        (np.int8, -5),
        (np.uint8, EACH),
    ],
)
@pytest.mark.parametrize("known", [[], [1, 2, 3]])
@pytest.mark.parametrize("groups", [1, 2])
def test_integer_convolution_pads_with_zeros(check, weights, zero, known, groups):
    channels = 4 // groups
    x, w = codes(np.uint8, 2, 4, 6, 5), codes(weights, 6, channels, 3, 2)
    zx, zw = 9, np.array(zero)
    wide = np.pad(x.astype(np.int32) - zx, [(0, 0), (0, 0), (1, 1), (0, 1)])
    kernel = w.astype(np.int32) - zw.astype(np.int32).reshape(-1, 1, 1, 1)
    y = np.zeros((2, 6, 3, 5), np.int32)
    for o in range(6):
        first = channels * (o * groups // 6)
        part = wide[:, first : first + channels]
        for i in range(3):
            for j in range(5):
                y[:, o, i, j] = (part[:, :, 2 * i : 2 * i + 3, j : j + 2] * kernel[o]).sum(
                    (1, 2, 3)
                )
    inputs = [x, w, np.array(zx, np.uint8), zw.astype(weights)]
    attributes = {"pads": [1, 0, 1, 1], "strides": [2, 1], "group": groups}
    check("ConvInteger", inputs, known=known, wanted=[y], rtol_=0, atol_=0, **attributes)


@pytest.mark.parametrize("zero", [0, 120, 128])
def test_zero_points_of_weights_keep_convolutions_of_bytes(tmp_path, zero):
    onnx = pytest.importorskip("onnx")
    helper, path = onnx.helper, tmp_path / "m.onnx"
    w = codes(np.uint8, 5, 16, 3, 3)
    held = {"w": w, "zx": np.array(9, np.uint8), "zw": np.array(zero, np.uint8)}
    node = helper.make_node("ConvInteger", ["x", *held], ["y"], pads=[1, 1, 2, 2])
    node.attribute.append(helper.make_attribute("dilations", [2, 2]))
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 16, 7, 6])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    arrays = [onnx.numpy_helper.from_array(a, name) for name, a in held.items()]
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y], arrays)), path)
    lowered = nw.lower(path, target="cpu -mcpu=sapphirerapids -threads=1")
    found = parse(lowered.as_text("optimized")).entry.instructions
    (conv,) = (i for i in found if i.opcode == "convolution")
    assert [o.array.dtype.name for o in conv.operands] == ["u8", "s8"]
    given = codes(np.uint8, 1, 16, 7, 6)
    wide = np.pad(given.astype(np.int32) - 9, [(0, 0), (0, 0), (1, 2), (1, 2)])
    kernel = w.astype(np.int32) - zero
    wanted = sum(
        np.einsum(
            "nchw,oc->nohw", wide[:, :, 2 * i : 2 * i + 6, 2 * j : 2 * j + 5], kernel[:, :, i, j]
        )
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_array_equal(nw.build(path)(given), wanted)


def test_quantized_convolution_with_scales_of_channels(check):
    x, w, bias = codes(np.uint8, 1, 3, 4, 4), codes(np.int8, 5, 3, 1, 1), codes(np.int32, 5) >> 16
    scales = (RNG.random(5) * 0.01 + 0.001).astype(np.float32)
    total = np.einsum("nchw,oc->nohw", x.astype(np.int32) - 100, w[:, :, 0, 0].astype(np.int32))
    total = total + bias[:, None, None]
    scale = np.float32(0.02) * scales / np.float32(0.05)
    y = np.rint(total.astype(np.float32) * scale[:, None, None]) + 30
    wanted = [np.clip(y, 0, 255).astype(np.uint8)]
    inputs = [x, np.float32(0.02), np.uint8(100), w, scales, np.zeros(5, np.int8)]
    inputs = [np.asarray(t) for t in (*inputs, np.float32(0.05), np.uint8(30), bias)]
    check("QLinearConv", inputs, wanted=wanted, atol_=1)


def test_blocks_of_unequal_size_have_their_scales(check):
    x, scale = codes(np.int8, 2, 7, 3), (RNG.random((2, 3, 3)) + 0.1).astype(np.float32)
    zero = codes(np.int8, 2, 3, 3)
    wide = [np.repeat(t, 3, 1)[:, :7] for t in (scale, zero)]
    wanted = [(x.astype(np.float32) - wide[1]) * wide[0]]
    check("DequantizeLinear", [x, scale, zero], wanted=wanted, axis=1, block_size=3)


def test_codes_saturate_and_round_to_even(check):
    x = np.array([-np.inf, -1e9, -2.5, -1.5, 0.5, 1.5, 250, 1e9, np.inf], np.float32)
    wanted = [np.clip(np.rint(x) + 3, 0, 255).astype(np.uint8)]
    inputs = [x, np.array(1, np.float32), np.array(3, np.uint8)]
    check("QuantizeLinear", inputs, wanted=wanted, rtol_=0, atol_=0)
