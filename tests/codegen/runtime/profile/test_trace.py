"""Traces: valid events, well nested on each thread, their names those of the rows; HTML."""

from __future__ import annotations

import json
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.facts import GroupMember
from nestwright.codegen.plan.loaded import Event
from nestwright.codegen.runtime.profile.data import Profile
from nestwright.codegen.runtime.profile.figures import ProfileRow
from nestwright.ir.errors import ArtifactError
from nestwright.ir.hlo.text import parse

LOOP = """
HloModule loop

cond { s = (s32[], f32[512,512]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(4)
 ROOT lt = pred[] compare(i, n), direction=LT }

body { s = (s32[], f32[512,512]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[512,512] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT t = (s32[], f32[512,512]) tuple(j, y) }

ENTRY main { x = f32[512,512] parameter(0)
 zero = s32[] constant(0)
 start = (s32[], f32[512,512]) tuple(zero, x)
 w = (s32[], f32[512,512]) while(start), condition=cond, body=body
 ROOT y = f32[512,512] get-tuple-element(w), index=1 }
"""


@pytest.fixture(scope="module")
def profile() -> Profile:
    return build(parse(LOOP)).profile(np.full((512, 512), 1e-3, np.float32), rounds=3)


def complete(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in data["traceEvents"] if e["ph"] == "X"]


def test_events_are_nested_and_in_order(profile: Profile, tmp_path: Path) -> None:
    profile.write_trace(tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    events = complete(data)
    assert len(events) == len(profile.events) > 10
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        assert e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == 1
        rows[e["tid"]].append(e)
    for on_thread in rows.values():
        assert [e["ts"] for e in on_thread] == sorted(e["ts"] for e in on_thread)
        open_until: list[float] = []
        for e in on_thread:
            while open_until and e["ts"] >= open_until[-1] - 1e-6:
                open_until.pop()
            end = e["ts"] + e["dur"]
            assert not open_until or end <= open_until[-1] + 1e-6
            open_until.append(end)


def test_names_and_threads_are_told(profile: Profile) -> None:
    data = profile.trace()
    named = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    assert named[0] == "caller" and {e["tid"] for e in complete(data)} <= named.keys()
    assert {e["name"] for e in complete(data)} <= {r.name for r in profile.rows}
    (loop,) = [e for e in complete(data) if e["cat"] == "control flow"]
    inside = [e for e in complete(data) if e is not loop and loop["ts"] <= e["ts"]]
    dots = [e for e in inside if e["cat"] == "kernel" and e["args"].get("group") == "dot"]
    assert len(dots) == 4 and dots[0]["args"]["flops"] == 2 * 512**3
    (told,) = data["otherData"]["profiles"]
    assert told["events_lost"] == profile.lost == 0


def test_a_trace_that_cannot_be_written_leaves_what_was_there(
    profile: Profile, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("kept")
    for bad in (tmp_path, tmp_path / "none" / "t.json", tmp_path / "f" / "t.json", "a\0b"):
        with pytest.raises(ArtifactError, match="cannot write"):
            profile.write_trace(bad)
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


class Tags(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_is_escaped_and_small() -> None:
    evil = "<script>alert(1)</script>&\"'"
    member = GroupMember("a", evil, evil)
    rows = [ProfileRow(evil, "kernel", 1.0 / (n + 1), 1, members=(member,)) for n in range(50)]
    found = Profile(evil, "cpu", 1, 5, 1.0, 1.0, 0.0, tuple(rows), (Event(0, 0, 0, 1),), 0, {}, {})
    page = Tags(found._repr_html_())
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert evil in page.texts and "30 more" in page.texts
    assert len(found._repr_html_()) < 20_000
