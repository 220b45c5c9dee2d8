"""The documentation says what the program prints: its commands and examples are run and compared.

In a page, a ``console`` block starts with ``$ nestwright ...`` and continues with the output; the
``python`` blocks of a page run in order in one namespace, and a ``text`` block after one is what
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
from nestwright.ir.hlo.fuse import library_groups
from nestwright.ir.library import registry
from nestwright.schedule.sketches import sampled

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLESS = os.environ.get("NESTWRIGHT_BLESS") == "1"
CODE = {".py", ".ll"}
STAGES = ("hlo", "fused", "te", "loop", "scheduled", "flat", "plan")


def printed_by(command: str) -> str:
    assert command.startswith("nestwright "), command
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(shlex.split(command)[1:])
    assert status == 0, command
    return out.getvalue().strip("\n") + "\n"


def run_page(text: str) -> str:
    """The page with every printed part as it is printed now."""
    namespace: dict[str, object] = {}
    printed = ""

    def again(match: re.Match[str]) -> str:
        nonlocal printed
        kind, body = match[1], match[2]
        if kind == "text":
            body, printed = printed or body, ""
        assert not printed, f"what an example prints is not shown:\n{printed}"
        if kind == "console":
            (command,) = (line[2:] for line in body.splitlines() if line.startswith("$ "))
            body = f"$ {command}\n{printed_by(command)}"
        elif kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "docs", "exec"), namespace)
            printed = out.getvalue().rstrip() + "\n" if out.getvalue() else ""
        return f"```{kind}\n{body}```"

    again_text = BLOCK.sub(again, text)
    assert not printed, f"what an example prints is not shown:\n{printed}"
    return again_text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sampled, "RULES", {})  # what a page registers ends with it
    monkeypatch.setattr(library_groups, "_matches", {})
    monkeypatch.setattr(registry, "_registered", {})
    before = page.read_text()
    after = run_page(before)
    if BLESS:
        page.write_text(after)
    assert after == before or BLESS, f"{page.name} is out of date: NESTWRIGHT_BLESS=1 refreshes it"


def test_tour_shows_every_stage() -> None:
    text = (ROOT / "docs/tour.md").read_text()
    shown = set(re.findall(r"^\$ nestwright show \S+ --stage (\w+)", text, re.MULTILINE))
    assert shown == set(STAGES)


def test_tour_ends_with_the_schedule_of_the_example() -> None:
    tour = "".join(m[2] for m in BLOCK.finditer((ROOT / "docs/tour.md").read_text()))
    example = (ROOT / "examples/hand_schedule.py").read_text()
    body = example[example.index("    out = sch.cache_write") : example.index("    return sch")]
    numbers = {"VECTORS * LANES": "48", "ROWS": "8", "VECTORS": "3", "LANES": "16"}
    for name, value in numbers.items():
        body = body.replace(name, value)
    for line in filter(None, body.splitlines()):
        assert line.removeprefix("    ") + "\n" in tour


STALE = """\
```python
print(1 + 1)
```

```text
3
```

```console
$ nestwright show examples/softmax.hlo --stage te
something else
```
"""


def test_stale_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    after = run_page(STALE)
    assert "2\n```" in after and "3\n```" not in after
    assert "something else" not in after and "exp: for all vi0 < 16" in after
    with pytest.raises(AssertionError, match="is not shown"):
        run_page("```python\nprint(1)\n```\n")


def test_the_map_names_what_is_there() -> None:
    """Every path in the map exists, and every folder of the package is on it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(
        re.findall(r"`((?:ir|te|schedule|codegen|autotune|cli|interop|tests)/[\w./]*)`", text)
    )
    assert sorted(p for p in named if not (ROOT / p).exists()) == []
    folders = {
        f"{p.parent.relative_to(ROOT)}/"
        for layer in ("ir", "te", "schedule", "codegen", "autotune", "cli", "interop")
        for p in (ROOT / layer).rglob("__init__.py")
    }
    inner = ("ir/hlo/passes/", "ir/frontends/")  # the map names these folders, not those inside
    missing = {f for f in folders - named if not f.startswith(inner)}
    assert missing == set()


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\S+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {p.name for p in folder.glob("*.md")} - {"README.md"}


def test_pages_name_files_that_exist() -> None:
    """Paths of code in pages, which may leave out the first folders: ``runtime/native.py``."""
    own = ("ir", "te", "schedule", "codegen", "autotune", "cli", "interop", "tests", "benchmarks")
    code = [p for f in (*own, "examples") for p in (ROOT / f).rglob("*") if p.suffix in CODE]
    known = {"/".join(p.parts[-n:]) for p in code for n in range(1, len(p.parts))}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(r"`([\w./]+/[\w./]+\.(?:py|ll))`", page.read_text())
    }
    assert {n for n in named if n[1] not in known} == set()
