"""Passes and pipelines: named steps from IR to IR, and what may watch them run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

IR = TypeVar("IR")
Contra = TypeVar("Contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Pass(Generic[IR]):
    """A named step. ``run`` returns the same object where it has nothing to do."""

    name: str
    run: Callable[[IR], IR]


class Instrument(Protocol[Contra]):
    """Watches a pipeline. ``number`` counts from 1; number 0 is the input of the pipeline."""

    def after(self, number: int, name: str, ir: Contra, changed: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[IR]):
    """Passes in order."""

    passes: tuple[Pass[IR], ...]

    def run(self, ir: IR, instruments: Sequence[Instrument[IR]] = ()) -> IR:
        """Every pass in order; the instruments see the input and each result."""
        for instrument in instruments:
            instrument.after(0, "input", ir, True)
        for number, step in enumerate(self.passes, 1):
            new = step.run(ir)
            for instrument in instruments:
                instrument.after(number, step.name, new, new is not ir)
            ir = new
        return ir


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

    return Pass(name, run)


@dataclass(frozen=True, slots=True)
class Dump(Generic[IR]):
    """Write ``NN_name.suffix`` for the input and every changed result into a folder."""

    show: Callable[[IR], str]
    folder: Path
    suffix: str

    def after(self, number: int, name: str, ir: IR, changed: bool) -> None:
        """Write one stage; the folder is made if it is missing."""
        if changed:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{number:02}_{name}.{self.suffix}"
            path.write_text(self.show(ir), encoding="utf-8")
