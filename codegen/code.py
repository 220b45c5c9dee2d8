"""What a compiled group is, and how its code travels: to another process, and into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..ir.target import Target
from .sharing import NOTHING_SHARED, Sharing

Code: TypeAlias = bytes
"""Object code for a processor."""


@dataclass(frozen=True, slots=True)
class PackCode:
    """Code for this machine that makes a kernel's input ``index`` out of a constant.

    ``symbol`` takes the constant's address and that of ``size`` bytes for the result.
    """

    index: int
    symbol: str
    size: int
    object: bytes


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A compiled group: its code, the bytes of workspace that its caller hands it, its packs."""

    code: Code
    workspace: int = 0
    sharing: Sharing = NOTHING_SHARED
    packs: tuple[PackCode, ...] = ()


def kinds(target: Target) -> tuple[str, ...]:
    """The kinds of pieces that the code for a target has."""
    return ("o",)


def parts(code: Code) -> dict[str, bytes]:
    """A kernel's code as pieces of bytes, by kind."""
    return {"o": code}


def from_parts(found: Mapping[str, bytes]) -> Code:
    """The code that ``parts`` took apart. ``KeyError`` where a piece is missing."""
    return found["o"]
