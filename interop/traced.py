"""Jitted functions inside JAX's transformations: a call back to the host, with JAX's derivatives.

``jax.jit`` calls back by ``jax.pure_callback``. Derivatives are those of the original function,
which JAX differentiates and compiles itself. Under ``jax.vmap`` the function that JAX batches is
compiled, once for each combination of batched arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def traced_call(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    run: Callable[..., Any],
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Any:
    """Return what a function of arrays gives for arrays that JAX is tracing.

    ``run`` computes the same as ``function``, of arrays that are known; ``compiled`` makes such a
    function.
    """
    import jax

    def host(*known: Any) -> Any:
        return jax.pure_callback(run, jax.eval_shape(function, *known), *known)

    called = jax.custom_batching.custom_vmap(host)

    def batched(size: int, mapped: Sequence[bool], *given: Any) -> Any:
        many = jax.vmap(function, [0 if m else None for m in mapped], axis_size=size)
        found = traced_call(many, given, compiled(many), compiled)
        return found, jax.tree.map(lambda _: True, found)

    def derivative(primals: Any, tangents: Any) -> Any:
        return jax.jvp(function, primals, tangents)

    called.def_vmap(batched)
    differentiable = jax.custom_jvp(called)
    differentiable.defjvp(derivative)
    return differentiable(*leaves)
