"""StableHLO's collectives on all devices of a program."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.frontends.stablehlo.reader import parse
from nestwright.ir.hlo.interp.devices import evaluate_devices

X = [np.arange(8, dtype="f4").reshape(2, 4) + 100 * n for n in range(2)]
GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
SUM = """({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %c = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %c : tensor<f32>
})"""
SPLIT = "concat_dimension = 0 : i64, split_dimension = 1 : i64, split_count = 2 : i64"
WHOLE = [np.concatenate(X)] * 2


@pytest.mark.parametrize(
    ("operation", "result", "wanted"),
    [
        (f'"stablehlo.all_reduce"(%x) <{{{GROUPS}}}> {SUM}', "2x4", [sum(X)] * 2),
        (f'"stablehlo.all_gather"(%x) <{{all_gather_dim = 0 : i64, {GROUPS}}}>', "4x4", WHOLE),
        (
            f'"stablehlo.reduce_scatter"(%x) <{{scatter_dimension = 1 : i64, {GROUPS}}}> {SUM}',
            "2x2",
            np.split(sum(X), 2, axis=1),
        ),
        (
            f'"stablehlo.all_to_all"(%x) <{{{SPLIT}, {GROUPS}}}>',
            "4x2",
            [np.concatenate([np.split(x, 2, axis=1)[n] for x in X]) for n in range(2)],
        ),
        (
            f'"stablehlo.all_to_all"(%x) <{{{SPLIT.replace("= 0", "= 1")}, {GROUPS}}}>',
            "2x4",
            [np.concatenate([np.split(x, 2, axis=1)[n] for x in X], axis=1) for n in range(2)],
        ),
        (
            '"stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : '
            "tensor<1x2xi64>}>",
            "2x4",
            [0 * X[0], X[0]],
        ),
        (
            f'"stablehlo.collective_broadcast"(%x) <{{{GROUPS.replace("0, 1", "1, 0")}}}>',
            "2x4",
            [X[1], X[1]],
        ),
    ],
    ids=["reduce", "gather", "scatter", "across", "along", "permute", "broadcast"],
)
def test_collectives(operation: str, result: str, wanted: list[np.ndarray]) -> None:
    of, to = "tensor<2x4xf32>", f"tensor<{result}xf32>"
    text = "module @m attributes {mhlo.num_replicas = 2 : i32} {\n"
    text += f"func.func @main(%x: {of}) -> {to} {{\n%r = {operation} : ({of}) -> {to}\n"
    text += f"return %r : {to} }} }}"
    for found, expected in zip(
        evaluate_devices(parse(text), [[x] for x in X]), wanted, strict=True
    ):
        np.testing.assert_array_equal(found, expected)
