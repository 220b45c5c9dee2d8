"""A few of the onnx package's own node tests; benchmarks/doors/onnx/conformance.py runs all."""

from __future__ import annotations

from typing import Any

import pytest

onnx = pytest.importorskip("onnx", reason="the onnx package has the tests")
pytest.importorskip("nestwright.interop.onnx", reason="it needs the onnx package")

NAMES = (
    "test_add_bcast",
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_cast_FLOAT_to_BFLOAT16",
    "test_convtranspose_output_shape",
    "test_einsum_batch_matmul",
    "test_gemm_all_attributes",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_maxpool_with_argmax_2d_precomputed_strides",
    "test_reduce_log_sum_exp_negative_axes_keepdims_random",
    "test_reshape_negative_dim",
    "test_scatternd_add",
    "test_sce_mean_weight_ii_3d",
    "test_slice_neg_steps",
    "test_top_k_smallest",
    "test_tril_neg",
)


@pytest.fixture(scope="module")
def tests() -> dict[str, Any]:
    loader = pytest.importorskip("onnx.backend.test.loader", reason="the package's tests")
    return {test.name: test for test in loader.load_model_tests(kind="node")}


@pytest.mark.filterwarnings("ignore")  # of NumPy, while the package makes its tests
@pytest.mark.parametrize("name", NAMES)
def test_a_node(tests: dict[str, Any], name: str) -> None:
    from doors.onnx.conformance import run_node_case

    if name not in tests:
        pytest.skip(f"the installed onnx package has no {name}")
    run_node_case(tests[name])
