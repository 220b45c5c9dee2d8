"""A compiled kernel as its caller needs to know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.hlo.nodes import Instruction
from ...ir.hlo.ops.definition import Work
from .code.kernel import NOTHING_SHARED, Sharing
from .constants import Packer

NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as its caller sees it: symbol, key, workspace in bytes, memory that it may share.

    ``packs`` maps an input that the kernel takes in its own layout to the function that packs a
    constant into it. ``guarded`` is set where the kernel is not correct for all inputs. ``library``
    names the function that computes the group instead of the kernel; the interpreter needs its
    ``text``. ``work`` is the arithmetic of one run, ``schedule`` and ``record`` are as in
    ``plan.facts.Facts``.
    """

    symbol: str
    key: str
    workspace: int = 0
    sharing: Sharing = NOTHING_SHARED
    packs: Mapping[int, Packer] = field(default_factory=dict)
    guarded: Guarded | None = None
    library: str = ""
    text: str = ""
    work: Work = NO_WORK
    schedule: str = ""
    record: str = ""


@dataclass(frozen=True, slots=True)
class CompiledTest:
    """A predicate of the inputs with numbers ``places``, or, if ``after``, of those outputs."""

    kernel: Compiled
    places: tuple[int, ...]
    after: bool


@dataclass(frozen=True, slots=True)
class Guarded:
    """The fallback of a kernel that is not correct for all inputs.

    ``always`` computes the group correctly for any inputs. The kernel is correct if ``test`` is
    true, or, in a ``covered`` group, unless the program runs again; else it is never called.
    """

    always: Compiled
    test: CompiledTest | None
    covered: bool


def kernels(
    compiled: Compiled, inputs: Sequence[Instruction]
) -> Iterator[tuple[Compiled, Sequence[Instruction]]]:
    """Yield the kernels that a group may call, each with its inputs."""
    guarded = compiled.guarded
    if guarded is None or guarded.test is not None or guarded.covered:
        yield compiled, inputs
    if guarded is not None:
        yield guarded.always, inputs
        if guarded.test is not None and not guarded.test.after:
            yield guarded.test.kernel, [inputs[n] for n in guarded.test.places]
