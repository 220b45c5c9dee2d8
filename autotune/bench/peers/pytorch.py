"""PyTorch on a program of torch.export: as it is (eager), and compiled by Inductor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.errors import UnsupportedError
from .table import Array, Given, Opened


def open_eager(given: Given) -> Opened:
    """Return the program's module; a call takes NumPy arrays, which tensors share."""
    import torch

    return _opened(_module(given), given, f"torch {torch.__version__}, eager")


def open_inductor(given: Given) -> Opened:
    """Return the program's module under ``torch.compile``; ``UnsupportedError`` without a compiler.

    Weights are frozen into the code, as ours are.
    """
    import torch
    import torch._inductor.config as config

    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise UnsupportedError("Inductor", f"there is no {compiler}")
    config.freezing = True
    compiled = torch.compile(_module(given), dynamic=False)
    return _opened(compiled, given, f"torch {torch.__version__}, Inductor")


def _module(given: Given) -> Any:
    import torch

    torch.set_num_threads(given.threads)
    return torch.export.load(str(given.file)).module(check_guards=False)


def _opened(run: Callable[..., Any], given: Given, detail: str) -> Opened:
    import torch

    values = list(given.arguments.values())

    def call() -> list[Array]:
        with torch.no_grad():  # of this thread
            return _arrays(run(*[torch.from_numpy(v) for v in values]))

    return Opened(call, lambda found: found, detail)


def _arrays(value: Any) -> list[Array]:
    """Return the tensors of a result as arrays, whatever holds them."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in _arrays(v)]
    if isinstance(value, tuple | list):
        return [a for v in value for a in _arrays(v)]
    return [] if value is None else [np.asarray(value)]
