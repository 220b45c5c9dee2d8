"""Kernels that spill by ptxas's own choice are assembled again with more registers."""

from __future__ import annotations

import pytest

from nestwright.codegen.targets.cuda import ptxas, spills
from nestwright.codegen.targets.cuda.ptxas import Cubin, Usage

HEAD = """.visible .entry {name}(
\t.param .u64 .ptr .align 16 {name}_param_0
)
{asks}{{
\tret;
}}
"""
FIRST = HEAD.format(name="k", asks=".reqntid 128, 1, 1\n")
SECOND = HEAD.format(name="k_1", asks=".reqntid 64, 1, 1\n")
ASKED = HEAD.format(name="k_1", asks=".reqntid 64, 1, 1\n.minnctapersm 4\n")
TIGHT, FULL = Usage(80, 8, 4, 12), Usage(255, 64, 60, 60)


def assembled(
    monkeypatch: pytest.MonkeyPatch, text: str, before: Usage, after: Usage
) -> tuple[str, int]:
    """Return the PTX that is taken, and how often ptxas was run, where ``k_1`` spills."""
    runs = []

    def run(ptx: str, arch: str) -> Cubin:
        runs.append(ptx)
        return Cubin(b"", {"k": Usage(16), "k_1": after if len(runs) > 1 else before}, ())

    monkeypatch.setattr(ptxas, "assemble", run)
    return spills.assemble(text, "sm_90a", 255)[0], len(runs)


@pytest.mark.parametrize(
    ("text", "before", "after", "runs"),
    [
        (FIRST + SECOND, Usage(40), Usage(44), 1),
        (FIRST + SECOND, FULL, FULL, 1),
        (FIRST + ASKED, TIGHT, Usage(98), 1),
        (FIRST + SECOND, TIGHT, TIGHT, 2),
    ],
    ids=["no spills", "no registers left", "asked for already", "no better"],
)
def test_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, text: str, before: Usage, after: Usage, runs: int
) -> None:
    assert assembled(monkeypatch, text, before, after) == (text, runs)


def test_the_kernel_that_spills_asks_for_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, runs = assembled(monkeypatch, FIRST + SECOND, TIGHT, Usage(98))
    wanted = SECOND.replace("64, 1, 1\n", "64, 1, 1\n.minnctapersm 1\n")
    assert (taken, runs) == (FIRST + wanted, 2)
