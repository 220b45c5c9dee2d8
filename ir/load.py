"""A model from a file: what kind of file it is, and how it becomes an HLO module."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from .errors import ParseError, UnsupportedError, VerifyError
from .hlo.nodes import HloModule
from .hlo.text import parse
from .hlo.verify import verify

MAX_BYTES = 1 << 31  # weights belong into parameters, not into text

_KNOWN: tuple[tuple[bytes, str], ...] = (
    (b"ML\xefR", "StableHLO bytecode"),
    (b"module ", "StableHLO text"),
    (b"module{", "StableHLO text"),
    (b"#loc", "StableHLO text"),
    (b"PK\x03\x04", "a zip archive (a built model cut short? an npz file? a saved torch model?)"),
    (b"\x7fELF", "an object file"),
    (b"{", "JSON"),
)


def load_model(path: str | os.PathLike[str]) -> HloModule:
    """The module in a file of HLO text.

    Raises ``ParseError`` for a file that is missing, unreadable, too large or not HLO text (with
    line and column), ``VerifyError`` for HLO that does not hang together, ``UnsupportedError`` for
    a model in another format.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise ParseError(
                    "file too large", f"{size} bytes, at most {MAX_BYTES} are read", str(place)
                )
            data = file.read()
    except OSError as e:
        hint = "is the path right, and relative to this folder?" if not place.exists() else ""
        raise ParseError("cannot read the model", e.strerror or str(e), str(place), hint) from None
    module = parse(_text(data, place), str(place))
    try:
        verify(module)
    except VerifyError as e:
        raise replace(e, where=f"{place}: {e.where}") from None
    return module


def _text(data: bytes, place: Path) -> str:
    head = data[:4096].lstrip()
    if not head:
        raise ParseError("not a model", "the file is empty", str(place))
    for mark, kind in _KNOWN:
        if head.startswith(mark):
            raise UnsupportedError(
                "cannot read this model", f"it looks like {kind}", str(place),
                'give HLO text, e.g. jax: jit(f).lower(*args).compiler_ir("hlo").as_hlo_text()',
            )  # fmt: skip
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise ParseError(
            "not HLO text", f"byte {e.start} is not UTF-8", f"{place}:{line}",
            "a serialized HLO proto has to be converted to text",
        ) from None  # fmt: skip
