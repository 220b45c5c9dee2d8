"""What kind of model some bytes are: by their content, by the file's name where that helps."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from ..errors import ParseError, UnsupportedError
from .hlo_proto.reader import is_proto

Format: TypeAlias = Literal["hlo", "proto", "stablehlo"]

HEAD = 4096
PROTO_ENDINGS = (".pb", ".hlo_pb", ".hlo_proto", ".binpb")

_COMMENTS = re.compile(rb"(?:\s+|//[^\n]*\n|/\*.*?\*/)+", re.S)
_STABLEHLO = re.compile(
    rb'module\b|"?builtin\.module|"?func\.func|[#!][\w.\-]+ *=|\{-#|"?(?:stablehlo|mhlo)\.'
)

_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"ML\xefR", "StableHLO bytecode", "give StableHLO text: print the module, e.g. with "
     "`jax.export.deserialize(data).mlir_module()`"),
    (b"\x7fELF", "an object file", ""),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"BZh", "a bzip2 archive", "unpack it first"),
    (b"\xfd7zXZ", "an xz archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first"),
    (b"\x89HDF", "an HDF5 file (Keras weights?)", ""),
    (b"\x93NUMPY", "a NumPy array", "arrays are inputs, not models"),
    (b"\x80\x04", "a Python pickle", "pickles are never read; export the model"),
    (b"\x80\x02", "a Python pickle", "pickles are never read; export the model"),
    (b"BC\xc0\xde", "LLVM bitcode", ""),
    (b"; ModuleID", "LLVM IR", ""),
    (b"{", "JSON", ""),
)  # fmt: skip
_TEXT_WANTED = 'give HLO text, e.g. jax: jit(f).lower(*args).as_text("hlo"), or an HLO proto'


def recognize(data: bytes, name: str) -> Format:
    """The format of a model that can be read.

    ``name`` is the file's, for errors and for endings. ``ParseError`` for no model at all,
    ``UnsupportedError`` for a model in a format that is not read, by its name.
    """
    head = data[:HEAD]
    start = _COMMENTS.match(head)
    text = head[start.end() :] if start else head
    if not text.strip():
        raise ParseError("not a model", "the file is empty", name)
    if text.startswith(b"HloModule"):
        return "hlo"
    if _STABLEHLO.match(text):
        return "stablehlo"
    if (other := _other(data, name)) is not None:
        kind, hint = other
        raise UnsupportedError(
            "cannot read this model", f"it looks like {kind}", name, hint or _TEXT_WANTED
        )
    if is_proto(data) or name.endswith(PROTO_ENDINGS):
        return "proto"
    return "stablehlo" if name.endswith(".mlir") else "hlo"


def _other(data: bytes, name: str) -> tuple[str, str] | None:
    """What a file is that is not a model of ours, and what to do."""
    for mark, kind, hint in _OTHERS:
        if data.startswith(mark):
            return kind, hint
    if data.startswith(b"PK\x03\x04"):
        if b"/data.pkl" in data[:HEAD] or b"/version" in data[:HEAD]:
            return "a saved torch model", "export it to StableHLO, e.g. with torchax"
        return "a zip archive (a built model cut short? an npz file? a saved torch model?)", ""
    if data[4:8] == b"TFL3":
        return "a TensorFlow Lite model", ""
    if name.endswith(".onnx") or (data.startswith(b"\x08") and b"onnx" in data[:HEAD].lower()):
        return "an ONNX model", "ONNX is not read"
    if data[8:10] == b'{"' and int.from_bytes(data[:8], "little") < len(data):
        return "a safetensors file", "arrays are constants, not models"
    return None
