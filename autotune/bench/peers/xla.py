"""XLA's CPU client on HLO text, by the calls of jaxlib.

Those are jaxlib's own and private: they hold for jax 0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ....ir.arrays import Array
from .table import Given, Opened

CONSUMED = "input_output_alias"
"""The attribute of a module that reuses the memory of its arguments."""


@cache
def device() -> Any:
    """Return XLA's first CPU; its threads do not survive a fork."""
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.devices("cpu")[0]


def compiled(text: str) -> Any:
    """Return the executable of HLO text; what XLA raises for text that it refuses."""
    from jaxlib import _hlo, _jax

    module = _hlo.hlo_module_from_text(text)
    computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    made = _jax.mlir.xla_computation_to_mlir_module(computation)
    place = _jax.DeviceList((device(),))
    return device().client.compile_and_load(made, place, _jax.CompileOptions())


def run(executable: Any, arguments: Sequence[Array]) -> list[Array]:
    """Return the results for NumPy arrays, as NumPy arrays."""
    return _results(executable, _put(arguments))


def _put(arguments: Sequence[Array]) -> list[Any]:
    import jax

    return [jax.device_put(a, device()) for a in arguments]


def _results(executable: Any, buffers: Sequence[Any]) -> list[Array]:
    return [np.asarray(out) for out in executable.execute(buffers)]


def open_xla(given: Given) -> Opened:
    """Return the module of HLO text, compiled; a call gives NumPy arrays.

    Arguments are put on XLA's device before, as programs of JAX hold their weights, unless a call
    consumes them.
    """
    import jax

    text = given.file.read_text()
    executable, values = compiled(text), list(given.arguments.values())
    detail = f"XLA's CPU client, jax {jax.__version__}"
    if CONSUMED in text:
        return Opened(lambda: run(executable, values), list, detail)
    near = _put(values)
    return Opened(lambda: _results(executable, near), list, f"{detail}, arguments on its device")
