"""Real models from text to native code: built by default, run, and held against XLA's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw

CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus"
ALIKE = {"vit_base_forward", "mnist_mlp_train_step_metadata"}
"""Models whose operations smaller ones have, or those without metadata."""
HELPED = {"bert_base_forward", "resnet50_keras_forward", "reductions_grad", "op_sort_pairs"}
"""Models of many groups and of few that are built with helpers, as they are for users."""
MODELS = sorted({p.stem for p in (CORPUS / "models").glob("*.hlo")} - ALIKE)

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MODELS, reason="the corpus is not beside this checkout"),
]


@pytest.mark.parametrize("name", MODELS or ["none"])
def test_a_model_gives_its_stored_results(
    name: str, tools: Any, request: pytest.FixtureRequest
) -> None:
    if name in HELPED:
        request.getfixturevalue("helpers")
    reference, make_inputs = tools("reference"), tools("make_inputs")
    path = CORPUS / "models" / f"{name}.hlo"
    spec = json.loads(path.with_suffix(".json").read_text())
    out = nw.build(path)(*make_inputs.make_inputs(spec))
    with np.load(path.with_suffix(".expected.npz")) as stored:
        expected = dict(stored)
    results = list(out) if isinstance(out, tuple) else [out]
    assert not reference.compare(expected, reference.summarize(results), spec["tolerance"])
