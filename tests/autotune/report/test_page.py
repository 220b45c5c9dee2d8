"""The page of a benchmark report: it loads nothing, escapes everything, and holds its data."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from nestwright.autotune.bench.data import BenchReport
from nestwright.autotune.report import embed
from nestwright.autotune.report.detail import MOST_BYTES
from nestwright.autotune.report.page import read_page, render
from nestwright.autotune.report.views import command_of
from nestwright.ir.errors import ReportError

from ..bench.reports import CELL, GROUP, REPORT

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&<b>"


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    void = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.seen: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.seen += [(tag, name, value or "") for name, value in attrs]
        self.tags.append(tag)
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.seen += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data.strip())


def hostile() -> BenchReport:
    """A report whose model, groups, reasons and problems are all markup."""
    group = replace(GROUP, name=HOSTILE, kind=HOSTILE, note=HOSTILE)
    edge = replace(CELL.edges[0], fused=False, producer=HOSTILE, reason=HOSTILE)
    key = replace(CELL.key, model=HOSTILE)
    bad = replace(CELL, key=key, problem=HOSTILE)
    cell = replace(CELL, key=key, groups=(group,), edges=(edge,), warnings=(HOSTILE,))
    return replace(REPORT, cells=(cell, bad), warnings=(HOSTILE,))


def large(models: int, trials: int) -> BenchReport:
    """A report of many models with many trials each, spread over ten groups."""
    each = trials // 10
    made = [
        replace(GROUP.trials[0], number=n + 1, at=0.1234567 * n, seconds=2.0123e-5 / (1 + n % 7))
        for n in range(each)
    ]
    groups = tuple(
        replace(GROUP, key=f"{n}" * 64, name=f"dot_{n}", trials=tuple(made)) for n in range(10)
    )
    cells = (
        replace(CELL, key=replace(CELL.key, model=f"model_{n}"), groups=groups)
        for n in range(models)
    )
    return replace(REPORT, cells=tuple(cells))


def test_page_is_well_formed_and_loads_nothing() -> None:
    text = render(REPORT)
    page = Page(text)
    assert page.open == []
    links = [v for _, name, v in page.seen if name in ("href", "src", "action", "data")]
    assert links and all(v.startswith("#") for v in links)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert "http:" not in text and "https:" not in text and "url(" not in text
    assert "@import" not in text


def test_links_lead_to_places_in_the_page() -> None:
    page = Page(render(REPORT))
    ids = [v for _, name, v in page.seen if name == "id"]
    assert len(ids) == len(set(ids))
    named = {v for _, name, v in page.seen if name in ("href", "aria-labelledby")}
    assert {v.removeprefix("#") for v in named} <= set(ids)


def test_texts_of_models_and_logs_do_nothing() -> None:
    plain, page = Page(render(REPORT)), Page(render(hostile()))
    assert page.open == []
    assert page.tags.count("script") == plain.tags.count("script") == 2
    assert "img" not in page.tags
    assert "onerror" not in {name for _, name, _ in page.seen}
    assert any(HOSTILE in word for word in page.words)


def test_only_the_pages_own_script_may_run() -> None:
    text = render(REPORT)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(scripts) == 1
    assert f"script-src {embed.fingerprint(scripts[0])}" in text


@pytest.mark.parametrize(
    "report", [REPORT, hostile(), large(3, 500)], ids=["small", "hostile", "large"]
)
def test_data_in_the_page_are_the_report(report: BenchReport) -> None:
    text = render(report)
    assert read_page(text) == report
    assert HOSTILE not in text


def test_ten_models_of_500_trials_are_under_2_megabytes() -> None:
    text = render(large(10, 500))
    assert len(text.encode()) < 2_000_000
    assert read_page(text) == large(10, 500)


def test_a_large_report_shows_less_and_says_so() -> None:
    lines = [f"C[i * {n}] = A[i + {n}] * B[{n} - i]" for n in range(300)]
    nests = "\n".join(lines), "\n".join(reversed(lines))
    group = replace(
        GROUP,
        default=replace(GROUP.default, nest=nests[0]),
        tuned=replace(GROUP.tuned, nest=nests[1]),
    )
    groups = tuple(replace(group, key=f"{n}" * 64, name=f"dot_{n}") for n in range(10))
    keys = [replace(CELL.key, model=f"model_{n % 2}", threads=1 + n // 2) for n in range(4)]
    report = replace(REPORT, cells=tuple(replace(CELL, key=k, groups=groups) for k in keys))
    text = render(report)
    assert len(text.encode()) <= MOST_BYTES
    assert "Left out to keep this page under 2 MB" in text
    assert "graphs and timelines of a model&#39;s further cells" in text
    assert "heaviest tuned kernels of each cell" in text
    assert read_page(text) == report
    assert "Left out" not in render(replace(report, cells=report.cells[:1]))


def test_page_holds_no_absolute_path() -> None:
    key = replace(CELL.key, model="/home/some one/m.hlo")
    cell = replace(CELL, key=key, problem="cannot read /tmp/a/b.hlo: see C:\\x\\y.txt, 1/2 and a/b")
    text = render(replace(REPORT, cells=(cell,), warnings=("file:///tmp/q/r.json",)))
    assert "/tmp/" not in text and "/home/" not in text and "C:\\" not in text
    assert "cannot read b.hlo: see y.txt, 1/2 and a/b" in text


def test_page_without_data_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no data"):
        read_page("<html></html>")
    damaged = render(REPORT).replace('"version":1', '"version":2')
    with pytest.raises(ReportError):
        read_page(damaged)


def test_page_holds_the_figures() -> None:
    words = " ".join(Page(render(REPORT)).words)
    assert "4 ms" in words and "2 ms" in words and "2.00×" in words
    assert "100" in words, "GFLOP/s of the tuned group: 1e6 in 10 us"
    assert "the control differs by 4 %" in words


def test_every_chart_has_a_table_behind_it() -> None:
    text = render(REPORT)
    for figure in re.findall(r"<figure.*?</figure>", text, re.S):
        assert "<svg" in figure
        assert "<table" in figure or "numbers as in the table" in figure


def test_report_without_cells_and_failed_models_alone_are_pages() -> None:
    assert Page(render(replace(REPORT, cells=()))).open == []
    only = replace(REPORT, cells=REPORT.cells[1:], peaks=(), logs=())
    assert "cannot &lt;read&gt;" in render(only)


def test_notebook_shows_the_sweep_as_a_table() -> None:
    page = Page(hostile()._repr_html_())
    assert page.open == [] and not {"script", "style", "img"} & set(page.tags)
    words = " ".join(Page(REPORT._repr_html_()).words)
    assert "4 ms" in words and "2.00×" in words and "cannot <read>" in words
    assert "torch" in words and "Caution: the control differs by 4 %" in words


def test_command_names_what_the_data_tell() -> None:
    told = command_of(REPORT)
    assert told == (
        "nestwright bench 'm&m' broken --targets cpu --threads 2 --batch 8 --log l.jsonl "
        "--peers torch --callers 2 --seed 0 --html report.html --profile"
    )


def test_command_can_be_given_again() -> None:
    """The peer of a way is named, every log, and no log where each model had its own."""
    ways = (*CELL.ways, replace(CELL.ways[0], name="inductor"))
    first = replace(CELL, ways=ways, profile=None)
    second = replace(first, key=replace(CELL.key, log="m.jsonl"))
    told = command_of(replace(REPORT, cells=(first, second)))
    assert "--log l.jsonl --log m.jsonl --peers torch --callers 2" in told
    assert "--profile" not in told
    apart = replace(second, key=replace(second.key, model="n"))
    assert "--log" not in command_of(replace(REPORT, cells=(first, apart)))
    assert "--log" not in command_of(replace(REPORT, cells=()))
