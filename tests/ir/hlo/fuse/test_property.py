"""Fusion of random graphs: no cycle, nothing lost, and the groups compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestwright.ir.dtypes import f32
from nestwright.ir.hlo.fuse.fusion import Fusion, fuse
from nestwright.ir.hlo.fuse.graph import Clusters
from nestwright.ir.hlo.fuse.kinds import is_work
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import Computation, Instruction, Shape, TupleShape
from nestwright.ir.hlo.passes.canonical.dot import sum_over
from nestwright.ir.hlo.patterns import build
from nestwright.ir.hlo.rewrite import assemble, make, parameter, with_operands

N = 4
SQUARE = (N, N)


def _dot(x: Instruction, y: Instruction) -> Instruction:
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    return make("dot", Shape(f32, SQUARE), (x, y), **dims)


def _spread(x: Instruction, axis: int) -> Instruction:
    """Sums along one axis, repeated along it again."""
    return build.broadcast(sum_over(x, (axis,)), (1 - axis,), SQUARE)


STEPS = {
    "tanh": lambda x, y: build.pointwise("tanh", x),
    "add": lambda x, y: build.pointwise("add", x, y),
    "maximum": lambda x, y: build.pointwise("maximum", x, y),
    "transpose": lambda x, y: make("transpose", Shape(f32, SQUARE), (x,), dimensions=(1, 0)),
    "reverse": lambda x, y: make("reverse", Shape(f32, SQUARE), (x,), dimensions=(0,)),
    "regroup": lambda x, y: make(
        "reshape", Shape(f32, SQUARE), (make("reshape", Shape(f32, (2, 8)), (x,)),)
    ),
    "dot": _dot,
    "rows": lambda x, y: _spread(x, 1),
    "columns": lambda x, y: _spread(x, 0),
}


RECIPES = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 5), st.integers(1, 5)),
    min_size=1,
    max_size=24,
)
RESULTS = st.lists(st.integers(0, 23), max_size=2)


def build_graph(recipe: list[tuple[str, int, int]], results: list[int]) -> Computation:
    """Square matrices, each step on two of the last five values; the last and others result."""
    values = [parameter(n, Shape(f32, SQUARE), f"p{n}") for n in range(2)]
    for step, m, n in recipe:
        values.append(STEPS[step](values[-min(m, len(values))], values[-min(n, len(values))]))
    chosen = [values[-1], *(values[2 + n % len(recipe)] for n in results)]
    root = make("tuple", TupleShape(tuple(r.shape for r in chosen)), chosen)
    return assemble("random", values[:2], root)


def _run(fusion: Fusion, arguments: list[np.ndarray]) -> list[np.ndarray]:
    values = dict(zip(fusion.computation.parameters, arguments, strict=True))

    def view(i: Instruction) -> np.ndarray:
        if i not in values:
            assert not is_work(i) or i.opcode == "reshape", f"{i.name} is not computed yet"
            stand_ins = tuple(parameter(n, o.shape) for n, o in enumerate(i.operands))
            one = assemble("view", stand_ins, with_operands(i, stand_ins))
            values[i] = evaluate_computation(one, [view(o) for o in i.operands])
        return values[i]

    for g in fusion.groups:
        result = evaluate_computation(g.computation, [view(i) for i in g.inputs])
        values.update(zip(g.outputs, (result,) if len(g.outputs) == 1 else result, strict=True))
    return list(view(fusion.computation.root))


@settings(max_examples=60, deadline=None)
@given(RECIPES, RESULTS)
def test_groups_in_order_compute_the_graph(recipe, results):
    """An input that no earlier group computed would fail here, so the order proves acyclicity."""
    computation = build_graph(recipe, results)
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(SQUARE, dtype=np.float32) * 0.1 for _ in range(2)]
    fusion = fuse(computation)
    expected = evaluate_computation(computation, arguments)
    for x, y in zip(expected, _run(fusion, arguments), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
    members = {i for g in fusion.groups for i in g.members}
    views = {i for i in computation.instructions if i.opcode == "reshape"}
    assert {i for i in computation.instructions if is_work(i)} <= members | views
    assert all(g.outputs and g.name for g in fusion.groups)


@settings(max_examples=60, deadline=None)
@given(RECIPES, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30))
def test_clusters_never_form_a_cycle(recipe, pairs):
    computation = build_graph(recipe, [])
    clusters = Clusters(computation, {i: i.operands for i in computation.instructions})
    work = [i for i in computation.instructions if i.opcode not in ("parameter", "constant")]
    for m, n in pairs:
        a, b = work[m % len(work)], work[n % len(work)]
        blocker = clusters.cycle(a, b)
        if blocker is None:
            clusters.merge(a, b)
            assert clusters.home(a) == clusters.home(b)
        else:
            with pytest.raises(ValueError, match=f"cycle through {blocker.name}"):
                clusters.merge(a, b)
    arrows = {
        (clusters.home(o), clusters.home(i)) for i in computation.instructions for o in i.operands
    }
    arrows = {(a, b) for a, b in arrows if a != b}
    homes = {clusters.home(i) for i in computation.instructions}
    while ends := {h for h in homes if not any(a == h for a, _ in arrows)}:
        homes -= ends
        arrows = {(a, b) for a, b in arrows if b not in ends}
    assert not homes, "clusters that wait for each other"
