"""GPT-2's greedy generation, one while loop of HLO: the tokens that JAX gave, in one call each."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.frontends.load import as_module, load_model
from nestwright.ir.hlo.interp.evaluate import evaluate

EXAMPLES = Path(__file__).parents[3] / "examples"
MODEL = EXAMPLES / "gpt2_greedy.hlo"


@pytest.fixture(scope="module")
def gpt2() -> Any:
    """The example that made the HLO; only its lowering needs jax."""
    spec = importlib.util.spec_from_file_location("example_gpt2", EXAMPLES / "gpt2.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # dataclasses look their module up
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def expected() -> Any:
    with np.load(EXAMPLES / "gpt2_greedy.expected.npz") as data:
        return data["tokens"]


def test_tokens_are_those_of_jax(gpt2: Any, expected: Any) -> None:
    exe = nw.build(MODEL)
    for seed, tokens in enumerate(expected):
        prompt, weights = gpt2.draw(gpt2.Config(), seed)
        assert exe(prompt, *weights).tolist() == tokens.tolist()
    assert len({tuple(row) for row in expected.tolist()}) == len(expected)


def test_script_prints_the_tokens(expected: Any) -> None:
    command = [sys.executable, str(EXAMPLES / "generate.py"), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = dict(line.split(": ") for line in done.stdout.splitlines() if ": " in line)
    assert lines["tokens"].split() == list(map(str, expected[1]))


def test_frozen_weights_give_the_same_tokens(gpt2: Any, expected: Any) -> None:
    prompt, weights = gpt2.draw(gpt2.Config(), 1)
    exe = nw.build(MODEL, constants=dict(enumerate(weights, 1)))
    assert exe(prompt).tolist() == expected[1].tolist()


def test_interpreter_agrees(gpt2: Any, expected: Any) -> None:
    prompt, weights = gpt2.draw(gpt2.Config(), 2)
    assert evaluate(load_model(MODEL), [prompt, *weights]).tolist() == expected[2].tolist()


def test_all_is_one_loop() -> None:
    module = load_model(MODEL)
    loops = [i for c in module.computations for i in c.instructions if i.opcode == "while"]
    assert [i.opcode for i in loops] == ["while"]
    assert sum(i.opcode == "dynamic-update-slice" for i in loops[0].attrs["body"].instructions) > 2


def test_script_makes_such_a_module(gpt2: Any) -> None:
    pytest.importorskip("jax")
    config = gpt2.Config(layers=1, width=8, heads=2, vocabulary=16, prompt=2, tokens=3)
    module = as_module(gpt2.lower(config))
    prompt, weights = gpt2.draw(config)
    assert len(module.entry.parameters) == 1 + len(weights)
    assert (
        evaluate(module, [prompt, *weights]).tolist()
        == gpt2.tokens_of_jax(config, range(1))[0].tolist()
    )
