"""Reference results of a module as it is built: with excess precision, or without.

Without, every operation rounds to its own type, and the interpreter runs the module as given. With
it, the points of rounding depend on how the module was cut into groups, so the interpreter runs the
fused module, whose groups have explicit types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...ir.accuracy import BLOCKED, byte_rows, rounds_products
from ...ir.comparison import Comparison, compare_all, leaves
from ...ir.hlo.fuse.fusion import Fusion
from ...ir.hlo.fuse.order import called, in_order
from ...ir.hlo.interp.devices import evaluate_devices
from ...ir.hlo.interp.evaluate import evaluate
from ...ir.hlo.interp.flushing import flushing_as
from ...ir.hlo.layouts import Order, Orders, entry_orders
from ...ir.hlo.nodes import Computation, HloModule, Instruction
from ...ir.hlo.passes.pipeline import optimize_narrow
from ...ir.hlo.passes.weights.blocks.products import has_byte_rows
from ...ir.hlo.rewrite import assemble, make, relink, with_entry, with_operands
from ..plan.groups import Groups, fuse_module
from .options import BuildOptions, OptionsLike

Values: TypeAlias = Sequence[Any]


def reference(
    module: HloModule,
    args: Values,
    options: OptionsLike = "cpu",
) -> Any:
    """Return the result that a build should compute: an array or a tuple of arrays; errors as
    ``evaluate``.
    """
    given = BuildOptions.of(options)
    with flushing_as(given.target):
        wide = _wide(module, given)
        return _strict(module, args, given) if wide is None else _run(wide, module, args)


@dataclass(frozen=True)
class Oracle:
    """The reference for one module and its arguments: ``strict`` if every operation rounds.

    It has what the ``options`` of the build allow: narrow weights, what the target's accuracy
    rounds, and denormals as the target takes them. ``wide`` is the result of the fused module,
    where that rounds less.
    """

    module: HloModule
    args: Values
    options: BuildOptions
    strict: Any
    wide: Any = None

    @staticmethod
    def of(module: HloModule, args: Values, options: OptionsLike = "cpu") -> Oracle:
        """Run the interpreter; errors as ``evaluate``."""
        given = BuildOptions.of(options)
        with flushing_as(given.target):
            fused = _wide(module, given)
            strict = _strict(module, args, given)
            wide = fused and _run(fused, module, args)
        return Oracle(module, args, given, strict, wide)

    def judge(self, results: Any) -> list[Comparison]:
        """Compare a build's results with the reference.

        The fused module has been through the graph passes. So where the results differ from those
        of the module before them, the passes are judged too, by how they change ``strict``.
        """
        rounded = self._rounds()
        as_given = compare_all(results, self.strict, rounded)
        if self.wide is None:
            return as_given
        rows = compare_all(results, self.wide, rounded)
        if all(r.ok for r in as_given) or not all(r.ok for r in rows):
            return rows
        with flushing_as(self.options.target):
            narrow = _narrow(self.module, self.options)
            optimized = _run(narrow, self.module, self.args)
        right = all(r.ok for r in compare_all(optimized, self.strict, rounded))
        return rows if right else as_given

    def _rounds(self) -> bool:
        """True if products may have rounded operands: any of f32, or rows that codes multiply."""
        target, weights = self.options.target, self.options.weights
        if rounds_products(target, weights):
            return True
        return byte_rows(target, weights) is not None and has_byte_rows(
            _narrow(self.module, self.options)
        )


def on_devices(
    module: HloModule, args: Sequence[Values], options: OptionsLike = "cpu"
) -> list[Any]:
    """Return the result of each device of a program, as ``reference`` does for one.

    ``args`` has the arguments of each device.
    """
    orders, given = entry_orders(module), BuildOptions.of(options)
    with flushing_as(given.target):
        run = _wide(module, given)
        if run is None and not _is_exact(given):
            run = _narrow(module, given)
        if run is None:
            return list(evaluate_devices(module, args))
        found = evaluate_devices(run, [in_memory_order(a, orders.params) for a in args])
    return [_as_given(result, orders) for result in found]


def _narrow(module: HloModule, options: BuildOptions) -> HloModule:
    """Return the graph passes' result, with what weights and accuracy say is to be narrow.

    The passes for one target take part only where they decide what is narrow.
    """
    apart = options.weights != BLOCKED and not options.target.accuracy
    return optimize_narrow(module, options.weights, None if apart else options.target)[0]


def _is_exact(options: BuildOptions) -> bool:
    """True if a build makes nothing narrow that the model does not."""
    return options.weights is None and not options.target.accuracy


def _strict(module: HloModule, args: Values, options: BuildOptions) -> Any:
    """Return the result where every operation rounds; of the graph passes' result if anything in
    it is narrow."""
    if _is_exact(options):
        return evaluate(module, args)
    return _run(_narrow(module, options), module, args)


def _wide(module: HloModule, options: BuildOptions) -> HloModule | None:
    """Return the fused module with excess precision; None where that is not asked for, or changes
    no group.
    """
    if not options.excess_precision:
        return None
    optimized = _narrow(module, options)
    wide = fuse_module(optimized)
    strict = fuse_module(optimized, excess_precision=False)
    changed = wide.distinct.keys() != strict.distinct.keys()
    return fused_module(optimized, wide) if changed else None


def fused_module(module: HloModule, groups: Groups) -> HloModule:
    """Return an optimized module with every group as one ``fusion`` instruction."""
    done: dict[Computation, Computation] = {}

    def visit(c: Computation) -> None:
        for inner in (x for i in c.instructions for x in called(i)):
            if inner not in done:
                visit(inner)
        done[c] = _fused(c, groups.fusions[c], done)

    visit(module.entry)
    return with_entry(module, done[module.entry])


def _fused(c: Computation, fusion: Fusion, done: dict[Computation, Computation]) -> Computation:
    owner = {o: g for g in fusion.groups for o in g.outputs}
    new: dict[Instruction, Instruction] = {p: p for p in c.parameters}
    for unit in in_order(c.root, owner):
        if isinstance(unit, Instruction):
            new[unit] = relink(with_operands(unit, tuple(new[o] for o in unit.operands)), done)
            continue
        inner = unit.computation
        call = make(
            "fusion",
            inner.root.shape,
            [new[i] for i in unit.inputs],
            name=unit.name,
            kind="kLoop",
            calls=inner,
        )
        if len(unit.outputs) == 1:
            new[unit.outputs[0]] = call
            continue
        for n, o in enumerate(unit.outputs):
            new[o] = make("get-tuple-element", o.shape, (call,), name=o.name, index=n)
    return assemble(c.name, [new[p] for p in c.parameters], new[c.root])


def _run(optimized: HloModule, module: HloModule, args: Values) -> Any:
    """Return the result of a module after the graph passes, in the layouts of the one
    before them.
    """
    orders = entry_orders(module)
    return _as_given(evaluate(optimized, in_memory_order(args, orders.params)), orders)


def _as_given(result: Any, orders: Orders) -> Any:
    """Return a result of optimized code in the layouts that the caller knows."""
    numbers = iter(range(len(leaves(result))))

    def restored(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(restored, value))
        n = next(numbers)
        order = orders.results[n] if n < len(orders.results) else ()
        return np.transpose(value, np.argsort(order)) if order else value

    return restored(result)


def in_memory_order(values: Any, orders: Sequence[Order]) -> list[Any]:
    """Return the arrays in nested tuples, each with its dimensions in memory order."""
    arrays = leaves(values)
    known = [*orders, *[()] * (len(arrays) - len(orders))]
    return [np.transpose(a, o) if o else a for a, o in zip(arrays, known, strict=True)]
