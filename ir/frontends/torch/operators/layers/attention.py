"""Scaled dot-product attention as the formula that fusion recognizes, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .....dtypes import s32
from ....lax.attention import band, repeat_heads
from ....lax.functions import logsumexp, softmax, wide
from ....lax.linear import matmul
from ....lax.reductions import max_, sum_
from ....lax.shaping import broadcast_to, expand_dims, full, iota, reshape, swap_axes
from ....lax.term import Term
from ..call import AtenCall, Rows, Sized


def scores(q: Term, k: Term, mask: Term | None, causal: bool, scale: float | None) -> Term:
    """q kT scale, with what is masked at minus infinity; in f32 of narrow floats."""
    factor = 1 / math.sqrt(q.dims[-1]) if scale is None else scale
    found = matmul(q, swap_axes(k, -1, -2), wide(q.dtype)) * factor
    if causal:
        found = band(q, found.dims[-2], found.dims[-1], 0, -1, 0).select(found, -math.inf)
    if mask is None:
        return found
    if mask.dtype.kind == "pred":
        return mask.select(found, -math.inf)
    return found + mask.to(found.dtype)


def _refuse_dropout(c: AtenCall, dropout: float) -> None:
    if dropout:
        c.refuse("its dropout comes from torch's generator", "model.eval(), or dropout_p=0")


def safe_softmax(x: Term, axis: int) -> Term:
    """``softmax``, but a row of minus infinity gives zeros."""
    hidden = max_(x, [axis], keep=True).equals(-math.inf)
    return hidden.do("select", x.number(0), softmax(x, [axis]))


def weighted(weights: Term, v: Term) -> Term:
    """The sums of values by these weights, in f32 of narrow floats."""
    return matmul(weights.to(v.dtype), v, wide(v.dtype))


def _weights(scores: Term, mask: Term | None) -> Term:
    """Of rows that only a mask can hide wholly: then they are zeros."""
    return softmax(scores, [-1]) if mask is None else safe_softmax(scores, -1)


def _attention(
    c: AtenCall,
    q: Term,
    k: Term,
    v: Term,
    attn_mask: Term | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Term:
    _refuse_dropout(c, dropout_p)
    if not c.shape.size or not k.dims[-2]:
        return full(c.graph, 0, c.dtype, c.dims)
    c.fixed(q, [-1])
    if enable_gqa:
        c.fixed(q, [-3])
        c.fixed(k, [-3])
        k, v = (repeat_heads(t, q.dims[-3]) for t in (k, v))
    found = scores(q, k, attn_mask, is_causal, scale)
    return weighted(_weights(found, attn_mask), v)


def _flash(
    c: AtenCall,
    q: Term,
    k: Term,
    v: Term,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Term | None = None,
    scale: float | None = None,
) -> list[Term]:
    """The result and the logarithm of each row's sum (0 of hidden ones), for the gradient."""
    _refuse_dropout(c, dropout_p)
    k, v = (repeat_heads(t, q.dims[-3]) for t in (k, v))
    found = scores(q, k, attn_mask, is_causal, scale)
    sums = logsumexp(found, [-1])
    if attn_mask is not None:
        sums = sums.equals(-math.inf).select(0, sums)
    return [weighted(_weights(found, attn_mask), v), sums]


def _flex(
    c: AtenCall,
    q: Term,
    k: Term,
    v: Term,
    score: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: Any,
    score_buffers: Sequence[Any] = (),
    mask_buffers: Sequence[Any] = (),
) -> list[Term]:
    """Attention whose scores and mask are graphs of one score and its places.

    Also the logarithms of rows' sums and their largest scores, both to the base of 2.
    """
    k, v = (repeat_heads(broadcast_to(t, (q.dims[0], *t.dims[1:])), q.dims[1]) for t in (k, v))
    found = scores(q, k, None, False, scale)
    places = [iota(c.graph, s32, (size,)) for size in found.dims]
    axes = [(axis,) for axis in range(4)]
    none: list[tuple[int, ...]] = [() for _ in (*score_buffers, *mask_buffers)]
    (changed,) = score.for_each(
        c.graph,
        [(0, 1, 2, 3), *axes, *none[: len(score_buffers)]],
        *(found, *places, *score_buffers),
        required=c.required,
    )
    (kept,) = block_mask[-1].for_each(
        c.graph,
        [*axes, *none[len(score_buffers) :]],
        *(*places, *mask_buffers),
        required=c.required,
    )
    changed = kept.select(changed, -math.inf)
    base = math.log(2)
    sums, largest = logsumexp(changed, [-1]) / base, max_(changed, [-1]) / base
    found = weighted(safe_softmax(changed, -1), v)
    return [found, sums, largest][: len(c.results)]  # older torch has not all


def _flash_backward(
    c: AtenCall,
    grad: Term,
    q: Term,
    k: Term,
    v: Term,
    out: Term,
    sums: Term,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Term | None = None,
    scale: float | None = None,
) -> list[Term]:
    _refuse_dropout(c, dropout_p)
    own = k.dims[-3]
    k, v = (repeat_heads(t, q.dims[-3]) for t in (k, v))
    factor = 1 / math.sqrt(q.dims[-1]) if scale is None else scale
    found = scores(q, k, attn_mask, is_causal, scale)
    weights = (found - expand_dims(sums.to(found.dtype), [-1])).do("exponential")
    low = weights.to(v.dtype)
    dv = matmul(swap_axes(low, -1, -2), grad, wide(v.dtype))
    dweights = matmul(grad, swap_axes(v, -1, -2), wide(v.dtype))
    rows = sum_(grad.to(found.dtype) * out.to(found.dtype), [-1], keep=True)
    dscores = (weights * (dweights - rows) * factor).to(q.dtype)
    dq = matmul(dscores, k, wide(q.dtype))
    dk = matmul(swap_axes(dscores, -1, -2), q, wide(q.dtype))
    return [dq, _of_shared(dk, own), _of_shared(dv, own)]


def _of_shared(x: Term, own: int) -> Term:
    """The sums over query heads that share one of ``own`` heads; x is ``[.., heads, s, d]``."""
    *outer, heads, s, d = x.dims
    if own == heads:
        return x
    return sum_(reshape(x, (*outer, own, heads // own, s, d)), [-3])


ROWS: Rows = {
    "flex_attention": _flex,
    "aten.scaled_dot_product_attention.default": Sized(_attention),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _flash_backward,
}
