"""A model from a file or from another framework's object: the first row that recognizes it.

``load`` reads a path, ``imported`` any model; both return an ``Imported``.
"""

from __future__ import annotations

import os
import stat
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import hlo
from ..errors import ArgumentError, ParseError, UnsupportedError, VerifyError
from ..hlo.nodes import HloModule
from ..lazy import LazyModule
from . import registry
from .imported import Imported, check_shapes
from .registry import (
    FileFrontend,
    ObjectFrontend,
    Shapes,
    Values,
    alternatives,
    readable_files,
    reader,
)
from .signatures import HEAD, text_start

_REGIONS = LazyModule(".manual_regions", __package__)
NEWLINE = b"\n"
MAX_BYTES = 1 << 31  # weights belong into parameters, not into text


def load(
    path: str | os.PathLike[str], shapes: Shapes | None = None, values: Values | None = None
) -> Imported:
    """Return the model in a file, or folder, of any format that ``registry.FILES`` reads.

    ``shapes`` are the sizes of inputs whose sizes the model leaves open, and ``values`` those of
    inputs which will be constants, since its shapes may depend on them. Raises ``ParseError`` for
    a file that is missing, unreadable, too large or malformed (with line and column, or the byte),
    ``VerifyError`` for HLO that is not well formed, ``UnsupportedError`` for a model in another
    format, ``ArgumentError`` for shapes that the model does not take.
    """
    place = Path(path)
    row = recognized(place)
    if row.opens:
        return _checked(reader(row, shapes, values)(place), str(place), shapes)
    return read(_bytes(place), str(place), shapes)


def load_model(path: str | os.PathLike[str]) -> HloModule:
    """Return the module in a file; weights that it carries are parameters. Errors as ``load``."""
    return load(path).module


def recognized(place: Path) -> FileFrontend:
    """Return the row that reads a file or folder, by its start or else its name; errors as
    ``load``.
    """
    if "\n" in str(place):
        text = f"text that starts with {str(place).splitlines()[0][:40]!r}"
        hint = "nw.build(nw.parse(text)) builds the text of an HLO module"
        raise ParseError("a path was expected", f"this is {text}", hint=hint)
    if os.path.isdir(place):
        row = next((r for r in registry.FILES if r.folder and (place / r.folder).exists()), None)
        if row is not None:
            return _readable(row, str(place))
    return recognize(_bytes(place, HEAD), str(place))


def is_one_file(model: str | os.PathLike[str] | Imported) -> bool:
    """True for the path of a file whose bytes are all of a model; errors as ``load``."""
    return not isinstance(model, Imported) and not recognized(Path(model)).opens


def read(data: bytes, source: str, shapes: Shapes | None = None) -> Imported:
    """Return the model in the bytes of the file ``source``; errors as for ``load``.

    A format of several files cannot be read from bytes: ``UnsupportedError``.
    """
    row = recognize(data, source)
    if row.opens:
        raise UnsupportedError("cannot read this model", f"{row.name} is read by its path", source)
    content = _text(data, source) if row.text else data
    return _checked(reader(row, shapes)(content, source), source, shapes)


def read_model(data: bytes, source: str) -> HloModule:
    """Return the module in the bytes of the file ``source``; errors as for ``load``."""
    return read(data, source).module


def _checked(found: HloModule | Imported, source: str, shapes: Shapes | None) -> Imported:
    """Return what a reader returned as an ``Imported`` that is well formed, of these shapes."""
    model = found if isinstance(found, Imported) else Imported(module=found)
    if any(i.opcode == "custom-call" for i in model.module.entry.instructions):
        model = replace(model, module=_REGIONS.of_one_device(model.module))
    try:
        hlo.verify(model.module)
    except VerifyError as e:
        raise replace(e, where=f"{source}: {e.where}" if source else e.where) from None
    check_shapes(model, shapes or {})
    return model


def recognize(data: bytes, source: str) -> FileFrontend:
    """Return the row that reads some bytes: by their start, else by the ending of the name.

    What nothing recognizes is taken for the first format, whose reader says where it is malformed.
    ``ParseError`` for an empty file, ``UnsupportedError`` for a format that is not read.
    """
    if not text_start(data).strip():
        raise ParseError("not a model", "the file is empty", source)
    rows = registry.FILES
    by_content = (row for row in rows if row.recognizes(data))
    by_name = (row for row in rows if source.endswith(row.endings))
    return _readable(next(by_content, None) or next(by_name, rows[0]), source)


