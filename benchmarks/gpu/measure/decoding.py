"""More forms of GPT-2, of which launches are counted; as in ``models``, written once in jax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import models
from .models import HEADS, LAYERS, WIDTH, Model, Param
from .prebuilt import Recipe

CONTEXT = 1024  # rows of a cache


def gpt2_step(p: Param, ids: Any, at: Any, *past: Any) -> Any:
    """One token at position ``at``: its row is written to caches, which come back as long."""
    import jax
    import jax.numpy as jnp

    table = p("wte", 50257, WIDTH, scale=0.1)
    row = jax.lax.dynamic_slice_in_dim(p("wpe", CONTEXT, WIDTH, scale=0.1), at, 1)
    x = table[ids] + row
    seen = jnp.arange(CONTEXT) <= at
    cache: list[Any] = []

    def mix(q: Any, k: Any, v: Any) -> Any:
        pair = past[len(cache) : len(cache) + 2]
        k, v = (
            jax.lax.dynamic_update_slice_in_dim(before, fresh, at, 2)
            for before, fresh in zip(pair, (k, v), strict=True)
        )
        cache.extend((k, v))
        return _attention(q, k, v, seen)

    for i in range(LAYERS):
        x = models.gpt2_block(p, f"{i}", x, mix)
    return (models.norm(p, "n", x) @ table.T, *cache)


def gpt2_prefill(p: Param, ids: Any) -> Any:
    """The logits of every position of a prompt."""
    import jax.numpy as jnp

    table, length = p("wte", 50257, WIDTH, scale=0.1), ids.shape[1]
    x = table[ids] + p("wpe", CONTEXT, WIDTH, scale=0.1)[:length]
    seen = jnp.tril(jnp.ones((length, length), bool))
    for i in range(LAYERS):
        x = models.gpt2_block(p, f"{i}", x, lambda q, k, v: _attention(q, k, v, seen))
    return models.norm(p, "n", x) @ table.T


def _attention(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Return attention to the keys that are ``seen``, a mask of the scores' last dimensions."""
    import jax
    import jax.numpy as jnp

    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1) @ v


def _caches() -> tuple[Recipe, ...]:
    shape = (1, HEADS, CONTEXT, WIDTH // HEADS)
    return tuple(Recipe(f"{i}.{kind}.past", shape) for i in range(LAYERS) for kind in "kv")


_TOKEN = Recipe("id", (1, 1), below=50257)
FORMS: Mapping[str, Model] = {
    "gpt2_step": Model(gpt2_step, (_TOKEN, Recipe("at", (), below=CONTEXT), *_caches())),
    "gpt2_prefill": Model(gpt2_prefill, (Recipe("ids", (1, 128), below=50257),)),
}
