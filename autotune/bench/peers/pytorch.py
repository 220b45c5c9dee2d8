"""PyTorch on a program of torch.export: as it is (eager), and compiled by Inductor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.arrays import Array
from ....ir.errors import UnsupportedError
from .table import Given, Opened


def open_eager(given: Given) -> Opened:
    """Return the program's graph; a call takes NumPy arrays, which tensors share.

    The graph is called with its weights, without the checks of the program's own module.
    """
    import torch

    torch.set_num_threads(given.threads)
    program = torch.export.load(str(given.file))
    return _opened(_graph_of(program), given, f"torch {torch.__version__}, eager")


def open_inductor(given: Given) -> Opened:
    """Return the program's module under ``torch.compile``; ``UnsupportedError`` without a compiler.

    Weights are frozen into the code, as ours are.
    """
    import torch
    import torch._inductor.config as config

    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise UnsupportedError("Inductor", f"there is no {compiler}")
    torch.set_num_threads(given.threads)
    config.freezing = True
    module = torch.export.load(str(given.file)).module(check_guards=False)
    compiled = torch.compile(module, dynamic=False)
    return _opened(compiled, given, f"torch {torch.__version__}, Inductor")


def _graph_of(program: Any) -> Callable[..., Any]:
    """Return a function from a program's inputs to its results, which runs its graph."""
    from torch.export.graph_signature import InputKind, OutputKind

    signature, run = program.graph_signature, program.graph_module
    held = {**program.state_dict, **program.constants}
    takes = [s.kind is InputKind.USER_INPUT for s in signature.input_specs]
    before = [
        None if own else held[s.target] for own, s in zip(takes, signature.input_specs, strict=True)
    ]
    gives = [n for n, s in enumerate(signature.output_specs) if s.kind is OutputKind.USER_OUTPUT]

    def call(*inputs: Any) -> Any:
        left = iter(inputs)
        found = run(*[next(left) if own else x for own, x in zip(takes, before, strict=True)])
        return [found[n] for n in gives]

    return call


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
