"""Models for the kit, written once in jax: what jax runs, and the HLO that nestwright builds.

``p(name, *shape, scale=, shift=)`` asks for a weight. Weights are arguments, f32, drawn by name, so
that every process has the same. jax is imported by whoever calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .prebuilt import Recipe

Param = Callable[..., Any]
WIDTH, HEADS, LAYERS = 768, 12, 12


@dataclass(frozen=True)
class Model:
    """``fn(p, *inputs)``, and the recipes of its inputs."""

    fn: Callable[..., Any]
    inputs: tuple[Recipe, ...]


def recipes(model: Model) -> tuple[Recipe, ...]:
    """Of all arguments: every weight that the model asks for, found by tracing it, then inputs."""
    import jax

    found: dict[str, Recipe] = {}

    def p(name: str, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Any:
        found[name] = Recipe(name, shape, float(scale), float(shift))
        return jax.numpy.zeros(shape, np.float32)

    jax.eval_shape(lambda *x: model.fn(p, *x), *shapes(model.inputs))
    return (*found.values(), *model.inputs)


def shapes(recipes: Sequence[Recipe]) -> list[Any]:
    """Return what jax traces a function with, instead of arguments."""
    import jax

    return [jax.ShapeDtypeStruct(r.shape, np.int32 if r.below else np.float32) for r in recipes]


def flat(model: Model, names: Sequence[str]) -> Callable[..., Any]:
    """Return the model as a function of its weights, in the order of these names, then its
    inputs.
    """

    def run(*arguments: Any) -> Any:
        held = dict(zip(names, arguments, strict=False))
        return model.fn(lambda name, *shape, **how: held[name], *arguments[len(names) :])

    return run


def text(model: Model) -> str:
    """Return the HLO that jax makes of a model."""
    import jax

    every = recipes(model)
    names = [r.name for r in every[: len(every) - len(model.inputs)]]
    lowered = jax.jit(flat(model, names)).lower(*shapes(every))
    return str(lowered.as_text("hlo"))


def linear(p: Param, n: str, x: Any, width: int, out: int) -> Any:
    """Return ``x W + b``, with weights ``n.w [width, out]`` and ``n.b [out]``."""
    return x @ p(f"{n}.w", width, out, scale=width**-0.5) + p(f"{n}.b", out, scale=0.02)


def norm(p: Param, n: str, x: Any, eps: float = 1e-5) -> Any:
    """Normalize the last dimension, with scale ``n.g`` and offset ``n.b``."""
    import jax.numpy as jnp

    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / jnp.sqrt((centered * centered).mean(-1, keepdims=True) + eps)
    return scaled * p(f"{n}.g", WIDTH, scale=0.1, shift=1) + p(f"{n}.b", WIDTH, scale=0.1)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return ``softmax(q k^T / sqrt(d)) v`` over the last two dimensions."""
    import jax

    scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, axis=-1)
    return scores @ v


def heads(x: Any) -> Any:
    """Split ``[batch, length, WIDTH]`` into ``[batch, HEADS, length, WIDTH / HEADS]``."""
    batch, length, _ = x.shape
    return x.reshape(batch, length, HEADS, WIDTH // HEADS).swapaxes(1, 2)


def unheads(x: Any) -> Any:
    """Join ``[batch, HEADS, length, d]`` into ``[batch, length, WIDTH]``."""
    batch, _, length, _ = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, WIDTH)


def mlp(p: Param, n: str, x: Any, approximate: bool) -> Any:
    """Return two linear layers with GELU between them, by tanh if ``approximate``."""
    import jax

    inner = jax.nn.gelu(linear(p, f"{n}.f1", x, WIDTH, 4 * WIDTH), approximate=approximate)
    return linear(p, f"{n}.f2", inner, 4 * WIDTH, WIDTH)


