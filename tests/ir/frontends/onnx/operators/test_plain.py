"""Operators beside ONNX's reference: odd extents, unit and zero sizes, narrow types, NaN, inf."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.errors import UnsupportedError

RNG = np.random.default_rng(3)
NAN, INF = np.nan, np.inf


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div", "Max", "Min", "Less", "Equal"])
@pytest.mark.parametrize("dims", [((3, 1, 5), (7, 1)), ((0, 3), (1, 3)), ((), (2,))])
def test_two_arrays_broadcast(check, op, dims) -> None:
    a, b = floats(*dims[0]), floats(*dims[1])
    if a.size:
        a.flat[0] = NAN
    check(op, [a, b])


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16])
def test_remainders_of_integers(check, fmod, dtype) -> None:
    a, b = np.meshgrid([-7, -3, 0, 3, 7], [-3, 3, 5])
    if np.dtype(dtype).kind == "u":
        a, b = abs(a), abs(b)
    check("Mod", [a.astype(dtype), b.astype(dtype)], fmod=fmod)


def test_powers_of_mixed_types(check) -> None:
    check("Pow", [np.array([1.5, -2, 0], np.float32), np.array([2, 3, 0])])
    check("Pow", [np.array([2, 3]), np.array([0.5, 2.0], np.float32)])


def test_clip_keeps_nan_and_takes_one_bound(check) -> None:
    x = np.array([-INF, -1, 0, NAN, 9], np.float32)
    check("Clip", [x, np.float32(-0.5), np.float32(2)])
    check("Clip", [x, None, np.float32(2)])


@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "int4", "uint8"])
def test_casts_to_narrow_types(check, onnx, to) -> None:
    dtype = np.dtype(getattr(ml_dtypes, to, to))
    number = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    x = np.array([0, -0.4, 1.2, 3, 7, 7], np.float32)
    if "float8" in to:
        x = np.append(x, [NAN, 1e6, -1e6, INF]).astype(np.float32)
    check("Cast", [abs(x) if to == "uint8" else x], to=number, saturate=1)


@pytest.mark.parametrize(
    "starts_ends_steps",
    [
        ([0], [9], [2]),
        ([-1], [-100], [-1]),
        ([5], [1], [-2]),
        ([3], [3], [1]),
        ([-3], [100], [1]),
    ],
)
def test_slices(check, starts_ends_steps) -> None:
    starts, ends, steps = map(np.array, starts_ends_steps)
    check("Slice", [floats(7, 3), starts, ends, np.array([0]), steps], known=range(1, 5))


def test_slices_backwards_from_before_the_first(check) -> None:
    x, numbers = floats(5, 2), [np.array([n]) for n in (-9, -99, 0, -2)]
    check("Slice", [x, *numbers], known=[1, 2, 3, 4], wanted=[x[:1]])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding(check, mode) -> None:
    check("Pad", [floats(5, 4), np.array([1, 3, 2, 0])], known=[1], mode=mode)


@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax"]
)
@pytest.mark.parametrize("axes", [[0], [-1, 1], []])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(check, op, axes, keep) -> None:
    axes = np.array(axes, np.int64) if axes else None
    check(op, [floats(3, 1, 5), axes], known=[1] if axes is not None else [], keepdims=keep)


def test_extremes_take_the_place_that_is_asked_for(check) -> None:
    x = np.array([[2, 5, 5, 1], [3, 3, 3, 3]], np.float32)
    for last in (0, 1):
        check("ArgMax", [x], axis=1, select_last_index=last, keepdims=0)
        check("ArgMin", [x], axis=0, select_last_index=last)


@pytest.mark.parametrize(
    ("equation", "dims"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...i,...i", [(2, 3), (2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ij,kl->ijkl", [(2, 1), (3, 2)]),
        ("abc->cb", [(2, 3, 4)]),
    ],
)
def test_einsum(check, equation, dims) -> None:
    arrays = [floats(*d) for d in dims]
    written = equation if "->" in equation else equation + "->..."
    check("Einsum", arrays, wanted=[np.einsum(written, *arrays)], equation=equation)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("groups", [1, 3])
def test_convolutions(check, auto_pad, groups) -> None:
    more = {"pads": [1, 0, 0, 2]} if auto_pad == "NOTSET" else {}
    x, w, b = floats(1, 3, 7, 6), floats(6, 3 // groups, 3, 2), floats(6)
    check("Conv", [x, w, b], strides=[2, 1], group=groups, auto_pad=auto_pad, rtol_=1e-4, **more)


def test_transposed_convolutions(check) -> None:
    x, w = floats(2, 4, 5, 3), floats(4, 3, 3, 2)
    check("ConvTranspose", [x, w], strides=[2, 3], pads=[1, 0, 1, 0], rtol_=1e-4, atol_=1e-5)
    wanted = check("ConvTranspose", [x, w], strides=[2, 3], output_padding=[1, 2], rtol_=1e-4)
    assert wanted[0].shape == (2, 3, 12, 10)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(check, op, ceil) -> None:
    x = floats(1, 2, 7, 8)
    check(op, [x], kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 0, 1], ceil_mode=ceil)


def test_places_of_pools_unpool(check) -> None:
    x = floats(2, 1, 4, 6)
    best, places = check("MaxPool", [x], outputs=2, kernel_shape=[2, 3], strides=[2, 3])
    assert x.reshape(-1)[places].tolist() == best.tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms_of_rows(check, axis) -> None:
    x = floats(3, 1, 5)
    dims = x.shape[axis:]
    check("LayerNormalization", [x, floats(*dims), floats(*dims)], outputs=3, axis=axis, rtol_=1e-4)


@pytest.mark.parametrize("softcap", [0.5, 0.0, -0.5])
def test_only_a_positive_softcap_bounds_scores(check, softcap) -> None:
    q, k, v = np.float32(np.random.default_rng(0).normal(size=(3, 1, 2, 3, 4)))
    check("Attention", [q, k, v], softcap=softcap, rtol_=1e-4)


def test_batch_normalization_in_both_modes(check) -> None:
    x, parts = floats(4, 3, 5), [floats(3), floats(3), floats(3), abs(floats(3)) + 1]
    check("BatchNormalization", [x, *parts], rtol_=1e-4, atol_=1e-5)
    check("BatchNormalization", [x, *parts], outputs=3, training_mode=1, rtol_=1e-4, atol_=1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_combine(check, reduction) -> None:
    x, updates = floats(4, 3), floats(2, 3)
    places = np.array([[0, -1, 2], [3, 1, 1]])
    check("ScatterElements", [x, places, updates], axis=0, reduction=reduction)
    check(
        "ScatterND",
        [
            x,
            np.array([[1], [-1]]),
            updates,
        ],
        reduction=reduction,
    )


def test_gathers_count_from_the_end(check) -> None:
    x = floats(5, 3)
    check("Gather", [x, np.array([[-1, 0], [2, -5]])], axis=0)
    check("GatherElements", [x, np.array([[-1, 0, 2]])], axis=0)
    check("GatherND", [x, np.array([[-1, 0], [2, -3]])])


def test_gathers_of_no_places(check) -> None:
    x, none = floats(0, 3), np.zeros((0, 2), np.int64)
    check("Gather", [x, none], axis=0)
    check("GatherElements", [x, none], axis=1)
    check("GatherND", [x, none], wanted=[np.zeros(0, np.float32)])
    check("Det", [floats(0, 2, 2)], wanted=[np.zeros(0, np.float32)])


def test_the_best_of_rows(check) -> None:
    x = np.array([[3, 1, 3, 2], [0, 0, -1, 5]], np.float32)
    for largest in (0, 1):
        check("TopK", [x, np.array([3])], outputs=2, known=[1], largest=largest)


@pytest.mark.parametrize("args", [(0, 10, 3), (10, 0, -4), (5, 5, 1), (0.0, 1.0, 0.25)])
def test_ranges(check, args) -> None:
    dtype = np.float32 if isinstance(args[0], float) else np.int64
    check("Range", [np.asarray(a, dtype) for a in args], known=range(3))


def test_determinants(check) -> None:
    x = floats(3, 4, 4)
    x[0, 0, 0] = 0
    x[1, :, 2] = 0
    check("Det", [x], rtol_=1e-4, atol_=1e-5)


def test_random_numbers_follow_their_seed(onnx) -> None:
    """A seed gives the same numbers; their moments and frequencies are the distribution's."""
    import nestwright.interop.onnx as backend

    def run(op, *inputs, **attributes):
        names = [f"x{n}" for n in range(len(inputs))]
        node = onnx.helper.make_node(op, names, ["y"], **attributes)
        return backend.run_node(node, list(inputs))[0]

    normal = run("RandomNormal", shape=[20000], mean=2.0, scale=3.0, seed=1.0)
    assert abs(normal.mean() - 2) < 0.1 and abs(normal.std() - 3) < 0.1
    np.testing.assert_array_equal(
        normal, run("RandomNormal", shape=[20000], mean=2.0, scale=3.0, seed=1.0)
    )
    even = run("RandomUniformLike", normal, low=-1.0, high=3.0, seed=2.0)
    assert even.min() >= -1 and even.max() < 3 and abs(even.mean() - 1) < 0.05
    hits = run("Bernoulli", np.full(20000, 0.25, np.float32), seed=3.0)
    assert abs(hits.mean() - 0.25) < 0.02
    weights = np.log(np.array([[0.5, 0.25, 0.25, 0]], np.float32) + 1e-30).astype(np.float32)
    drawn = run("Multinomial", weights, sample_size=20000, seed=4.0)
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(
        np.bincount(drawn[0], minlength=4) / 20000, [0.5, 0.25, 0.25, 0], atol=0.02
    )


