"""Makes convnet.hlo and convnet.npz: a small image classifier, lowered by JAX (`pip install jax`).

Six layers in the manner of MobileNet: a strided convolution, three depthwise-separable blocks,
one with a residual connection, global pooling, a dense layer and softmax. The weights are drawn
from a seed and passed as parameters; `convnet.npz` holds them and a batch of images as arg0, ...
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
BLOCKS = [(16, 32, 2), (32, 64, 2), (64, 64, 1)]  # channels in, channels out, stride


def conv(x, w, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def forward(weights, images):
    """Class probabilities, f32[batch, 10], for f32[batch, 64, 64, 3] images."""
    stem_w, stem_b, blocks, (dense_w, dense_b) = weights
    x = jax.nn.relu(conv(images, stem_w, 2) + stem_b)
    for (c_in, c_out, stride), (dw, db, pw, pb) in zip(BLOCKS, blocks, strict=True):
        y = jax.nn.relu6(conv(x, dw, stride, c_in) + db)
        y = conv(y, pw) + pb
        x = jax.nn.relu(x + y if c_in == c_out else y)
    pooled = jnp.mean(x, axis=(1, 2))
    return jax.nn.softmax(pooled @ dense_w + dense_b)


def draw(rng, *shape):
    fan_in = int(np.prod(shape[:-1])) or 1
    return (rng.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(7)
    blocks = [
        (draw(rng, 3, 3, 1, i), draw(rng, i) * 0.1, draw(rng, 1, 1, i, o), draw(rng, o) * 0.1)
        for i, o, _ in BLOCKS
    ]
    weights = (
        draw(rng, 3, 3, 3, 16),
        draw(rng, 16) * 0.1,
        blocks,
        (draw(rng, 64, 10), draw(rng, 10)),
    )
    images = rng.random((4, 64, 64, 3), dtype=np.float32)
    lowered = jax.jit(forward).lower(weights, images)
    (HERE / "convnet.hlo").write_text(lowered.as_text("hlo"))
    leaves = jax.tree.leaves((weights, images))
    expected = np.asarray(jax.jit(forward)(weights, images))
    np.savez(HERE / "convnet.npz", **{f"arg{i}": np.asarray(a) for i, a in enumerate(leaves)})
    np.savez(HERE / "convnet.expected.npz", out0=expected)


if __name__ == "__main__":
    main()
