"""Models of timm, transformers and torch.nn, small and with random weights, beside eager mode."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import nestwright as nw

NEEDED = ("torch", "timm", "transformers")
IMAGES = ("resnet50", "mobilenetv3", "efficientnet", "convnext", "swin", "vit", "unet")
TEXTS = ("bert", "gpt2", "gpt2_decode", "llama", "qwen2", "qwen3", "t5", "whisper", "lstm")
NAMES = IMAGES + TEXTS
TOLERANCE = 1e-4  # of the largest value of a result

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the frameworks
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
    ),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_one_graph_and_right(name: str) -> None:
    import torch
    from doors.speed import arrays, distance
    from doors.torch.models import MODELS

    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        workload = MODELS[name](True)
        want = arrays(workload(workload.model))
        told = workload(lambda *args, **named: nw.explain(workload.model, *args, **named))
        found = arrays(workload(torch.compile(workload.model, backend="nestwright")))
    assert not told.breaks
    assert _left(told) <= {"aten.index_put_.default", "aten.copy_.default"}, str(told)
    assert len(found) == len(want) > 0
    assert max(map(distance, found, want)) < TOLERANCE


def _left(told: Any) -> set[str]:
    return {row.operator for graph in told.graphs for row in graph.left}


def test_every_model_is_tested() -> None:
    from doors.torch.models import MODELS

    assert set(MODELS) == set(NAMES)
