"""Training steps as JAX's users write them: a batch in, new weights and the loss out (optax)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax

Params = dict[str, Any]
Loss = Callable[[Params, Any, Any], Any]


@dataclass(frozen=True)
class Training:
    """A step from a state and a batch to the next state and the loss, and where it begins."""

    step: Callable[[Any, Any], tuple[Any, Any]]
    state: Any
    batch: Any


def training(loss: Loss, params: Params, batch: Any, optimizer: Any) -> Training:
    """Return the step of an optimizer; ``loss`` takes a key of its own in each step."""

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        params, moments, key = state
        key, own = jax.random.split(key)
        value, gradients = jax.value_and_grad(loss)(params, batch, own)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments, key), value

    return Training(step, (params, optimizer.init(params), jax.random.key(1)), batch)


class Draw:
    """Draws the weights of a model, one after the other."""

    def __init__(self) -> None:
        self.key = jax.random.key(0)

    def __call__(self, *shape: int) -> Any:
        """Return weights whose products keep the size of what they multiply."""
        self.key, own = jax.random.split(self.key)
        fan = 1
        for n in shape[:-1]:
            fan *= n
        return jax.random.normal(own, shape) * (2 / fan) ** 0.5

    def tokens(self, words: int, *shape: int) -> Any:
        """Return numbers of words."""
        self.key, own = jax.random.split(self.key)
        return jax.random.randint(own, shape, 0, words)

    def dense(self, before: int, after: int) -> Params:
        """Return the weights and biases of a dense layer."""
        return {"w": self(before, after), "b": jnp.zeros(after)}


def dense(layer: Params, x: Any) -> Any:
    """Return what a dense layer makes of its input."""
    return x @ layer["w"] + layer["b"]


def entropy(logits: Any, labels: Any) -> Any:
    """Return the mean cross entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    """Convolve images whose channels lie last."""
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: Any, scale: Any) -> Any:
    """Normalize by the batch's own moments; ``scale`` has two rows."""
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale[0] + scale[1]