def bert_base(p: Param, ids: Any) -> Any:
    """Return the last hidden states ``[batch, length, 768]`` for token ids ``[batch, length]``."""
    x = p("word", 30522, WIDTH, scale=0.5)[ids] + p("pos", 512, WIDTH, scale=0.5)[: ids.shape[1]]
    x = norm(p, "emb", x)
    for i in range(LAYERS):
        q, k, v = (heads(linear(p, f"{i}.{t}", x, WIDTH, WIDTH)) for t in "qkv")
        mixed = linear(p, f"{i}.o", unheads(attention(q, k, v)), WIDTH, WIDTH)
        x = norm(p, f"{i}.n1", x + mixed)
        x = norm(p, f"{i}.n2", x + mlp(p, f"{i}", x, approximate=False))
    return x


def gpt2_block(p: Param, n: str, x: Any, mix: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a layer of GPT-2; ``mix(q, k, v)`` is its attention, of all heads."""
    import jax.numpy as jnp

    qkv = linear(p, f"{n}.qkv", norm(p, f"{n}.n1", x), WIDTH, 3 * WIDTH)
    q, k, v = (heads(part) for part in jnp.split(qkv, 3, axis=-1))
    x = x + linear(p, f"{n}.o", unheads(mix(q, k, v)), WIDTH, WIDTH)
    return x + mlp(p, n, norm(p, f"{n}.n2", x), approximate=True)


def gpt2_decode(p: Param, ids: Any, *past: Any) -> Any:
    """One token against a cache, which comes back longer."""
    import jax.numpy as jnp

    table = p("wte", 50257, WIDTH, scale=0.1)
    at = past[0].shape[2]
    x = table[ids] + p("wpe", 1024, WIDTH, scale=0.1)[at : at + 1]
    cache: list[Any] = []

    def mix(q: Any, k: Any, v: Any) -> Any:
        pair = past[len(cache) : len(cache) + 2]
        k, v = (jnp.concatenate(both, 2) for both in zip(pair, (k, v), strict=True))
        cache.extend((k, v))
        return attention(q, k, v)

    for i in range(LAYERS):
        x = gpt2_block(p, f"{i}", x, mix)
    return (norm(p, "n", x) @ table.T, *cache)


def conv_bn(p: Param, n: str, x: Any, out: int, k: int = 1, stride: int = 1) -> Any:
    """Return a convolution in NHWC followed by batch normalization, padded to keep its size."""
    import jax
    import jax.numpy as jnp

    kernel = p(f"{n}.conv", k, k, x.shape[-1], out, scale=(2 / (x.shape[-1] * k * k)) ** 0.5)
    pads = [(k // 2, k // 2)] * 2
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), pads, dimension_numbers=layout)
    mean, var = p(f"{n}.m", out, scale=0.1), p(f"{n}.v", out, scale=0.05, shift=1)
    y = (y - mean) / jnp.sqrt(var + 1e-5)
    return y * p(f"{n}.g", out, scale=0.1, shift=1) + p(f"{n}.b", out, scale=0.1)


def resnet50(p: Param, x: Any) -> Any:
    """Return 1000 logits for NHWC images."""
    import jax

    relu, lax = jax.nn.relu, jax.lax
    x = relu(conv_bn(p, "stem", x, 64, 7, 2))
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(depth):
            n, stride = f"l{stage}.{i}", 2 if stage and not i else 1
            y = relu(conv_bn(p, f"{n}.1", x, width))
            y = relu(conv_bn(p, f"{n}.2", y, width, 3, stride))
            y = conv_bn(p, f"{n}.3", y, 4 * width)
            x = relu(y + (x if i else conv_bn(p, f"{n}.d", x, 4 * width, 1, stride)))
    return linear(p, "fc", x.mean((1, 2)), 2048, 1000)


def _caches() -> tuple[Recipe, ...]:
    shape = (1, HEADS, 128, WIDTH // HEADS)
    return tuple(Recipe(f"{i}.{kind}.past", shape) for i in range(LAYERS) for kind in "kv")


MODELS: Mapping[str, Model] = {
    "bert_base": Model(bert_base, (Recipe("ids", (1, 128), below=30522),)),
    "gpt2_decode": Model(gpt2_decode, (Recipe("id", (1, 1), below=50257), *_caches())),
    "resnet50": Model(resnet50, (Recipe("image", (1, 224, 224, 3)),)),
}
