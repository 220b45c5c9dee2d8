"""A model from a file or from another framework's object: how each becomes an HLO module."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ParseError, VerifyError
from ..hlo.analysis.verify import verify
from ..hlo.nodes import HloModule
from ..hlo.text import parse
from .formats import recognize

MAX_BYTES = 1 << 31  # weights belong into parameters, not into text


def load_model(path: str | os.PathLike[str]) -> HloModule:
    """The module in a file of HLO text, an HLO proto or StableHLO text.

    Raises ``ParseError`` for a file that is missing, unreadable, too large or not well formed
    (with line and column, or the byte), ``VerifyError`` for HLO that does not hang together,
    ``UnsupportedError`` for a model in another format.
    """
    place = Path(path)
    return read_model(_bytes(place), str(place))


def read_model(data: bytes, source: str) -> HloModule:
    """The module in the bytes of a file; ``source`` is the file's name. Errors as above."""
    match recognize(data, source):
        case "proto":
            from .hlo_proto import reader as protos

            module = protos.parse(data, source)
        case "stablehlo":
            from .stablehlo import reader as stablehlo

            module = stablehlo.parse(_text(data, source), source)
        case "hlo":
            module = parse(_text(data, source), source)
    try:
        verify(module)
    except VerifyError as e:
        raise replace(e, where=f"{source}: {e.where}") from None
    return module


def as_model(model: Any, example: Any = None) -> str | os.PathLike[str] | HloModule:
    """A path or a module as it is; what JAX lowered, or can lower, as a module.

    ``example`` are the arguments to lower a function with: a tuple of arrays, of anything with
    ``shape`` and ``dtype``, or of pytrees of them. ``ArgumentError`` for anything else.
    """
    if isinstance(model, str | os.PathLike | HloModule) and example is None:
        return model
    from .jax import to_module

    return to_module(model, example)


def as_module(model: Any, example: Any = None) -> HloModule:
    """The module of anything that is a model: a path, a module, an object of JAX."""
    known = as_model(model, example)
    return known if isinstance(known, HloModule) else load_model(known)


def _bytes(place: Path) -> bytes:
    try:
        with place.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ParseError(
                    "file too large", f"{size} bytes, at most {MAX_BYTES} are read", str(place)
                )
            return file.read()
    except ValueError as e:  # a NUL in the path
        raise ParseError("cannot read the model", str(e), repr(str(place))) from None
    except OSError as e:
        hint = "is the path right, and relative to this folder?" if not place.exists() else ""
        raise ParseError("cannot read the model", e.strerror or str(e), str(place), hint) from None


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise ParseError(
            "not a model's text", f"byte {e.start} is not UTF-8", f"{source}:{line}",
            "an HLO proto is read too, under a name that ends in .pb",
        ) from None  # fmt: skip
