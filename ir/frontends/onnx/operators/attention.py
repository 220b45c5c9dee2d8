"""Attention and RotaryEmbedding, in the forms that FuseOps makes one kernel of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from ....dtypes import DType, pred, s32
from ...lax import functions, indexing, linear, reductions, shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


@dataclass(frozen=True, slots=True)
class Masks:
    """The keys that a query does not see: ``seen`` is false there, or ``bias`` minus infinity; both
    broadcast to ``[b, heads, queries, keys]``."""

    seen: Term | None = None
    bias: Term | None = None

    def only(self, more: Term) -> Masks:
        """Masks that leave out what ``more`` does not hold for as well."""
        return Masks(more if self.seen is None else self.seen & more, self.bias)

    def blind(self) -> Term | None:
        """True where a query sees no key, ``[.., queries, 1]``; None if nothing is masked."""
        live = self.seen
        if self.bias is not None:
            finite = self.bias > -inf
            live = finite if live is None else live & finite
        return None if live is None else ~reductions.any_(live, [live.rank - 1], keep=True)


@dataclass(frozen=True, slots=True)
class Attended:
    """The result ``[b, heads, queries, d]``, and the scores: scaled, with ``softcap``, with masks,
    and as weights."""

    values: Term
    scores: tuple[Term, Term, Term, Term]


def split_heads(x: Term, heads: int) -> Term:
    """``[b, s, heads * d]``  ->  ``[b, heads, s, d]``"""
    b, s, hidden = x.dims
    return shaping.transpose(shaping.reshape(x, (b, s, heads, hidden // heads)), (0, 2, 1, 3))


def join_heads(x: Term) -> Term:
    """``[b, heads, s, d]``  ->  ``[b, s, heads * d]``"""
    b, heads, s, d = x.dims
    return shaping.reshape(shaping.transpose(x, (0, 2, 1, 3)), (b, s, heads * d))


def repeat_heads(x: Term, heads: int) -> Term:
    """Keys or values of fewer heads, each for as many query heads in a row."""
    b, own, s, d = x.dims
    if own == heads:
        return x
    apart = shaping.expand_dims(x, [2])
    wide = shaping.broadcast_to(apart, (b, own, heads // own, s, d))
    return shaping.reshape(wide, (b, heads, s, d))


def attend(
    q: Term,
    k: Term,
    v: Term,
    masks: Masks,
    scale: float,
    softcap: float = 0.0,
    precision: DType | None = None,
    blind: Term | None = None,
) -> Attended:
    """Softmax of ``scale q kᵀ`` under masks, times ``v``; ``softcap tanh(scores / softcap)`` where
    that is not 0. Where ``blind`` holds, the weights are 0."""
    keys, values = (repeat_heads(t, q.dims[1]) for t in (k, v))
    root = sqrt(scale)  # on both sides, as ONNX defines it: narrow floats overflow later
    raw = linear.dot_general(q * root, keys * root, ([3], [3]), ([0, 1], [0, 1]))
    capped = (raw / softcap).do("tanh") * softcap if softcap else raw
    masked = capped if masks.bias is None else capped + masks.bias
    if masks.seen is not None:
        masked = masks.seen.select(masked, -inf)
    weights = functions.softmax(masked.to(precision or q.dtype), [3])
    if blind is not None:
        weights = blind.select(0, weights)
    found = linear.dot_general(weights.to(q.dtype), values, ([3], [2]), ([0, 1], [0, 1]))
    return Attended(found, (raw, capped, masked, weights))


def window(like: Term, queries: int, keys: int, offset: Term | int, left: int, right: int) -> Term:
    """True where key ``j`` lies from ``left`` before to ``right`` after query ``offset + i``.

    A negative number is no bound; ``[.., queries, keys]``."""
    i = shaping.iota(like.site, s32, (queries, 1), 0)
    j = shaping.iota(like.site, s32, (1, keys), 1)
    at = i + offset
    found = shaping.full(like.site, 1, pred, (queries, keys))
    if right >= 0:
        found = j <= at + right if right else j <= at
    if left >= 0:
        near = at - left <= j
        found = found & near if right >= 0 else near
    return found


def _masks(node: Node, q: Term, keys: int, offset: Term | int) -> Masks:
    """The masks that the inputs and attributes of Attention give."""
    given, held = node.optional(3), Masks()
    if given is not None:
        short = keys - given.dims[-1]
        low, high = [0] * given.rank, [0] * (given.rank - 1) + [max(short, 0)]
        padded = shaping.pad(given, 0 if given.dtype == pred else -inf, low, high)
        held = Masks(seen=padded) if given.dtype == pred else Masks(bias=padded)
    queries = q.dims[2]
    left, right = (node.int_(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.int_("is_causal"):
        held = held.only(window(q, queries, keys, offset, -1, 0))
    if left >= 0 or right >= 0:
        held = held.only(window(q, queries, keys, offset, left, right))
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


def rotated(x: Term, cos: Term, sin: Term, interleaved: bool) -> Term:
    """Pairs of the last dimension turned by angles, of which ``cos`` and ``sin`` have half as many:
    neighbours if ``interleaved``, else elements half the dimension apart."""
    half = cos.dims[-1]
    turning, rest = shaping.split(x, [2 * half, x.dims[-1] - 2 * half], -1)
    if interleaved:
        pairs = shaping.reshape(turning, (*turning.dims[:-1], half, 2))
        a, b = shaping.unstack(pairs, pairs.rank - 1)
    else:
        a, b = shaping.split(turning, [half, half], -1)
    parts = [a * cos - b * sin, a * sin + b * cos]
    if interleaved:
        made = shaping.reshape(shaping.stack(parts, x.rank), turning.dims)
    else:
        made = shaping.concatenate(parts, -1)
    return shaping.concatenate([made, rest], -1) if rest.dims[-1] else made


def angles(caches: Sequence[Term], positions: Term | None, heads_first: bool) -> list[Term]:
    """Cosines and sines ``[b, s, d]`` at positions, to be broadcast over heads."""
    taken = [c if positions is None else indexing.take(c, positions.to(s32), 0) for c in caches]
    return [shaping.expand_dims(t, [1 if heads_first else 2]) for t in taken]


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
