"""Attention as front-ends print it: each spelling is one group, and code gives what the graph says.

``attention/`` has what JAX 0.10 prints for its own ``dot_product_attention`` (grouped, with masks,
biases, windows, lengths), for the arithmetic that PyTorch decomposes its attention into, with the
rows that it keeps from being NaN, and for the attention that Transformers write out: GPT-2, T5's
relative positions, ALiBi, soft caps, windows as additive masks, caches of fixed size.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import HloModule, Instruction
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

TEXTS = {p.stem: p.read_text() for p in sorted((Path(__file__).parent / "attention").glob("*.hlo"))}
GUARDED = ["jax_bias_f32", "decomposed_mask_f16", "decomposed_bool_f32", "decomposed_guard_f32"]
ERRORS = {"f32": 5e-6, "f16": 6e-3, "bf16": 4e-2}


def argument(p: Instruction, rng: np.random.Generator, last: int) -> Array:
    dtype = p.array.dtype
    if dtype.kind == "pred":
        return np.asarray(rng.random(p.array.dims) < 0.6)
    if dtype.is_int:  # lengths of sequences, positions, which keys are there
        return rng.integers(0, last, p.array.dims).astype(to_numpy(dtype))
    return rng.standard_normal(p.array.dims).astype(to_numpy(dtype))


def arguments(module: HloModule, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    last = 2 if module.name.startswith("alibi") else 40
    return [argument(p, rng, last) for p in module.entry.parameters]


@cache
def built(name: str) -> tuple[HloModule, nw.Executable]:
    module = parse(TEXTS[name])
    return module, nw.build(module, target="cpu -threads=2")


def assert_same(name: str, args: list[Array]) -> None:
    module, run = built(name)
    with np.errstate(all="ignore"):
        expected = np.asarray(evaluate_computation(module.entry, args)).astype(np.float64)
    found = np.asarray(run(*args)).astype(np.float64)
    error = ERRORS[module.name.rsplit("_", 1)[1]]
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize("name", TEXTS)
def test_each_spelling_is_one_group(name: str) -> None:
    fusion = fuse(optimize(parse(TEXTS[name])).entry, {"attention"}, excess_precision=True)
    kinds = [g.kind for g in fusion.groups]
    assert kinds.count("attention") == 1
    assert "dot" not in kinds and "reduction" not in kinds[1:]


@pytest.mark.parametrize("name", TEXTS)
def test_each_spelling_has_a_sketch_of_its_own(name: str) -> None:
    fusion = fuse(optimize(parse(TEXTS[name])).entry, {"attention"}, excess_precision=True)
    (group,) = (g for g in fusion.groups if g.kind == "attention")
    sketch = generate(lower_group(group.computation, "attention"), Target.parse("cpu"))[0]
    assert sketch.kind == "attention"


@pytest.mark.parametrize("name", ["static_cache_f32", "decode_bf16", "jax_cache_f32"])
def test_caches_are_read_as_they_lie(name: str) -> None:
    fusion = fuse(optimize(parse(TEXTS[name])).entry, {"attention"}, excess_precision=True)
    assert [g.kind for g in fusion.groups] == ["attention"]


def test_guarded_rows_are_taken_in_parts() -> None:
    """Rows that would be NaN are made zeros after the products: an online softmax is possible."""
    fusion = fuse(optimize(parse(TEXTS["decomposed_guard_f32"])).entry, {"attention"})
    (group,) = (g for g in fusion.groups if g.kind == "attention")
    sketch = generate(lower_group(group.computation, "attention"), Target.parse("cpu"))[0]
    assert sketch.name == "attention@2" and len(sketch.decisions["part"]) > 1


@pytest.mark.parametrize("name", TEXTS)
def test_each_spelling_computes_the_same(name: str) -> None:
    assert_same(name, arguments(parse(TEXTS[name])))


@pytest.mark.parametrize("name", [n for n in TEXTS if n.endswith("16")])
def test_each_narrow_spelling_may_be_strict(name: str) -> None:
    module = parse(TEXTS[name])
    args = arguments(module)
    expected = np.asarray(evaluate_computation(module.entry, args)).astype(np.float64)
    run = nw.build(module, target="cpu -threads=2", excess_precision=False)
    error = ERRORS[name.rsplit("_", 1)[1]] / 2
    found = np.asarray(run(*args)).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", GUARDED)
def test_rows_of_nothing_but_what_is_no_number(name: str, bad: float) -> None:
    """A row of -inf is NaN, or zero where the graph says so; no other row changes."""
    args = arguments(parse(TEXTS[name]))
    mask = max(args, key=lambda a: a.shape[-1])
    if mask.dtype == np.bool_:
        mask[:, :, 3, :] = False
        mask[:, :, 4, 1:] = False
    else:
        mask[:, :, 3, :] = bad
        mask[:, :, 4, 1:] = bad
    assert_same(name, args)
