"""Findings: instructions that cannot be compiled, as ``UnsupportedError`` lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One instruction that cannot be compiled, the reason, and a hint.

    ``source`` is ``file:line`` in the user's program, or empty if that is unknown.
    """

    opcode: str
    name: str
    computation: str
    reason: str
    hint: str = ""
    source: str = ""

    def __str__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"{self.opcode} `{self.name}` in `{self.computation}`{place}"
