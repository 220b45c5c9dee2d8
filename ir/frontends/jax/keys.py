"""Typed keys of ``jax.random``: arrays of a key type, which are arrays of u32 in HLO."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def is_key(leaf: object) -> bool:
    """True for an array of typed keys that is no traced value, and for its description."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype | type):
        return False
    jax = sys.modules.get("jax")
    if jax is None or not type(dtype).__module__.startswith("jax"):
        return False
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def key_data(leaf: Any) -> Any:
    """Return the numbers of keys: one more dimension of u32."""
    import jax

    return np.asarray(jax.random.key_data(leaf))


def restored(
    infos: Sequence[Any],
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]] | None:
    """Return a function that makes keys again of those results that JAX describes as keys.

    None where there are none.
    """
    import jax

    kinds = {
        n: jax.random.key_impl(jax.numpy.empty((), info.dtype))
        for n, info in enumerate(infos)
        if is_key(info)
    }
    if not kinds:
        return None

    def restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            jax.random.wrap_key_data(r, impl=kinds[n]) if n in kinds else r
            for n, r in enumerate(results)
        )

    return restore
