"""The benchmark report: data, JSON and a page that loads nothing and escapes everything."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nestwright.autotune import bench as bench_module
from nestwright.autotune.bench import bench
from nestwright.autotune.log.units import duration
from nestwright.autotune.measure.peak import Peak
from nestwright.autotune.report import (
    BenchReport,
    GroupBench,
    ModelBench,
    curve_picture,
    render,
)
from nestwright.ir.hlo.text import parse

GROUP = GroupBench(
    "k" * 64,
    "dot_<add>",
    "dot",
    2.0,
    1e6,
    1e4,
    2e-5,
    1e-5,
    1e-7,
    3,
    "tiling@1",
    {"rows": 4},
    ((1, 2e-5), (2, 2e-5), (3, 1e-5)),
)
MODEL = ModelBench("m&m", 4e-3, 2e-3, (4e-3,), (2e-3,), 1e-6, 1e7, 1e5, 0.5, "l.jsonl", (GROUP,))
FACTS = {"cpu": "test", "threads": 2, "vector_bits": 512, "l1": 1, "l2": 1, "l3": 1, "load": 0.5}
BROKEN = ModelBench("broken", 0, 0, (), (), None, 0, 0, 0, "", (), "cannot <read>")
REPORT = BenchReport("cpu", FACTS, Peak(2, 1e11, 1e10), (MODEL, BROKEN), 1e9)


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
    picture = curve_picture(MODEL)
    assert ">1.00</text>" in picture and ">0.50</text>" in picture
    points = re.search(r'class="curve" points="([^"]*)"', picture)
    assert points is not None
    xy = [tuple(map(float, p.split(","))) for p in points[1].split()]
    assert xy[0][1] == min(y for _, y in xy) and xy[-1][1] == max(y for _, y in xy)
    assert [x for x, _ in xy] == sorted(x for x, _ in xy)


def test_json_round_trips_and_appears_whole(tmp_path: Path) -> None:
    REPORT.write_json(tmp_path / "deep" / "r.json")
    REPORT.write_html(tmp_path / "deep" / "r.html")
    data = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert data["models"][0]["groups"][0]["decisions"] == {"rows": 4}
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["r.html", "r.json"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (2e-3, "2 ms"), (3.25e-6, "3.25 µs"), (5e-9, "5 ns")]
)
def test_durations_have_fitting_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sweep_times_checks_and_goes_on_after_a_bad_model(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(bench_module, "SECONDS", 0.1)
    monkeypatch.setattr(bench_module, "measure_peak", lambda target: Peak(1, 1e11, 1e10))
    module = parse(
        "HloModule s\nENTRY main {\n  x = f32[40,30] parameter(0)\n"
        "  ROOT y = f32[40,30] sqrt(x)\n}\n"
    )
    report = bench([module, tmp_path / "none.hlo"], "cpu", threads=1)
    good, bad = report.models
    assert good.error is not None and good.error < 1e-6
    assert good.default_seconds > 0 and good.speedup == 1.0
    assert [g.note for g in good.groups] == [""]
    assert "No such file" in bad.problem
    assert "none" in render(report)
