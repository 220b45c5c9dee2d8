"""The graph of groups: every flow has a reason, shares add up, DOT text is what Graphviz reads."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from nestwright.autotune.explain.dot import quoted, show_dot
from nestwright.autotune.explain.graph import INPUT, RESULT, ComputationGraph, model_graph
from nestwright.codegen.driver import PreparedModule
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

CORPUS = Path(__file__).parents[4] / "shared/corpus"

LOOP = """\
HloModule halving

less_than {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT lt = pred[] compare(a, b), direction=LT
}

body {
  s = (f32[4,4], s32[]) parameter(0)
  x = f32[4,4] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  half = f32[] constant(0.5)
  halves = f32[4,4] broadcast(half), dimensions={}
  less = f32[4,4] multiply(x, halves)
  one = s32[] constant(1)
  next = s32[] add(n, one)
  ROOT out = (f32[4,4], s32[]) tuple(less, next)
}

condition {
  s = (f32[4,4], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=1
  most = s32[] constant(11)
  ROOT more = pred[] compare(n, most), direction=LT
}

ENTRY main {
  x = f32[4,4] parameter(0)
  w = f32[4,4] parameter(1)
  y = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = s32[] constant(0)
  start = (f32[4,4], s32[]) tuple(y, zero)
  end = (f32[4,4], s32[]) while(start), condition=condition, body=body
  z = f32[4,4] get-tuple-element(end), index=0
  ROOT sorted = f32[4,4] sort(z), dimensions={1}, to_apply=less_than
}
"""


TRANSPOSE = """\
HloModule t

ENTRY main {
  x = f32[3,5] parameter(0)
  ROOT t = f32[5,3] transpose(x), dimensions={1,0}
}
"""


def prepared(text: str, target: str = "cpu") -> PreparedModule:
    return PreparedModule(parse(text), target)


def check(graph: ComputationGraph) -> None:
    """Fail unless every flow has reasons and goes from what runs earlier to what runs later."""
    place = {v.name: n for n, v in enumerate(graph.vertices)}
    assert len(place) == len(graph.vertices)
    for f in graph.flows:
        assert f.reasons and all(f.reasons), f
        assert f.source in place and f.target in place, f
        assert f.values and f.bytes >= 0
    pairs = [(f.source, f.target) for f in graph.flows]
    assert len(set(pairs)) == len(pairs)
    assert all(why for *_, why in graph.fused)


def test_control_flow_and_its_bodies_are_graphs_too() -> None:
    graph = model_graph(prepared(LOOP))
    assert [c.name for c in graph.computations] == ["main", "body", "condition"]
    for c in graph.computations:
        check(c)
    main, body, _ = graph.computations
    kinds = {v.name: v.kind for v in main.vertices}
    assert kinds["end"] == "control flow" and kinds["x"] == INPUT and kinds[RESULT] == RESULT
    assert {v.calls for v in main.vertices if v.calls} == {("condition", "body")}
    assert {v.runs for v in body.vertices} == {11.0}
    reasons = {(f.source.rstrip("_01"), f.target): f.reasons for f in main.flows}
    assert reasons["dot", "end"] == ("a loop, branch or call takes its operands from memory",)


def test_shares_add_up() -> None:
    graph = model_graph(prepared(LOOP))
    found = [graph.shares(v) for c in graph.computations for v in c.vertices if v.key]
    assert sum(work for work, _ in found) == pytest.approx(1)
    assert sum(size for _, size in found) == pytest.approx(1)


def test_a_model_without_arithmetic_has_no_shares_of_it() -> None:
    graph = model_graph(prepared(TRANSPOSE))
    assert [graph.shares(v) for v in graph.computations[0].vertices if v.key] == [(0.0, 1.0)]


def test_many_parameters_are_not_boxes_unless_several_groups_read_them() -> None:
    names = [f"p{n}" for n in range(20)]
    lines = [f"  {n} = f32[8,8] parameter({k})" for k, n in enumerate(names)]
    contract = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    last = "p0"
    for n in (*names[1:], "p0"):
        lines.append(f"  d_{n} = f32[8,8] dot({last}, {n}), {contract}")
        last = f"d_{n}"
    lines[-1] = "  ROOT " + lines[-1].strip()
    graph = model_graph(prepared("\n".join(["HloModule m", "ENTRY main {", *lines, "}"])))
    assert [v.name for v in graph.computations[0].vertices if v.kind == INPUT] == ["p0"]
    check(graph.computations[0])


ALIKE = {"bert_base_forward", "vit_base_forward", "mnist_mlp_train_step_metadata"}
"""Models like others, but larger or with metadata."""


def models() -> list[str]:
    found = {p.stem for p in (CORPUS / "models").glob("*.hlo")}
    return sorted(found - ALIKE) or ["absent"]


@pytest.mark.corpus
@pytest.mark.parametrize("name", models())
def test_every_edge_of_the_corpus_has_a_reason(name: str) -> None:
    path = CORPUS / "models" / f"{name}.hlo"
    if not path.is_file():
        pytest.skip("no corpus here")
    module = PreparedModule(parse(path.read_text()))
    graph = model_graph(module)
    for c in graph.computations:
        check(c)
    fusions = module.groups.fusions.values()
    assert all(e.reason for f in fusions for e in f.edges)
    for c, fusion in zip(graph.computations, fusions, strict=True):
        reads = {(f.source, f.target) for f in c.flows}
        homes = {o: g.name for g in fusion.groups for o in g.outputs}
        direct = {(homes[i], g.name) for g in fusion.groups for i in g.inputs if i in homes}
        assert direct <= reads


def test_a_gpu_has_a_graph_too() -> None:
    graph = model_graph(PreparedModule(parse(LOOP), Target.parse("cuda -arch=sm_80")))
    for c in graph.computations:
        check(c)


def test_dot_text_has_each_vertex_and_flow() -> None:
    graph = model_graph(prepared(LOOP))
    text = show_dot(graph)
    for number, c in enumerate(graph.computations):
        assert f"subgraph cluster_{number} {{\n    label={quoted(c.name)};" in text
        assert all(quoted(f"{c.name}/{v.name}") + " [label=" in text for v in c.vertices)
    edges = sum(" -> " in line.split("[")[0] for line in text.splitlines())
    assert edges == sum(len(c.flows) for c in graph.computations)
    assert [quoted(t) for t in ('a"b', "c\\d", "e\nf")] == ['"a\\"b"', '"c\\\\d"', '"e\\nf"']


def test_graphviz_reads_the_text() -> None:
    if (dot := shutil.which("dot")) is None:
        pytest.skip("Graphviz is not installed")
    text = show_dot(model_graph(prepared(LOOP)))
    made = subprocess.run([dot, "-Tplain"], input=text, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    rows = [line.split()[0] for line in made.stdout.splitlines()]
    graph = model_graph(prepared(LOOP))
    assert rows.count("node") == sum(len(c.vertices) for c in graph.computations)
    assert rows.count("edge") == sum(len(c.flows) for c in graph.computations)


def test_clusters_of_dot_do_not_share_names() -> None:
    """Values of two computations may have one name; the vertices do not."""
    text = show_dot(model_graph(prepared(LOOP)))
    nodes = [line.split(" [label")[0] for line in text.splitlines() if " [label" in line]
    for a, b in itertools.combinations([n for n in nodes if "->" not in n], 2):
        assert a != b
