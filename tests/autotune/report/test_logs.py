"""A log that is empty, mixed of machines, damaged or of another version: one clear message."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from nestwright.autotune.bench import bench, cell, sweep
from nestwright.autotune.bench.data import CellBench
from nestwright.autotune.bench.race import run
from nestwright.autotune.log.encoding import encode
from nestwright.autotune.log.records import Header, Trial
from nestwright.autotune.measure.host.peak import Peak
from nestwright.autotune.report.page import read_page, render

MODEL = """
HloModule m
ENTRY main {
  a = f32[4,4] parameter(0)
  ROOT c = f32[4,4] add(a, a)
}
"""
HEADER = encode(Header({}, 0.0)) + "\n"


def trial(device: str) -> str:
    return encode(Trial("w" * 64, device, "default", {}, "ok", "default", (1e-3,), [])) + "\n"


LOGS = {
    "empty": (HEADER, "l.jsonl has no trial"),
    "mixed": (
        HEADER + trial("cpu-a-t1") + trial("cpu-a-t2") + trial("cpu-b-t2"),
        "l.jsonl mixes 2 machines (cpu-a, cpu-b)",
    ),
    "damaged": (
        HEADER + trial("cpu-a-t2") + "{not json\n" + '{"k":"trial"}\n',
        "2 lines of l.jsonl skipped, the first: l.jsonl:3: ",
    ),
    "version": (
        json.dumps({**json.loads(HEADER), "v": 99}) + "\n",
        "cannot use the log",
    ),
    "nonsense": ("nonsense\n", "not a tuning log"),
    "absent": (None, "cannot read the log"),
}


@pytest.mark.parametrize("name", LOGS)
def test_page_says_what_is_odd_about_a_log(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "SECONDS", 0.1)
    monkeypatch.setattr(run, "ROUNDS", 7)
    monkeypatch.setattr(sweep, "measure_peak", lambda target: Peak(target.threads, 1e11, 1e10))
    if name not in ("empty", "mixed"):  # what is told of the others has nothing to do with times
        monkeypatch.setattr(sweep, "bench_cell", lambda key, *_: CellBench(key))
    model, log = tmp_path / "m.hlo", tmp_path / "l.jsonl"
    model.write_text(MODEL)
    contents, message = LOGS[name]
    if contents is not None:
        log.write_text(contents)
    page = render(bench([str(model)], log=str(log), threads=1, check=False))
    assert message in unescape(page)
    assert str(tmp_path) not in page
    assert read_page(page).cells[0].key.model == "m"
