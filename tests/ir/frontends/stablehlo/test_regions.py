"""The forms that StableHLO's operations with regions print in, by what they compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ..forms import F, Form, N, S, V, X

ADD = """({
^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %r = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %r : tensor<f32>
})"""
LESS = """({
^bb0(%p: tensor<i32>, %q: tensor<i32>):
  %r = stablehlo.compare LT, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %r : tensor<i1>
})"""

FORMS: dict[str, Form] = {
    "reduce, applies": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1]"
        " {x = 1 : i64} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>",
        "tensor<2x3xf32>",
        "tensor<2xf32>",
        [X],
        X.sum(1),
    ),
    "reduce, generic": (
        f'%r = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> {ADD}'
        f" : (tensor<2x3xf32>, {S}) -> {S}",
        "tensor<2x3xf32> tensor<f32>",
        S,
        [X, F(1)],
        X.sum() + 1,
    ),
    "reduce of two with a reducer": (
        "%r, %s = stablehlo.reduce(%a init: %b), (%a init: %b) across dimensions = [0]"
        " : (tensor<3xi32>, tensor<3xi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>,"
        " tensor<i32>)\n"
        " reducer(%p: tensor<i32>, %q: tensor<i32>) (%u: tensor<i32>, %v: tensor<i32>) {\n"
        "  %m = stablehlo.maximum %p, %q : tensor<i32>\n  %n = stablehlo.add %u, %v : tensor<i32>\n"
        "  stablehlo.return %m, %n : tensor<i32>, tensor<i32>\n }\n"
        "%x = stablehlo.subtract %s, %r : tensor<i32>\n%w = stablehlo.negate %x : tensor<i32>",
        "tensor<3xi32> tensor<i32>",
        "tensor<i32>",
        [V, N(0)],
        3,
    ),
    "reduce_window": (
        '%r = "stablehlo.reduce_window"(%a, %b) <{window_dimensions = array<i64: 1, 2>, padding ='
        f" dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>}}> {ADD} : (tensor<2x3xf32>, {S})"
        " -> tensor<2x3xf32>",
        "tensor<2x3xf32> tensor<f32>",
        "tensor<2x3xf32>",
        [X, F(0)],
        [[0, 1, 3], [3, 7, 9]],
    ),
    "select_and_scatter": (
        '%r = "stablehlo.select_and_scatter"(%a, %b, %c) <{window_dimensions = array<i64: 3>}> ({\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n  %t = stablehlo.compare GE, %p, %q"
        " : (tensor<f32>, tensor<f32>) -> tensor<i1>\n  stablehlo.return %t : tensor<i1>\n},"
        f" {ADD[1:-1]}) : (tensor<3xf32>, tensor<1xf32>, {S}) -> tensor<3xf32>",
        "tensor<3xf32> tensor<1xf32> tensor<f32>",
        "tensor<3xf32>",
        [V.astype(F), np.array([5], F), F(0)],
        [5, 0, 0],
    ),
    "sort": (
        f'%r = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = true}}> {LESS}'
        " : (tensor<3xi32>) -> tensor<3xi32>",
        "tensor<3xi32>",
        "tensor<3xi32>",
        [V],
        [1, 2, 3],
    ),
    "map": (
        f'%r = "stablehlo.map"(%a, %a) <{{dimensions = array<i64: 0, 1>}}> {ADD}'
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        X * 2,
    ),
    "scatter": (
        '%r = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
        " update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
        f" index_vector_dim = 1>, unique_indices = false}}> {ADD}"
        " : (tensor<2x3xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32> tensor<2x1xi32> tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X, np.array([[1], [1]], N), X],
        [X[0], X[1] + X[0] + X[1]],
    ),
    "all_reduce": (
        '%r = "stablehlo.all_reduce"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1,'
        " type = 1>, replica_groups = dense<[[0]]> : tensor<1x1xi64>, use_global_device_ids}>"
        f" {ADD} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        X,
    ),
    "sharding": (
        '%s = sdy.sharding_constraint %a <@mesh, [{}, {"d"}]> : tensor<2x3xf32>\n'
        '%t = stablehlo.custom_call @Sharding(%s) {mhlo.sharding = "{replicated}"}'
        " : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
        '%r = sdy.manual_computation(%t) in_shardings=[<@mesh, [{"d"}, {}]>]'
        ' out_shardings=[<@mesh, [{}, {}]>] manual_axes={"d"} (%u: tensor<2x3xf32>) {\n'
        "  %v = stablehlo.negate %u : tensor<2x3xf32>\n  sdy.return %v : tensor<2x3xf32>\n"
        "} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "tensor<2x3xf32>",
        [X],
        -X,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_computes(name: str, check_form: Callable[[Form], None]) -> None:
    check_form(FORMS[name])
