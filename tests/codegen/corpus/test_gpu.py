"""Real models for GPUs: groups get a schedule and code; small ones run on a simulated GPU.

Of a large model's groups a part, the same in every run, is lowered, and a smaller part of every
model's is assembled, for one of two architectures; all where ``NESTWRIGHT_WHOLE_CORPUS`` is set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.compile_group import loops
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.plan.groups import Groups, fuse_module
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.frontends.load import load_model
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule

CORPUS = Path(__file__).parents[3].parent / "shared" / "corpus"
MODELS = sorted({p.stem for p in (CORPUS / "models").glob("*.hlo")})
LARGE = {
    "bert_base_forward",
    "vit_base_forward",
    "resnet50_keras_forward",
    "mobilenet_v2_keras_forward",
    "mnist_mlp_train_step",
    "mnist_mlp_train_step_metadata",
}
SMALL = [name for name in MODELS if name not in LARGE]
WHOLE = bool(os.environ.get("NESTWRIGHT_WHOLE_CORPUS"))
ALIKE = {"vit_tiny_forward", "reductions_grad", "torch_convnet_forward"}
"""Small models whose operations others have: BERT's, forward reductions, another convnet."""
RUN = SMALL if WHOLE else [name for name in SMALL if name not in ALIKE]
ARCHS = ("sm_80", "sm_90")
LOWERED, ASSEMBLED = (1, 1) if WHOLE else (8, 24)  # one group in so many
PART = 1 if WHOLE else 5  # one group in so many of a model whose code the simulator runs

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MODELS, reason="the corpus is not beside this checkout"),
]


@cache
def groups_of(name: str) -> Groups:
    return fuse_module(optimize(load_model(CORPUS / "models" / f"{name}.hlo")))


def flat_groups(name: str, target: Target, part: int = 1) -> Iterator[tuple[str, Func]]:
    """Each distinct group's key, and its function under the default schedule, lowered."""
    for key, group in groups_of(name).distinct.items():
        if int(key[:8], 16) % part:
            continue
        func, _ = loops(group.computation, "main", None, target)
        scheduled = default_schedule(func, target).func
        verify(scheduled)
        yield key, lower(scheduled, target)


@pytest.mark.parametrize("name", MODELS or ["none"])
def test_groups_get_code(name: str) -> None:
    target = Target.parse("cuda -arch=sm_80")
    for _, flat in flat_groups(name, target, LOWERED if name in LARGE else PART):
        assert emit(flat, target)
        for launch in launches(flat):
            assert 1 <= launch.threads <= target.gpu.threads_per_block
            assert launch.shared_bytes <= target.gpu.shared_per_block


@pytest.mark.parametrize("arch", ARCHS)
def test_code_assembles(arch: str) -> None:
    if ptxas.find() is None:
        pytest.skip("no ptxas here")
    target = Target.parse(f"cuda -arch={arch}")
    seen: set[str] = set()
    for name in MODELS if WHOLE else MODELS[ARCHS.index(arch) :: len(ARCHS)]:
        for key, flat in flat_groups(name, target, ASSEMBLED):
            if key not in seen:
                seen.add(key)
                cubin = ptxas.assemble(nvptx.compile(emit(flat, target), target), arch)
                for usage in cubin.kernels.values():
                    assert usage.spill_stores < 256, f"group {key} of {name} spills: {usage}"
    assert len(seen) >= 200 / ASSEMBLED / (1 if WHOLE else len(ARCHS))


@pytest.mark.parametrize("name", RUN or ["none"])
def test_a_model_gives_its_stored_results_on_a_simulated_gpu(name: str, tools: Any) -> None:
    reference, make_inputs = tools("reference"), tools("make_inputs")
    path = CORPUS / "models" / f"{name}.hlo"
    spec = json.loads(path.with_suffix(".json").read_text())
    out = nw.build(path, target="cuda-sim -arch=sm_80")(*make_inputs.make_inputs(spec))
    with np.load(path.with_suffix(".expected.npz")) as stored:
        expected = dict(stored)
    results = list(out) if isinstance(out, tuple) else [out]
    assert not reference.compare(expected, reference.summarize(results), spec["tolerance"])
