"""Decompositions: operators that torch takes apart before a graph is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .empties import empties
from .lists import lists
from .losses import losses, multilabel_margin
from .operators.layers import resampling
from .statistics import statistics
from .table import row


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's own decompositions, by overload, of the operators that the table lacks, and
    ours of operators on lists, of norms in mixed precision and of gradients without elements.

    For ``aot_autograd(decompositions=..)``, ``make_fx`` and ``run_decompositions``. Operators that
    draw random numbers stay whole: their parts draw others than eager mode does.
    """
    from torch import Tag
    from torch._decomp import global_decomposition_table
    from torch._ops import OpOverload

    known = global_decomposition_table["post_autograd"]
    return (
        {
            op: rule
            for op, rule in known.items()
            if isinstance(op, OpOverload)
            and row(str(op)) is None
            and Tag.nondeterministic_seeded not in op.tags
        }
        | empties(known)
        | lists()
        | statistics()
    )


def export_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions for ``ExportedProgram.run_decompositions``.

    Those include operators made of others, which autograd takes apart elsewhere.
    """
    from torch.export import default_decompositions

    composite = {op: rule for op, rule in default_decompositions().items() if row(str(op)) is None}
    return {**composite, **decompositions(), **losses()}


@contextmanager
def own_kernels(learns: bool) -> Iterator[None]:
    """Replace Python kernels of torch's while it traces a graph, with gradients if it ``learns``.

    Such kernels take operators apart before a table of decompositions is asked. Those of
    interpolations write gathers of single elements: without gradients the operators stay whole.
    """
    import torch
    from torch._C import DispatchKey

    wanted: dict[str, Callable[..., Any] | None] = {} if learns else dict.fromkeys(resampling.ROWS)
    wanted["aten.multilabel_margin_loss_forward.default"] = multilabel_margin
    held = []
    for name, kernel in wanted.items():
        _, packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if op is None:  # an operator of newer versions of torch
            continue
        for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
            if key in op.py_kernels:
                held.append((op, key, op.py_kernels.pop(key)))
                if kernel is not None:
                    op.py_kernels[key] = kernel
                op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, key, old in held:
            op.py_kernels[key] = old
            op._dispatch_cache.clear()
