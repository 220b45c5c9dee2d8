"""A model's graph as a page."""

from __future__ import annotations

import os

from ..lowered import Lowered
from .graph import model_graph
from .page import render
from .texts import group_texts, stages_of


def graph_page(
    model: Lowered, stages: str | None = None, log: str | os.PathLike[str] | None = None
) -> str:
    """Return the HTML page of a model's groups, their texts with the best schedules of a log.

    ``stages`` is a list such as ``te,asm``; by default all that the target has. ``ArgumentError``
    for a stage that groups do not have.
    """
    chosen = stages_of(model.target, stages)  # before a large model is read
    prepared = model.prepared()
    texts = group_texts(prepared, model.schedules(log), chosen)
    graph = model_graph(prepared, model.name)
    return render(graph, texts, {}, f"Target {prepared.target.spec}")
