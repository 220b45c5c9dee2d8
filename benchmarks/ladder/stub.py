"""The stub of the driver that a dry run stands on, as far as this machine can have it."""

from __future__ import annotations

from typing import Any


def missing() -> str:
    """Why there is no stub here; '' if there is one."""
    return "there is none"


def preload() -> None:
    """Make the stub this process's driver."""


def put_behind(exe: Any, simulation: Any) -> None:
    """Have the kernels of a simulation run where an executable launches its own."""
