"""The page of a graph: offline, escaped, and in a browser a group opens with its stages."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

import nestwright as nw
from nestwright.autotune.explain.graph import model_graph
from nestwright.autotune.explain.model import graph_page
from nestwright.autotune.explain.page import render
from nestwright.autotune.explain.picture import Arrow, Card, graph_picture
from nestwright.autotune.explain.texts import stages_of
from nestwright.codegen.driver import PreparedModule
from nestwright.ir.errors import ArgumentError
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

MODEL = """\
HloModule two

ENTRY main {
  x = f32[33,65] parameter(0)
  w = f32[65,17] parameter(1)
  y = f32[33,17] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[33,17] exponential(y)
  v = f32[17,9] parameter(2)
  ROOT z = f32[33,9] dot(e, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={source_file="net.py" source_line=12}
}
"""


def packed(page: str) -> dict[str, dict[str, str]]:
    found = re.search(r'id="texts">([^<]*)<', page)
    assert found is not None
    texts: dict[str, dict[str, str]] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return texts


class Elements(HTMLParser):
    """Counts elements and notes what would load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.loads: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def page() -> str:
    return graph_page(nw.lower(parse(MODEL)))


def test_the_page_needs_nothing_else(page: str) -> None:
    found = Elements(page)
    assert found.loads == []
    assert not re.search(r"https?:|@import|url\(", page)
    assert "default-src 'none'" in page
    assert found.counts["svg"] == 1 and len(page) < 1_000_000


def test_every_group_has_every_stage(page: str) -> None:
    texts = packed(page)
    groups = PreparedModule(parse(MODEL)).groups.distinct
    assert texts.keys() == groups.keys()
    for stages in texts.values():
        assert list(stages) == ["hlo", "te", "loop", "scheduled", "flat", "llvm", "asm"]
        assert all(stages.values())
    assert any("net.py:12" in stages["hlo"] for stages in texts.values())


def test_stages_can_be_chosen() -> None:
    texts = packed(graph_page(nw.lower(parse(MODEL)), "te, asm"))
    assert {tuple(stages) for stages in texts.values()} == {("te", "asm")}
    gpu = nw.lower(parse(MODEL), target="cuda -arch=sm_80")
    assert {tuple(s) for s in packed(graph_page(gpu, "hlo,llvm,ptx")).values()} == {
        ("hlo", "llvm", "ptx")
    }


def test_a_stage_that_groups_do_not_have_is_refused() -> None:
    cpu = Target.parse("cpu")
    for wanted, message in (
        ("fused", "whole model"),
        ("lop", "did you mean 'loop'"),
        ("ptx", "'ptx'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            stages_of(cpu, wanted)


def test_names_are_escaped_everywhere() -> None:
    evil = '<script>alert("x")</script>&\'"'
    nodes = [Card(evil, evil, (evil,), tip=evil, carries=evil), Card("b", "b")]
    picture = str(graph_picture(nodes, [Arrow(evil, "b", evil)], evil))
    assert "<script" not in picture and "&lt;script" in picture
    graph = model_graph(PreparedModule(parse(MODEL)), evil)
    made = render(graph, {"k": {"hlo": "</script><b>"}}, {v: (evil,) for v in "k"}, evil)
    assert "<script>alert" not in made
    assert Elements(made).counts["script"] == 3


def browsed(page: str, place: str, tmp_path: Path) -> str:
    """The page's elements after its script has run at ``place``."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no headless Chromium")
    path = tmp_path / "g.html"
    path.write_text(page)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000"]
    command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    url = f"{path.as_uri()}#{place}"
    made = subprocess.run([*command, url], capture_output=True, text=True, timeout=120)
    if made.returncode:
        pytest.skip(f"Chromium does not run here: {made.stderr[-200:]}")
    return made.stdout


def test_a_browser_opens_a_group(page: str, tmp_path: Path) -> None:
    name = next(g.name for g in PreparedModule(parse(MODEL)).groups.distinct.values())
    shown = browsed(page, f"main/{name}", tmp_path)
    aside = shown[shown.index("<aside") : shown.index("</aside>")]
    assert f"<h2>{name}</h2>" in aside
    assert "not fused: feeds a dot" in aside
    assert re.findall(r'<button aria-selected="\w+">(\w+)', aside) == [
        *("hlo", "te", "loop", "scheduled", "flat", "llvm", "asm"),
    ]
    assert "exponential(" in aside  # the text of the stage, unpacked
    assert "node dot picked" in shown or "dot picked" in shown


def test_a_browser_searches(page: str, tmp_path: Path) -> None:
    shown = browsed(page, "?exponential", tmp_path)
    first = next(g.name for g in PreparedModule(parse(MODEL)).groups.distinct.values())
    hits = re.findall(r'class="node [\w ]*hit[\w ]*" data-name="([^"]*)"', shown)
    assert hits == [first] and re.search(r'id="count"[^>]*>1 found<', shown)
    assert re.search(r'id="count"[^>]*>0 found<', browsed(page, "?nowhere", tmp_path))


def test_a_browser_ignores_a_place_that_is_not_there(page: str, tmp_path: Path) -> None:
    shown = browsed(page, "main/nothing", tmp_path)
    assert re.search(r"<aside[^>]*></aside>", shown)
