"""Every error that users can see: what failed, why, where, and what would work instead."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .findings import Finding


@dataclass(eq=False)
class NestwrightError(Exception):
    """Base class of all errors. ``what`` failed or was asked for, ``why`` not, ``where`` in the
    input, and a ``hint`` at what would work. The command exits with ``exit_status``."""

    what: str
    why: str = ""
    where: str = ""
    hint: str = ""

    exit_status = 2

    def __reduce__(self) -> tuple[object, ...]:  # pickled between processes
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        gap = "" if self.why.startswith("\n") else " "
        rows = [f"{head}:{gap}{self.why}" if self.why else head]
        if self.hint:
            rows.append(f"  hint: {self.hint}")
        return "\n".join(rows)


class ParseError(NestwrightError):
    """Text that cannot be parsed. ``where`` is ``source:line:column``, counted from 1."""


class VerifyError(NestwrightError):
    """IR that is not well formed. ``where`` names the instruction, block or statement."""


@dataclass(eq=False)
class UnsupportedError(NestwrightError):
    """Valid input that this version cannot compile. ``findings`` lists every such instruction; the
    message names some of each kind and gives the counts."""

    findings: tuple[Finding, ...] = ()


@dataclass(eq=False)
class LimitError(NestwrightError):
    """A model that exceeds a limit; ``where`` is the instruction that does.

    ``asked`` and ``limit`` are in the unit that the message names: bytes, instructions or levels.
    """

    asked: int = 0
    limit: int = 0


class ArgumentError(NestwrightError):
    """A call with the wrong number, shape, dtype or kind of arguments."""


class TargetError(NestwrightError):
    """A target that does not parse, does not exist, or is not on this machine."""


class LogError(NestwrightError):
    """A tuning log that cannot be used: other version, other model, unreadable."""


class ReportError(NestwrightError):
    """A benchmark report that cannot be read: damaged, of another version, or something else."""


class FleetError(NestwrightError):
    """Workers that cannot be reached, do not fit or have gone; what they measured is kept."""


class MeasureError(NestwrightError):
    """Measuring processes that cannot start on this machine; what was measured before is kept."""


class PlaceError(NestwrightError, IndexError):
    """A place beyond an array in a model that was built with checks; ``where`` is the line of the
    model, ``what`` the operator."""


class DivisionError(NestwrightError, ZeroDivisionError):
    """A whole number divided by 0 in a model that was built with checks, as ``PlaceError``."""


class OutOfMemoryError(NestwrightError, MemoryError):
    """A call whose results or intermediate values do not fit into memory."""


class NestwrightWarning(UserWarning):
    """A condition that users should know about but that does not prevent anything from working."""


class ArtifactError(NestwrightError):
    """A built model that cannot be loaded or written."""


class LibraryError(NestwrightError):
    """A host function called by a model is not registered, or its results do not fit the call."""


class CommunicationError(NestwrightError):
    """Processes of one program that do not fit together, or one that does not answer."""


class DeviceError(NestwrightError):
    """A GPU failed while it ran our code; ``where`` names the kernel. Its context is lost."""

    exit_status = 3


class SimulationError(NestwrightError):
    """A simulated GPU program did something undefined, such as a race. ``where`` is the kernel."""

    exit_status = 3
