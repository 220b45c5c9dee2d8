"""Formats by their bytes: predicates on the first bytes of a file, ``HEAD`` or more."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import TypeAlias

Predicate: TypeAlias = Callable[[bytes], bool]

HEAD = 4096
SAFETENSORS_HEADER = 100_000_000  # bytes, at most, by the format's own limit
_COMMENTS = re.compile(rb"(?:\s+|//[^\n]*\n|/\*.*?\*/)+", re.S)
STABLEHLO = rb'module\b|"?builtin\.module|"?func\.func|[#!][\w.\-]+ *=|\{-#|"?(?:stablehlo|mhlo)\.'

MLIR_BYTECODE = b"ML\xefR"
PORTABLE = re.compile(MLIR_BYTECODE + rb".StableHLO_v", re.S)
"""Bytecode, the version of its format, and what a portable artifact says wrote it."""


def text_start(data: bytes) -> bytes:
    """Return the first bytes of a text, without the space and comments before them.

    Nor a byte order mark, which editors on Windows write.
    """
    head = data[:HEAD].removeprefix(BOM_UTF8)
    start = _COMMENTS.match(head)
    return head[start.end() :] if start else head


def text_matches(pattern: bytes) -> Predicate:
    """Return a predicate: true if a regular expression matches at the start of the text."""
    compiled = re.compile(pattern)
    return lambda data: compiled.match(text_start(data)) is not None


def starts_with(*marks: bytes) -> Predicate:
    """Return a predicate: true for data that starts with one of the marks."""
    return lambda data: data.startswith(marks)


def is_hlo_proto(data: bytes) -> bool:
    """True if the bytes start like an HLO module's proto, or like one that wraps it.

    The first field is the name of a module, or a message whose first field is.
    """
    at = 0
    for _ in range(3):
        if len(data) < at + 2 or data[at] != 0x0A:
            return False
        at += 2
        while at < len(data) and data[at - 1] > 127:
            at += 1
        name = data[at : at + data[at - 1]]
        if data[at - 1] <= 127 and name and all(32 < c < 127 for c in name):
            return True
    return False


def is_serialized_export(data: bytes) -> bool:
    """True for a flatbuffer around StableHLO bytecode, as ``jax.export`` serializes functions."""
    root = int.from_bytes(data[:4], "little")
    return 4 <= root < HEAD and PORTABLE.search(data[root:HEAD]) is not None


def is_exported_program(data: bytes) -> bool:
    """True for what ``torch.export.save`` wrote."""
    parts = (b"/data/weights/", b"/data/constants/", b"/models/", b"/archive_format")
    return data.startswith(b"PK\x03\x04") and any(part in data[:HEAD] for part in parts)


def is_torch_archive(data: bytes) -> bool:
    """True for what ``torch.save`` wrote."""
    zipped = data.startswith(b"PK\x03\x04")
    return zipped and any(part in data[:HEAD] for part in (b"/data.pkl", b"/version"))


def is_keras(data: bytes) -> bool:
    """True for what Keras 3 writes: a zip archive that begins with its metadata."""
    return data.startswith(b"PK\x03\x04") and b"metadata.json" in data[:HEAD]


def is_onnx(data: bytes) -> bool:
    """True for an ONNX model that names ONNX near its start, as its producers do."""
    return data.startswith(b"\x08") and b"onnx" in data[:HEAD].lower()


def never(data: bytes) -> bool:
    """False: a format of folders."""
    return False


def is_tflite(data: bytes) -> bool:
    """True for a TensorFlow Lite model."""
    return data[4:8] == b"TFL3"


def is_safetensors(data: bytes) -> bool:
    """True for a safetensors file: the length of a header, and a JSON object."""
    return data[8:10] == b'{"' and int.from_bytes(data[:8], "little") <= SAFETENSORS_HEADER
