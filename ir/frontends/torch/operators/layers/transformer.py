"""Fused layers that ``nn.TransformerEncoder`` and ``nn.MultiheadAttention`` call in inference."""

from __future__ import annotations

import math
from typing import Any

from ....lax.functions import gelu, mean, relu, softmax
from ....lax.shaping import expand_dims, reshape, split, swap_axes
from ....lax.term import Term
from ..call import AtenCall, Rows, wide
from ..linear import linear
from ..logic import truth
from .attention import scores, weighted
from .normalization import empty, layer_norm

_KEYS = 1
"""The ``mask_type`` of a mask ``[batch, keys]``; others broadcast to ``[batch, heads, ..]``."""


def _projected(
    c: AtenCall, given: tuple[Term, Term, Term], weight: Term, bias: Term
) -> tuple[Term, ...]:
    """Queries, keys and values; of one array by one product."""
    size = weight.dims[0] // 3
    if all(t.value is given[0].value for t in given):
        return tuple(split(linear(c, given[0], weight, bias), [size] * 3, 2))
    parts = zip(given, split(weight, [size] * 3, 0), split(bias, [size] * 3, 0), strict=True)
    return tuple(linear(c, x, w, b) for x, w, b in parts)


def _attended(
    c: AtenCall, rows: tuple[Term, ...], heads: int, mask: Term | None, mask_type: int | None
) -> tuple[Term, Term]:
    """The heads side by side, and their weights ``[batch, heads, queries, keys]``.

    A mask hides where it is not zero; a row that is hidden wholly gives NaN, as torch has it.
    """
    batch, queries, size = rows[0].dims
    apart = [reshape(t, (batch, t.dims[1], heads, size // heads)) for t in rows]
    q, k, v = (swap_axes(t, 1, 2) for t in apart)
    found = scores(q, k, None, False, None)
    if mask is not None:
        hidden = truth(mask)
        hidden = expand_dims(hidden, [1, 2]) if mask_type == _KEYS else hidden
        found = hidden.select(-math.inf, found)
    weights = softmax(found, [-1])
    together = swap_axes(weighted(weights, v), 1, 2).to(v.dtype)
    return reshape(together, (batch, queries, size)), weights


def _multi_head_attention(
    c: AtenCall,
    query: Term,
    key: Term,
    value: Term,
    size: int,
    heads: int,
    qkv_weight: Term,
    qkv_bias: Term,
    weight: Term,
    bias: Term,
    mask: Term | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> list[Term]:
    """The attention's result, and its weights or their mean over heads, empty if not asked for."""
    if not c.shape.size:
        return empty(c)
    rows = _projected(c, (query, key, value), qkv_weight, qkv_bias)
    found, weights = _attended(c, rows, heads, mask, mask_type)
    out = linear(c, found, weight, bias)
    if not need_weights:
        return [out, *empty(c)[1:]]
    return [out, mean(weights, [1]) if average else weights]


def _encoder_layer(
    c: AtenCall,
    x: Term,
    size: int,
    heads: int,
    qkv_weight: Term,
    qkv_bias: Term,
    weight: Term,
    bias: Term,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> Term:
    """Attention and a network of two layers, each added to its operand and normalized.

    ``rest`` are the weight and bias of both norms and both layers, the mask and its type.
    """
    if not c.shape.size:
        return x
    norms, layers = rest[:4], rest[4:8]
    mask, mask_type = (*rest[8:], None, None)[:2]

    def norm(y: Term, which: int) -> Term:
        scale, shift = norms[2 * which : 2 * which + 2]
        return layer_norm(c, y, [size], scale, shift, eps)[0].to(x.dtype)

    inner = norm(x, 0) if norm_first else x
    rows = _projected(c, (inner, inner, inner), qkv_weight, qkv_bias)
    y = x + linear(c, _attended(c, rows, heads, mask, mask_type)[0], weight, bias)
    y = y if norm_first else norm(y, 0)
    hidden = wide(linear(c, norm(y, 1) if norm_first else y, *layers[:2]))
    hidden = (gelu if use_gelu else relu)(hidden).to(x.dtype)
    out = y + linear(c, hidden, *layers[2:])
    return out if norm_first else norm(out, 1)


ROWS: Rows = {
    "aten._native_multi_head_attention.default": _multi_head_attention,
    "aten._transformer_encoder_layer_fwd.default": _encoder_layer,
}
