"""The first commands of ``docs/c.md`` run as they are printed there, and give the right numbers."""

from __future__ import annotations

import platform
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from nestwright.cli.main import main

from .conftest import need, run

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "c.md").read_text()
COMMANDS = re.search(r"^```sh\n(.*?)^```$\s*^```text\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the page shows libraries of x86-64")
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("gcc", "ldd")
    assert COMMANDS is not None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    printed = ""
    for line in COMMANDS[1].splitlines():
        match shlex.split(line):
            case ["python", "-c", code]:
                exec(compile(code, "c.md", "exec"), {})
            case ["nestwright", *arguments]:
                assert main(arguments) == 0
            case ["cd", folder]:
                monkeypatch.chdir(folder)
            case command:
                printed = run(*command)
    libraries = [line.split(" (")[0].strip() for line in printed.splitlines()]
    assert sorted(libraries) == sorted(COMMANDS[2].splitlines())
    with np.load(ROOT / "examples" / "convnet.expected.npz") as expected:
        np.testing.assert_allclose(np.load("result_0.npy"), expected["out0"], atol=1e-4)
