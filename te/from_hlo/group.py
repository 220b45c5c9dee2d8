"""A group of HLO instructions as a loop function: stages in order, each a block or a few."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.elementwise import TABLE
from ...ir.hlo.nodes import Computation, Instruction, Shape, TupleShape
from ...ir.loop.nodes import Block, Buffer, Expr, Func
from ...ir.loop.notes import COPY, FROZEN, UPDATES
from ...ir.loop.visit import seq, walk
from . import indexed, injective
from .contractions import convolution, dot
from .emitter import ElementEmitter, Index, Leaf, Rule
from .plan import StagePlan, is_plumbing, make_plan
from .reductions import reduce_, reduce_window
from .scalars import CONVERSIONS, SAME, elementwise, refuse
from .scatters import scatter, select_and_scatter
from .sorting import sort
from .stages import Draft, complex_, concatenate, dynamic_update_slice, hand_out, pointwise
from .storage import buffer_of
from .top_k import topk
from .transforms import dft


def _pointwise(e: ElementEmitter, x: Instruction, at: Index) -> Expr:
    """Apply an element-wise operation; scalar operands (of clamp, select) have no index."""
    args = [e.element(o, at) if o.array.rank == len(at) else e.scalar(o) for o in x.operands]
    return elementwise(x, args)


RULES: dict[str, Rule] = {
    **dict.fromkeys([*CONVERSIONS, *SAME], _pointwise),
    **injective.RULES,
    **indexed.RULES,
}
"""The rule for an element of each injective operation, by opcode."""


def rule_of(x: Instruction) -> Rule | None:
    """Return the rule for an element of an instruction; None if a stage computes it."""
    return _pointwise if x.opcode in TABLE else RULES.get(x.opcode)


STAGES: dict[str, Callable[[Draft, Instruction], None]] = {
    "complex": complex_,
    "dot": dot,
    "convolution": convolution,
    "reduce": reduce_,
    "reduce-window": reduce_window,
    "concatenate": concatenate,
    "dynamic-update-slice": dynamic_update_slice,
    "scatter": scatter,
    "select-and-scatter": select_and_scatter,
    "sort": sort,
    "topk": topk,
    "dft": dft,
}
"""The lowering of each stage to blocks, by opcode; any other stage is element-wise."""


def lower_group(computation: Computation, name: str, vectors: bool = True) -> Func:
    """Lower a group of a canonical module to loops in default order.

    The function takes the computation's parameters, then its results (the root, or each element of
    the root's tuple), as buffers of the HLO shapes (``storage`` says how complex arrays lie in
    theirs). Names of blocks follow from the structure alone, so a schedule's trace fits every
    group of the same structure. An output that may take the place of an input (an update in place)
    is noted in ``UPDATES``. ``vectors`` is true for targets whose threads have vector registers.
    ``UnsupportedError`` names what cannot be lowered.
    """
    _check(computation)
    plan = make_plan(computation)
    emitter = ElementEmitter(computation, rule_of)
    for n, p in enumerate(computation.parameters):
        emitter.buffers[(p, 0)] = buffer_of(f"p{n}", p.array)
    outputs = _output_buffers(plan)
    owned: dict[Leaf, Buffer] = {}
    for leaf, buffer in zip(plan.outputs, outputs, strict=True):
        if leaf[0].opcode != "parameter":
            owned.setdefault(leaf, buffer)
    draft = Draft(emitter, dict(owned), vectors=vectors)
    for x in plan.stages:
        STAGES.get(x.opcode, pointwise)(draft, x)
    for leaf, buffer in zip(plan.outputs, outputs, strict=True):
        if leaf in draft.owned or owned.get(leaf) is not buffer:
            hand_out(draft, leaf, buffer)
    inputs = tuple(emitter.buffers[(p, 0)] for p in computation.parameters)
    func = Func(name, (*inputs, *outputs), len(outputs), seq(*draft.body), tuple(draft.allocs))
    return _note_frozen(_note_aliases(func), computation)


def _note_frozen(func: Func, computation: Computation) -> Func:
    """Note which inputs are constants of the module: ``FROZEN`` lists their numbers."""
    frozen = (n for n, p in enumerate(computation.parameters) if p.attrs.get("frozen"))
    numbers = tuple(frozen)
    return FROZEN.put(func, numbers) if numbers else func


def _check(computation: Computation) -> None:
    """Refuse a computation with instructions that no rule or stage lowers, naming all of them."""
    refused: dict[str, list[Instruction]] = {}
    for x in computation.instructions:
        if why := _refusal(x):
            refused.setdefault(why, []).append(x)
    for why, found in refused.items():
        refuse(found[0], computation, why, *found[1:])


def _refusal(x: Instruction) -> str:
    """Return why an instruction cannot be lowered to loops; "" if it can."""
    if isinstance(x.shape, Shape) and any(x.shape.dynamic):
        return "bounded dynamic dimension"
    if x.opcode in STAGES or x.opcode == "parameter" or is_plumbing(x):
        return ""
    if rule_of(x) is None:
        return "there is no loop nest for this operation"
    return "its result is a tuple" if isinstance(x.shape, TupleShape) else ""


def _output_buffers(plan: StagePlan) -> tuple[Buffer, ...]:
    single = len(plan.outputs) == 1
    found = []
    for n, (x, element) in enumerate(plan.outputs):
        shape = x.shape.elements[element] if isinstance(x.shape, TupleShape) else x.shape
        assert isinstance(shape, Shape)
        found.append(buffer_of("out" if single else f"out{n}", shape))
    return tuple(found)


def _note_aliases(func: Func) -> Func:
    """Note which outputs begin as a copy of an input that nothing else reads."""
    every = [s for s in walk(func.body) if isinstance(s, Block)]
    inputs = func.params[: len(func.params) - func.outputs]
    outputs = func.params[len(inputs) :]
    updates: list[tuple[int, int]] = []
    for block in every:
        if COPY.of(block) and block.writes[0].buffer in outputs:
            source = block.reads[0].buffer
            readers = [b for b in every if any(r.buffer is source for r in b.reads)]
            if readers == [block]:
                updates.append((outputs.index(block.writes[0].buffer), inputs.index(source)))
    return UPDATES.put(func, tuple(updates)) if updates else func
