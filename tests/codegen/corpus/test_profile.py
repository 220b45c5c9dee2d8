"""Profiles of the corpus: rows add up, and agree with the cost and memory analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nestwright as nw
from nestwright.codegen.plan.nodes import children

CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus"
MODELS = (
    "attention_gqa_bf16",
    "bert_tiny_forward",
    "mandelbrot_while",
    "mnist_mlp_train_step_metadata",
    "op_cond_switch",
    "op_dot_int8",
    "op_sort_pairs",
    "tf_image_ops",
    "torch_convnet_forward",
)

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not beside this checkout"),
]


@pytest.mark.parametrize("name", MODELS)
def test_a_profile_agrees_with_the_analyses(name: str, tools: Any) -> None:
    path = CORPUS / "models" / f"{name}.hlo"
    exe = nw.build(path)
    spec = json.loads(path.with_suffix(".json").read_text())
    found = exe.profile(*tools("make_inputs").make_inputs(spec), rounds=3)
    assert found.sum == pytest.approx(found.probed, rel=1e-6)
    assert found.costs == exe.cost_analysis() and found.memory == exe.memory_analysis()
    rows = [r for r in found.rows if r.kind != "call"]
    assert all(r.members for r in rows if r.kind in ("kernel", "library"))
    assert all(r.schedule for r in rows if r.kind == "kernel")
    if any(children(t) for t in exe.plan.thunks):
        assert any(r.depth for r in rows)
        return
    assert all(r.calls == 1 for r in rows)
    assert found.flops == found.costs["flops"] and found.bytes == found.costs["bytes accessed"]
    assert sum(r.transcendentals for r in rows) == found.costs["transcendentals"]


def test_sources_are_those_of_the_model(tools: Any) -> None:
    path = CORPUS / "models" / "mnist_mlp_train_step_metadata.hlo"
    spec = json.loads(path.with_suffix(".json").read_text())
    found = nw.build(path).profile(*tools("make_inputs").make_inputs(spec), rounds=1)
    dots = [r for r in found.rows if r.group == "dot"]
    assert dots and all(any(s.startswith("jax_models.py:") for s in r.sources) for r in dots)
