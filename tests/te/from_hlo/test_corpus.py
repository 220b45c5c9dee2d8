"""Every group of real modules lowers to a valid function; small ones compute what HLO says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import Group, fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import Shape
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp import evaluate
from nestwright.ir.loop.nodes import Block, Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import walk
from nestwright.te.from_hlo import lower_group

MODELS = Path(__file__).parents[3].parent / "shared/corpus/models"
SMALL = 20_000  # block instances that the interpreter may run for one group
NAMES = (
    "op_argsort",
    "op_associative_scan",
    "op_cond_switch",
    "op_conv_depthwise",
    "op_gelu_erf_layernorm",
    "op_max_pool_grad",
    "op_random_normal",
    "op_segment_sum",
    "op_sort_pairs",
    "op_take_rows",
    "op_triangular_mask",
    "attention_gqa_bf16",
    "bert_tiny_forward",
    "mnist_mlp_train_step",
    "mobilenet_v2_keras_forward",
    "reductions_grad",
    "tf_image_ops",
    "tf_keras_convnet_forward",
    "vit_tiny_forward",
)

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MODELS.is_dir(), reason="the corpus is not beside the checkout"),
]


def instances(func: Func) -> int:
    total = 0
    for s in walk(func.body):
        if isinstance(s, Block):
            own = 1
            for a in s.axes:
                own *= a.extent
            total += own
    return total


def draw(shape: Shape, rng: np.random.Generator) -> Any:
    to = to_numpy(shape.dtype)
    if shape.dtype.kind == "pred" or shape.dtype.is_int:
        return rng.integers(0, 2, shape.dims).astype(to)
    return rng.uniform(0.25, 1.0, shape.dims).astype(to)


def check(group: Group) -> None:
    func = lower_group(group.computation, "main")
    verify(func)
    if instances(func) > SMALL:
        return
    rng = np.random.default_rng(3)
    args = [draw(p.array, rng) for p in group.computation.parameters]
    want = evaluate_computation(group.computation, args)
    flat = want if isinstance(want, tuple) else (want,)
    for a, b in zip(evaluate.run(func, args), flat, strict=True):
        b = np.asarray(b)
        narrow = a.dtype.itemsize < 4
        np.testing.assert_allclose(
            a.astype(np.float64),
            b.astype(np.float64),
            rtol=2e-2 if narrow else 2e-5,
            atol=1e-2 if narrow else 1e-5,
            err_msg=group.name,
        )


@pytest.mark.parametrize("name", NAMES)
def test_groups(name: str) -> None:
    module = optimize(parse((MODELS / f"{name}.hlo").read_text(), name))
    with np.errstate(all="ignore"):
        for computation in module.computations:
            for group in fuse(computation).groups:
                check(group)
