"""Real StableHLO: a sample of the op cases and the models, by the interpreter, against XLA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.ir.frontends.stablehlo.reader import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate

CORPUS = Path(__file__).parents[4].parent / "shared" / "corpus"
CASES = CORPUS / "stablehlo_testdata"
EVERY = 10
MODELS = sorted(p.stem for p in (CORPUS / "models").glob("*.mlir"))
LARGE = {n for n in MODELS if "base" in n or "resnet" in n or "mobilenet" in n}  # only read

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MODELS, reason="the corpus is not beside this checkout"),
]


def results(text: str, name: str, arguments: list[Any]) -> list[Any]:
    module = parse(text, name)
    verify(module)
    found = evaluate(module, arguments)
    return list(found) if isinstance(found, tuple) else [found]


def test_every_tenth_case_gives_its_stored_results(tools: Any) -> None:
    cases = tools("cases")
    wrong = []
    for n, case in enumerate(cases.cases(CASES)):
        if n % EVERY == 0 and not cases.passes(
            case, results(case.mlir.read_text(), case.name, case.inputs)
        ):
            wrong.append(case.name)
    assert not wrong


@pytest.mark.parametrize("name", MODELS or ["none"])
def test_a_model_gives_its_stored_results(name: str, tools: Any) -> None:
    reference, make_inputs = tools("reference"), tools("make_inputs")
    path = CORPUS / "models" / f"{name}.mlir"
    if name in LARGE:
        verify(parse(path.read_text(), name))
        return
    spec = json.loads(path.with_suffix(".json").read_text())
    found = results(path.read_text(), name, make_inputs.make_inputs(spec))
    with np.load(path.with_suffix(".expected.npz")) as stored:
        assert not reference.compare(dict(stored), reference.summarize(found), spec["tolerance"])
