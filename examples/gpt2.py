"""GPT-2 in JAX, greedy generation as one while loop; writes it as HLO text.

    python examples/gpt2.py -o gpt2_greedy.hlo --expected gpt2_greedy.expected.npz
    python examples/gpt2.py --layers 12 --width 768 --heads 12 --vocabulary 50257 -o gpt2.hlo

The first makes the small one that is kept here, the second GPT-2 of 124 million weights.

The network is GPT-2's: learned positions, pre-norm blocks, the tanh form of GELU, keys and values
kept in a cache, logits by the transposed embedding. The loop takes the prompt token by token, then
its own tokens. Weights are parameters: real ones fit as well as those that `draw` makes.

Needs jax, but for `Config`, `layout` and `draw`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

EPSILON = 1e-5


@dataclass(frozen=True)
class Config:
    """Sizes of a network and of its task."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    vocabulary: int = 512
    prompt: int = 8
    tokens: int = 24

    @property
    def context(self) -> int:
        """The number of positions in the cache."""
        return self.prompt + self.tokens


def layout(config: Config) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each weight, in the order of the module's parameters after the prompt."""
    d = config.width
    block: list[tuple[str, tuple[int, ...]]] = [
        ("norm1.gain", (d,)),
        ("norm1.bias", (d,)),
        ("attention.in", (d, 3 * d)),
        ("attention.in_bias", (3 * d,)),
        ("attention.out", (d, d)),
        ("attention.out_bias", (d,)),
        ("norm2.gain", (d,)),
        ("norm2.bias", (d,)),
        ("mlp.in", (d, 4 * d)),
        ("mlp.in_bias", (4 * d,)),
        ("mlp.out", (4 * d, d)),
        ("mlp.out_bias", (d,)),
    ]
    return [
        ("embedding", (config.vocabulary, d)),
        ("positions", (config.context, d)),
        *((f"{i}.{name}", shape) for i in range(config.layers) for name, shape in block),
        ("norm.gain", (d,)),
        ("norm.bias", (d,)),
    ]


def draw(config: Config, seed: int = 0) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return a prompt and weights from a seed, large enough that the tokens differ from
    each other.
    """
    random = np.random.default_rng(seed)
    prompt = random.integers(0, config.vocabulary, config.prompt, np.int32)
    weights: list[Any] = []
    for name, shape in layout(config):
        values = random.standard_normal(shape, np.float32)
        if name.endswith("gain"):
            values = 1 + 0.1 * values
        elif len(shape) == 1 or name == "embedding":
            values = 0.1 * values
        elif name != "positions":
            values = 2 * values * np.float32(shape[0] ** -0.5)
        weights.append(values.astype(np.float32))
    return prompt, weights


def generate(config: Config, prompt: Any, *weights: Any) -> Any:
    """Return the tokens that follow a prompt, s32[tokens]; the most likely one each time."""
    import jax
    import jax.numpy as jnp

    named = dict(zip([name for name, _ in layout(config)], weights, strict=True))
    size = config.width // config.heads
    cache = jnp.zeros((config.layers, 2, config.heads, config.context, size), jnp.float32)
    tokens = jnp.zeros(config.context, jnp.int32)
    tokens = jax.lax.dynamic_update_slice(tokens, prompt, (0,))

    def more(state: Any) -> Any:
        return state[0] < config.context - 1

    def step(state: Any) -> Any:
        position, tokens, cache = state
        token = tokens[position]
        logits, cache = forward(config, named, token, position, cache)
        best = jnp.argmax(logits).astype(jnp.int32)
        following = jnp.where(position + 1 < config.prompt, tokens[position + 1], best)
        tokens = jax.lax.dynamic_update_slice(tokens, following[None], (position + 1,))
        return position + 1, tokens, cache

    _, tokens, _ = jax.lax.while_loop(more, step, (jnp.int32(0), tokens, cache))
    return tokens[config.prompt :]


def forward(config: Config, named: dict[str, Any], token: Any, position: Any, cache: Any) -> Any:
    """Logits of one position, and the cache with its keys and values."""
    import jax

    x = named["embedding"][token] + named["positions"][position]
    for i in range(config.layers):
        part = {name[len(f"{i}.") :]: w for name, w in named.items() if name.startswith(f"{i}.")}
        y, cache = _attend(config, part, _normalize(x, part, "norm1"), i, position, cache)
        x = x + y
        y = _normalize(x, part, "norm2") @ part["mlp.in"] + part["mlp.in_bias"]
        x = x + jax.nn.gelu(y, approximate=True) @ part["mlp.out"] + part["mlp.out_bias"]
    return _normalize(x, named, "norm") @ named["embedding"].T, cache


def _normalize(x: Any, named: dict[str, Any], name: str) -> Any:
    import jax.numpy as jnp

    centered = x - jnp.mean(x)
    scaled = centered / jnp.sqrt(jnp.mean(centered**2) + EPSILON)
    return scaled * named[f"{name}.gain"] + named[f"{name}.bias"]


def _attend(
    config: Config, part: dict[str, Any], x: Any, layer: int, position: Any, cache: Any
) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    size = config.width // config.heads
    query, key, value = (x @ part["attention.in"] + part["attention.in_bias"]).reshape(
        3, config.heads, size
    )
    fresh = jnp.stack([key, value])[None, :, :, None, :]
    cache = jax.lax.dynamic_update_slice(cache, fresh, (layer, 0, 0, position, 0))
    keys, values = cache[layer]
    scores = jnp.einsum("hd,htd->ht", query, keys) / np.sqrt(size).astype(np.float32)
    seen = jnp.arange(config.context) <= position
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("ht,htd->hd", weights, values).reshape(config.width)
    return mixed @ part["attention.out"] + part["attention.out_bias"], cache


def lower(config: Config) -> Any:
    """Return the generation, lowered by JAX for weights and prompts of these sizes."""
    import jax

    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for _, shape in layout(config)]
    prompt = jax.ShapeDtypeStruct((config.prompt,), np.int32)

    def gpt2(prompt: Any, *weights: Any) -> Any:
        return generate(config, prompt, *weights)

    return jax.jit(gpt2, keep_unused=True).lower(prompt, *shapes)


def sizes(parser: argparse.ArgumentParser) -> None:
    """Options for every size of a ``Config``."""
    for field in fields(Config):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)


def chosen(options: argparse.Namespace) -> Config:
    """Return the sizes that were asked for."""
    return Config(**{f.name: getattr(options, f.name) for f in fields(Config)})


def tokens_of_jax(config: Config, seeds: range) -> Any:
    """Return the tokens that JAX generates for the prompts and weights of each seed, s32[seeds,
    tokens].
    """
    compiled = lower(config).compile()
    rows = []
    for seed in seeds:
        prompt, weights = draw(config, seed)
        rows.append(np.asarray(compiled(prompt, *weights)))
    return np.stack(rows)


def main() -> None:
    """Write the HLO text and, if asked for, the tokens that JAX gives."""
    parser = argparse.ArgumentParser(description="Write GPT-2's greedy generation as HLO text.")
    sizes(parser)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--expected", type=Path, help="Write JAX's tokens here as .npz.")
    parser.add_argument("--seeds", type=int, default=3, help="For how many seeds.")
    options = parser.parse_args()
    config = chosen(options)
    options.output.write_text(lower(config).as_text("hlo"))
    if options.expected is not None:
        np.savez_compressed(options.expected, tokens=tokens_of_jax(config, range(options.seeds)))


if __name__ == "__main__":
    main()
