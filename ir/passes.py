"""Passes and pipelines: named steps from IR to IR, and what may watch them run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Generic, Protocol, TextIO, TypeVar

from .errors import ArgumentError

IR = TypeVar("IR")
Contra = TypeVar("Contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Pass(Generic[IR]):
    """A named step. ``run`` returns the same object where it has nothing to do."""

    name: str
    run: Callable[[IR], IR]

    @property
    def summary(self) -> str:
        """The first line of the documentation of ``run``."""
        return (self.run.__doc__ or "").strip().partition("\n")[0]


class Instrument(Protocol[Contra]):
    """Watches a pipeline. ``number`` counts from 1; number 0 is the input of the pipeline."""

    def after(self, number: int, name: str, ir: Contra, changed: bool, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[IR]):
    """Passes in order."""

    passes: tuple[Pass[IR], ...]

    def __iter__(self) -> Iterator[Pass[IR]]:
        return iter(self.passes)

    def run(self, ir: IR, instruments: Sequence[Instrument[IR]] = (), stop: str = "") -> IR:
        """Every pass in order, or those up to the last one called ``stop``, that one included.

        Raises ``ArgumentError`` if ``stop`` is not the name of a pass.
        """
        for instrument in instruments:
            instrument.after(0, "input", ir, True, 0.0)
        for number, step in enumerate(self._until(stop), 1):
            start = perf_counter()
            new = step.run(ir)
            seconds = perf_counter() - start
            for instrument in instruments:
                instrument.after(number, step.name, new, new is not ir, seconds)
            ir = new
        return ir

    def _until(self, stop: str) -> tuple[Pass[IR], ...]:
        if not stop:
            return self.passes
        names = [p.name for p in self.passes]
        if stop not in names:
            known = ", ".join(dict.fromkeys(names))
            raise ArgumentError(f"no pass is called `{stop}`", hint=f"passes: {known}")
        return self.passes[: len(names) - names[::-1].index(stop)]

    def listing(self) -> str:
        """One line per pass: its number, its name and what it does."""
        width = max((len(p.name) for p in self.passes), default=0)
        rows = (f"{n:3}  {p.name:{width}}  {p.summary}" for n, p in enumerate(self.passes, 1))
        return "\n".join(rows)


def repeat(name: str, passes: Iterable[Pass[IR]], limit: int) -> Pass[IR]:
    """One pass that runs ``passes`` round after round until none changes anything.

    ``limit`` bounds the rounds: rules that undo each other cost time, never the program.
    """
    steps = tuple(passes)

    def run(ir: IR) -> IR:
        for _ in range(limit):
            before = ir
            for step in steps:
                ir = step.run(ir)
            if ir is before:
                break
        return ir

    run.__doc__ = "Repeat: " + ", ".join(p.name for p in steps) + "."
    return Pass(name, run)


@dataclass(slots=True)
class Verify(Generic[IR]):
    """Run a verifier on the input and on every changed result."""

    verify: Callable[[IR], None]

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Raises what the verifier raises, with the name of the pass as a note."""
        if changed:
            try:
                self.verify(ir)
            except Exception as error:
                error.add_note(f"found after pass {number}, {name}")
                raise


@dataclass(slots=True)
class Timing:
    """Collect ``(name, seconds, changed)`` of every pass, in order."""

    rows: list[tuple[str, float, bool]] = field(default_factory=list)

    def after(self, number: int, name: str, ir: object, changed: bool, seconds: float) -> None:
        """Keep one row; the input has none."""
        if number:
            self.rows.append((name, seconds, changed))

    @property
    def total(self) -> float:
        """Seconds of all passes together."""
        return sum(seconds for _, seconds, _ in self.rows)

    def table(self) -> str:
        """Milliseconds of each pass, and their sum."""
        rows = [f"{s * 1e3:9.2f} ms  {n}{'' if c else ' (unchanged)'}" for n, s, c in self.rows]
        return "\n".join([*rows, f"{self.total * 1e3:9.2f} ms  total"])


@dataclass(slots=True)
class Print(Generic[IR]):
    """Print the input and every changed result under a heading."""

    show: Callable[[IR], str]
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Write one stage; an unchanged one is a heading alone."""
        heading = f"// {number:02} {name}"
        text = f"{heading}\n{self.show(ir)}" if changed else f"{heading} (unchanged)"
        print(text, file=self.stream)


@dataclass(slots=True)
class Dump(Generic[IR]):
    """Write ``NN_name.suffix`` for the input and every changed result into a folder."""

    show: Callable[[IR], str]
    folder: Path
    suffix: str

    def after(self, number: int, name: str, ir: IR, changed: bool, seconds: float) -> None:
        """Write one stage; the folder is made if it is missing."""
        if changed:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{number:02}_{name}.{self.suffix}"
            path.write_text(self.show(ir), encoding="utf-8")
