"""Schedule, which rewrites a loop function by primitives, and Trace, its steps as data.

They are one file because each makes the other: ``schedule.trace`` and ``trace.replay(func)``.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...ir.errors import ArgumentError
from ...ir.html import facts, text
from ...ir.loop.nodes import Block, For, Func
from ...ir.loop.printer import show
from .. import primitives as primitives  # declares them
from .. import steps as data
from ..cursor import (
    BlockRef,
    LoopRef,
    block_of,
    blocks_under,
    consumers,
    extent_of,
    find_block,
    find_loop,
    loop_named,
    loop_of,
    named,
    nest,
    producers,
)
from ..declare import PRIMITIVES, Primitive, declared, shown
from ..errors import ScheduleError, did_you_mean
from ..holes import Choices, Hole, SampledInt, SampledStr, plain, require_holes, sampled
from ..steps import Argument, Plain, Result, Step
from .methods import Methods

Blockish: TypeAlias = BlockRef | str
Ref: TypeAlias = LoopRef | BlockRef
Given: TypeAlias = Ref | SampledInt | SampledStr

_log = logging.getLogger("nestwright.schedule")


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, in order. Loops and new blocks are named as results of steps.

    ``record`` is the id of the log's record that it is from, "" for none. ``accuracy`` is the added
    error that was allowed when it was chosen, infinite for a schedule made by hand.
    """

    steps: tuple[Step, ...] = ()
    record: str = field(default="", compare=False)
    accuracy: float = field(default=math.inf, compare=False)

    @property
    def library(self) -> str:
        """The library function that computes the group instead of a kernel; "" if none does."""
        match self.steps:
            case (Step("library", (str(name),)),):
                return name
        return ""

    def show(self) -> str:
        """Return Python code that makes the same schedule from ``sch``, one line per step."""
        return "".join(f"{shown(step)}\n" for step in self.steps)

    def to_json(self) -> list[Plain]:
        """Return the steps as JSON values: ``[name, [argument, ...], [result, ...]]`` each."""
        return data.to_json(self.steps)

    @staticmethod
    def from_json(plain: object, record: str = "", accuracy: float = math.inf) -> Trace:
        """Invert ``to_json``, and note the others; ``ScheduleError`` for any other value."""
        return Trace(data.from_json(plain), record, accuracy)

    def replay(self, func: Func, decisions: Choices | None = None) -> Schedule:
        """Return a schedule of ``func`` with every step repeated.

        ``func`` is structurally equal to the one the trace was made from. ``decisions`` fill the
        holes that they name; the others keep the trace's decisions. Raises ``ScheduleError`` if a
        step is refused or does not apply, or a decision does not name a hole.
        """
        sch = self.onto(Schedule(func, {} if decisions is None else decisions))
        sch.require_decisions()
        return sch

    def onto(self, sch: Schedule) -> Schedule:
        """Repeat every step on ``sch``, with its decisions for the holes, and return it.

        Decisions that do not name a hole so far are kept for later steps.
        """
        known: dict[str, Given] = {}
        for n, step in enumerate(self.steps):
            _repeat_step(sch, known, n, step)
        return sch


