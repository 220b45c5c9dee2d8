"""Tests of torch's backend begin alike: one seed, and nothing that TorchDynamo has compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def forget() -> None:
    """Reset torch, if a test has imported it; others do not need it."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
        torch._dynamo.reset()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()
