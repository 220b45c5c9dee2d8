"""The page of a benchmark report: it loads nothing and escapes everything."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from nestwright.autotune.report.page import curve_picture, render

from ..bench.reports import CELL, REPORT


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    void = frozenset({"meta", "rect", "polyline", "!doctype"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.seen += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.words.append(data)


def test_page_is_well_formed_and_loads_nothing() -> None:
    page = Page(render(REPORT))
    assert page.open == []
    links = [v for _, name, v in page.seen if name in ("href", "src", "action", "data")]
    assert all(v.startswith("#") for v in links)
    assert not any(tag in ("script", "link", "img", "iframe") for tag, _, _ in page.seen)
    assert "url(" not in render(REPORT)


def test_page_escapes_names_and_problems() -> None:
    text = render(REPORT)
    assert "dot_&lt;add&gt;" in text and "dot_<add>" not in text
    assert "m&amp;m" in text and "cannot &lt;read&gt;" in text


def test_page_holds_the_numbers() -> None:
    words = " ".join(Page(render(REPORT)).words)
    assert "4 ms" in words and "2 ms" in words and "2.00" in words
    assert "100.0" in words, "GFLOP/s of the tuned group: 1e6 in 10 us"
    assert "100 %" in words, "its share of the peak"


def test_curve_starts_at_the_default_and_ends_at_the_best() -> None:
    picture = curve_picture(CELL)
    assert ">1.00</text>" in picture and ">0.50</text>" in picture
    points = re.search(r'class="curve" points="([^"]*)"', picture)
    assert points is not None
    xy = [tuple(map(float, p.split(","))) for p in points[1].split()]
    assert xy[0][1] == min(y for _, y in xy) and xy[-1][1] == max(y for _, y in xy)
    assert [x for x, _ in xy] == sorted(x for x, _ in xy)