def test_random_numbers_without_a_seed_are_refused(onnx) -> None:
    import nestwright.interop.onnx as backend

    node = onnx.helper.make_node("RandomUniform", [], ["y"], shape=[3])
    with pytest.raises(UnsupportedError, match=r"RandomUniform(.|\n)*seed"):
        backend.run_node(node, [])


def test_spectra_of_plain_signals(onnx) -> None:
    """Exporters leave the last dimension of real signals out."""
    import nestwright.interop.onnx as backend

    x = floats(2, 40)
    node = onnx.helper.make_node("STFT", ["x", "step", "w"], ["y"])
    window = np.hanning(16).astype(np.float32)
    (found,) = backend.run_node(node, [x, np.array(7), window])
    frames = np.stack([x[:, k : k + 16] * window for k in range(0, 25, 7)], 1)
    expected = np.fft.rfft(frames)
    assert found.shape == (2, 4, 9, 2)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [(1, 6, 1), (2, 3, 5, 2)])
def test_transforms_are_along_the_last_dimension_but_one(dims: tuple[int, ...], check) -> None:
    x = floats(*dims)
    numbers = x[..., 0] if dims[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    found = np.fft.fft(numbers)
    wanted = np.stack([found.real, found.imag], -1).astype(np.float32)
    check("DFT", [x], wanted=[wanted], rtol_=1e-4, atol_=1e-5)


def test_caches_that_wrap_around_are_written_from_their_start_again(check) -> None:
    cache, update = floats(2, 5, 3), floats(2, 3, 3)
    starts, wanted = np.array([1, 4]), cache.copy()
    for b, start in enumerate(starts):
        wanted[b, (start + np.arange(3)) % 5] = update[b]
    check("TensorScatter", [cache, update, starts], wanted=[wanted], mode="circular")