@dataclass(slots=True, eq=False)
class Schedule(Methods):
    """A function under rewriting. Every primitive is a method, checked and recorded.

    ``func`` is the current function. A primitive that is refused raises ``ScheduleError`` and
    leaves the schedule unchanged. Blocks and loops are given as references or by the names that
    ``show`` prints. ``origin`` is the original function, ``holes`` are the holes sampled so far;
    ``decisions`` fills them by name.
    """

    func: Func
    decisions: Choices = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    origin: Func = field(init=False)
    _steps: list[Step] = field(default_factory=list)
    _names: dict[Ref, str] = field(default_factory=dict)
    _given: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if not isinstance(self.func, Func):
            raise ArgumentError(
                f"a schedule of an object of type {type(self.func).__name__}",
                "what is scheduled is a loop function",
                hint="te.create_func([...]) returns one; lower(model).as_text('loop') shows those "
                "of a model",
            )
        self.origin = self.func

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(tuple(self._steps))

    def show(self) -> str:
        """Return the text of the current function."""
        return show(self.func)

    def __repr__(self) -> str:
        return f"<Schedule of {self.func.name}, steps: {len(self._steps)}>"

    def _repr_html_(self) -> str:
        loops, steps = text("loop nest", self.show()), text("trace", self.trace.show())
        return facts({"schedule of": self.func.name, "steps": len(self._steps)}) + loops + steps

    def copy(self) -> Schedule:
        """Return an independent schedule in the same state; references are valid in both."""
        made = Schedule(self.origin)
        made.become(self)
        return made

    __copy__ = copy  # one of the fields alone would share the steps

    def become(self, other: Schedule) -> None:
        """Adopt the state of another schedule, such as a copy of this one."""
        self.func, self._steps = other.func, list(other._steps)
        self._names, self._given = dict(other._names), Counter(other._given)
        self.holes, self.decisions = list(other.holes), dict(other.decisions)

    def attempt(self, steps: Callable[[Schedule], object]) -> bool:
        """Apply all ``steps``, or none of them: False if a primitive refuses one."""
        trial = self.copy()
        try:
            steps(trial)
        except ScheduleError as refusal:
            _log.debug("left as it was: %s", refusal)
            return False
        self.become(trial)
        return True

    def require_decisions(self) -> None:
        """Raise ``ScheduleError`` if a decision names no hole of the complete schedule."""
        require_holes(self.decisions, self.holes)

    def blocks(self) -> list[BlockRef]:
        """Return all blocks in program order."""
        return [BlockRef(name) for name in nest(self.func).blocks]

    def get_block(self, name: str) -> BlockRef:
        """Return the block of that name."""
        return self._block(name, f"get block `{name}`")

    def find_loop(self, name: str, block: Blockish | None = None) -> LoopRef:
        """Return the loop of that name, among those around ``block`` if given."""
        if not isinstance(name, str):
            why, hint = "a loop goes by the name that it prints by", "sch.get_loops(block) has all"
            raise ScheduleError(f"no loop {name!r:.60}", why, hint=hint)
        return loop_named(self.func, name, None if block is None else _name(block))

    def block(self, block: Blockish) -> Block:
        """Return the current node of a block."""
        ref = self._block(block, f"look at block `{_name(block)}`")
        return nest(self.func).block(ref.name)

    def loop(self, loop: LoopRef | str) -> For:
        """Return the current node of a loop."""
        ref = loop_named(self.func, loop) if isinstance(loop, str) else loop
        return loop_of(find_loop(self.func, ref, f"look at loop `{named(self.func, ref)}`"))

    def extent(self, loop: LoopRef | str) -> int:
        """Return the extent of a loop; raise ``ScheduleError`` if it is not a constant."""
        node = self.loop(loop)
        n = extent_of(node)
        if n is None:
            asked = f"get the extent of loop `{named(self.func, node)}`"
            hint = "only a constant extent can be queried"
            raise ScheduleError(asked, "it is not a constant", "", hint, self.func, (node,))
        return n

    def get_producers(self, block: Blockish) -> list[BlockRef]:
        """Return the blocks that write what this one reads, in program order."""
        ref = self._block(block, f"get the producers of block `{_name(block)}`")
        return [BlockRef(block_of(p).name) for p in producers(self.func, self.block(ref))]

    def get_consumers(self, block: Blockish) -> list[BlockRef]:
        """Return the blocks that read what this one writes, in program order."""
        ref = self._block(block, f"get the consumers of block `{_name(block)}`")
        return [BlockRef(block_of(p).name) for p in consumers(self.func, self.block(ref))]

    def perform(self, name: str, *args: object, **named: object) -> Any:
        """Check a primitive's arguments, run it, adopt its result and record the step.

        A call that changes nothing and returns no new reference is not recorded.
        """
        primitive = declared(name, f"call {name}")
        arguments = primitive.arguments(self.func, args, named)
        if primitive.hole is not None:
            return self._sample(primitive, arguments)
        func, given = primitive.run(self.func, tuple(map(plain, arguments)))
        fresh = [r for r in given if self._is_new(r)]
        if func is not self.func or fresh:
            noted = self._noted(primitive, arguments)  # before func changes
            for ref in fresh:
                self._names[ref] = self._new_name("b" if isinstance(ref, BlockRef) else "l")
            self._steps.append(Step(name, noted, tuple(self._names[r] for r in given)))
            self.func = func
        return primitive.returned(given)

    def _sample(self, primitive: Primitive, arguments: Sequence[object]) -> Any:
        """Fill a hole from ``decisions`` or by default, and record the step."""
        name = f"hole{len(self.holes)}"
        hole, decided = primitive.decided(self.func, arguments, name, self.decisions)
        taken = {n for h in self.holes for n in h.names} & {*hole.names}
        if taken:
            asked = f"sample `{min(taken)}`"
            raise ScheduleError(asked, "another hole has that name", hint="give it one of its own")
        _, values = primitive.run(self.func, tuple(map(plain, decided)))
        given = [sampled(v, self._new_name("v")) for v in values]
        results = tuple(v.result for v in given)
        self._steps.append(Step(primitive.name, self._noted(primitive, decided), results))
        self.holes.append(hole)
        return primitive.returned(given)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Return a primitive declared elsewhere as a method."""
            if name in PRIMITIVES:
                return partial(self.perform, name)
            have = [n for n in (*dir(type(self)), *PRIMITIVES) if not n.startswith("_")]
            hint = did_you_mean(name, have) or f"primitives: {', '.join(sorted(PRIMITIVES))}"
            raise AttributeError(f"a Schedule has no {name!r}; {hint}", name=name, obj=None)

    def _block(self, block: Blockish, asked: str) -> BlockRef:
        ref = BlockRef(_name(block))
        find_block(self.func, ref, asked)
        return ref

    def _is_new(self, ref: Ref) -> bool:
        """True if a reference has no name yet; a block may reuse the name of an earlier one."""
        if isinstance(ref, BlockRef) and ref.name not in nest(self.func).blocks:
            return True
        return ref not in self._names

    def _new_name(self, letter: str) -> str:
        self._given[letter] += 1
        return f"{letter}{self._given[letter] - 1}"

    def _noted(self, primitive: Primitive, arguments: Sequence[object]) -> tuple[Argument, ...]:
        """Return the arguments for a trace, without trailing ones that equal their default."""
        kept = list(zip(primitive.parameters, arguments, strict=True))
        while kept and kept[-1][0].optional and kept[-1][0].default == kept[-1][1]:
            kept.pop()
        return tuple(self._argument(a) for _, a in kept)

    def _argument(self, a: object) -> Argument:
        match a:
            case SampledInt() | SampledStr():
                return Result(a.result)
            case LoopRef(var=var):
                if a not in self._names:  # no step returned it: add one that does
                    path = nest(self.func).loops[var]
                    self.perform("get_loops", block_of(blocks_under(path)[0]).name)
                return Result(self._names[a])
            case BlockRef(name=name):
                return Result(self._names[a]) if a in self._names else name
            case tuple():
                return tuple(map(self._argument, a))
            case Enum(value=value):
                return self._argument(value)
            case None | bool() | int() | str():
                return a
            case _:
                raise TypeError(f"{a!r} cannot be recorded")


def _name(block: Blockish) -> str:
    if isinstance(block, str | BlockRef):
        return block if isinstance(block, str) else block.name
    why, hint = "a block is a name, or what a primitive returned", 'sch.get_block("C")'
    raise ScheduleError(f"no block {block!r:.60}", why, hint=hint)


def _repeat_step(sch: Schedule, known: dict[str, Given], n: int, step: Step) -> None:
    """Repeat a step of a trace, and keep its results under their names in ``known``."""
    asked = f"replay step {n}: {step.name}"
    primitive = declared(step.name, asked)
    args = tuple(_meant(asked, known, a) for a in step.arguments)
    if primitive.variadic and args:
        last = args[-1]
        args = (*args[:-1], *last) if isinstance(last, tuple) else args
    returned = sch.perform(step.name, *args)
    results = primitive.results_of(returned)
    if not step.results and all(isinstance(r, BlockRef) for r in results):
        return  # older traces do not name blocks, which have their own names there
    if len(results) != len(step.results):
        why = f"it names {len(step.results)} results, and there are {len(results)}"
        raise ScheduleError(asked, why, hint="the trace is of another function")
    for name, ref in zip(step.results, results, strict=True):
        if known.setdefault(name, ref) != ref:
            hint = "each result of a trace has a unique name"
            raise ScheduleError(asked, f"the name {name!r} is already taken", hint=hint)


def _meant(asked: str, known: dict[str, Given], a: Argument) -> object:
    match a:
        case Result(name=name):
            if name not in known:
                hint = f"so far there are {', '.join(known) or 'none'}"
                raise ScheduleError(asked, f"no earlier step returns `{name}`", hint=hint)
            return known[name]
        case tuple():
            return tuple(_meant(asked, known, x) for x in a)
        case _:
            return a
