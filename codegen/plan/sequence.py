"""From a fused module to a plan: the order of the thunks, then a location for every value.

A value is one array that some thunk makes. Tuples exist only here: an instruction's result is a
tree of slices, and tuple, get-tuple-element and whole-buffer reshapes cost nothing. A loop's state
is copied to locations of its own, and the body's result is copied back; ``coalesce`` then drops the
copies that can be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...ir.dtypes import to_numpy
from ...ir.errors import LimitError, UnsupportedError
from ...ir.hlo.analysis.untouched import untouched
from ...ir.hlo.fuse.fusion import Fusion, Group
from ...ir.hlo.fuse.order import branch_computations, in_order, readers_first
from ...ir.hlo.holes import multiplies_holes
from ...ir.hlo.layouts import ROW_MAJOR, Orders
from ...ir.hlo.library import group_call, library_call
from ...ir.hlo.limits import ARRAY_BYTES, require_bytes
from ...ir.hlo.nodes import (
    AnyShape,
    Computation,
    HloModule,
    Instruction,
    Shape,
    TupleShape,
)
from ...ir.hlo.ops.registry import definition, work_of
from ...ir.hlo.patterns.loops import hands_on, trip_count
from ...ir.hlo.sources import Sources
from ...ir.hlo.text.canonical import key
from .caller import parameters_of, results_of
from .coalesce import coalesce, copies_left
from .collective_calls import collective_call
from .compiled import Compiled, kernels
from .constants import Constants
from .facts import FactList, Facts
from .groups import Groups, compiled
from .guards.program import ProgramGuard
from .horizontal_fusion import HorizontalFusion, fuse_kernels
from .memory import assign, lifetimes, place
from .nodes import (
    ALIGNMENT,
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    Plan,
    Thunk,
    WhileThunk,
    children,
)
from .signature import slots
from .slices import Slices, leaves, part_of, piece_of, resized, sizes_of, spread

STEPS, STEPS_EACH = 1 << 13, 8
"""Instructions that a plan may be made of: so many, and so many for each of the module's own.
Control flow that calls one computation twice has it twice in its plan."""

UNROLLED = (2, 3, 5, 7)
LONGEST = 64
"""Calls in a loop's body that has several iterations, at most."""


def make_plan(
    module: HloModule,
    groups: Groups,
    made: Callable[[str], Compiled],
    orders: Orders = ROW_MAJOR,
    alignment: int = ALIGNMENT,
    fusion: HorizontalFusion | None = None,
) -> tuple[Plan, Constants, tuple[Facts, ...]]:
    """Return the plan of a module's entry, its constants, and the facts of its thunks.

    ``made`` maps the key of a group to its compiled kernel. ``orders`` are the layouts that the
    module had before it was optimized. Values and constants are aligned to ``alignment`` bytes.
    ``fusion`` says which kernels may be fused horizontally.
    """
    find, facts = compiled(groups, made), FactList(Sources(module).of)
    longer = fusion is not None  # copies cost as much as launches
    maker, entry = _Sequence(groups.fusions, find, alignment, facts, longer), module.entry
    params, bindings, param_tree = parameters_of(entry, orders.params)
    results, result_tree = results_of(entry.root.shape, orders.results)
    thunks, root = maker.run(entry, bindings)
    homes = [maker.home(n, s.bytes, entry.root.name) for n, s in enumerate(slots(results))]
    tests, again = maker.guard(groups.whole, made, entry, bindings, homes)
    if fusion is not None:
        thunks = fuse_kernels(thunks, fusion, facts, maker.value)
        tests = fuse_kernels(tests, fusion, facts, maker.value)
    thunks += [*_copies(root, homes), *tests, *again]
    kept = coalesce(thunks, maker.sizes, frozenset(maker.homes))
    lives = lifetimes(kept, maker.sizes)
    inside = {v: life for v, life in lives.items() if v not in maker.homes}
    offsets, arena_bytes = assign(inside, alignment)
    if arena_bytes > ARRAY_BYTES:
        largest = maker.names[max(inside, key=lambda v: maker.sizes[v])]
        require_bytes(arena_bytes, "the arena", f"{module.name}, in which `{largest}` is largest")
    places = {v: BufferSlice("arena", at, maker.sizes[v]) for v, at in offsets.items()}
    plan = Plan(
        thunks=place(kept, places | maker.homes),
        arena_bytes=arena_bytes,
        constant_bytes=maker.constants.size,
        params=params,
        results=results,
        param_tree=param_tree,
        result_tree=result_tree,
    )
    return plan, maker.constants, maker.facts.facts


