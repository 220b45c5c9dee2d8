"""Declarations of primitives: one decorated function gives method, checks, trace step and docs.

    @primitive
    def split(func: Func, loop: LoopRef, factors: tuple[int | None, ...]) -> ...:

The first parameter is the current function. The annotations of the others declare what a call
takes (see ``parameters``), and the return annotation what it returns: ``Func``, or
``tuple[Func, X]`` where ``X`` is a reference or a tuple of references, which a trace names. The
docstring becomes the method's; ``Refused:`` lists what is refused and why, ``Example:`` is an
example that ``docs/primitives.md`` shows.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from ..ir.loop.nodes import Func
from .errors import ScheduleError, did_you_mean
from .holes import Choices, Hole
from .parameters import ArgumentMismatch, Parameter, mismatch_error, type_text
from .steps import Step, argument_text

F = TypeVar("F", bound=Callable[..., object])
SECTIONS = ("Example:", "Refused:")


@dataclass(frozen=True)
class Primitive:
    """A declared primitive, by the function that does it.

    ``hole``, for a sampling primitive, takes the same arguments and returns what can be decided.
    """

    function: Callable[..., Any]
    hole: Callable[..., Hole] | None = None

    @property
    def name(self) -> str:
        """The name of the method, and of the step in a trace."""
        return self.function.__name__

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a call, from the annotations."""
        taken = list(self._signature.parameters.values())[1:]
        return tuple(_parameter(p, self._hints[p.name]) for p in taken)

    @cached_property
    def result(self) -> object:
        """The annotation of what it returns besides the function; None if nothing."""
        hint = self._hints["return"]
        return None if hint is Func else get_args(hint)[1]

    @cached_property
    def doc(self) -> str:
        """The docstring, its sections included."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function)

    @property
    def variadic(self) -> bool:
        """True if the last parameter takes any number of arguments."""
        return bool(self.parameters) and self.parameters[-1].variadic

    @property
    def gives_list(self) -> bool:
        """True if it returns any number of references."""
        return get_origin(self.result) is tuple and get_args(self.result)[-1] is Ellipsis

    @property
    def gives_several(self) -> bool:
        """True if it returns a list or a tuple of references."""
        return get_origin(self.result) is tuple

    def signature(self) -> str:
        """Return the signature of the method."""
        parameters = ", ".join(p.type_text() for p in self.parameters)
        return f"{self.name}({parameters}) -> {self.result_text()}"

    def result_text(self) -> str:
        """Return the method's return type as text."""
        if self.result is None:
            return "None"
        if not self.gives_several:
            return _name(self.result)
        items = get_args(self.result)
        if self.gives_list:
            return f"list[{_name(items[0])}]"
        return f"tuple[{', '.join(map(_name, items))}]"

    def decided(
        self, func: Func, arguments: Sequence[object], name: str, decisions: Choices
    ) -> tuple[Hole, tuple[object, ...]]:
        """Return the hole of a sampling call, and its arguments with name and decision set."""
        assert self.hole is not None
        given = dict(zip([p.name for p in self.parameters], arguments, strict=True))
        given["name"] = given["name"] or name
        hole = self.hole(func, **given)
        hole.filled(f"sample `{given['name']}`", hole.default)
        taken = [decisions.get(n, d) for n, d in zip(hole.names, hole.default, strict=True)]
        values = hole.filled(f"sample `{given['name']}`", taken)
        given["decision"] = values if self.gives_several else values[0]
        return hole, tuple(given.values())

    def arguments(
        self, func: Func, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[object, ...]:
        """Return a call's arguments, checked, one per parameter; raise ``ScheduleError`` if bad."""
        given = self._bound(args, named)
        return tuple(self._fitted(func, p, given) for p in self.parameters)

    def _bound(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(None, *args, **named)
        except TypeError as e:
            raise ScheduleError(f"call {self.name}", str(e), hint=self.signature()) from None
        return bound.arguments

    def _fitted(self, func: Func, p: Parameter, given: Mapping[str, object]) -> object:
        if p.name not in given:
            return p.default
        try:
            return p.convert(func, given[p.name])
        except ArgumentMismatch:
            call = f"call {self.name}"
            raise mismatch_error(call, self.signature(), p, given[p.name]) from None

    def run(self, func: Func, arguments: Sequence[object]) -> tuple[Func, tuple[Any, ...]]:
        """Return the rewritten function, and the references or values that the primitive gives."""
        if self.variadic:
            *first, last = arguments
            arguments = (*first, *cast("tuple[object, ...]", last))
        found = self.function(func, *arguments)
        if self.result is None:
            return found, ()
        new, given = found
        return new, tuple(given) if self.gives_several else (given,)

    def returned(self, given: Sequence[object]) -> Any:
        """Return the method's result: None, a reference, or a list or tuple of them."""
        if self.result is None:
            return None
        if not self.gives_several:
            return given[0]
        return list(given) if self.gives_list else tuple(given)

    def results_of(self, returned: Any) -> tuple[Any, ...]:
        """Return the references in the method's result."""
        if self.result is None:
            return ()
        return tuple(returned) if self.gives_several else (returned,)

    def summary(self) -> str:
        """Return the docstring without its sections."""
        return textwrap.dedent(_cut(self.doc)[""]).strip()

    def section(self, title: str) -> str:
        """Return the text below ``Example:`` or ``Refused:``; empty if there is none."""
        return textwrap.dedent(_cut(self.doc).get(title, "")).strip()


def _name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else type_text(hint)


def _cut(doc: str) -> dict[str, str]:
    """Split a docstring into sections; the first has the title ``""``."""
    found, title = {"": ""}, ""
    for line in doc.splitlines():
        if line.strip() in SECTIONS:
            title = line.strip()
            found[title] = ""
        else:
            found[title] += line + "\n"
    return found


PRIMITIVES: dict[str, Primitive] = {}


def primitive(function: F) -> F:
    """Declare a primitive, and return the function unchanged."""
    PRIMITIVES[function.__name__] = Primitive(function)
    return function


def sampling(hole: Callable[..., Hole]) -> Callable[[F], F]:
    """Declare a primitive that returns values, not references, which a tuner can decide.

    ``hole`` takes the same arguments and returns the domain of the values. Two of the parameters
    are ``name``, of the decision, and ``decision``, its value unless the schedule sets another.
    """

    def declare(function: F) -> F:
        PRIMITIVES[function.__name__] = Primitive(function, hole)
        return function

    return declare


def _parameter(p: inspect.Parameter, hint: Any) -> Parameter:
    if p.kind is inspect.Parameter.VAR_POSITIONAL:
        return Parameter(p.name, tuple[hint, ...], (), variadic=True)
    return Parameter(p.name, hint, p.default)


def declared(name: str, asked: str) -> Primitive:
    """Return the primitive of that name; raise ``ScheduleError`` if there is none."""
    found = PRIMITIVES.get(name)
    if found is None:
        hint = did_you_mean(name, PRIMITIVES) or f"primitives: {', '.join(sorted(PRIMITIVES))}"
        raise ScheduleError(asked, f"there is no primitive `{name}`", hint=hint)
    return found


def shown(step: Step) -> str:
    """Return a line of Python that repeats a step on ``sch``."""
    known = PRIMITIVES.get(step.name)
    args = step.arguments
    if known and known.variadic and args:
        last = args[-1]
        args = (*args[:-1], *last) if isinstance(last, tuple) else args
    call = f"sch.{step.name}({', '.join(map(argument_text, args))})"
    if not step.results:
        return call
    names = ", ".join(step.results)
    if len(step.results) == 1 and (known is None or known.gives_several):
        names = f"({names},)"
    return f"{names} = {call}"