def layer_norm(x: Any, scale: Any) -> Any:
    """Normalize the last axis; ``scale`` has two rows."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale[0] + scale[1]


def scales(width: int) -> Any:
    """Return the two rows of a normalization."""
    return jnp.stack([jnp.ones(width), jnp.zeros(width)])


def _mlp(tiny: bool) -> Training:
    draw, width, images = Draw(), 64 if tiny else 512, 16 if tiny else 128
    sizes = (784, width, width, 10)
    params = {str(n): draw.dense(*pair) for n, pair in enumerate(pairwise(sizes))}
    batch = draw(images, 784), draw.tokens(10, images)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x, labels = batch
        x = jax.nn.relu(dense(params["0"], x))
        x = jax.nn.relu(dense(params["1"], x))
        return entropy(dense(params["2"], x), labels)

    return training(loss, params, batch, optax.adam(1e-3))


def _cnn(tiny: bool) -> Training:
    draw, base, images = Draw(), 8 if tiny else 32, 4 if tiny else 32
    channels = (3, base, 2 * base, 4 * base)
    params = {
        "convs": [draw(3, 3, a, b) for a, b in pairwise(channels)],
        "norms": [scales(c) for c in channels[1:]],
        "head": draw.dense(channels[-1], 10),
    }
    batch = draw(images, 32, 32, 3), draw.tokens(10, images)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x, labels = batch
        for w, scale in zip(params["convs"], params["norms"], strict=True):
            x = jax.nn.relu(batch_norm(conv(x, w), scale))
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return entropy(dense(params["head"], x.mean((1, 2))), labels)

    return training(loss, params, batch, optax.sgd(0.05, momentum=0.9))


def _resnet(tiny: bool) -> Training:
    draw, images, blocks = Draw(), 2 if tiny else 16, 1 if tiny else 3
    widths = [w for w in (16, 32, 64) for _ in range(blocks)]
    params = {
        "stem": draw(3, 3, 3, 16),
        "blocks": [
            {"a": draw(3, 3, a, b), "b": draw(3, 3, b, b), "na": scales(b), "nb": scales(b)}
            for a, b in pairwise([16, *widths])
        ],
        "head": draw.dense(64, 10),
    }
    batch = draw(images, 32, 32, 3), draw.tokens(10, images)

    def block(x: Any, p: Params) -> Any:
        grows = p["a"].shape[2] != p["a"].shape[3]
        y = jax.nn.relu(batch_norm(conv(x, p["a"], 2 if grows else 1), p["na"]))
        y = batch_norm(conv(y, p["b"]), p["nb"])
        if grows:
            x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (0, x.shape[-1])))
        return jax.nn.relu(x + y)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x, labels = batch
        x = jax.nn.relu(conv(x, params["stem"]))
        for p in params["blocks"]:
            x = block(x, p)
        return entropy(dense(params["head"], x.mean((1, 2))), labels)

    rate = optax.cosine_decay_schedule(0.02, 1000)
    optimizer = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(rate, 0.9, nesterov=True))
    return training(loss, params, batch, optimizer)


def _lstm(tiny: bool) -> Training:
    draw, width, words, rows = Draw(), 32 if tiny else 256, 100 if tiny else 2000, 16
    params = {
        "words": draw(words, width) * 0.1,
        "cell": draw.dense(2 * width, 4 * width),
        "head": draw.dense(width, words),
    }
    batch = draw.tokens(words, rows, 9 if tiny else 65)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x = params["words"][batch[:, :-1]]

        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(dense(params["cell"], jnp.concatenate([x, h], -1)), 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((rows, width))
        _, h = jax.lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))
        return entropy(dense(params["head"], h.swapaxes(0, 1)), batch[:, 1:])

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    return training(loss, params, batch, optimizer)


def _layers(draw: Draw, count: int, width: int) -> Params:
    return {
        "qkv": draw(count, width, 3 * width) * count**0.5,
        "out": draw(count, width, width),
        "up": draw(count, width, 4 * width),
        "down": draw(count, 4 * width, width),
        "n1": jnp.stack([scales(width)] * count),
        "n2": jnp.stack([scales(width)] * count),
    }


def _attend(p: Params, x: Any, heads: int, causal: bool) -> Any:
    q, k, v = jnp.split(layer_norm(x, p["n1"]) @ p["qkv"], 3, -1)
    q, k, v = (a.reshape(*a.shape[:2], heads, -1) for a in (q, k, v))
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(layer_norm(x, p["n2"]) @ p["up"]) @ p["down"]


def _transformer(tiny: bool) -> Training:
    width, words, length = (64, 100, 16) if tiny else (384, 5000, 128)
    draw, count = Draw(), 2 if tiny else 4
    params = {
        "words": draw(words, width) * 0.1,
        "places": draw(length, width) * 0.1,
        "layers": _layers(draw, count, width),
        "norm": scales(width),
    }
    batch = draw.tokens(words, 2, length + 1)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x = params["words"][batch[:, :-1]] + params["places"]

        @jax.checkpoint
        def layer(x: Any, given: Any) -> Any:
            p, key = given
            kept = jax.random.bernoulli(key, 0.9, x.shape)
            y = _attend(p, x, width // 64, causal=True)
            return jnp.where(kept, y / 0.9, 0), None

        x, _ = jax.lax.scan(layer, x, (params["layers"], jax.random.split(key, count)))
        return entropy(layer_norm(x, params["norm"]) @ params["words"].T, batch[:, 1:])

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4))
    return training(loss, params, batch, optimizer)


def _vit(tiny: bool) -> Training:
    width, count, side, images = (64, 2, 32, 2) if tiny else (192, 6, 64, 8)
    draw = Draw()
    params = {
        "patches": draw(8, 8, 3, width),
        "places": draw((side // 8) ** 2, width) * 0.1,
        "layers": [jax.tree.map(lambda a: a[0], _layers(draw, 1, width)) for _ in range(count)],
        "norm": scales(width),
        "head": draw.dense(width, 10),
    }
    batch = draw(images, side, side, 3), draw.tokens(10, images)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x, labels = batch
        x = jax.lax.conv_general_dilated(
            x, params["patches"], (8, 8), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x.reshape(images, -1, width) + params["places"]
        for p in params["layers"]:
            x = _attend(p, x, width // 64, causal=False)
        return entropy(dense(params["head"], layer_norm(x, params["norm"]).mean(1)), labels)

    rate = optax.warmup_cosine_decay_schedule(0, 1e-3, 10, 1000)
    return training(loss, params, batch, optax.adamw(rate, weight_decay=0.05))


def _unet(tiny: bool) -> Training:
    draw, base, side = Draw(), 4 if tiny else 16, 16 if tiny else 64
    widths = (base, 2 * base, 4 * base)
    params = {
        "down": [draw(3, 3, a, b) for a, b in pairwise((3, *widths))],
        "middle": draw(3, 3, widths[-1], widths[-1]),
        "up": [draw(3, 3, 2 * b, a) for a, b in pairwise((base, *widths))],
        "head": draw(1, 1, base, 1),
    }
    batch = draw(4, side, side, 3), (draw(4, side, side, 1) > 0).astype(jnp.float32)

    def loss(params: Params, batch: Any, key: Any) -> Any:
        x, wanted = batch
        kept = []
        for w in params["down"]:
            x = jax.nn.silu(conv(x, w))
            kept.append(x)
            x = x.reshape(4, x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
        x = jax.nn.silu(conv(x, params["middle"]))
        for w, skip in zip(params["up"][::-1], kept[::-1], strict=True):
            shape = (4, skip.shape[1], skip.shape[2], x.shape[-1])
            x = jax.image.resize(x, shape, "nearest")
            x = jax.nn.silu(conv(jnp.concatenate([x, skip], -1), w))
        return optax.sigmoid_binary_cross_entropy(conv(x, params["head"]), wanted).mean()

    return training(loss, params, batch, optax.adam(1e-3))


def _diffusion(tiny: bool) -> Training:
    draw, width, rows = Draw(), 32 if tiny else 512, 16 if tiny else 256
    params = {
        "in": draw.dense(64, width),
        "time": draw.dense(64, width),
        "blocks": [(draw.dense(width, width), draw.dense(width, width)) for _ in range(4)],
        "out": draw.dense(width, 64),
    }

    def loss(params: Params, batch: Any, key: Any) -> Any:
        when, noise = jax.random.split(key)
        t = jax.random.uniform(when, (rows, 1))
        e = jax.random.normal(noise, batch.shape)
        angles = t * jnp.exp(jnp.linspace(0, 5, 32))
        emb = dense(params["time"], jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))
        x = dense(params["in"], jnp.cos(t) * batch + jnp.sin(t) * e)
        for a, b in params["blocks"]:
            x = x + dense(b, jax.nn.silu(dense(a, x) + emb)) * 0.5
        return jnp.square(dense(params["out"], x) - e).mean()

    return training(loss, params, draw(rows, 64), optax.lion(1e-4))


TRAINED: Mapping[str, Callable[[bool], Training]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet": _resnet,
    "lstm": _lstm,
    "transformer": _transformer,
    "vit": _vit,
    "unet": _unet,
    "diffusion": _diffusion,
}
"""By name: the function that makes a step, of small sizes or of usual ones."""


class Run:
    """Steps of one compiler, each from the state that the step before left."""

    def __init__(self, step: Callable[[Any, Any], tuple[Any, Any]], given: Training) -> None:
        self.step, self.batch = step, given.batch
        self.state = jax.tree.map(jnp.copy, given.state)  # which a step may be given to keep

    def __call__(self) -> tuple[Any, Any]:
        """Return the loss and what all floats of the state are after a step."""
        self.state, loss = jax.block_until_ready(self.step(self.state, self.batch))
        return loss, jax.tree.leaves(self.state[:2])


def losses(run: Run, count: int) -> list[float]:
    """Return the losses of so many steps."""
    return [float(run()[0]) for _ in range(count)]
