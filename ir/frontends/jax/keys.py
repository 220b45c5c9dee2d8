"""Element types of JAX that HLO lacks: typed keys of ``jax.random``, and those of no value.

Keys are arrays of u32 in HLO. Derivatives by integers have the type ``float0``, which has no
values; in HLO they are arrays of pred.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

FLOAT0 = np.dtype([("float0", np.void, 0)])
"""JAX's type of derivatives by integers, ``jax.dtypes.float0``."""


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
    """Return a function that gives results the types that JAX describes and HLO lacks.

    None where there are none.
    """
    made = {n: make for n, info in enumerate(infos) if (make := _maker(info)) is not None}
    if not made:
        return None

    def restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(made[n](r) if n in made else r for n, r in enumerate(results))

    return restore


def _maker(info: Any) -> Callable[[Any], Any] | None:
    """Return what makes a described result of the module's; None where it is that already."""
    if is_key(info):
        import jax

        kind = jax.random.key_impl(jax.numpy.empty((), info.dtype))
        return partial(jax.random.wrap_key_data, impl=kind)
    if getattr(info, "dtype", None) == FLOAT0:
        return lambda r: np.zeros(r.shape, FLOAT0)
    return None
