"""Attention, FlexAttention and RotaryEmbedding."""

from __future__ import annotations

from math import inf, sqrt

from ....dtypes import pred, s32
from ...lax import functions, linear, shaping
from ...lax.attention import (
    Masks,
    angles,
    attend,
    band,
    join_heads,
    repeat_heads,
    rotated,
    split_heads,
)
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


def _masks(node: Node, q: Term, keys: int, offset: Term | int) -> Masks:
    """The masks that the inputs and attributes of Attention give."""
    given, held = node.optional(3), Masks()
    if given is not None:
        given = given if given.dtype == pred else given.to(q.dtype)
        short = keys - given.dims[-1]
        low, high = [0] * given.rank, [0] * (given.rank - 1) + [max(short, 0)]
        padded = shaping.pad(given, 0 if given.dtype == pred else -inf, low, high)
        held = Masks(seen=padded) if given.dtype == pred else Masks(bias=padded)
    queries = q.dims[2]
    left, right = (node.int_(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.int_("is_causal"):
        held = held.only(band(q, queries, keys, offset, -1, 0))
    if left >= 0 or right >= 0:
        held = held.only(band(q, queries, keys, offset, left, right))
    lengths = node.optional(6)
    if lengths is not None:
        j = shaping.iota(q.site, s32, (keys,))
        held = held.only(j < shaping.reshape(lengths.to(s32), (-1, 1, 1, 1)))
    return held


def _offset(node: Node, q: Term) -> Term | int:
    """Return the number of keys that come before the first query's own."""
    past, lengths = node.optional(4), node.optional(6)
    if past is not None:
        return past.dims[2]
    if lengths is not None:
        return shaping.reshape(lengths.to(s32), (-1, 1, 1, 1)) - q.dims[2]
    return 0


@operator("Attention", since=23)
def attention(node: Node) -> tuple[Term, ...]:
    """The result, keys and values with the past ones, and scores by ``qk_matmul_output_mode``."""
    q, k, v = (node.input(n) for n in range(3))
    flat = q.rank == 3
    if flat:
        q = split_heads(q, node.int_("q_num_heads"))
        k, v = (split_heads(t, node.int_("kv_num_heads")) for t in (k, v))
    if node.has(4):
        k = shaping.concatenate([node.input(4), k], 2)
        v = shaping.concatenate([node.input(5), v], 2)
    offset = _offset(node, q)
    masks = _masks(node, q, k.dims[2], offset)
    scale = node.float_("scale") if node.gives("scale") else 1 / sqrt(q.dims[3])
    unsure = node.has(3) or node.has(6) or node.int_("left_window_size", -1) >= 0
    found = attend(
        q,
        k,
        v,
        masks,
        scale,
        node.float_("softcap", 0.0),
        node.dtype("softmax_precision") if node.gives("softmax_precision") else None,
        masks.blind() if unsure else None,
    )
    scores = found.scores[node.int_("qk_matmul_output_mode", 0)].to(q.dtype)
    y = join_heads(found.values) if flat else found.values
    return y, k, v, scores


@operator("RotaryEmbedding", since=23)
def rotary_embedding(node: Node) -> Term:
    """``[b, heads, s, d]``, or ``[b, s, heads * d]`` with ``num_heads``."""
    x = node.input(0)
    flat = x.rank == 3
    if flat:
        heads = node.int_("num_heads")
        x = shaping.reshape(x, (*x.dims[:2], heads, x.dims[2] // heads))
    cos, sin = angles([node.input(1), node.input(2)], node.optional(3), not flat)
    found = rotated(x, cos, sin, bool(node.int_("interleaved")))
    return shaping.reshape(found, node.input(0).dims)


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(node: Node) -> Term:
    """Attention whose scores and weights graphs of the node may change."""
    q, k, v = (node.input(n) for n in range(3))
    scale = node.float_("scale") if node.gives("scale") else 1 / sqrt(q.dims[3])
    given = node.gives("softmax_precision")
    kind = node.dtype("softmax_precision") if given else functions.wide(q.dtype)
    root = sqrt(scale)
    keys, values = (repeat_heads(t, q.dims[1]) for t in (k, v))
    scores = linear.dot_general(q * root, keys * root, ([3], [3]), ([0, 1], [0, 1])).to(kind)
    weights = functions.softmax(_changed(node, "score_mod", scores), [3])
    weights = _changed(node, "prob_mod", weights)
    return linear.dot_general(weights.to(q.dtype), values, ([3], [2]), ([0, 1], [0, 1]))


def _changed(node: Node, name: str, x: Term) -> Term:
    """An array as a graph of the node makes it, if there is such a graph."""
    if not node.gives(name):
        return x
    (found,) = node.graph_in(name)(x)
    assert isinstance(found, Term)
    return found.to(x.dtype)
