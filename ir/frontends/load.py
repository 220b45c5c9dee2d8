"""A model from a file or from another framework's object: the first row that recognizes it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import hlo
from ..errors import ArgumentError, ParseError, UnsupportedError, VerifyError
from ..hlo.nodes import HloModule
from . import registry
from .registry import FileFrontend, alternatives, readable_files, reader
from .signatures import text_start

NEWLINE = b"\n"
MAX_BYTES = 1 << 31  # weights belong into parameters, not into text


def load_model(path: str | os.PathLike[str]) -> HloModule:
    """Return the module in a file of any format that ``registry.FILES`` reads.

    Raises ``ParseError`` for a file that is missing, unreadable, too large or malformed (with line
    and column, or the byte), ``VerifyError`` for HLO that is not well formed, ``UnsupportedError``
    for a model in another format.
    """
    place = Path(path)
    return read_model(_bytes(place), str(place))


def read_model(data: bytes, source: str) -> HloModule:
    """Return the module in the bytes of the file ``source``; errors as for ``load_model``."""
    row = recognize(data, source)
    content = _text(data, source) if row.text else data
    module: HloModule = reader(row)(content, source)
    try:
        hlo.verify(module)
    except VerifyError as e:
        raise replace(e, where=f"{source}: {e.where}") from None
    return module


def recognize(data: bytes, source: str) -> FileFrontend:
    """Return the row that reads some bytes: by their content, else by the ending of the name.

    What nothing recognizes is taken for the first format, whose reader says where it is malformed.
    ``ParseError`` for an empty file, ``UnsupportedError`` for a format that is not read.
    """
    if not text_start(data).strip():
        raise ParseError("not a model", "the file is empty", source)
    rows = registry.FILES
    by_content = (row for row in rows if row.recognizes(data))
    by_name = (row for row in rows if source.endswith(row.endings))
    row = next(by_content, None) or next(by_name, rows[0])
    if not row.read:
        hint = row.hint or f"give {readable_files()}, e.g. what {rows[0].hint} returns"
        raise UnsupportedError("cannot read this model", f"it looks like {row.name}", source, hint)
    return row


def as_model(model: Any, example: Any = None) -> str | os.PathLike[str] | HloModule:
    """Return a path or a module as it is, an object that ``registry.OBJECTS`` reads as a module.

    ``example`` are the arguments to lower a function with: a tuple of arrays, of anything with
    ``shape`` and ``dtype``, or of pytrees of them. ``ArgumentError`` for what is not a model,
    ``UnsupportedError`` for a model of a framework that is not read.
    """
    if isinstance(model, str | os.PathLike | HloModule):
        _check_example(model, example, takes_example=False)
        return model
    row = next((r for r in registry.OBJECTS if r.recognizes(model)), None)
    readable = [r.hint for r in registry.OBJECTS if r.read]
    hint = f"give {alternatives(['a path', 'an HloModule', *readable])}"
    if row is not None and not row.read:
        why = f"{_kind(model)} is {row.name}"
        raise UnsupportedError("cannot read this model", why, hint=row.hint or hint)
    _check_example(model, example, row is not None and row.takes_example)
    if row is None:
        raise ArgumentError("not a model", f"a {_kind(model)}", hint=hint)
    module: HloModule = reader(row)(model, example)
    hlo.verify(module)
    return module


def as_module(model: Any, example: Any = None) -> HloModule:
    """Return the module of a model: of a path, a module, or an object of another framework."""
    known = as_model(model, example)
    return known if isinstance(known, HloModule) else load_model(known)


def _check_example(model: object, example: object, takes_example: bool) -> None:
    if example is not None and not takes_example:
        raise ArgumentError("only a function takes example arguments", f"this is a {_kind(model)}")


def _kind(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


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
        place = f"{source}:{1 + data.count(NEWLINE, 0, e.start)}"
        binary = [row for row in registry.FILES if row.read and not row.text and row.endings]
        named = (f"{row.name} under a name that ends in {row.endings[0]}" for row in binary)
        hint = f"binary files that are read: {', '.join(named)}"
        raise ParseError(
            "not a model's text", f"byte {e.start} is not UTF-8", place, hint
        ) from None
