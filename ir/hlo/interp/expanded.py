"""Operations defined by a graph of other operations: the interpreter runs that graph."""

from __future__ import annotations

from collections.abc import Callable

from ..meaning.values import CallEvaluator, Handler, Value
from ..nodes import Instruction
from ..passes.expand import rng, scan
from ..rewrite import assemble, parameter, with_operands


def _running(expansion: Callable[[Instruction], Instruction]) -> Handler:
    def compute(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
        inputs = tuple(parameter(n, o.shape) for n, o in enumerate(i.operands))
        return run(assemble("meaning", inputs, expansion(with_operands(i, inputs))), args)

    return compute


HANDLERS: dict[str, Handler] = {
    "rng": _running(rng.expansion),
    "scan": _running(scan.expansion),
}
