"""The page of a benchmark report: one HTML file that loads nothing, by jinja2."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from ...ir.files import encodable
from ..bench.data import BenchReport
from ..explain.picture import STYLE
from .charts.bars import cut
from .detail import LEVELS, MOST_BYTES, Detail
from .embed import embedded, embedded_in, fingerprint, without_paths
from .formats import FILTERS, date
from .views import command_of, machine_rows, views_of, ways_of

HOME = __package__ or __name__.rpartition(".")[0]


def render(report: BenchReport) -> str:
    """Return the HTML page as text; texts of the report lose the folders of absolute paths.

    A page that would have over ``MOST_BYTES`` shows less, and says what it leaves out.
    """
    shown = BenchReport.from_json(without_paths(report.to_json()))
    data = embedded(shown.to_json())
    page = ""
    for detail in LEVELS:
        page = _page(shown, data, detail)
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _page(shown: BenchReport, data: Markup, detail: Detail) -> str:
    cells = views_of(shown, detail)
    script = _file("page.js")
    return encodable(
        _environment()
        .get_template("page.html.j2")
        .render(
            report=shown,
            inf=math.inf,
            cells=cells,
            ways=ways_of(shown),
            has_latency=any(v.latency for v in cells),
            has_throughput=any(v.throughput for v in cells),
            facts=machine_rows(shown),
            created=date(shown.created),
            style=Markup(_file("page.css") + STYLE),
            script=Markup(script),
            policy=Markup(fingerprint(script)),
            command=command_of(shown),
            data=data,
            left_out=detail.left_out,
        )
    )


def render_table(report: BenchReport) -> str:
    """Return the sweep as one HTML table, for notebooks."""
    shown = BenchReport.from_json(without_paths(report.to_json()))
    cells = views_of(shown, Detail())
    return (
        _environment()
        .get_template("notebook.html.j2")
        .render(
            report=shown,
            cells=cells,
            ways=ways_of(shown),
            cautions=dict.fromkeys([*shown.warnings, *(d for v in cells for d in v.doubts)]),
            created=date(shown.created),
        )
    )


def read_page(text: str) -> BenchReport:
    """Return the report of a page: ``ValueError`` if it has none, ``ReportError`` if damaged."""
    return BenchReport.from_json(embedded_in(text))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(HOME, "templates"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {**FILTERS, "cut": cut}
    environment.filters |= filters
    return environment


def _file(name: str) -> str:
    return (files(HOME) / name).read_text(encoding="utf-8")
