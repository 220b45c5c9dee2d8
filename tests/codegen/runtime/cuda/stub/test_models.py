"""Whole models through the runtime, the real bindings and the stand-in, their kernels simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu.stub.control import Stub
from gpu.stub.models import assert_right, prepared

ROOT = Path(__file__).parents[5]
CORPUS = ROOT.parent / "shared" / "corpus" / "models"
EXAMPLES = ("softmax", "dense_relu")
MODELS = ("op_cond_switch", "op_sort_pairs", "op_einsum_batched", "mandelbrot_while")


def _is_right(stub: Stub, path: Path) -> None:
    model = prepared(str(path))
    exe = model.over(stub)
    for seed in 0, 0, 0, 1:
        args = model.arguments(seed)
        assert_right(model.module, args, exe(*args))


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(stub: Stub, name: str) -> None:
    _is_right(stub, ROOT / "examples" / f"{name}.hlo")


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_corpus_are_right(stub: Stub, name: str) -> None:
    _is_right(stub, CORPUS / f"{name}.hlo")
