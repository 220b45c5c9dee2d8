"""Normalized sums: layer and RMS norms of an array, of what skips a layer, and a bias."""

from __future__ import annotations

from .....dtypes import f32, s32
from ....lax import functions, indexing, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ...nodes.values import Value
from .domain import DOMAIN


def normed(x: Term, gamma: Term, beta: Term | None, epsilon: float) -> tuple[Term, Term, Term]:
    """The layer norm of the last dimension, computed in f32; its mean, and 1 / its deviation."""
    wide = functions.wide(x.dtype)
    found, mean, scale = functions.normalized(x.to(wide), [x.rank - 1], epsilon)
    found = found * gamma.to(wide)
    return (found if beta is None else found + beta.to(wide)).to(x.dtype), mean, scale


def rms_normed(x: Term, gamma: Term, axis: int, epsilon: float) -> tuple[Term, Term]:
    """``x`` over the root of the mean of its squares from ``axis`` on; 1 / that root."""
    wide = x.to(functions.wide(x.dtype))
    normal, scale = functions.rms_normalized(wide, range(axis, x.rank), epsilon)
    return (normal * gamma.to(wide.dtype)).to(x.dtype), scale


@operator("SimplifiedLayerNormalization", domain=DOMAIN, sized=True)
def simplified_layer_norm(node: Node) -> tuple[Term, ...]:
    """The RMS norm, and the reciprocal of the root."""
    node.leave_out(stash_type=1)
    x = node.input(0)
    axis = node.axis("axis", x.rank, -1)
    return rms_normed(x, node.input(1), axis, node.float_("epsilon", 1e-5))


def _summed(node: Node, bias: int) -> Term:
    x, skip = node.input(0), node.input(1)
    found = x + skip
    more = node.optional(bias)
    return found if more is None else found + more


@operator("SkipLayerNormalization", domain=DOMAIN, sized=True)
def skip_layer_norm(node: Node) -> tuple[Term, ...]:
    """The layer norm of the sum of two arrays and a bias; mean, 1 / deviation, and the sum."""
    total = _summed(node, 4)
    epsilon = node.float_("epsilon", 1e-12)
    return (*normed(total, node.input(2), node.optional(3), epsilon), total)


def group_normed(node: Node, x: Term) -> Term:
    """The group norm, computed in f32, and SiLU where ``activation`` asks for it."""
    gamma, beta = (shaping.per_channel(node.input(n).to(f32), x.rank) for n in (1, 2))
    last = bool(node.int_("channels_last", 1))
    wide = x.to(functions.wide(x.dtype))
    wide = shaping.move_axis(wide, -1, 1) if last else wide
    normal, _, _ = functions.group_normalized(
        wide, node.int_("groups"), node.float_("epsilon", 1e-5)
    )
    found = normal * gamma + beta
    if node.int_("activation"):
        found = functions.silu(found)
    return (shaping.move_axis(found, 1, -1) if last else found).to(x.dtype)


@operator("GroupNorm", domain=DOMAIN)
def group_norm(node: Node) -> Term:
    """The group norm of an array, whose channels are last by default."""
    return group_normed(node, node.input(0))


@operator("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(node: Node) -> tuple[Term, ...]:
    """The group norm of the sum of an array, another one and a bias; and the sum."""
    x, skip, bias = node.input(0), node.input(3), node.optional(4)
    if skip.rank == 2:
        skip = shaping.expand_dims(skip, [1, 2])
    total = x + skip if bias is None else x + skip + bias
    return group_normed(node, total), total


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN, sized=True)
def skip_simplified_layer_norm(node: Node) -> tuple[Value, ...]:
    """The RMS norm of the sum of two arrays and a bias; nothing, 1 / root, and the sum."""
    total = _summed(node, 3)
    found, scale = rms_normed(total, node.input(2), total.rank - 1, node.float_("epsilon", 1e-12))
    return found, None, scale, total


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(node: Node) -> tuple[Term, ...]:
    """The layer norm of the sum of embeddings of words, positions and segments; the lengths of the
    rows by their mask, and the sum."""
    node.ignore("mask_index_type")
    ids, segments = node.input(0), node.optional(1)
    words, positions, parts = node.input(2), node.input(3), node.optional(4)
    total = indexing.take(words, ids.to(s32), 0)
    if node.has(8):
        total = total + indexing.take(positions, node.input(8).to(s32), 0)
    else:
        total = total + shaping.slice_in_dim(positions, 0, ids.dims[1], 0)
    if segments is not None and parts is not None:
        total = total + indexing.take(parts, segments.to(s32), 0)
    found, _, _ = normed(total, node.input(5), node.input(6), node.float_("epsilon", 1e-12))
    mask = node.optional(7)
    if mask is None:
        lengths = shaping.full(node.graph, 0, s32, (ids.dims[0],))
    else:
        lengths = reductions.sum_(mask.to(s32), [1])
    return found, lengths, total
