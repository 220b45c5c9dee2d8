"""The documentation says what the program prints: its commands and examples are run and compared.

In a page, a ``console`` block starts with ``$ nestwright ...`` and continues with the output; the
``python`` blocks of a page run in order in one namespace, and a ``text`` block right after one is what
that one prints. ``NESTWRIGHT_BLESS=1 pytest tests/docs`` writes what is printed into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from nestwright.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLESS = os.environ.get("NESTWRIGHT_BLESS") == "1"


def printed_by(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(shlex.split(command)[1:])
    assert status == 0, command
    return out.getvalue().strip("\n") + "\n"


def run_page(text: str) -> str:
    """The page with every printed part as it is printed now."""
    namespace: dict[str, object] = {}
    last: str | None = None

    def again(match: re.Match[str]) -> str:
        nonlocal last
        kind, body = match[1], match[2]
        if kind == "console":
            command = body.splitlines()[0].removeprefix("$ ")
            body = f"$ {command}\n{printed_by(command)}"
        elif kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "docs", "exec"), namespace)
            last = out.getvalue().rstrip() + "\n"
        elif kind == "text" and last is not None:
            body, last = last, None
        return f"```{kind}\n{body}```"

    return BLOCK.sub(again, text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    before = page.read_text()
    after = run_page(before)
    if BLESS:
        page.write_text(after)
    assert after == before or BLESS, f"{page.name} is out of date: NESTWRIGHT_BLESS=1 refreshes it"
