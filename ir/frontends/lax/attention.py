"""Attention: heads, masks, weighted sums of values, and positions as rotations.

In the forms that FuseOps makes one kernel of. Queries, keys and values are ``[b, heads, s, d]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from ...dtypes import DType, pred, s32
from .functions import softmax
from .indexing import take
from .linear import dot_general
from .reductions import any_
from .shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    full,
    iota,
    pad,
    reshape,
    split,
    stack,
    transpose,
    unstack,
)
from .term import Term


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
        return None if live is None else ~any_(live, [live.rank - 1], keep=True)


@dataclass(frozen=True, slots=True)
class Attended:
    """The result ``[b, heads, queries, d]``, and the scores: scaled, with ``softcap``, with masks,
    and as weights."""

    values: Term
    scores: tuple[Term, Term, Term, Term]


def split_heads(x: Term, heads: int) -> Term:
    """``[b, s, heads * d]``  ->  ``[b, heads, s, d]``"""
    b, s, hidden = x.dims
    return transpose(reshape(x, (b, s, heads, hidden // heads)), (0, 2, 1, 3))


def join_heads(x: Term) -> Term:
    """``[b, heads, s, d]``  ->  ``[b, s, heads * d]``"""
    b, heads, s, d = x.dims
    return reshape(transpose(x, (0, 2, 1, 3)), (b, s, heads * d))


def repeat_heads(x: Term, heads: int) -> Term:
    """Keys or values ``[.., own, s, d]``, each head for ``heads / own`` query heads in a row."""
    own, s, d = x.dims[-3:]
    if own == heads:
        return x
    outer = x.dims[:-3]
    wide = broadcast_to(expand_dims(x, [-3]), (*outer, own, heads // own, s, d))
    return reshape(wide, (*outer, heads, s, d))


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
    that is positive. Where ``blind`` holds, the weights are 0."""
    keys, values = (repeat_heads(t, q.dims[1]) for t in (k, v))
    root = sqrt(scale)  # on both sides, as ONNX defines it: narrow floats overflow later
    raw = dot_general(q * root, keys * root, ([3], [3]), ([0, 1], [0, 1]))
    capped = (raw / softcap).do("tanh") * softcap if softcap > 0 else raw
    masked = capped if masks.bias is None else capped + masks.bias
    if masks.seen is not None:
        masked = masks.seen.select(masked, -inf)
    weights = softmax(masked.to(precision or q.dtype), [3])
    if blind is not None:
        weights = blind.select(0, weights)
    found = dot_general(weights.to(q.dtype), values, ([3], [2]), ([0, 1], [0, 1]))
    return Attended(found, (raw, capped, masked, weights))


def with_sink(k: Term, v: Term, masks: Masks, sink: Term | None) -> tuple[Term, Term, Masks]:
    """Keys, values and masks with one more key, that all queries see and whose value is zero.

    Its score is ``sink``, one for each of the heads of the queries; 0 without it.
    """
    keys, values = (pad(t, 0, [0] * 4, [0, 0, 1, 0]) for t in (k, v))
    seen, bias = masks.seen, masks.bias
    if seen is not None:
        seen = pad(seen, 1, [0] * seen.rank, [0] * (seen.rank - 1) + [1])
    if bias is not None:
        bias = pad(bias, 0, [0] * bias.rank, [0] * (bias.rank - 1) + [1])
    if sink is not None:
        j = iota(k.site, s32, (1, 1, 1, keys.dims[2]), 3)
        last = j.equals(k.dims[2]).select(reshape(sink.to(k.dtype), (1, -1, 1, 1)), 0)
        bias = last if bias is None else bias + last
    return keys, values, Masks(seen, bias)


def band(like: Term, queries: int, keys: int, offset: Term | int, left: int, right: int) -> Term:
    """A mask: true where key ``j`` lies ``left`` before to ``right`` after query ``offset + i``.

    A negative number is no bound; ``[.., queries, keys]``.
    """
    i = iota(like.site, s32, (queries, 1), 0)
    j = iota(like.site, s32, (1, keys), 1)
    at = i if isinstance(offset, int) and not offset else i + offset
    found = full(like.site, 1, pred, (queries, keys))
    if right >= 0:
        found = j <= at + right if right else j <= at
    if left >= 0:
        near = at - left <= j
        found = found & near if right >= 0 else near
    return found


def rotated(x: Term, cos: Term, sin: Term, interleaved: bool) -> Term:
    """Pairs of the last dimension turned by angles, of which ``cos`` and ``sin`` have half as many:
    neighbors if ``interleaved``, else elements half the dimension apart."""
    half = cos.dims[-1]
    turning, rest = split(x, [2 * half, x.dims[-1] - 2 * half], -1)
    if interleaved:
        pairs = reshape(turning, (*turning.dims[:-1], half, 2))
        a, b = unstack(pairs, pairs.rank - 1)
    else:
        a, b = split(turning, [half, half], -1)
    parts = [a * cos - b * sin, a * sin + b * cos]
    mixed = stack(parts, x.rank) if interleaved else concatenate(parts, -1)
    made = reshape(mixed, turning.dims)
    return concatenate([made, rest], -1) if rest.dims[-1] else made


def angles(caches: Sequence[Term], positions: Term | None, heads_first: bool) -> list[Term]:
    """Cosines and sines ``[b, s, d]`` at positions, to be broadcast over heads."""
    taken = [c if positions is None else take(c, positions.to(s32), 0) for c in caches]
    return [expand_dims(t, [1 if heads_first else 2]) for t in taken]
