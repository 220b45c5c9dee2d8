"""The page in headless Chromium: nothing overflows, overlaps or runs that should not."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest

from nestwright.autotune.report.page import render

from .samples import full

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next(filter(None, map(shutil.which, BROWSERS)), None)
PROBE = Path(__file__).with_name("probe.js").read_text()
FRAME = 'style="border: 0"'  # a window is at least 500 pixels wide, a frame is not
DARK, LIGHT = 0, 1

pytestmark = pytest.mark.skipif(FOUND is None, reason="no Chromium is installed")


def probed(page: str, folder: Path, width: int, scheme: int = LIGHT) -> dict[str, Any]:
    """What the probe reads off a page in a window of a width, in a light or a dark scheme."""
    page = re.sub(r"script-src [^\"]*", "script-src 'unsafe-inline'", page, count=1)
    inner = escape(page.replace("</body>", f"<script>{PROBE}</script></body>"), quote=True)
    place = folder / "page.html"
    place.write_text(f'<body><iframe srcdoc="{inner}" width="{width}" height="900" {FRAME}>')
    command = [
        str(FOUND),
        *("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"),
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000"),
        *(f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", f"file://{place}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="probe">([^<]*)</pre>', done.stdout)
    assert found is not None, done.stderr[-500:]
    result: dict[str, Any] = json.loads(base64.b64decode(found[1]))
    return result


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> dict[str, Any]:
    return probed(render(full()), tmp_path_factory.mktemp("wide"), 1200)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory) -> dict[str, Any]:
    return probed(render(full()), tmp_path_factory.mktemp("narrow"), 400, DARK)


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_nothing_overflows_or_scrolls_sideways(size: str, request) -> None:
    found = request.getfixturevalue(size)
    assert found["width"] == {"wide": 1200, "narrow": 400}[size]
    assert found["scroll"] <= found["width"]
    assert found["outside"] == [] and found["scrolling"] == []


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_charts_keep_their_parts_inside(size: str, request) -> None:
    found = request.getfixturevalue(size)
    kinds = {c["kind"] for c in found["charts"]}
    assert kinds == {"chart roofline", "chart curve", "chart scatter", "chart bars"}
    for chart in found["charts"]:
        left, top, right, bottom = chart["box"]
        boxes = [*chart["shapes"], *(t["box"] for t in chart["texts"])]
        for a, b, c, d in boxes:
            inside = a >= left - 1 and b >= top - 1 and c <= right + 1 and d <= bottom + 1
            assert inside, (chart["label"], (a, b, c, d), chart["box"])


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_labels_do_not_overlap_and_can_be_read(size: str, request) -> None:
    for chart in request.getfixturevalue(size)["charts"]:
        texts = [t for t in chart["texts"] if not t["turned"]]
        assert all(t["size"] >= 8 for t in chart["texts"]), chart["label"]
        for a, b in itertools.combinations(texts, 2):
            assert not meet(a["box"], b["box"]), (chart["label"], a["text"], b["text"])


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_each_roof_has_a_name_and_none_meets_another(size: str, request) -> None:
    charts = request.getfixturevalue(size)["charts"]
    full_one = next(c for c in charts if c["kind"] == "chart roofline")
    names = [t for t in full_one["texts"] if t["kind"] == "roofname"]
    assert [t["text"].split()[0] for t in names] == ["100", "L1", "L2", "L3", "memory"]
    for a, b in itertools.combinations(names, 2):
        assert overlap(a["corners"], b["corners"]) <= 2.5, (a["text"], b["text"])


def test_texts_of_the_graph_stay_in_their_boxes(wide: dict[str, Any]) -> None:
    assert wide["nodes"] and [t for t, beyond in wide["nodes"] if beyond > 0] == []


def overlap(a: list[list[float]], b: list[list[float]]) -> float:
    """The least distance by which two rectangles would have to move to be apart."""
    found = []
    for corners in (a, b):
        for (x1, y1), (x2, y2) in itertools.pairwise(corners[:3]):
            length = math.hypot(x2 - x1, y2 - y1)
            across = (x2 - x1) / length, (y2 - y1) / length
            spans = [[across[0] * x + across[1] * y for x, y in c] for c in (a, b)]
            found.append(min(map(max, spans)) - max(map(min, spans)))
    return max(0.0, min(found))


def meet(a: list[float], b: list[float]) -> bool:
    """True if two boxes share more than a pixel in both directions."""
    across = min(a[2], b[2]) - max(a[0], b[0])
    down = min(a[3], b[3]) - max(a[1], b[1])
    return across > 1 and down > 2.5  # boxes of text have room above and below the letters


def test_kernels_are_sorted_by_a_click(wide: dict[str, Any]) -> None:
    assert wide["before"] == sorted(wide["before"], reverse=True)
    assert wide["down"] == sorted(wide["before"], reverse=True)
    assert wide["up"] == sorted(wide["before"])


def test_tables_become_cards_on_narrow_screens(
    wide: dict[str, Any], narrow: dict[str, Any]
) -> None:
    assert wide["thead"] and not narrow["thead"]


def test_both_schemes_have_contrast(wide: dict[str, Any], narrow: dict[str, Any]) -> None:
    light, dark = (luminance(f["paper"]) for f in (wide, narrow))
    assert light > 0.9 and dark < 0.05
    for found in (wide, narrow):
        for ink, least in ((found["ink"], 10), (found["soft"], 4.5)):
            a, b = sorted((luminance(ink), luminance(found["paper"])))
            assert (b + 0.05) / (a + 0.05) >= least, "the contrast ratio of WCAG 2"


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2 of a color such as rgb(1, 2, 3)."""
    parts = [int(x) / 255 for x in re.findall(r"\d+", color)[:3]]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_hostile_names_do_nothing_even_without_the_policy(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=window.hit=true><svg onload=window.hit=true>"
    report = full()
    group = replace(report.cells[0].groups[0], name=hostile, kind=hostile)
    cell = replace(
        report.cells[0],
        key=replace(report.cells[0].key, model=hostile),
        groups=(group, *report.cells[0].groups[1:]),
    )
    found = probed(render(replace(report, cells=(cell,))), tmp_path, 1200)
    assert not found["hit"] and found["images"] == 0
