"""The sketches of a function for a GPU, in default order, and the rule for other blocks.

First, element-wise blocks that are cheaper to recompute than to store are inlined. A matrix product
or convolution that is large enough for tiles has sketches of its own, and so do some kinds of
groups as a whole, such as attentions. The other blocks form clusters of a launch or two each. The
product, or else the heaviest cluster, has decisions; the other clusters are scheduled by rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...language.schedule import Schedule
from ...limits import require_limits
from ...space.analyze import blocks_of
from ...space.registry import Family, import_sketches
from ...space.space import Choices, Sketch
from .fallback import fallback_sketch, schedule_fallback
from .launches.clusters import CLUSTERS, Cluster, find_clusters
from .launches.inlining import inline_cheap
from .launches.machine import flops_of
from .matching import KINDS, GroupInfo
from .products.matmul import find_matmul
from .products.skinny import Skinny, find_skinny, skinny_sketch
from .products.tensor_space import product_sketches
from .stages import stages_sketch

HALF = 8  # rows of a matrix instruction
ORDINARY = "gpu_simt@1"
import_sketches(__package__, [str(Path(__file__).parent)])


def _sketches(func: Func, target: Target) -> Iterator[Sketch]:
    """Yield the sketches of a function, the preferred one first."""
    first = Schedule(func)
    inlined = inline_cheap(first, target)
    blocks = blocks_of(first.func)
    product = find_matmul(first)
    yield from sorted(KINDS.matching(GroupInfo(func), target), key=lambda s: s.cost(s.default))
    if product is not None:
        rest = find_clusters(tuple(b for b in blocks if b.name not in product.covered))
        yield from (_whole(s, inlined, rest, target) for s in product_sketches(product, target))
    skinny = find_skinny(first)
    if skinny is not None:
        rest = find_clusters(tuple(b for b in blocks if b.name not in skinny.k.covered))
        yield from (_whole(s, inlined, rest, target) for s in skinny_sketches(skinny, target))
    clusters = find_clusters(blocks, frozenset(func.params))
    main = max(clusters, key=_weight, default=None)
    if main is not None:
        others = [c for c in clusters if c is not main]
        yield from (_whole(s, inlined, others, target) for s in cluster_sketches(main, target))


def skinny_sketches(s: Skinny, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a product with few rows, the one with the least cost first.

    Tensor cores are among them where at least half of their rows are used.
    """
    thin = skinny_sketch(s, target)
    found = [] if thin is None else [thin]
    if s.k.extents[s.few] >= HALF:
        found += [x for x in product_sketches(s.k, target) if x.name != ORDINARY]
    return tuple(sorted(found, key=lambda x: x.cost(x.default)))


def cluster_sketches(k: Cluster, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a cluster, the one with the least estimated cost first."""
    if k.staged:
        return (stages_sketch(k, target),)
    if any(b.opaque for b in k.blocks):
        return ()
    return tuple(sorted(CLUSTERS.matching(k, target), key=lambda s: s.cost(s.default)))


def _weight(k: Cluster) -> float:
    return sum(flops_of(b) + 4.0 * b.points * (len(b.inputs) + len(b.stores)) for b in k.blocks)


def _whole(
    sketch: Sketch, inlined: Sequence[str], others: Sequence[Cluster], target: Target
) -> Sketch:
    """Extend a sketch of a product or cluster to the whole function."""

    def apply(sch: Schedule, c: Choices) -> None:
        for name in inlined:
            sch.compute_inline(name)
        sketch.apply(sch, c)
        for k in others:
            _by_rule(sch, k, target)

    return replace(sketch, apply=apply)


def _by_rule(sch: Schedule, k: Cluster, target: Target) -> None:
    """Schedule a cluster by the first of its sketches that applies, else block by block."""
    for sketch in cluster_sketches(k, target):
        if sch.attempt(sketch.apply_default):
            return
    for info in k.blocks:
        schedule_fallback(sch, info, target)


def _spare(func: Func, target: Target) -> tuple[Sketch, ...]:
    return (fallback_sketch(blocks_of(func), target),)


def _require(func: Func, target: Target) -> None:
    require_limits(func, target.gpu)


FAMILY = Family(_sketches, _spare, schedule_fallback, _require)