def _readable(row: FileFrontend, source: str) -> FileFrontend:
    if not row.read:
        hint = row.hint or f"give {readable_files()}, e.g. what {registry.FILES[0].hint} returns"
        raise UnsupportedError("cannot read this model", f"it looks like {row.name}", source, hint)
    return row


def as_model(
    model: Any, example: Any = None, shapes: Shapes | None = None, values: Values | None = None
) -> str | os.PathLike[str] | Imported:
    """Return a path as it is, anything else that is a model as an ``Imported``.

    ``example`` are the arguments to lower a function with: a tuple of arrays, of anything with
    ``shape`` and ``dtype``, or of pytrees of them. ``shapes`` and ``values`` are as for ``load``.
    ``ArgumentError`` for what is not a model, ``UnsupportedError`` for one that is not read.
    """
    if isinstance(model, str | os.PathLike):
        _check_example(model, example, takes_example=False)
        return model
    if isinstance(model, HloModule | Imported):
        _check_example(model, example, takes_example=False)
        known = Imported(module=model) if isinstance(model, HloModule) else model
        check_shapes(known, shapes or {})
        return known
    row = next((r for r in registry.OBJECTS if r.recognizes(model)), None)
    readable = [r.hint for r in registry.OBJECTS if r.read]
    hint = f"give {alternatives(['a path', 'an HloModule', *readable])}"
    if row is not None and not row.read:
        why = f"{_kind(model)} is {row.name}"
        raise UnsupportedError("cannot read this model", why, hint=row.hint or hint)
    _check_example(model, example, row is not None and row.takes_example)
    if row is None:
        raise ArgumentError("not a model", f"a {_kind(model)}", hint=hint)
    return _checked(reader(row, shapes, values)(model, example), "", shapes)


def imported(
    model: Any, example: Any = None, shapes: Shapes | None = None, values: Values | None = None
) -> Imported:
    """Return any model as an ``Imported``: a path, a module, or an object of another framework."""
    known = as_model(model, example, shapes, values)
    return known if isinstance(known, Imported) else load(known, shapes, values)


def imported_for(model: Any, shapes: Shapes, example: tuple[Any, ...]) -> Imported:
    """Return a model for inputs of these sizes, as its front-end takes them.

    A format that leaves sizes open takes ``shapes``, a function ``example``; of another model they
    have to be the sizes that it has.
    """
    row: FileFrontend | ObjectFrontend | None
    if isinstance(model, HloModule | Imported):
        return imported(model, None, shapes)
    if isinstance(model, str | os.PathLike):
        row = recognized(Path(model))
    else:
        row = next((r for r in registry.OBJECTS if r.recognizes(model)), None)
    takes_example = isinstance(row, ObjectFrontend) and row.takes_example
    if takes_example and not (row and row.sized):
        return imported(model, example)
    return imported(model, None, shapes)


def as_module(model: Any, example: Any = None) -> HloModule:
    """Return the module of a model; weights that it carries are parameters."""
    return imported(model, example).module


def _check_example(model: object, example: object, takes_example: bool) -> None:
    if example is not None and not takes_example:
        raise ArgumentError(
            "this model takes no example arguments",
            f"a {_kind(model)} has its shapes",
            hint="a function takes example arguments",
        )


def _kind(model: object) -> str:
    named = model if isinstance(model, type) else type(model)
    return f"{named.__module__}.{named.__qualname__}"


def _bytes(place: Path, most: int = -1) -> bytes:
    """Return the content of a file, or its first ``most`` bytes."""
    try:
        kind = place.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # it could not be read twice
            hint = "write the model to a file first"
            raise ParseError("cannot read the model", "it is not a regular file", str(place), hint)
        with place.open("rb") as file:
            if most >= 0:
                return file.read(most)
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ParseError(
                    "file too large", f"{size} bytes, at most {MAX_BYTES} are read", str(place)
                )
            return file.read()
    except ValueError as e:  # a NUL in the path
        raise ParseError("cannot read the model", str(e), repr(str(place))) from None
    except OSError as e:
        found = os.path.exists(place)  # False where the system takes no such name
        hint = "" if found else "is the path right, and relative to this folder?"
        raise ParseError("cannot read the model", e.strerror or str(e), str(place), hint) from None


def _text(data: bytes, source: str) -> str:
    try:
        return data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as e:
        place = f"{source}:{1 + data.count(NEWLINE, 0, e.start)}"
        binary = [row for row in registry.FILES if row.read and not row.text and row.endings]
        named = (f"{row.name} under a name that ends in {row.endings[0]}" for row in binary)
        hint = f"binary files that are read: {', '.join(named)}"
        raise ParseError(
            "not a model's text", f"byte {e.start} is not UTF-8", place, hint
        ) from None
