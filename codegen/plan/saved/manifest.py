"""The manifest of a built model's file, and the digests that are in it.

The file is an uncompressed zip archive whose members' order and dates are fixed: the same bundles
give the same bytes. ``manifest.json`` names the format's version, the variants with the processor
that each needs, and the digests of every member and of itself; ``manifest.sig``, if there is one,
is its signature. ``constants`` are the raw bytes of all variants' constants. The members of the
first variant are ``plan.json``, ``program.o``, ``runtime/`` and ``kernels/``; those of the others
are in folders named by their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....ir.archive import is_unicode
from ....ir.arrays import Bytes
from ....ir.digests import hex_digest
from ....ir.errors import ArtifactError

FORMAT = 7
KIND = "nestwright executable"
MANIFEST, SIGNATURE, CONSTANTS = "manifest.json", "manifest.sig", "constants"
ALIGNED = 4096
"""The alignment of the constants in a file: a page, so that they can be mapped."""
SUMS, ROW = "sums:", 512
"""The prefix of a digest of sums, and how many words of 64 bits are in one sum."""


def folder(number: int) -> str:
    """Return what the names of a variant's members begin with."""
    return f"{number}/" if number else ""


def digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's other fields."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    try:
        return hex_digest(json.dumps(rest, sort_keys=True).encode())
    except RecursionError:
        return ""


def sums(data: Bytes) -> str:
    """Return a digest that damage changes, though not one against forgery: of sums of words.

    It takes as long as reading the memory.
    """
    whole = data.size - data.size % (8 * ROW)
    rows = data[:whole].view(np.uint64).reshape(-1, ROW).sum(axis=1, dtype=np.uint64)
    rest = data[whole:].tobytes()
    return f"{SUMS}{hex_digest(rows.tobytes() + rest)}"


def check_kind(manifest: Mapping[str, Any], where: str) -> None:
    """Raise ``ArtifactError`` for the manifest of another program or format."""
    if manifest.get("kind") != KIND:
        raise ArtifactError(
            "not a built model", "the manifest was written by another program", where
        )
    if manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"format {manifest.get('format')!r}",
            f"this version reads format {FORMAT}",
            where,
            "build the model again",
        )


def text(manifest: Mapping[str, Any], name: str, where: str) -> str:
    """Return a field that is text; ``ArtifactError`` if it is not."""
    value = manifest.get(name)
    if not isinstance(value, str) or not is_unicode(value):
        raise unusable(name, where)
    return value


def texts(manifest: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Return a field that is an object of texts; ``ArtifactError`` if it is not."""
    value = manifest.get(name)
    found: dict[str, Any] = value if isinstance(value, dict) else {name: None}
    if not all(isinstance(v, str) and is_unicode(v) for v in found.values()):
        raise unusable(name, where)
    return found


def variants(manifest: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return what is said of each variant; ``ArtifactError`` if there is none."""
    value = manifest.get("variants")
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        raise unusable("variants", where)
    return value


def costs(variant: Mapping[str, Any], where: str) -> dict[str, float]:
    """Return the numbers of ``cost_analysis``."""
    value = variant.get("costs")
    if not isinstance(value, dict) or not all(type(v) in (int, float) for v in value.values()):
        raise unusable("costs", where)
    return value


def buffers(
    variant: Mapping[str, Any], symbols: Iterable[str], where: str
) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each argument of these kernels."""
    value = variant.get("buffers")
    found = value if isinstance(value, dict) else {}
    sizes = {symbol: found.get(symbol) for symbol in symbols}
    if any(not isinstance(s, list) or any(type(n) is not int for n in s) for s in sizes.values()):
        raise unusable("buffers", where)
    return {symbol: tuple(s) for symbol, s in sizes.items() if s is not None}


def unusable(name: str, where: str) -> ArtifactError:
    """Return the error for a field that is missing or of another type."""
    return ArtifactError("the manifest is damaged", f"no usable {name}", where)