def _copies(tree: Slices, homes: Sequence[BufferSlice]) -> Iterator[CopyThunk]:
    """Yield the copies of a program's results to where they belong."""
    for n, (source, home) in enumerate(zip(leaves(tree), homes, strict=True)):
        yield CopyThunk(source, home, f"result {n}")


class _Sequence:
    """Makes thunks on ``value`` slices; while ``again``, of kernels correct for any inputs."""

    def __init__(
        self,
        fusions: Mapping[Computation, Fusion],
        kernel: Callable[[Group], Compiled],
        alignment: int,
        facts: FactList,
        longer_loops: bool,
    ) -> None:
        self.fusions = fusions
        self.longer_loops = longer_loops
        self.units = 0
        self.limit = STEPS + STEPS_EACH * sum(len(c.instructions) for c in fusions)
        self.kernel = kernel
        self.sizes: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.homes: dict[int, BufferSlice] = {}
        self.constants = Constants(alignment)
        self.facts = facts
        self.again = False

    def value(self, nbytes: int, name: str) -> BufferSlice:
        """Return a new value; ``name`` is that of the instruction or kernel that makes it."""
        require_bytes(nbytes, "its value", f"`{name}`")
        number = len(self.sizes)
        self.sizes[number], self.names[number] = nbytes, name
        return BufferSlice("value", 0, nbytes, number)

    def home(self, number: int, nbytes: int, name: str) -> BufferSlice:
        """Return the value of a result with this number."""
        home = self.value(nbytes, name)
        self.homes[home.index] = BufferSlice("result", 0, nbytes, number)
        return home

    def guard(
        self,
        whole: ProgramGuard | None,
        made: Callable[[str], Compiled],
        entry: Computation,
        bindings: Sequence[Slices],
        homes: Sequence[BufferSlice],
    ) -> tuple[list[Thunk], list[Thunk]]:
        """Return the tests of a program after its run, and what runs it again if one fails."""
        tests: list[Thunk] = []
        answers: list[BufferSlice] = []
        if whole is None:
            return tests, []
        served = [g for g in self.fusions[entry].groups if g in whole.covered]
        tested = [i for g in served for i in g.members if multiplies_holes(i)]
        for n, test in enumerate(whole.computations):
            kernel, name = made(key(test)), f"{entry.name}.test"
            number = self.facts.add("guard", tested, kernel.work, kernel.schedule, kernel.record)
            read = whole.reads(n, bindings, homes) if n < len(whole.tests) else tuple(answers)
            answers.append(self.value(1, name))
            tests.append(self.call_kernel(kernel, name, [*leaves(read)], answers[-1:], number))
        self.again = True
        thunks, root = self.run(entry, bindings)
        self.again = False
        second = (*thunks, *_copies(root, homes))
        return tests, [ConditionalThunk(answers[-1], ((), second), f"{entry.name}.always")]

    def values(self, i: Instruction) -> Slices:
        return spread(i.shape, lambda s: self.value(s.bytes, i.name))

    def run(
        self, computation: Computation, bindings: Sequence[Slices], repeated: bool = False
    ) -> tuple[list[Thunk], Slices]:
        """Return the thunks of a computation and the slices of its root's value.

        ``repeated`` is true of a loop's body.
        """
        self.units += len(computation.instructions)
        if self.units > self.limit:
            raise LimitError(
                f"its {len(computation.instructions)} instructions bring the plan to {self.units}",
                f"the limit for this module is {self.limit}, each branch and body written out",
                f"`{computation.name}`",
                asked=self.units,
                limit=self.limit,
            )
        thunks: list[Thunk] = []
        trees: dict[Instruction, Slices] = {}
        owner = {o: g for g in self.fusions[computation].groups for o in g.outputs}
        order = tuple(in_order(computation.root, owner))
        order = tuple(readers_first(order, computation)) if repeated else order
        packed = self.only_packed(order, computation.root)
        for unit in order:
            if isinstance(unit, Instruction):
                if unit in packed:
                    trees[unit] = BufferSlice("constant", 0, unit.array.bytes)
                else:
                    trees[unit] = self.instruction(unit, trees, bindings, thunks)
                continue
            made = [self.values(o) for o in unit.outputs]
            trees.update(zip(unit.outputs, made, strict=True))
            read = [s for i in unit.inputs for s in leaves(trees[i])]
            written = [s for tree in made for s in leaves(tree)]
            thunks += self.call(unit, read, written)
        return thunks, trees[computation.root]

    def call(
        self, group: Group, read: list[BufferSlice], written: list[BufferSlice]
    ) -> list[Thunk]:
        """Return the call of a group's kernel, or of the one of two that its guard chooses."""
        compiled = self.kernel(group)
        if compiled.library:
            name = f"{group.name} (library: {compiled.library})"
            call = group_call(group.inputs, group.outputs, compiled.library, compiled.text)
            number = self.group_facts(group, compiled)
            return [LibraryThunk(call, tuple(read), tuple(written), name, number)]
        if (guarded := compiled.guarded) is None or (guarded.covered and not self.again):
            return self.call_one(group, compiled, group.name, group.inputs, read, written)
        name, test = f"{group.name}.always", guarded.test
        one = group, guarded.always, name, group.inputs, read, written
        always = self.call_one(*one, fallback=test is not None)
        if test is None or self.again:
            return always
        if test.after:  # the inputs must be there still
            compiled = replace(compiled, sharing=replace(compiled.sharing, in_place=()))
        own = self.call_one(group, compiled, group.name, group.inputs, read, written)
        where, right = written if test.after else read, self.value(1, name)
        number = self.group_facts(group, test.kernel)
        args = [where[n] for n in test.places]
        asked = self.call_kernel(test.kernel, f"{group.name}.test", args, [right], number)
        if test.after:
            return [*own, asked, ConditionalThunk(right, ((), tuple(always)), group.name)]
        return [asked, ConditionalThunk(right, (tuple(own), tuple(always)), group.name)]

    def group_facts(self, group: Group, compiled: Compiled, fallback: bool = False) -> int:
        """Return the number of the facts of a kernel that is called for a group."""
        own = compiled.schedule, compiled.record, fallback or self.again
        left = untouched(group.computation, compiled.sharing.updates)
        return self.facts.add(group.kind, group.members, compiled.work, *own, left)

    def call_one(
        self,
        group: Group,
        compiled: Compiled,
        name: str,
        inputs: Sequence[Instruction],
        read: Sequence[BufferSlice],
        written: Sequence[BufferSlice],
        fallback: bool = False,
    ) -> list[Thunk]:
        """Return the call of a kernel, preceded by the copies that its updates in place
        start from.
        """
        read = list(read)
        thunks: list[Thunk] = []
        for index, pack in compiled.packs.items():
            source = inputs[index]
            literal = np.asarray(source.attrs["literal"], to_numpy(source.array.dtype))
            read[index] = self.constants.add(literal, pack)
        for output, start in compiled.sharing.updates:
            thunks.append(CopyThunk(read[start], written[output], f"{name} start"))
            read[start] = written[output]
        number = self.group_facts(group, compiled, fallback)
        return [*thunks, self.call_kernel(compiled, name, read, written, number)]

    def call_kernel(
        self,
        compiled: Compiled,
        name: str,
        read: Sequence[BufferSlice],
        written: Sequence[BufferSlice],
        facts: int,
    ) -> KernelThunk:
        """Return the call of a kernel on these slices."""
        in_place = compiled.sharing.in_place if len(written) == 1 else ()
        if compiled.workspace:
            written = [*written, self.value(compiled.workspace, name)]
        args = (*read, *written)
        own = compiled.key, name, in_place, facts
        return KernelThunk(compiled.symbol, args, len(written), *own)

    def only_packed(
        self, order: Sequence[Instruction | Group], root: Instruction
    ) -> frozenset[Instruction]:
        """Return the constants that are only used in the layouts of kernels, never as they are."""
        plain, packed = {root}, set[Instruction]()
        for unit in order:
            if isinstance(unit, Instruction):
                plain.update(unit.operands)
                continue
            for kernel, inputs in kernels(self.kernel(unit), unit.inputs):
                for n, i in enumerate(inputs):
                    (packed if n in kernel.packs else plain).add(i)
        return frozenset(packed - plain)

    def instruction(
        self,
        i: Instruction,
        trees: Mapping[Instruction, Slices],
        bindings: Sequence[Slices],
        thunks: list[Thunk],
    ) -> Slices:
        operands = [trees[o] for o in i.operands]
        match i.opcode:
            case "parameter":
                return bindings[int(i.attrs["number"])]
            case "constant":
                return self.constant(i.shape, i.attrs["literal"])
            case "tuple":
                return tuple(operands)
            case "get-tuple-element":
                tree = operands[0]
                assert isinstance(tree, tuple)
                return tree[int(i.attrs["index"])]
            case "after-all":
                return ()
            case "get-dimension-size":
                return sizes_of(i.operands[0].array, operands[0])[i.attrs["dimensions"][0]]
            case "set-dimension-size":
                return resized(i, *operands)
            case "slice":
                return part_of(i, operands[0])
            case "dynamic-slice":
                return piece_of(i, operands)
            case "while":
                return self.loop(i, operands[0], thunks)
            case "conditional":
                return self.branches(i, operands, thunks)
            case "call":
                inner, root = self.run(i.attrs["to_apply"], operands)
                thunks.extend(inner)
                return root
            case opcode if definition(opcode).alias:
                return operands[0]
            case opcode if definition(opcode).is_library:
                return self.library(i, operands, thunks)
            case opcode:
                raise UnsupportedError(f"{opcode} {i.name}", "it is outside every group")

    def library(self, i: Instruction, operands: Sequence[Slices], thunks: list[Thunk]) -> Slices:
        made = self.values(i)
        read = tuple(s for tree in operands for s in leaves(tree))
        call = collective_call(i) if definition(i.opcode).collective else library_call(i)
        number = self.facts.add(i.opcode, [i], work_of(i))
        thunks.append(LibraryThunk(call, read, tuple(leaves(made)), i.name, number))
        return made

    def constant(self, shape: AnyShape, literal: object) -> Slices:
        if isinstance(literal, tuple):
            assert isinstance(shape, TupleShape)
            return tuple(map(self.constant, shape.elements, literal))
        assert isinstance(shape, Shape)
        return self.constants.add(np.asarray(literal, to_numpy(shape.dtype)))

    def loop(self, i: Instruction, start: Slices, thunks: list[Thunk]) -> Slices:
        state, trips = self.state(i, start), trip_count(i)
        for source, home in zip(leaves(start), leaves(state), strict=True):
            if source != home:
                thunks.append(CopyThunk(source, home, f"{i.name} start"))
        condition, predicate = self.run(i.attrs["condition"], [state])
        assert isinstance(predicate, BufferSlice)
        body = self.iterations(i, state, 1)
        loop = WhileThunk(tuple(condition), predicate, body, i.name, trips)
        thunks.append(self.longer(i, state, loop) if self.longer_loops else loop)
        return state

    def iterations(self, i: Instruction, state: Slices, count: int) -> tuple[Thunk, ...]:
        """Return some iterations of a loop, each of which reads what the one before has made."""
        thunks: list[Thunk] = []
        after = state
        for _ in range(count):
            body, after = self.run(i.attrs["body"], [after], repeated=True)
            thunks += body
        both = list(leaves(after)), list(leaves(state))
        return (*thunks, *self.parallel_copy(*both, f"{i.name} next"))

    def longer(self, i: Instruction, state: Slices, loop: WhileThunk) -> WhileThunk:
        """Return a loop with several iterations in its body, if that leaves less to copy.

        What an iteration makes is then where only the next one reads it, and the last one writes
        over the state.
        """
        homes, units = tuple(leaves(state)), self.units
        if not loop.trips or any(map(children, loop.body)):
            return loop
        alone = copies_left(loop, homes, self.sizes)
        each = sum(not isinstance(t, CopyThunk) for t in loop.body)
        for n in UNROLLED if alone else ():
            if loop.trips % n == 0 and each * n <= LONGEST:
                body = self.iterations(i, state, n)
                self.units = units
                made = loop._replace(body=body, trips=loop.trips // n, unrolled=n)
                if copies_left(made, homes, self.sizes) < n * alone:
                    return made
        return loop

    def state(self, i: Instruction, start: Slices) -> Slices:
        """Return where a loop's state is: what the body hands on as it is stays where it starts."""
        homes, body = self.values(i), i.attrs["body"]
        if not isinstance(homes, tuple) or not isinstance(start, tuple):
            return homes
        both = enumerate(zip(start, homes, strict=True))
        return tuple(old if hands_on(body, n) else home for n, (old, home) in both)

    def parallel_copy(
        self, sources: Sequence[BufferSlice], targets: Sequence[BufferSlice], name: str
    ) -> list[Thunk]:
        """Return copies with parallel semantics: a source that is also a target is saved to a new
        value first.
        """
        overwritten = {t.index for t in targets}
        first: list[Thunk] = []
        then: list[Thunk] = []
        for source, target in zip(sources, targets, strict=True):
            if source == target:
                continue
            if any(s.memory == "value" and s.index in overwritten for s in source.reads):
                saved = self.value(source.bytes, name)
                first.append(CopyThunk(source, saved, name))
                source = saved
            then.append(CopyThunk(source, target, name))
        return first + then

    def branches(self, i: Instruction, operands: Sequence[Slices], thunks: list[Thunk]) -> Slices:
        selector, *arguments = operands
        assert isinstance(selector, BufferSlice)
        result = self.values(i)
        done: list[tuple[Thunk, ...]] = []
        for computation, argument in zip(branch_computations(i), arguments, strict=True):
            inner, root = self.run(computation, [argument])
            for source, home in zip(leaves(root), leaves(result), strict=True):
                inner.append(CopyThunk(source, home, i.name))
            done.append(tuple(inner))
        thunks.append(ConditionalThunk(selector, tuple(done), i.name))
        return result
