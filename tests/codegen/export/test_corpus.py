"""C programs of real models compute what Python does, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw

from .conftest import Library, run

CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus" / "models"
# By model: the parameters that stay inputs (from, to); the others are weights.
INPUTS = {
    "mobilenet_v2_keras_forward": (-1, None),
    "bert_tiny_forward": (-2, None),
    "mnist_mlp_train_step": (0, None),
}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not beside this checkout"),
]


@pytest.fixture(scope="module", params=INPUTS)
def model(request: pytest.FixtureRequest, tools: Any) -> tuple[nw.Executable, list[Any], bool]:
    """A model, its arguments, and if it has weights."""
    path = CORPUS / f"{request.param}.hlo"
    values = tools("make_inputs").make_inputs(json.loads(path.with_suffix(".json").read_text()))
    numbers = list(range(len(values)))
    kept = numbers[slice(*INPUTS[request.param])]
    frozen = {n: values[n] for n in numbers if n not in kept}
    exe = nw.build(path, constants=frozen or None)
    return exe, [values[n] for n in kept], bool(frozen)


@pytest.mark.parametrize("weights", ["object", "file"])
def test_a_model_as_a_program(
    model: tuple[nw.Executable, list[Any], bool], weights: str, tmp_path: Path
) -> None:
    exe, args, frozen = model
    made = exe.export_c(tmp_path / "m", name="model", weights=weights)
    assert (made.weights_bytes > 0) == frozen
    one = Library(tmp_path / "m", "model", exe)
    program = one.program(one.folder / "main.c")
    for n, x in enumerate(args):
        np.save(tmp_path / f"{n}.npy", x)
    options = ["-w", one.weights] if one.weights.exists() else []
    inputs = [tmp_path / f"{n}.npy" for n in range(len(args))]
    run(program, *options, "-r", 2, "-o", tmp_path, *inputs)
    results = exe(*args)
    for n, x in enumerate(results if isinstance(results, tuple) else (results,)):
        found = np.load(tmp_path / f"result_{n}.npy")
        assert found.dtype == x.dtype and found.shape == x.shape
        assert found.tobytes() == x.tobytes()
