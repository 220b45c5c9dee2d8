"""Content digest of a module: a hash of its text, with constants hashed by their bytes.

Printing a constant costs more than a microsecond per element, hashing its bytes next to nothing.
Metadata and source tables are not part of it, so that a model that JAX lowers from another source
line has the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np

from ..attributes import show_attribute
from ..nodes import HloModule, Instruction, Raw
from ..shape_text import show_shape
from .printer import show_operation


def digest(module: HloModule) -> bytes:
    """Return the SHA-256 of a module's computations, constants, names and header."""
    found = sha256(f"{module.name}\n".encode())
    for name, value in module.attrs.items():
        found.update(f"{show_attribute(name, value)}\n".encode())
    for c in module.computations:
        mark = "ENTRY " if c is module.entry else ""
        found.update(f"{mark}{c.name} -> {c.root.name}\n".encode())
        for i in c.instructions:
            found.update(f"{i.name} = {_text(i)}\n".encode())
            if i.opcode == "constant":
                found.update(_bytes(i.attrs["literal"]))
    return found.digest()


def literal_size(module: HloModule) -> int:
    """Return the number of elements of all constants."""
    return sum(a.size for a in _literals(module))


def literal_bytes(module: HloModule) -> int:
    """Return the bytes that all constants take in memory."""
    return sum(a.nbytes for a in _literals(module))


def _literals(module: HloModule) -> Iterator[np.ndarray[Any, Any]]:
    for c in module.computations:
        for i in c.instructions:
            if i.opcode == "constant":
                yield from _arrays(i.attrs["literal"])


def _text(i: Instruction) -> str:
    return f"{show_shape(i.shape)} constant" if i.opcode == "constant" else show_operation(i)


def _bytes(literal: object) -> bytes:
    match literal:
        case tuple():
            return b"".join(map(_bytes, literal))
        case np.ndarray():
            return np.ascontiguousarray(literal).tobytes()
        case Raw(text=text):
            return text.encode()
        case _:
            raise TypeError(f"a literal of type {type(literal).__name__}")


def _arrays(literal: object) -> Iterator[np.ndarray[Any, Any]]:
    match literal:
        case tuple():
            for part in literal:
                yield from _arrays(part)
        case np.ndarray():
            yield literal
        case _:
            pass
