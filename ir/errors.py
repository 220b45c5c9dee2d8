"""Every error a user may meet: what was asked, why not, where, and what would work."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(eq=False)
class NestwrightError(Exception):
    """Base of all errors that are the input's fault. The command exits with ``exit_status``."""

    what: str
    why: str = ""
    where: str = ""
    hint: str = ""

    exit_status = 2

    def __reduce__(self) -> tuple[object, ...]:  # so that it crosses a process boundary
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        gap = "" if self.why.startswith("\n") else " "
        rows = [f"{head}:{gap}{self.why}" if self.why else head]
        if self.hint:
            rows.append(f"  hint: {self.hint}")
        return "\n".join(rows)


@dataclass(eq=False)
class ParseError(NestwrightError):
    """Text that cannot be read. ``where`` is ``source:line:column``; lines and columns from 1."""


@dataclass(eq=False)
class VerifyError(NestwrightError):
    """IR that is not well formed. ``where`` names the instruction, block or statement."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One instruction that cannot be compiled, why not, and what would help.

    ``source`` is ``file:line`` of the program that it came from, where that is known.
    """

    opcode: str
    name: str
    computation: str
    reason: str
    hint: str = ""
    source: str = ""

    def __str__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"{self.opcode} `{self.name}` in `{self.computation}`{place}"


@dataclass(eq=False)
class UnsupportedError(NestwrightError):
    """Valid input that this version cannot compile; ``findings`` has every offending instruction.

    The text names some of each kind, with the count of all.
    """

    findings: tuple[Finding, ...] = ()


@dataclass(eq=False)
class LimitError(NestwrightError):
    """A model that needs more than a stated limit; ``where`` is the instruction that does.

    ``asked`` and ``limit`` are numbers of what the text says: bytes, instructions, levels.
    """

    asked: int = 0
    limit: int = 0


@dataclass(eq=False)
class ArgumentError(NestwrightError):
    """A call with the wrong number, shape, dtype or kind of arguments."""


@dataclass(eq=False)
class TargetError(NestwrightError):
    """A target that does not parse, does not exist, or is not on this machine."""


@dataclass(eq=False)
class LogError(NestwrightError):
    """A tuning log that cannot be used: other version, other model, unreadable."""


@dataclass(eq=False)
class OutOfMemoryError(NestwrightError, MemoryError):
    """There is no memory for what a call makes: its results, or what lies between."""


class NestwrightWarning(UserWarning):
    """Something a user should know of that keeps nothing from working."""


@dataclass(eq=False)
class ArtifactError(NestwrightError):
    """A built model that cannot be loaded or written."""


@dataclass(eq=False)
class LibraryError(NestwrightError):
    """A function of the host that a model calls: there is none, or what it gives does not fit."""


class DeviceError(NestwrightError):
    """A GPU failed while it ran our code; ``where`` names the kernel. Its context is lost."""

    exit_status = 3


@dataclass(eq=False)
class SimulationError(NestwrightError):
    """A simulated GPU program did something undefined: a race, say. ``where`` is the kernel."""

    exit_status = 3
