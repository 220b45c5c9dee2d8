"""Clusters of a graph: which nodes can run together, as few calls as possible, without a cycle.

Some nodes of a graph fit a compiler and some do not. The nodes are put into stages: what fits and
does not depend on anything outside forms the first cluster, then comes what does not fit and needs
no later cluster, and so on. A path that leaves a cluster through a node outside only reaches later
clusters, so every cluster is convex, and running the partitions in order is a topological order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that run after those of all earlier partitions, in ascending order: one cluster if
    ``inside``, else nodes outside of all clusters.
    """

    nodes: tuple[int, ...]
    inside: bool


def partitions(
    inputs: Sequence[Collection[int]],
    fits: Sequence[bool],
    least: int = 1,
    weights: Sequence[int] | None = None,
) -> tuple[Partition, ...]:
    """Return the partitions that run a graph, in order: clusters and the nodes between them.

    Node ``i`` reads the nodes ``inputs[i]``, all before it. ``fits[i]`` says that it may be in a
    cluster. Clusters whose ``weights`` (1 for each node by default) add up to less than ``least``
    are dissolved. The number of clusters, before that, is the least possible.
    """
    stages = _sunk(inputs, fits, _earliest(inputs, fits))
    weigh = weights or [1] * len(fits)
    sizes: dict[int, int] = {}
    for i, stage in enumerate(stages):
        if fits[i]:
            sizes[stage] = sizes.get(stage, 0) + weigh[i]
    rooms: dict[tuple[int, bool], list[int]] = {}
    for i, stage in enumerate(stages):
        outside = not fits[i] or sizes[stage] < least
        rooms.setdefault((stage, outside), []).append(i)
    return tuple(Partition(tuple(rooms[key]), not key[1]) for key in sorted(rooms))


def _earliest(inputs: Sequence[Collection[int]], fits: Sequence[bool]) -> list[int]:
    """Return each node's earliest stage: the most times that a path to it enters a cluster."""
    stages: list[int] = []
    for i, read in enumerate(inputs):
        first = 0 if fits[i] else -1
        stages.append(max([first, *(stages[j] + (fits[i] and not fits[j]) for j in read)]))
    return stages


def _sunk(
    inputs: Sequence[Collection[int]], fits: Sequence[bool], stages: Sequence[int]
) -> list[int]:
    """Move nodes that fit to the stage of their first reader, so that fewer values cross."""
    sunk = list(stages)
    first: dict[int, int] = {}  # by node: the earliest stage of a reader
    for i in range(len(sunk) - 1, -1, -1):
        if fits[i]:
            sunk[i] = first.get(i, sunk[i])
        for j in inputs[i]:
            first[j] = min(first.get(j, sunk[i]), sunk[i])
    return sunk
