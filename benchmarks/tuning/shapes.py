"""Sixty workloads of one or a few groups each, and three small models, as HLO text from shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

from kernels import (
    REDUCERS,
    convolution,
    gelu,
    layer_norm,
    matmul,
    softmax,
    transpose,
    weighted_sum,
)

import nestwright as nw
from nestwright.ir.hlo.nodes import HloModule


def dense(m: int, n: int, k: int) -> str:
    """Return a product with weights ``[n, k]``, a bias, and ReLU."""
    return f"""
      x = f32[{m},{k}] parameter(0)
      w = f32[{n},{k}] parameter(1)
      b = f32[{n}] parameter(2)
      p = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
      bs = f32[{m},{n}] broadcast(b), dimensions={{1}}
      y = f32[{m},{n}] add(p, bs)
      zero = f32[{m},{n}] broadcast(f32[] constant(0)), dimensions={{}}
      ROOT o = f32[{m},{n}] maximum(y, zero)"""


def batched(batch: int, m: int, n: int, k: int) -> str:
    """Return ``batch`` products ``[m, k] x [k, n]``."""
    return f"""
      a = f32[{batch},{m},{k}] parameter(0)
      b = f32[{batch},{k},{n}] parameter(1)
      ROOT c = f32[{batch},{m},{n}] dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
        lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}"""


def conv(
    size: int, inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1
) -> str:
    """Return a convolution of one square NHWC image, padded as usual, with a bias and ReLU."""
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    shape = f"f32[1,{out},{out},{outputs}]"
    return f"""
      x = f32[1,{size},{size},{inputs}] parameter(0)
      w = f32[{window},{window},{inputs // groups},{outputs}] parameter(1)
      b = f32[{outputs}] parameter(2)
      c = {shape} convolution(x, w), window={{size={window}x{window} stride={stride}x{stride}
        pad={pad}_{pad}x{pad}_{pad}}}, dim_labels=b01f_01io->b01f, feature_group_count={groups}
      bs = {shape} broadcast(b), dimensions={{3}}
      y = {shape} add(c, bs)
      zero = {shape} broadcast(f32[] constant(0)), dimensions={{}}
      ROOT o = {shape} maximum(y, zero)"""


def rms_norm(rows: int, n: int) -> str:
    """Return each row over its root mean square, with a scale."""
    return f"""
      x = f32[{rows},{n}] parameter(0)
      g = f32[{n}] parameter(1)
      zero = f32[] constant(0)
      q = f32[{rows},{n}] multiply(x, x)
      s = f32[{rows}] reduce(q, zero), dimensions={{1}}, to_apply=sum
      count = f32[{rows}] broadcast(f32[] constant({n})), dimensions={{}}
      mean = f32[{rows}] divide(s, count)
      small = f32[{rows}] broadcast(f32[] constant(1e-5)), dimensions={{}}
      lifted = f32[{rows}] add(mean, small)
      r = f32[{rows}] rsqrt(lifted)
      rs = f32[{rows},{n}] broadcast(r), dimensions={{0}}
      z = f32[{rows},{n}] multiply(x, rs)
      gs = f32[{rows},{n}] broadcast(g), dimensions={{1}}
      ROOT o = f32[{rows},{n}] multiply(z, gs)"""


def pool(size: int, channels: int, window: int, stride: int, reducer: str) -> str:
    """Return a pooling of one square NHWC image; ``reducer`` is ``larger`` or ``sum``."""
    pad = (window - 1) // 2
    out = (size + 2 * pad - window) // stride + 1
    start = "-inf" if reducer == "larger" else "0"
    return f"""
      x = f32[1,{size},{size},{channels}] parameter(0)
      start = f32[] constant({start})
      ROOT o = f32[1,{out},{out},{channels}] reduce-window(x, start),
        window={{size=1x{window}x{window}x1 stride=1x{stride}x{stride}x1
        pad=0_0x{pad}_{pad}x{pad}_{pad}x0_0}}, to_apply={reducer}"""


def attention(heads: int, rows: int, keys: int, width: int) -> str:
    """Return scaled dot-product attention of each head."""
    scores, sums = f"f32[{heads},{rows},{keys}]", f"f32[{heads},{rows}]"
    return f"""
      q = f32[{heads},{rows},{width}] parameter(0)
      k = f32[{heads},{keys},{width}] parameter(1)
      v = f32[{heads},{keys},{width}] parameter(2)
      d = {scores} dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
        lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
      scale = {scores} broadcast(f32[] constant({width**-0.5})), dimensions={{}}
      s = {scores} multiply(d, scale)
      m = {sums} reduce(s, f32[] constant(-inf)), dimensions={{2}}, to_apply=larger
      ms = {scores} broadcast(m), dimensions={{0,1}}
      e = {scores} exponential({scores} subtract(s, ms))
      t = {sums} reduce(e, f32[] constant(0)), dimensions={{2}}, to_apply=sum
      ts = {scores} broadcast(t), dimensions={{0,1}}
      p = {scores} divide(e, ts)
      ROOT o = f32[{heads},{rows},{width}] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
        lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}"""


def chain(rows: int, n: int) -> str:
    """Return ``x sigmoid(x) + residual``, with a bias added to x first."""
    shape = f"f32[{rows},{n}]"
    return f"""
      x = {shape} parameter(0)
      b = f32[{n}] parameter(1)
      r = {shape} parameter(2)
      bs = {shape} broadcast(b), dimensions={{1}}
      y = {shape} add(x, bs)
      g = {shape} logistic(y)
      z = {shape} multiply(y, g)
      ROOT o = {shape} add(z, r)"""


def column_sums(rows: int, n: int) -> str:
    """Return the sum of each column."""
    return f"""
      x = f32[{rows},{n}] parameter(0)
      ROOT s = f32[{n}] reduce(x, f32[] constant(0)), dimensions={{0}}, to_apply=sum"""


def mlp(rows: int, width: int, hidden: int) -> str:
    """Return two layers with ReLU between, and softmax."""
    h, o = f"f32[{rows},{hidden}]", f"f32[{rows},{width}]"
    return f"""
      x = {o} parameter(0)
      w1 = f32[{width},{hidden}] parameter(1)
      w2 = f32[{hidden},{width}] parameter(2)
      a = {h} dot(x, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      zero = {h} broadcast(f32[] constant(0)), dimensions={{}}
      b = {h} maximum(a, zero)
      c = {o} dot(b, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      m = f32[{rows}] reduce(c, f32[] constant(-inf)), dimensions={{1}}, to_apply=larger
      ms = {o} broadcast(m), dimensions={{0}}
      e = {o} exponential({o} subtract(c, ms))
      t = f32[{rows}] reduce(e, f32[] constant(0)), dimensions={{1}}, to_apply=sum
      ts = {o} broadcast(t), dimensions={{0}}
      ROOT p = {o} divide(e, ts)"""


def block(rows: int, width: int) -> str:
    """Return a normalization, a layer four times as wide with SiLU, a layer back, a residual."""
    x, h, s = f"f32[{rows},{width}]", f"f32[{rows},{4 * width}]", f"f32[{rows}]"
    return f"""
      x = {x} parameter(0)
      w1 = f32[{width},{4 * width}] parameter(1)
      w2 = f32[{4 * width},{width}] parameter(2)
      q = {s} reduce({x} multiply(x, x), f32[] constant(0)), dimensions={{1}}, to_apply=sum
      count = {s} broadcast(f32[] constant({width})), dimensions={{}}
      small = {s} broadcast(f32[] constant(1e-5)), dimensions={{}}
      r = {s} rsqrt({s} add({s} divide(q, count), small))
      rs = {x} broadcast(r), dimensions={{0}}
      z = {x} multiply(x, rs)
      a = {h} dot(z, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      g = {h} multiply(a, {h} logistic(a))
      b = {x} dot(g, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT o = {x} add(b, x)"""


def stack(size: int, channels: int) -> str:
    """Return a pointwise, a depthwise and a pointwise convolution with a residual."""
    x, h = f"f32[1,{size},{size},{channels}]", f"f32[1,{size},{size},{6 * channels}]"
    labels = "dim_labels=b01f_01io->b01f"
    return f"""
      x = {x} parameter(0)
      w1 = f32[1,1,{channels},{6 * channels}] parameter(1)
      w2 = f32[3,3,1,{6 * channels}] parameter(2)
      w3 = f32[1,1,{6 * channels},{channels}] parameter(3)
      zero = {h} broadcast(f32[] constant(0)), dimensions={{}}
      a = {h} convolution(x, w1), window={{size=1x1}}, {labels}
      b = {h} maximum(a, zero)
      c = {h} convolution(b, w2), window={{size=3x3 pad=1_1x1_1}}, {labels},
        feature_group_count={6 * channels}
      d = {h} maximum(c, zero)
      e = {x} convolution(d, w3), window={{size=1x1}}, {labels}
      ROOT o = {x} add(e, x)"""


def _named(make: Callable[..., str], *shapes: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for s in shapes:
        yield f"{make.__name__}_{'x'.join(map(str, s))}", make(*s)


def _square(n: int) -> str:
    return matmul(n, n, n).body


KINDS: tuple[dict[str, str], ...] = (
    {f"dot_{n}": _square(n) for n in (64, 256, 512, 768, 1024)},
    {
        f"dot_{m}x{n}x{k}": matmul(m, n, k).body
        for m, n, k in (
            (127, 311, 253),
            (49, 2048, 512),
            (196, 256, 1024),
            (1, 1000, 2048),
            (3136, 64, 64),
            (8, 768, 768),
        )
    },
    dict(
        _named(
            dense,
            (128, 768, 768),
            (128, 3072, 768),
            (128, 768, 3072),
            (1, 3072, 768),
            (16, 512, 300),
        )
    ),
    dict(
        _named(batched, (12, 128, 128, 64), (12, 128, 64, 128), (32, 17, 33, 65), (64, 8, 8, 256))
    ),
    {
        f"conv3x3_{size}x{i}x{o}": convolution(size, i, o).body
        for size, i, o in (
            (56, 64, 64),
            (28, 128, 128),
            (14, 256, 256),
            (7, 512, 512),
            (30, 20, 24),
        )
    },
    dict(
        _named(
            conv,
            (56, 64, 256, 1),
            (14, 1024, 256, 1),
            (56, 24, 144, 1),
            (224, 3, 64, 7, 2),
            (224, 3, 32, 3, 2),
            (56, 128, 128, 3, 2),
            (28, 256, 512, 1, 2),
            (17, 48, 64, 5),
        )
    ),
    dict(
        _named(
            conv,
            (56, 144, 144, 3, 1, 144),
            (112, 96, 96, 3, 2, 96),
            (14, 384, 384, 3, 1, 384),
            (7, 960, 960, 3, 1, 960),
            (14, 512, 512, 3, 1, 32),
            (28, 120, 120, 5, 1, 120),
        )
    ),
    {f"softmax_{r}x{n}": softmax(r, n).body for r, n in ((512, 1000), (1536, 128), (16, 32000))},
    {f"layer_norm_{r}x{n}": layer_norm(r, n).body for r, n in ((128, 768), (1, 4096), (197, 768))},
    dict(_named(rms_norm, (128, 1024), (2048, 256))),
    {
        "max_pool_112": pool(112, 64, 3, 2, "larger"),
        "sum_pool_7": pool(7, 1280, 7, 7, "sum"),
        "max_pool_28": pool(28, 192, 3, 1, "larger"),
    },
    dict(_named(attention, (12, 128, 128, 64), (4, 512, 512, 64), (12, 1, 128, 64))),
    dict(_named(chain, (128, 3072), (1024, 1024), (1, 65536))),
    {"gelu": gelu(1 << 18).body, "sum": weighted_sum(1 << 20).body},
    {"transpose_1024": transpose(1024, 1024).body, "transpose_odd": transpose(333, 1001).body},
)
"""The sixty workloads, by kind and name, as bodies of an HLO computation."""

MODELS: dict[str, str] = {
    "mlp": mlp(16, 512, 1024),
    "block": block(64, 256),
    "stack": stack(28, 32),
}
"""Small models of several groups."""

TWELVE = (
    "dot_512",
    "dot_127x311x253",
    "dense_128x3072x768",
    "batched_12x128x128x64",
    "conv3x3_56x64x64",
    "conv3x3_14x256x256",
    "conv_56x24x144x1",
    "conv_224x3x32x3x2",
    "conv_56x144x144x3x1x144",
    "softmax_512x1000",
    "layer_norm_128x768",
    "attention_12x128x128x64",
)
"""The tasks on which strategies are compared."""


def sixty() -> dict[str, str]:
    """Return all workloads, kinds in turn, so that the first ones are of every kind."""
    turns = zip_longest(*(kind.items() for kind in KINDS))
    return dict(pair for turn in turns for pair in turn if pair is not None)


def module(name: str, body: str) -> HloModule:
    """Parse a body as a module of this name."""
    return nw.parse(f"HloModule {name}\n{REDUCERS}\nENTRY main {{\n{body}\n}}")
