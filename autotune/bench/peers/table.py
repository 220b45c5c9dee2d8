"""The peers: a row for each way in which something else runs a model.

A row names the function that opens a model, ``module:function`` relative to this package, which is
called in a process of the way's own. It may import what it runs on; this file does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ....ir.arrays import Array
from ....ir.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that is ready to run: ``call`` takes the arguments to results, all of it awaited.

    ``arrays`` gives the NumPy arrays of what it returns. ``detail`` says what runs, with its
    version. Several threads may use ``call`` at once if ``shared``.
    """

    call: Callable[[], Any]
    arrays: Callable[[Any], Sequence[Array]]
    detail: str
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """All that a way is opened with: the model's file, arguments by name in order, threads.

    ``seed`` is what the arguments were drawn from.
    """

    file: Path
    arguments: Mapping[str, Any]
    threads: int
    seed: int = 0


Open: TypeAlias = Callable[[Given], Opened]


@dataclass(frozen=True, slots=True)
class PeerWay:
    """A way of a peer: what it needs installed, and the form of model that it runs.

    ``form`` is ``hlo``, ``onnx`` or ``torch``. ``single`` are variables of the environment that
    keep it to one thread where only one is asked for.
    """

    name: str
    peer: str
    package: str
    form: str
    open: str
    single: Mapping[str, str]

    def problem(self, forms: Mapping[str, Path]) -> str:
        """Return why this way cannot run a model that is there in these forms; "" if it can."""
        if self.form not in forms:
            return f"{self.name} runs {FORMS[self.form]}, and this is none"
        return "" if find_spec(self.package) else f"{self.package} is not installed"


FORMS: Mapping[str, str] = {
    "hlo": "HLO",
    "onnx": "ONNX files",
    "torch": "programs of torch.export",
}
"""The forms of models that peers run, in words."""

ONE_EIGEN = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}

WAYS: tuple[PeerWay, ...] = (
    PeerWay("numpy", "numpy", "numpy", "hlo", ".plain_numpy:open_numpy", {}),
    PeerWay("jax", "jax", "jax", "hlo", ".xla:open_xla", ONE_EIGEN),
    PeerWay("torch", "torch", "torch", "torch", ".pytorch:open_eager", {}),
    PeerWay("inductor", "torch", "torch", "torch", ".pytorch:open_inductor", {}),
    PeerWay("onnxruntime", "onnxruntime", "onnxruntime", "onnx", ".onnx_runtime:open_session", {}),
    PeerWay("openvino", "openvino", "openvino", "onnx", ".open_vino:open_model", {}),
)
PEERS = tuple(dict.fromkeys(w.peer for w in WAYS))
"""The names that ``--peers`` takes."""


def ways_of(peers: Sequence[str]) -> tuple[PeerWay, ...]:
    """Return the ways of these peers; ``ArgumentError`` for a name that is none."""
    unknown = [p for p in peers if p not in PEERS]
    if unknown:
        raise ArgumentError(f"peer {unknown[0]!r}", "no such peer", hint=f"{', '.join(PEERS)}")
    return tuple(w for w in WAYS if w.peer in peers)


def listed(value: Any) -> list[Array]:
    """Return the arrays of a result that is one, or a tuple or list of them."""
    return [np.asarray(v) for v in value] if isinstance(value, tuple | list) else [value]
