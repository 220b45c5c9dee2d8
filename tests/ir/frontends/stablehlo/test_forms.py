"""The forms that StableHLO's operations without regions print in, by what they compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ..forms import F, Form, N, S, V, X

FORMS: dict[str, Form] = {
    "unary, one type": (
        "%r = stablehlo.negate %a : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        -X,
    ),
    "unary, attributes and a function's type": (
        "%r = stablehlo.negate %a {mhlo.x = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        -X,
    ),
    "unary, generic": (
        '%r = "stablehlo.negate"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        -X,
    ),
    "MHLO": ("%r = mhlo.add %a, %a : tensor<3xi32>", "tensor<3xi32>", "tensor<3xi32>", [V], V * 2),
    "is_finite": (
        "%r = stablehlo.is_finite %a : (tensor<2xf32>) -> tensor<2xi1>",
        "tensor<2xf32>",
        "tensor<2xi1>",
        [np.array([1, np.inf], F)],
        np.array([True, False]),
    ),
    "compare": (
        "%r = stablehlo.compare GE, %a, %a, TOTALORDER"
        " : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
        "tensor<2xf32>",
        "tensor<2xi1>",
        [np.array([1, np.nan], F)],
        np.array([True, True]),
    ),
    "compare complex numbers": (
        "%r = stablehlo.compare GE, %a, %b, FLOAT"
        " : (tensor<4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<4xi1>",
        "tensor<4xcomplex<f32>> tensor<4xcomplex<f32>>",
        "tensor<4xi1>",
        [np.array([1 + 2j, 1 + 1j, 2, -1j], "c8"), np.array([1 + 1j, 1 + 1j, 3, 0], "c8")],
        np.array([True, True, False, False]),
    ),
    "compare, generic": (
        '%r = "stablehlo.compare"(%a, %a) <{comparison_direction ='
        " #stablehlo<comparison_direction NE>}> : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
        "tensor<2xf32>",
        "tensor<2xi1>",
        [np.array([1, np.nan], F)],
        np.array([False, True]),
    ),
    "select by a scalar": (
        "%r = stablehlo.select %a, %b, %c : tensor<i1>, tensor<3xi32>",
        "tensor<i1> tensor<3xi32> tensor<3xi32>",
        "tensor<3xi32>",
        [np.array(False), V, -V],
        -V,
    ),
    "clamp by scalars": (
        "%r = stablehlo.clamp %b, %a, %b : (tensor<f32>, tensor<2x3xf32>, tensor<f32>)"
        " -> tensor<2x3xf32>",
        "tensor<2x3xf32> tensor<f32>",
        "tensor<2x3xf32>",
        [X, F(2)],
        np.full((2, 3), 2, F),
    ),
    "convert": (
        "%r = stablehlo.convert %a : (tensor<3xi32>) -> tensor<3xf64>",
        "tensor<3xi32>",
        "tensor<3xf64>",
        [V],
        V.astype(np.float64),
    ),
    "bitcast_convert": (
        "%r = stablehlo.bitcast_convert %a : (tensor<3xi32>) -> tensor<3x4xi8>",
        "tensor<3xi32>",
        "tensor<3x4xi8>",
        [V],
        V.view(np.int8).reshape(3, 4),
    ),
    "bitcast_convert to single bits": (
        "%r = stablehlo.bitcast_convert %a : (tensor<ui8>) -> tensor<8xi1>",
        "tensor<ui8>",
        "tensor<8xi1>",
        [np.uint8(0b1010)],
        np.array([0, 1, 0, 1, 0, 0, 0, 0], bool),
    ),
    "bitcast_convert of single bits": (
        "%r = stablehlo.bitcast_convert %a : (tensor<8xi1>) -> tensor<ui8>",
        "tensor<8xi1>",
        "tensor<ui8>",
        [np.array([0, 1, 0, 1, 0, 0, 0, 1], bool)],
        np.uint8(0b10001010),
    ),
    "iota": (
        "%r = stablehlo.iota dim = 1 : tensor<2x3xi32>",
        "",
        "tensor<2x3xi32>",
        [],
        [[0, 1, 2]] * 2,
    ),
    "reshape": (
        "%r = stablehlo.reshape %a : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        "tensor<2x3xf32>",
        "tensor<3x2xf32>",
        [X],
        X.reshape(3, 2),
    ),
    "broadcast_in_dim out of order": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [2, 0]"
        " : (tensor<2x3xf32>) -> tensor<3x4x2xf32>",
        "tensor<2x3xf32>",
        "tensor<3x4x2xf32>",
        [X],
        np.broadcast_to(X.T[:, None], (3, 4, 2)),
    ),
    "broadcast_in_dim of one element": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x3xf32>",
        "tensor<2x1xf32>",
        "tensor<2x3xf32>",
        [X[:, :1]],
        np.repeat(X[:, :1], 3, 1),
    ),
    "broadcast": (
        "%r = stablehlo.broadcast %a, sizes = [2] : (tensor<3xi32>) -> tensor<2x3xi32>",
        "tensor<3xi32>",
        "tensor<2x3xi32>",
        [V],
        [V, V],
    ),
    "transpose": (
        "%r = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        "tensor<2x3xf32>",
        "tensor<3x2xf32>",
        [X],
        X.T,
    ),
    "reverse": (
        "%r = stablehlo.reverse %a, dims = [1] : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        X[:, ::-1],
    ),
    "concatenate": (
        "%r = stablehlo.concatenate %a, %a, dim = 0"
        " : (tensor<3xi32>, tensor<3xi32>) -> tensor<6xi32>",
        "tensor<3xi32>",
        "tensor<6xi32>",
        [V],
        [*V, *V],
    ),
    "slice": (
        "%r = stablehlo.slice %a [0:1, 0:3:2] : (tensor<2x3xf32>) -> tensor<1x2xf32>",
        "tensor<2x3xf32>",
        "tensor<1x2xf32>",
        [X],
        X[:1, ::2],
    ),
    "dynamic_slice": (
        "%r = stablehlo.dynamic_slice %a, %b, %b, sizes = [1, 2]"
        " : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>",
        "tensor<2x3xf32> tensor<i32>",
        "tensor<1x2xf32>",
        [X, N(9)],
        X[1:, 1:],
    ),
    "dynamic_update_slice": (
        "%r = stablehlo.dynamic_update_slice %a, %b, %c"
        " : (tensor<3xi32>, tensor<1xi32>, tensor<i32>) -> tensor<3xi32>",
        "tensor<3xi32> tensor<1xi32> tensor<i32>",
        "tensor<3xi32>",
        [V, np.array([9], N), N(1)],
        [3, 9, 2],
    ),
    "pad": (
        "%r = stablehlo.pad %a, %b, low = [-1], high = [2], interior = [1]"
        " : (tensor<3xi32>, tensor<i32>) -> tensor<6xi32>",
        "tensor<3xi32> tensor<i32>",
        "tensor<6xi32>",
        [V, N(0)],
        [0, 1, 0, 2, 0, 0],
    ),
    "dot": (
        "%r = stablehlo.dot %a, %a, precision = [DEFAULT, HIGHEST]"
        " : (tensor<3xi32>, tensor<3xi32>) -> tensor<i32>",
        "tensor<3xi32>",
        "tensor<i32>",
        [V],
        V @ V,
    ),
    "dot_general": (
        "%r = stablehlo.dot_general %a, %a, batching_dims = [0] x [0], contracting_dims"
        " = [1] x [1],"
        " precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = tf32,"
        " rhs_precision_type"
        " = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,"
        " num_primitive_operations = 1, allow_imprecise_accumulation = false>"
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>",
        "tensor<2x3xf32>",
        "tensor<2xf32>",
        [X],
        (X * X).sum(1),
    ),
    "dot_general, generic": (
        '%r = "stablehlo.dot_general"(%a, %a) <{dot_dimension_numbers = #stablehlo.dot<'
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}>"
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
        "tensor<2x3xf32>",
        "tensor<2x2xf32>",
        [X],
        X @ X.T,
    ),
    "einsum": (
        '%r = stablehlo.einsum %a, %a, config = "ab,cb->ca"'
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
        "tensor<2x3xf32>",
        "tensor<2x2xf32>",
        [X],
        X @ X.T,
    ),
    "einsum with a sum": (
        '%r = stablehlo.einsum %a, %b, config = "ab,b->b"'
        " : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        "tensor<2x3xf32> tensor<3xf32>",
        "tensor<3xf32>",
        [X, X[0]],
        X.sum(0) * X[0],
    ),
    "unary_einsum": (
        '%r = stablehlo.unary_einsum %a, config = "ab->b" : (tensor<2x3xf32>) -> tensor<3xf32>',
        "tensor<2x3xf32>",
        "tensor<3xf32>",
        [X],
        X.sum(0),
    ),
    "torch_index_select": (
        '%r = "stablehlo.torch_index_select"(%a, %b) <{batch_dims = 1 : i64, dim = 1 : i64}>'
        " : (tensor<2x3xf32>, tensor<2x2xi32>) -> tensor<2x2xf32>",
        "tensor<2x3xf32> tensor<2x2xi32>",
        "tensor<2x2xf32>",
        [X, np.array([[2, 0], [1, 1]], N)],
        [[2, 0], [4, 4]],
    ),
    "convolution": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {stride = [1], pad = [[1, 0]], lhs_dilate = [1], rhs_dilate = [1],"
        " reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<1x1x3xf32>, tensor<1x1x2xf32>) -> tensor<1x1x3xf32>",
        "tensor<1x1x3xf32> tensor<1x1x2xf32>",
        "tensor<1x1x3xf32>",
        [V.astype(F).reshape(1, 1, 3), np.array([1, 10], F).reshape(1, 1, 2)],
        [[[3, 31, 12]]],
    ),
    "convolution of a batch in groups, its input dilated": (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],"
        " window = {stride = [1], pad = [[0, 0]], lhs_dilate = [2], rhs_dilate = [1]}"
        " {batch_group_count = 2 : i64, feature_group_count = 1 : i64}"
        " : (tensor<2x1x3xf32>, tensor<2x1x2xf32>) -> tensor<1x2x4xf32>",
        "tensor<2x1x3xf32> tensor<2x1x2xf32>",
        "tensor<1x2x4xf32>",
        [np.array([[[1, 2, 3]], [[4, 5, 6]]], F), np.array([[[1, 10]], [[1, 100]]], F)],
        [[[1, 20, 2, 30], [4, 500, 5, 600]]],
    ),
    "convolution with raw numbers": (
        '%r = "stablehlo.convolution"(%a, %b) {dimension_numbers = #stablehlo.conv<raw'
        " input_batch_dimension = 0, input_feature_dimension = 1, input_spatial_dimensions = [2],"
        " kernel_input_feature_dimension = 1, kernel_output_feature_dimension = 0,"
        " kernel_spatial_dimensions = [2], output_batch_dimension = 0,"
        " output_feature_dimension = 1,"
        " output_spatial_dimensions = [2]>, batch_group_count = 1 : i64, feature_group_count = 1"
        " : i64, padding = dense<1> : tensor<1x2xi64>}"
        " : (tensor<1x1x3xf32>, tensor<1x1x2xf32>) -> tensor<1x1x4xf32>",
        "tensor<1x1x3xf32> tensor<1x1x2xf32>",
        "tensor<1x1x4xf32>",
        [V.astype(F).reshape(1, 1, 3), np.array([1, 10], F).reshape(1, 1, 2)],
        [[[30, 13, 21, 2]]],
    ),
    "gather": (
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],'
        " collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,"
        " indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}>"
        " : (tensor<2x3xf32>, tensor<2x1xi32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32> tensor<2x1xi32>",
        "tensor<2x3xf32>",
        [X, np.array([[1], [7]], N)],
        X[[1, 1]],
    ),
    "fft": (
        "%r = stablehlo.fft %a, type = RFFT, length = [3]"
        " : (tensor<2x3xf32>) -> tensor<2x2xcomplex<f32>>",
        "tensor<2x3xf32>",
        "tensor<2x2xcomplex<f32>>",
        [X],
        np.fft.rfft(X).astype(np.complex64),
    ),
    "cholesky": (
        "%r = stablehlo.cholesky %a, lower = true : tensor<1x1xf32>",
        "tensor<1x1xf32>",
        "tensor<1x1xf32>",
        [np.array([[4]], F)],
        [[2]],
    ),
    "triangular_solve": (
        '%r = "stablehlo.triangular_solve"(%a, %a) <{left_side = true, lower = true, transpose_a ='
        " #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}>"
        " : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>",
        "tensor<1x1xf32>",
        "tensor<1x1xf32>",
        [np.array([[4]], F)],
        [[1]],
    ),
    "reduce_precision": (
        "%r = stablehlo.reduce_precision %a, format = e5m2 : tensor<2xf32>",
        "tensor<2xf32>",
        "tensor<2xf32>",
        [np.array([1.1, 3.3], F)],
        [1, 3.5],
    ),
    "complex": (
        "%z = stablehlo.complex %a, %a : tensor<2xcomplex<f32>>\n"
        "%i = stablehlo.imag %z : (tensor<2xcomplex<f32>>) -> tensor<2xf32>\n"
        "%j = stablehlo.real %z : (tensor<2xcomplex<f32>>) -> tensor<2xf32>\n"
        "%r = stablehlo.add %i, %j : tensor<2xf32>",
        "tensor<2xf32>",
        "tensor<2xf32>",
        [np.array([1, 2], F)],
        [2, 4],
    ),
    "maximum of complex numbers": (
        "%r = stablehlo.maximum %a, %b : tensor<2xcomplex<f32>>",
        "tensor<2xcomplex<f32>> tensor<2xcomplex<f32>>",
        "tensor<2xcomplex<f32>>",
        [np.array([1 + 2j, 3j], np.complex64), np.array([1 + 1j, 1j + 1], np.complex64)],
        np.array([1 + 2j, 1 + 1j], np.complex64),
    ),
    "tuple": (
        "%t = stablehlo.tuple %a, %b : tuple<tensor<3xi32>, tensor<i32>>\n"
        "%r = stablehlo.get_tuple_element %t[1]"
        " : (tuple<tensor<3xi32>, tensor<i32>>) -> tensor<i32>",
        "tensor<3xi32> tensor<i32>",
        "tensor<i32>",
        [V, N(7)],
        7,
    ),
    "optimization_barrier": (
        "%t:2 = stablehlo.optimization_barrier %a, %b : tensor<3xi32>, tensor<i32>\n"
        "stablehlo.optimization_barrier()\n"
        "%r = stablehlo.optimization_barrier %t#1 : tensor<i32>",
        "tensor<3xi32> tensor<i32>",
        "tensor<i32>",
        [V, N(7)],
        7,
    ),
    "tokens": (
        "%t = stablehlo.create_token : !stablehlo.token\n"
        "%u = stablehlo.after_all %t, %t : !stablehlo.token\n"
        "%r = stablehlo.negate %a : tensor<i32>",
        "tensor<i32>",
        "tensor<i32>",
        [N(7)],
        -7,
    ),
    "one device": (
        "%p = stablehlo.partition_id : tensor<ui32>\n%q = stablehlo.replica_id : tensor<ui32>\n"
        "%r = stablehlo.add %p, %q : tensor<ui32>",
        "",
        "tensor<ui32>",
        [],
        np.uint32(0),
    ),
    "get_dimension_size": (
        "%r = stablehlo.get_dimension_size %a, dim = 1 : (tensor<2x3xf32>) -> tensor<i32>",
        "tensor<2x3xf32>",
        "tensor<i32>",
        [X],
        3,
    ),
    "set_dimension_size and bounds": (
        "%d = stablehlo.set_dimension_size %a, %b, dim = 0"
        " : (tensor<3xi32>, tensor<i32>) -> tensor<?xi32, #stablehlo.bounds<3>>\n"
        "%r = stablehlo.get_dimension_size %d, dim = 0"
        " : (tensor<?xi32, #stablehlo.type_extensions<bounds = [3]>>) -> tensor<i32>",
        "tensor<3xi32> tensor<i32>",
        "tensor<i32>",
        [V, N(2)],
        2,
    ),
    "an operation as a custom call": (
        "%r = stablehlo.custom_call @mhlo.erf(%a) {mhlo.attributes = {}, mhlo.version = 1 : i64}"
        " : (tensor<f32>) -> tensor<f32>",
        S,
        S,
        [F(0.5)],
        F(0.5204999),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_computes(name: str, check_form: Callable[[Form], None]) -> None:
    check_form(FORMS[name])
