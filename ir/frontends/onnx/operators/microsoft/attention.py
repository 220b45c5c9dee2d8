"""Attention as ONNX Runtime's operators have it: packed inputs, padding masks, caches, rotation."""

from __future__ import annotations

from math import sqrt

from .....dtypes import s32
from ....lax import indexing, linear, shaping
from ....lax.attention import (
    Masks,
    attend,
    band,
    join_heads,
    rotated,
    split_heads,
    with_sink,
)
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ...nodes.values import Value
from .domain import DOMAIN
from .quantized import product


def padding_bias(node: Node, mask: Term, queries: int, keys: int, like: Term) -> Term:
    """Return the bias of scores by a mask: ``mask_filter_value`` where it leaves a key out.

    ``mask`` is ``[b]`` (lengths), ``[2 b]`` (ends, then starts), ``[b, keys]``, or of the scores'
    own dimensions, ones for the keys that count.
    """
    b = like.dims[0]
    lowest = node.float_("mask_filter_value", -10000.0)
    if mask.rank == 1:
        j = shaping.iota(like.site, s32, (1, keys), 1)
        ends = shaping.reshape(shaping.slice_in_dim(mask.to(s32), 0, b, 0), (b, 1))
        live = j < ends
        if mask.dims[0] == 2 * b:
            starts = shaping.reshape(shaping.slice_in_dim(mask.to(s32), b, 2 * b, 0), (b, 1))
            live = live & (j >= starts)
        elif mask.dims[0] != b:
            node.unsupported("its mask lists the ends of sequences in a packed batch")
        live = shaping.expand_dims(live, [1, 2])
    else:
        live = mask.differs(0)
        if mask.rank < 4:
            live = shaping.expand_dims(live, [1, 2] if mask.rank == 2 else [1])
        elif mask.dims[-1] != keys or mask.dims[-2] != queries:
            node.unsupported("its mask is larger than its scores")
    zero = shaping.full(like.site, 0, like.dtype)
    return live.select(zero, lowest)


def _plus(a: Term | None, b: Term | None) -> Term | None:
    return b if a is None else a if b is None else a + b


def _scale(node: Node, q: Term) -> float:
    given = node.float_("scale", 0.0)
    return given if given else 1 / sqrt(q.dims[3])


def _attended(
    node: Node, heads: tuple[Term, Term, Term], past: int, mask: Term | None, bias: Term | None
) -> Term:
    """The result ``[b, queries, hidden]`` of queries, keys and values ``[b, heads, s, d]``, of
    which ``past`` keys were there before the first query's own."""
    node.ignore("mask_filter_value")
    q, k, v = heads
    queries, keys = q.dims[2], k.dims[2]
    padding = None if mask is None else padding_bias(node, mask, queries, keys, q)
    masks = Masks(bias=_plus(padding, bias))
    if node.int_("unidirectional", 0):
        masks = masks.only(band(q, queries, keys, past, -1, 0))
    return join_heads(attend(q, k, v, masks, _scale(node, q)).values)


@operator("Attention", domain=DOMAIN)
def attention(node: Node) -> tuple[Value, ...]:
    """Self-attention, its three projections in one product; keys and values with the past ones."""
    made, bias = linear.matmul(node.input(0), node.input(1)), node.optional(2)
    made = made if bias is None else made + bias
    return _self_attention(node, made, node.optional(3), node.optional(4), node.optional(5))


@operator("QAttention", domain=DOMAIN)
def quantized_attention(node: Node) -> tuple[Value, ...]:
    """Self-attention of codes: the projections are a product of integers, the rest is in f32."""
    x, weights, bias, *scales = (node.input(n) for n in range(5))
    made = product(x, weights, (scales[0], scales[1]), (node.optional(6), node.optional(7)))
    return _self_attention(node, made + bias, node.optional(5), node.optional(8), None)


