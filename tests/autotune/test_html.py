"""What notebooks show: small, escaped, no scripts, links or styles."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import nestwright as nw
from nestwright.autotune.tuner.progress import TaskResult, TuneResult
from nestwright.codegen.driver.build import build
from nestwright.ir.hlo.text import parse
from nestwright.schedule import default_schedule
from nestwright.te.from_hlo import lower_group

ALLOWED = {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"}
EVIL = "<img src=x onerror=alert(1)>"
DOT = """HloModule product
ENTRY main { x = f32[8,16] parameter(0)
 w = f32[16,4] parameter(1)
 ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""


class Page(HTMLParser):
    """The tags of a page, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert len(text) < 20_000 and set(self.tags) <= ALLOWED

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_an_executable_shows_its_interface() -> None:
    exe = build(parse(DOT), "cpu -threads=1", inputs=("image", EVIL), outputs=("logits",))
    page = Page(exe._repr_html_())
    assert {"image", EVIL, "logits", "f32[8,16]", "f32[8,4]", "1 dot"} <= set(page.texts)
    assert "cpu -threads=1" in page.texts and any("argument 768 bytes" in t for t in page.texts)


def test_a_schedule_shows_its_loops_and_steps() -> None:
    module = parse(DOT)
    sch = default_schedule(lower_group(module.entry, "f"), nw.Target.parse("cpu"))
    page = Page(sch._repr_html_())
    assert sch.show() in page.texts and sch.trace.show() in page.texts


@pytest.mark.parametrize("count", [0, 3, 40])
def test_a_tuning_shows_its_heaviest_groups(count: int) -> None:
    tasks = tuple(
        TaskResult(f"k{n}", f"{EVIL}{n}", "dot", 1.0, 1.0, 1.0, 5, 2e-3, 1e-3 / (n + 1))
        for n in range(count)
    )
    found = TuneResult(EVIL, "cpu", Path("/home/x/l.jsonl"), tasks, 9, 4, 1.5, "budget", {})
    page = Page(found._repr_html_())
    assert "l.jsonl" in page.texts and not any("/home" in t for t in page.texts)
    assert (f"{EVIL}0" in page.texts) == (count > 0) and ("20 more" in page.texts) == (count == 40)
