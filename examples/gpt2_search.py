"""GPT-2 in JAX, whole texts in one call: the likeliest token, sampled tokens, or a beam search.

    python examples/gpt2_search.py                                   a small one
    python examples/gpt2_search.py --layers 12 --width 768 --heads 12 --vocabulary 50257

Each way is one function whose loop runs inside the compiled module: nothing returns to Python
between tokens. Sampling divides the logits by a temperature, keeps the ``top_k`` likeliest tokens
and of these the fewest whose probabilities reach ``top_p``, and draws with a key of JAX's: the same
key gives the same text. Each text is compared with the one that JAX gives, and both speeds are
printed. The weights are random.

Needs jax.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gpt2 import Config, chosen, draw, forward, generate, layout, sizes

import nestwright as nw


def shortlist(logits: Any, temperature: Any, top_k: int, top_p: Any) -> Any:
    """Return logits over the temperature, -inf for tokens that are not to be drawn."""
    best = jax.lax.top_k(logits / temperature, top_k)[0]
    chances = jax.nn.softmax(best)
    kept = jnp.cumsum(chances) - chances < top_p  # those before a token fall short of top_p
    least = jnp.min(jnp.where(kept, best, jnp.inf))
    scaled = logits / temperature
    return jnp.where(scaled >= least, scaled, -jnp.inf)


def sample(
    config: Config, top_k: int, key: Any, temperature: Any, top_p: Any, prompt: Any, *weights: Any
) -> Any:
    """Return the tokens drawn after a prompt, s32[tokens]."""
    named, cache = begun(config, weights)
    tokens = jnp.zeros(config.context, jnp.int32).at[: config.prompt].set(prompt)

    def step(position: Any, state: Any) -> Any:
        tokens, cache = state
        logits, cache = forward(config, named, tokens[position], position, cache)
        noise = jax.random.gumbel(jax.random.fold_in(key, position), logits.shape)
        drawn = jnp.argmax(shortlist(logits, temperature, top_k, top_p) + noise)
        following = jnp.where(position + 1 < config.prompt, tokens[position + 1], drawn)
        return tokens.at[position + 1].set(following.astype(jnp.int32)), cache

    return jax.lax.fori_loop(0, config.context - 1, step, (tokens, cache))[0][config.prompt :]


def beam(config: Config, width: int, prompt: Any, *weights: Any) -> Any:
    """Return the likeliest texts after a prompt, s32[width, tokens], and their log-likelihoods."""
    named, cache = begun(config, weights)
    caches = jnp.broadcast_to(cache, (width, *cache.shape))
    texts = jnp.zeros((width, config.context), jnp.int32).at[:, : config.prompt].set(prompt)
    scores = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)  # all begin alike: one counts

    def step(position: Any, state: Any) -> Any:
        texts, scores, caches = state
        one = partial(forward, config, named)
        logits, caches = jax.vmap(lambda t, c: one(t, position, c))(texts[:, position], caches)
        longer = (scores[:, None] + jax.nn.log_softmax(logits)).reshape(-1)
        best, which = jax.lax.top_k(longer, width)
        parent, token = which // config.vocabulary, which % config.vocabulary
        given = position + 1 < config.prompt
        parent = jnp.where(given, jnp.arange(width), parent)
        token = jnp.where(given, texts[:, position + 1], token)
        texts = texts[parent].at[:, position + 1].set(token.astype(jnp.int32))
        return texts, jnp.where(given, scores, best), caches[parent]

    state = jax.lax.fori_loop(0, config.context - 1, step, (texts, scores, caches))
    return state[0][:, config.prompt :], state[1]


def begun(config: Config, weights: Any) -> tuple[dict[str, Any], Any]:
    """Return the weights by name, and an empty cache of keys and values."""
    named = dict(zip([name for name, _ in layout(config)], weights, strict=True))
    size = config.width // config.heads
    return named, jnp.zeros((config.layers, 2, config.heads, config.context, size), jnp.float32)


def main() -> None:
    """Generate in three ways, each by JAX and by nestwright; compare, print the speeds."""
    parser = argparse.ArgumentParser(description="Greedy, sampled and beam search with GPT-2.")
    sizes(parser)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--beams", type=int, default=4)
    options = parser.parse_args()
    config = chosen(options)
    prompt, weights = draw(config)
    drawn = (jax.random.PRNGKey(0), np.float32(options.temperature), np.float32(options.top_p))
    ways: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "greedy": (partial(generate, config), ()),
        "sampled": (partial(sample, config, options.top_k), drawn),
        "beam search": (partial(beam, config, options.beams), ()),
    }
    for way, (function, first) in ways.items():
        texts = {}
        for name, jit in (("jax", jax.jit), ("nestwright", nw.jit)):
            run = jit(function)
            arguments = (*first, prompt, *weights)
            jax.block_until_ready(run(*arguments))
            begin = time.perf_counter()
            found = jax.block_until_ready(run(*arguments))
            rate = config.tokens / (time.perf_counter() - begin)
            texts[name] = np.asarray(found[0] if isinstance(found, tuple) else found)
            print(f"{way:12}{name:12}{rate:9.1f} tokens/s")
        assert np.array_equal(texts["jax"], texts["nestwright"]), f"{way}: the texts differ"
        print(f"{'':12}the same text:", *texts["nestwright"].reshape(-1)[:12], "...")


if __name__ == "__main__":
    main()
