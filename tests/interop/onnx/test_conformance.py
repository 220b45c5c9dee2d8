"""A few of the onnx package's own node tests; benchmarks/doors/onnx/conformance.py runs all."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

onnx = pytest.importorskip("onnx", reason="the onnx package has the tests")
pytest.importorskip("nestwright.interop.onnx", reason="it needs the onnx package")

FOLDER = "onnx.backend.test.case.node"
NAMES = {
    "test_add_bcast": "add",
    "test_averagepool_2d_ceil": "averagepool",
    "test_basic_conv_with_padding": "conv",
    "test_cast_FLOAT_to_BFLOAT16": "cast",
    "test_convtranspose_output_shape": "convtranspose",
    "test_einsum_batch_matmul": "einsum",
    "test_gemm_all_attributes": "gemm",
    "test_layer_normalization_3d_axis1_epsilon": "layernormalization",
    "test_maxpool_with_argmax_2d_precomputed_strides": "maxpool",
    "test_reduce_log_sum_exp_negative_axes_keepdims_random": "reduce_log_sum_exp",
    "test_reshape_negative_dim": "reshape",
    "test_scatternd_add": "scatternd",
    "test_sce_mean_weight_ii_3d": "softmax_cross_entropy_loss",
    "test_slice_neg_steps": "slice",
    "test_top_k_smallest": "topk",
    "test_tril_neg": "trilu",
}
"""Tests, and the files of the package that make them: to make all takes a while."""


def made(name: str) -> Any:
    """A test of the package; None if it has none of this name."""
    import_module(f"{FOLDER}.{NAMES[name]}")
    tests = import_module(FOLDER)._NodeTestCases
    return next((test for test in tests if test.name == name), None)


@pytest.mark.filterwarnings("ignore")  # of NumPy, while the package makes its tests
@pytest.mark.parametrize("name", NAMES)
def test_a_node(name: str) -> None:
    from doors.onnx.conformance import run_node_case

    try:
        test = made(name)
    except (ImportError, AttributeError):
        test = None
    if test is None:
        pytest.skip(f"the installed onnx package has no {name}")
    run_node_case(test)
