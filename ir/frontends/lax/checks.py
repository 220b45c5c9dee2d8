"""Checks of values where a graph runs: what does not hold is an error that the run raises."""

from __future__ import annotations

from ...dtypes import pred
from ...hlo.nodes import Computation, TupleShape
from ...library.call import FAILED
from .graph import Graph
from .reductions import all_
from .term import Term

_NOTHING = TupleShape(())


def raise_unless(holds: Term, text: str) -> None:
    """Write that a run raises the error that ``library.checks`` reads from a text, unless all of
    some truth values hold.
    """
    one = (all_(holds) if holds.rank else holds).to(pred)
    known = one.known()
    if known is not None and known.all():
        return
    graph = one.site
    assert isinstance(graph, Graph)
    nothing = graph.pack([])
    graph.infer(
        "conditional",
        [one.value, nothing, nothing],
        true_computation=_branch("passed"),
        false_computation=_branch("failed", text),
    )


def _branch(name: str, text: str | None = None) -> Computation:
    """A computation of nothing, which fails if there is a text."""
    graph = Graph(name)
    graph.parameter(_NOTHING)
    if text is None:
        return graph.finish([])
    call = graph.add(
        "custom-call",
        _NOTHING,
        custom_call_target=FAILED,
        custom_call_has_side_effect=True,
        backend_config=text,
    )
    return graph.finish([call])
