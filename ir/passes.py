"""Passes and pipelines: named steps from IR to IR, and what may watch them run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from .errors import ArgumentError, VerifyError
from .files import whole_file

IR = TypeVar("IR")
Contra = TypeVar("Contra", contravariant=True)
VERIFY = "NESTWRIGHT_VERIFY"
"""The environment variable that asks for checks of what passes establish.

``1`` checks after every pass, ``stages`` where a stage ends, ``0`` or nothing not at all.
"""


@dataclass(frozen=True, slots=True)
class Invariant(Generic[IR]):
    """A rule of a stage. ``broken`` returns the offender in words, or an empty text.

    ``since`` returns the same of an IR and of one before it that keeps the rule: it need not look
    at what the two share.
    """

    says: str
    broken: Callable[[IR], str]
    since: Callable[[IR, IR], str] | None = None


@dataclass(frozen=True, slots=True)
class LegalIR(Generic[IR]):
    """A stage between passes: its name, and all rules that its IR keeps."""

    name: str
    rules: tuple[Invariant[IR], ...]

    def then(self, name: str, *more: Invariant[IR]) -> LegalIR[IR]:
        """Return a later stage, which keeps these rules and more."""
        return LegalIR(name, (*self.rules, *more))


@dataclass(frozen=True, slots=True)
class Pass(Generic[IR]):
    """A named step. ``run`` returns the same object where it has nothing to do.

    ``then`` says what holds once it has run, ``reaches`` is the stage that begins with it, if any.
    ``steps`` are those inside a pass that repeats others.
    """

    name: str
    run: Callable[[IR], IR]
    then: str = ""
    reaches: LegalIR[IR] | None = None
    steps: tuple[Pass[IR], ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the steps inside."""
        return tuple(step.name for step in self.steps)


class Instrument(Protocol[Contra]):
    """Watches a pipeline. ``number`` counts from 1; number 0 is the input of the pipeline.

    ``seconds`` are those of the pass alone, 0 for the input.
    """

    def after(self, number: int, name: str, ir: Contra, changed: bool, seconds: float) -> None:
        """See the result of pass ``number``, called ``name``."""


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[IR]):
    """Passes in order."""

    passes: tuple[Pass[IR], ...]

    def named(self) -> dict[str, Pass[IR]]:
        """Return every pass by its name, those inside of others included."""
        found: dict[str, Pass[IR]] = {}
        waiting = list(self.passes)
        while waiting:
            step = waiting.pop(0)
            found.setdefault(step.name, step)
            waiting += step.steps
        return found

    def run(self, ir: IR, instruments: Sequence[Instrument[IR]] = ()) -> IR:
        """Run every pass in order; the instruments see the input and each result."""
        for instrument in instruments:
            instrument.after(0, "input", ir, True, 0.0)
        for number, step in enumerate(self.passes, 1):
            start = perf_counter()
            new = step.run(ir)
            seconds = perf_counter() - start
            for instrument in instruments:
                instrument.after(number, step.name, new, new is not ir, seconds)
            ir = new
        return ir

    def checked(
        self, ir: IR, legal: LegalIR[IR], title: str, instruments: Sequence[Instrument[IR]] = ()
    ) -> IR:
        """Run every pass, and check as ``VERIFY`` asks; for the rest see ``Established``."""
        asked = os.environ.get(VERIFY, "0")
        if asked in ("", "0"):
            return self.run(ir, instruments)
        if asked not in ("1", "stages"):
            raise ArgumentError(f"{VERIFY}={asked!r}", "it must be 0, 1 or stages")
        checks = Established(self.passes, legal, title, asked != "stages")
        try:
            ir = self.run(ir, (*instruments, checks))
        except BrokenPassError:
            raise
        except Exception:
            checks.settle()  # a pass may fail on what one before it broke
            raise
        checks.settle()
        return ir


