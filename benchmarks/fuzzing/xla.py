"""XLA's CPU as a second opinion on HLO text, where jax is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from .builder import Array

_FEW_BITS = re.compile(r"\b[su][24]\[")


def here() -> bool:
    """True if jax is installed."""
    return find_spec("jax") is not None


@cache
def _device() -> Any:
    """XLA's first CPU; made in the process that uses it, for its threads do not survive a fork."""
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.devices("cpu")[0]


def results(text: str, arguments: Sequence[Array]) -> list[Array] | None:
    """Return XLA's results, one array each; None if it refuses the module or is not a reference.

    The calls are jaxlib's own and private: they hold for jax 0.10, which sorts integers of 2 and
    4 bits wrongly.
    """
    if _FEW_BITS.search(text):
        return None
    device = _device()
    import jax
    from jaxlib import _hlo, _jax

    try:
        module = _hlo.hlo_module_from_text(text)
        computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        made = _jax.mlir.xla_computation_to_mlir_module(computation)
        executable = device.client.compile_and_load(
            made, _jax.DeviceList((device,)), _jax.CompileOptions()
        )
        buffers = [jax.device_put(np.array(a, order="C"), device) for a in arguments]
        return [np.asarray(out) for out in executable.execute(buffers)]
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None
