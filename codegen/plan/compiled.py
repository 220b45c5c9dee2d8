"""What the caller of a group's kernel needs to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...ir.hlo.nodes import Instruction
from .code import NOTHING_SHARED, Sharing
from .constants import Bytes

Packer: TypeAlias = Callable[[np.ndarray[tuple[int, ...], np.dtype[np.generic]]], Bytes]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a kernel's caller needs to know: symbol, key, workspace in bytes, what it may share.

    ``packs`` gives, for an input that the kernel takes in a layout of its own, the bytes that it
    wants for a constant. ``guarded`` is there where the kernel is not right for all inputs.
    """

    symbol: str
    key: str
    workspace: int = 0
    sharing: Sharing = NOTHING_SHARED
    packs: Mapping[int, Packer] = field(default_factory=dict)
    guarded: Guarded | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """``always`` computes a group whatever its inputs are.

    ``test``, of the inputs of these numbers, says whether the group's own kernel does it too, or,
    if ``after``, of its outputs, whether it has done it; None where it is never called.
    """

    always: Compiled
    test: Compiled | None
    places: tuple[int, ...]
    after: bool


def kernels(
    compiled: Compiled, inputs: Sequence[Instruction]
) -> Iterator[tuple[Compiled, Sequence[Instruction]]]:
    """The kernels that a group may call, and what each takes."""
    guarded = compiled.guarded
    if guarded is None or guarded.test is not None:
        yield compiled, inputs
    if guarded is not None:
        yield guarded.always, inputs
        if guarded.test is not None and not guarded.after:
            yield guarded.test, [inputs[n] for n in guarded.places]
