"""NumPy on HLO text: one call after another, where every operation is a call of NumPy's.

Element-wise operations, broadcasts, movements of elements and products are; so a product runs on
NumPy's BLAS, in the type of its operands. Windows, reductions, sorts and control flow are not:
the interpreter, which has them, is an oracle that accumulates in wider types, and no fair peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from ....ir.arrays import Array
from ....ir.comparison import leaves
from ....ir.errors import UnsupportedError
from ....ir.hlo import parse
from ....ir.hlo.meaning.values import CallEvaluator
from ....ir.hlo.nodes import Instruction
from ....ir.hlo.ops.definition import Pattern
from ....ir.hlo.ops.registry import definition
from .table import Given, Opened

Step: TypeAlias = tuple[Instruction, Callable[[list[Any]], Any]]
DIRECT = {Pattern.ALIAS, Pattern.BROADCAST, Pattern.ELEMENTWISE, Pattern.INJECTIVE}


def open_numpy(given: Given) -> Opened:
    """Return the calls of a module; ``UnsupportedError`` names what is not one of NumPy's."""
    entry = parse(given.file.read_text(), given.file.name).entry
    parameters = dict(zip(entry.parameters, given.arguments.values(), strict=True))
    steps = [(i, _call(i)) for i in entry.instructions if i not in parameters]
    if not any(definition(i.opcode).pattern is not Pattern.ALIAS for i, _ in steps):
        raise UnsupportedError("NumPy", "nothing is computed")

    def call() -> Any:
        values: dict[Instruction, Any] = dict(parameters)
        for i, function in steps:
            values[i] = function([values[o] for o in i.operands])
        return values[entry.root]

    def silent() -> Any:
        with np.errstate(all="ignore"):
            return call()

    return Opened(silent, leaves, f"NumPy {np.__version__}, one call after another")


def _call(i: Instruction) -> Callable[[list[Any]], Any]:
    found = definition(i.opcode)
    if "lhs_contracting_dims" in i.attrs and i.array.dtype.is_float:
        return lambda args: _product(i, *args)
    function, alone = found.numpy, cast(CallEvaluator, _nothing_called)
    if function is None or found.pattern not in DIRECT:
        raise UnsupportedError(f"`{i.name}`: {i.opcode}", "is no single call of NumPy's")
    if not i.operands:
        value = function(i, [], alone)
        return lambda args: value
    return lambda args: function(i, args, alone)


def _nothing_called(*args: object) -> Any:
    raise UnsupportedError("a called computation", "is no single call of NumPy's")


def _product(i: Instruction, a: Array, b: Array) -> Array:
    """Return ``[batch.., free of a.., free of b..]`` by one call of ``matmul``."""
    names = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
    a_batch, a_sum, b_batch, b_sum = (list(i.attrs.get(n, ())) for n in names)
    a_free = [d for d in range(a.ndim) if d not in (*a_batch, *a_sum)]
    b_free = [d for d in range(b.ndim) if d not in (*b_batch, *b_sum)]
    if not a_batch:
        return np.asarray(np.tensordot(a, b, (a_sum, b_sum)))
    batch, depth = [a.shape[d] for d in a_batch], int(np.prod([a.shape[d] for d in a_sum]))
    left = a.transpose(*a_batch, *a_free, *a_sum).reshape(*batch, -1, depth)
    right = b.transpose(*b_batch, *b_sum, *b_free).reshape(*batch, depth, -1)
    shape = (*batch, *(a.shape[d] for d in a_free), *(b.shape[d] for d in b_free))
    return np.asarray(np.matmul(left, right)).reshape(shape)
