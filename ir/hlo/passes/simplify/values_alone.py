"""Eigenvalues and singular values without the vectors that nothing reads.

LAPACK's routines take a third of the time without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...nodes import Computation, HloModule, Instruction, Raw
from ...rewrite import map_computations, rebuild, users, with_attrs

_NONE = ord("N")
_TARGET = re.compile(r"lapack_[sdcz](\w+)_ffi")

_VECTORS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "syevd": {"mode": (0,)},
    "heevd": {"mode": (0,)},
    "gesdd": {"mode": (2, 3)},
    "gesvd": {"mode": (2, 3)},
}
"""By routine and flag: the results, by number, that are not computed where the flag is N."""


def values_alone(module: HloModule) -> HloModule:
    """``eigh(x)`` of which only the values are read  ->  the same, told to find no vectors"""
    return map_computations(module, _changed)


def _changed(c: Computation) -> Computation:
    using = {i.name: found for i, found in users(c).items()}  # rebuilding keeps names

    def rule(i: Instruction) -> Instruction | None:
        if i.opcode != "custom-call" or i.name == c.root.name:
            return None
        read = [u for u in using[i.name] if u.opcode == "get-tuple-element"]
        whole = len(read) < len(using[i.name])
        return None if whole else _without(i, {int(u.attrs["index"]) for u in read})

    return rebuild(c, rule)


def _without(i: Instruction, read: set[int]) -> Instruction | None:
    """Return a call that does not compute vectors which are not read; None if there are none."""
    target = _TARGET.fullmatch(str(i.attrs.get("custom_call_target", "")))
    config = i.attrs.get("backend_config")
    if target is None or not isinstance(config, Raw):
        return None
    text = config.text
    for flag, results in _VECTORS.get(target[1], {}).items():
        if read.isdisjoint(results):
            text = re.sub(rf"\b{flag} = \d+", f"{flag} = {_NONE}", text)
    return None if text == config.text else with_attrs(i, backend_config=Raw(text))