def repeat(name: str, passes: Iterable[Pass[IR]], limit: int, then: str = "") -> Pass[IR]:
    """Return one pass that runs ``passes`` in turn, until each has found nothing to change.

    ``limit`` bounds the rounds: rules that undo each other cost time, never the program.
    """
    steps = tuple(passes)

    def run(ir: IR) -> IR:
        idle = 0  # steps since the last one that changed something
        for step in islice(cycle(steps), limit * len(steps)):
            before, ir = ir, step.run(ir)
            idle = idle + 1 if ir is before else 0
            if idle == len(steps):
                break
        return ir

    return Pass(name, run, then, steps=steps)


@dataclass(frozen=True, slots=True)
class Ran:
    """The effect of one pass; ``size`` is that of its result, in the unit the pipeline counts."""

    number: int
    name: str
    changed: bool
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Timing(Generic[IR]):
    """Keep one row per pass, the input's first."""

    size: Callable[[IR], int]
    rows: list[Ran] = field(default_factory=list)

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Add a row."""
        self.rows.append(Ran(number, name, changed, self.size(ir), seconds))


class BrokenPassError(Exception):
    """A pass made IR that is not well formed: a fault of the compiler, never of its input."""


@dataclass(frozen=True, slots=True)
class Verify(Generic[IR]):
    """Run a verifier on every changed result; the input is the caller's to verify."""

    verify: Callable[[IR], None]

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Raises ``BrokenPassError``, which names the pass and says what the verifier found."""
        if number and changed:
            try:
                self.verify(ir)
            except VerifyError as error:
                raise BrokenPassError(
                    f"pass {number}, {name}, broke the program: {error}"
                ) from error


@dataclass(slots=True)
class Established(Generic[IR]):
    """Check the rules of each stage: of every result in it if ``each``, else of the last.

    If the last breaks one, those before it are looked at until the pass that broke it is found.
    ``legal`` is the stage of the input; ``title`` begins what is told of a broken rule.
    """

    passes: Sequence[Pass[IR]]
    legal: LegalIR[IR]
    title: str
    each: bool = True
    _waiting: list[tuple[int, str, IR]] = field(default_factory=list)  # of this stage
    _kept: dict[Invariant[IR], IR] = field(default_factory=dict)  # the last IR that kept each

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Take a result; raises as ``settle`` does, which is due where a stage ends."""
        reached = self.passes[number - 1].reaches if number else self.legal
        if reached is not None:
            self.settle()
            self.legal = reached
        if changed or reached is not None:
            self._waiting.append((number, name, ir))
            if self.each:
                self.settle()

    def settle(self) -> None:
        """Raise ``BrokenPassError``, which names pass, stage, rule and offender, if one broke."""
        if self._waiting and self._broken(self._waiting[-1][2]):
            for number, name, ir in self._waiting:
                if found := self._broken(ir):
                    rule, offender = found
                    raise BrokenPassError(
                        f"{self.title}: after pass {number}, {name}, {offender} breaks a rule of "
                        f"stage {self.legal.name}: {rule.says}"
                    )
        self._waiting.clear()

    def _broken(self, ir: IR) -> tuple[Invariant[IR], str] | None:
        """Return the first rule that an IR breaks, and the offender."""
        for rule in self.legal.rules:
            if offender := self._offender(rule, ir):
                return rule, offender
            self._kept[rule] = ir
        return None

    def _offender(self, rule: Invariant[IR], ir: IR) -> str:
        before = self._kept.get(rule)
        if before is ir:
            return ""
        if before is None or rule.since is None:
            return rule.broken(ir)
        return rule.since(ir, before)


@dataclass(frozen=True, slots=True)
class Dump(Generic[IR]):
    """Write ``NN_name.suffix`` for the input and every changed result into a folder."""

    show: Callable[[IR], str]
    folder: Path
    suffix: str
    written: list[Path] = field(default_factory=list)

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Write one stage; the folder is made if it is missing. Raises ``OSError``."""
        if changed:
            path = self.folder / f"{number:02}_{name}.{self.suffix}"
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(self.show(ir).encode())
            self.written.append(path)