def _self_attention(
    node: Node, made: Term, mask: Term | None, past: Term | None, bias: Term | None
) -> tuple[Value, ...]:
    """Attention of queries, keys and values ``made`` in one array."""
    node.ignore("rotary_embedding_dim")
    if past is None:
        node.ignore("past_present_share_buffer")
    else:
        node.leave_out(past_present_share_buffer=0)
    if node.int_("do_rotary", 0):
        node.unsupported("it rotates queries and keys")
    sizes = node.ints("qkv_hidden_sizes") or [made.dims[2] // 3] * 3
    if node.wants(1) and sizes[1] != sizes[2]:
        node.unsupported("keys and values of unequal sizes are not one array `present`")
    heads = node.int_("num_heads")
    q, k, v = (split_heads(p, heads) for p in shaping.split(made, sizes, -1))
    if past is not None:
        pair = shaping.unstack(past, 0)
        k, v = (shaping.concatenate([p, t], 2) for p, t in zip(pair, (k, v), strict=True))
    present = shaping.stack([k, v]) if node.wants(1) else None
    before = 0 if past is None else past.dims[3]
    return _attended(node, (q, k, v), before, mask, bias), present


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> tuple[Value, ...]:
    """Attention of projected inputs: apart, keys and values together, or all three together."""
    heads = node.int_("num_heads")
    q, k, v = _given_heads(node, heads)
    for n in (6, 7):
        if node.has(n) and k is not None and v is not None:
            if n == 6:
                k = shaping.concatenate([node.input(6), k], 2)
            else:
                v = shaping.concatenate([node.input(7), v], 2)
    past = node.optional(6)
    before = 0 if past is None else past.dims[2]
    return _attended(node, (q, k, v), before, node.optional(4), node.optional(5)), k, v


def _given_heads(node: Node, heads: int) -> list[Term]:
    """Queries, keys and values as heads, with their biases."""
    q, k, v = node.input(0), node.optional(1), node.optional(2)
    if q.rank == 5:  # [b, s, heads, 3, d]
        return [shaping.transpose(p, (0, 2, 1, 3)) for p in shaping.unstack(q, 3)]
    given = [q, k, v]
    bias = node.optional(3)
    if bias is not None:
        sizes = [q.dims[2], q.dims[2], bias.dims[0] - 2 * q.dims[2]]
        parts = shaping.split(bias, sizes, 0)
        given = [
            t if t is None or t.rank != 3 else t + p for t, p in zip(given, parts, strict=True)
        ]
    q, k, v = given[0] or q, given[1], given[2]  # a term is true
    if k is not None and k.rank == 5:  # [b, s, heads, 2, d]
        k, v = (shaping.transpose(p, (0, 2, 1, 3)) for p in shaping.unstack(k, 3))
    if k is None or v is None:
        node.malformed("it has queries without keys and values")
    return [t if t.rank == 4 else split_heads(t, heads) for t in (q, k, v)]


@operator("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> Term:
    """``[b, s, hidden]`` or ``[b, heads, s, d]``; positions are ``[b, s]``, or the first one."""
    x, positions, cos, sin = node.arrays()
    node.leave_out(scale=1.0)
    if node.int_("is_packed_batching", 0):
        node.unsupported("it packs sequences of several lengths into one")
    flat = x.rank == 3
    size = node.int_("rotary_embedding_dim", 0)
    heads = node.int_("num_heads", 0)
    if flat:
        d = x.dims[2] // heads if heads else (size or 2 * cos.dims[1])
        x = shaping.transpose(shaping.reshape(x, (*x.dims[:2], x.dims[2] // d, d)), (0, 2, 1, 3))
    found = _rotated_at(x, positions, cos, sin, bool(node.int_("interleaved", 0)))
    return join_heads(found) if flat else found


def _rotated_at(x: Term, positions: Term, cos: Term, sin: Term, interleaved: bool) -> Term:
    """Heads ``[b, heads, s, d]`` rotated; ``positions`` are ``[b, s]``, or the first one."""
    at = positions.to(s32)
    if at.shape.size == 1:
        at = shaping.reshape(at, (1, 1)) + shaping.iota(x.site, s32, (1, x.dims[2]), 1)
    turned = [shaping.expand_dims(indexing.take(c, at, 0), [1]) for c in (cos, sin)]
    return rotated(x, turned[0], turned[1], interleaved)


@operator("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: Node) -> tuple[Term, ...]:
    """Causal attention with a cache that has room for all keys, rows of unequal length in it.

    ``seqlens_k[b]`` is the number of keys in use after this call, less one.
    """
    node.leave_out(qk_output=0, sliding_window_cache=0, kv_cache_bit_width=0)
    node.leave_out(k_quant_type="NONE", v_quant_type="NONE")
    node.ignore("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")  # of inputs not taken
    heads, groups = node.int_("num_heads"), node.int_("kv_num_heads")
    q, k, v = _query_groups(node, heads, groups)
    queries = q.dims[2]
    total = shaping.reshape(node.input(5).to(s32), (-1, 1)) + 1
    past = total - queries  # keys that were there before, [b, 1]
    if _total(node) in (0, queries) or (node.has(3) and node.input(3).dims[2] == 0):
        past = past * 0
    at = node.optional(9)
    turn = bool(node.int_("rotary_interleaved", 0))
    if node.int_("do_rotary", 0):
        if at is None:
            at = past.do("maximum", 0) + shaping.iota(q.site, s32, (1, queries), 1)
        q, k = (_rotated_at(t, at, node.input(7), node.input(8), turn) for t in (q, k))
    keys, values = _cached(node, k, v, past)
    scale, softcap = _scale(node, q), node.float_("softcap", 0.0)
    masks, sink = _group_masks(node, q, keys.dims[2], past, total), node.optional(11)
    k, v = keys, values
    if node.int_("smooth_softmax", 0) or sink is not None:
        k, v, masks = with_sink(keys, values, masks, sink)
    return join_heads(attend(q, k, v, masks, scale, softcap).values), keys, values


def _total(node: Node) -> int:
    """The number of keys in use after the call in the longest row; 0 where it is not given."""
    return int(node.known(6).reshape(())) if node.has(6) else 0


def _group_masks(node: Node, q: Term, room: int, past: Term, total: Term) -> Masks:
    """The keys of a cache that a query sees, and the bias of their scores."""
    i = shaping.iota(q.site, s32, (1, 1, q.dims[2], 1), 2) + shaping.expand_dims(past, [2, 3])
    j = shaping.iota(q.site, s32, (1, 1, 1, room), 3)
    seen = j <= i if node.int_("causal", 1) else j < shaping.expand_dims(total, [2, 3])
    if (size := node.int_("local_window_size", -1)) > 0:
        seen = seen & (i - size < j)
    bias = node.optional(10)
    if bias is not None:
        bias = shaping.pad(bias, 0, [0] * 4, [0, 0, 0, max(room - bias.dims[3], 0)])
    return Masks(seen, bias)


def _query_groups(node: Node, heads: int, groups: int) -> list[Term]:
    """Queries, keys and values as heads; they may come packed in one array."""
    q = node.input(0)
    if not node.has(1):
        d = q.dims[2] // (heads + 2 * groups)
        parts = shaping.split(q, [heads * d, groups * d, groups * d], -1)
        return [split_heads(p, n) for p, n in zip(parts, (heads, groups, groups), strict=True)]
    return [split_heads(node.input(n), c) for n, c in enumerate((heads, groups, groups))]


def _cached(node: Node, k: Term, v: Term, past: Term) -> list[Term]:
    """The caches with the new keys and values behind those of each row."""
    found = []
    for new, n in ((k, 3), (v, 4)):
        held = node.optional(n)
        room = max(_total(node), 0 if held is None else held.dims[2])
        if held is None or not held.dims[2]:
            found.append(shaping.pad(new, 0, [0] * 4, [0, 0, max(room - new.dims[2], 0), 0]))
            continue
        wide = shaping.pad(held, 0, [0] * 4, [0, 0, room - held.dims[2], 0])
        j = shaping.iota(new.site, s32, (new.dims[0], 1, room, 1), 2)
        place = j - shaping.expand_dims(past, [2, 3])
        inside = (place >= 0) & (place < new.dims[2])
        index = shaping.broadcast_to(
            place.do("maximum", 0).do("minimum", new.dims[2] - 1),
            (new.dims[0], new.dims[1], room, new.dims[3]),
        )
        found.append(inside.select(indexing.take_along_axis(new, index, 2), wide))
    return found
