"""Shell completion: commands, options, stages, and the scripts that shells evaluate."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nestwright.cli.main import COMPLETE, Commands

SHELLS = ("bash", "zsh", "fish")


def completed(words: str, number: int) -> list[str]:
    """What bash would offer for a word of a command line."""
    asked = {COMPLETE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    command = [sys.executable, "-m", "nestwright"]
    out = subprocess.run(
        command, env=os.environ | asked, capture_output=True, text=True, check=True, timeout=60
    )
    return [line.partition(",")[2] for line in out.stdout.splitlines()]


def test_commands_options_and_stages_are_completed() -> None:
    assert completed("nestwright ", 1) == list(Commands.homes)
    assert completed("nestwright sh", 1) == ["show"]
    assert "--html" in completed("nestwright show m.hlo --", 3)
    assert completed("nestwright show m.hlo --stage s", 4) == ["scheduled"]
    assert completed("nestwright log me", 2) == ["merge"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_evaluates_its_script(shell: str, tmp_path: Path) -> None:
    if (path := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    asked = os.environ | {COMPLETE: f"{shell}_source"}
    command = [sys.executable, "-m", "nestwright"]
    out = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and COMPLETE in out.stdout
    script = tmp_path / "script"
    script.write_text(out.stdout)
    ran = subprocess.run([path, "-n", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_unknown_shell_is_refused() -> None:
    asked = os.environ | {COMPLETE: "tcsh_source"}
    out = subprocess.run([sys.executable, "-m", "nestwright"], env=asked, timeout=60, check=False)
    assert out.returncode == 1
