"""A report in one file: the model, its arguments, options and results, to be replayed elsewhere.

A zip archive: ``manifest.json`` (format, options, versions, machine), ``model.hlo``, and, where
there are such, ``inputs.npz``, ``constants.npz``, ``records.jsonl`` (the tuning log) and
``results.npz`` (what the machine that packed it computed). Reading executes nothing.
"""

from __future__ import annotations

import io
import json
import platform
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.archive import Archive, in_memory, is_unicode, opened
from ...ir.arrays import Array
from ...ir.dtypes import BY_NAME, from_numpy, is_numpy_dtype, to_numpy
from ...ir.errors import ArtifactError
from ...ir.files import whole_file
from ...ir.npy import read_arrays
from ...ir.target import Target

FORMAT = 1
_KIND = "nestwright replay"
_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST = 1 << 37  # bytes of a member of arrays
_TEXT_LARGEST = 1 << 31  # and of text
_PACKAGES = ("nestwright", "llvmlite", "numpy", "ml-dtypes")


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a report. ``inputs`` are the arguments' leaves, or None where ``seed`` draws
    them.

    ``target`` is a spec; ``results`` are the leaves of the result, or None where the model failed,
    with the reason in ``failure``.
    """

    name: str
    hlo: str
    target: str
    seed: int | None = None
    inputs: Sequence[Array] | None = None
    constants: Mapping[int | str, Array] = field(default_factory=dict)
    records: bytes = b""
    results: Sequence[Array] | None = None
    failure: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    excess_precision: bool = True


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape the code."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def machine(target: Target) -> dict[str, str]:
    """Return the facts about this machine that a reader needs."""
    return {"system": platform.platform(), "target_key": target.key, "threads": str(target.threads)}


def write(report: Report, path: Path) -> None:
    """Write the archive atomically. ``ArtifactError`` if it cannot be written."""
    try:
        with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in _members(report).items():
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, data)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"cannot write {str(path)!r}", str(error)) from error


def _members(report: Report) -> dict[str, bytes]:
    members = {"model.hlo": report.hlo.encode()}
    if report.inputs is not None:
        members["inputs.npz"] = _pack({str(i): a for i, a in enumerate(report.inputs)})
    if report.constants:
        members["constants.npz"] = _pack({_key(k): a for k, a in report.constants.items()})
    if report.records:
        members["records.jsonl"] = report.records
    if report.results is not None:
        members["results.npz"] = _pack({str(i): a for i, a in enumerate(report.results)})
    manifest = {
        "kind": _KIND,
        "format": FORMAT,
        "name": report.name,
        "target": report.target,
        "seed": report.seed,
        "failure": report.failure,
        "excess_precision": report.excess_precision,
        "versions": dict(report.versions),
        "machine": dict(report.machine),
        "sha256": {name: sha256(data).hexdigest() for name, data in members.items()},
    }
    return {"manifest.json": json.dumps(manifest, sort_keys=True, indent=1).encode(), **members}


def _key(name: int | str) -> str:
    return f"#{name}" if isinstance(name, int) else name


def _pack(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as .npz; each name ends in the element type, since NumPy's format lacks some of
    ours.
    """
    whole = io.BytesIO()
    stored: dict[str, Any] = {}
    for name, array in arrays.items():
        dtype = from_numpy(array.dtype)
        plain = np.ascontiguousarray(array).reshape(array.shape)
        known = is_numpy_dtype(plain.dtype)
        stored[f"{name}:{dtype}"] = plain if known else plain.view(f"u{plain.dtype.itemsize}")
    np.savez(whole, **stored)
    return whole.getvalue()


def _unpack(data: bytearray, where: str) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for full, array in read_arrays(in_memory(data, where)).items():
        name, _, kind = full.rpartition(":")
        dtype = BY_NAME.get(kind)
        wanted = None if dtype is None else to_numpy(dtype)
        if wanted is None or wanted.itemsize != array.dtype.itemsize:
            raise ArtifactError("the report is damaged", f"array {full!r} has another type", where)
        found[name] = array if array.dtype == wanted else array.view(wanted)
    return found


def is_report(path: Path) -> bool:
    """True if this file is a report."""
    try:
        with opened(path) as archive:
            return archive.json("manifest.json").get("kind") == _KIND
    except ArtifactError:
        return False


def read(path: Path) -> Report:
    """Return the report in an archive; ``ArtifactError`` if it is damaged or unusable."""
    with opened(path, "report") as archive:
        return _read(archive)


def _read(archive: Archive) -> Report:
    where = archive.where
    manifest = archive.json("manifest.json")
    if manifest.get("kind") != _KIND:
        raise ArtifactError("not a report", "the manifest was written by another program", where)
    if manifest.get("format") != FORMAT:
        why = f"this version reads format {FORMAT}"
        raise ArtifactError(f"format {manifest.get('format')!r}", why, where)
    digests = _texts(manifest, "sha256", where)

    def checked(name: str) -> bytearray | None:
        if name not in digests:
            return None
        data = archive.read(name, _LARGEST if name.endswith(".npz") else _TEXT_LARGEST)
        if sha256(data).hexdigest() != digests[name]:
            raise ArtifactError("the report is damaged", f"{name} is not as it was packed", where)
        return data

    def arrays(name: str) -> dict[str, Array] | None:
        data = checked(name)
        return None if data is None else _unpack(data, where)

    inputs, results = arrays("inputs.npz"), arrays("results.npz")
    frozen = arrays("constants.npz") or {}
    return Report(
        name=_text(manifest, "name", where),
        hlo=_decoded(checked("model.hlo"), where),
        target=_text(manifest, "target", where),
        seed=_seed(manifest, where),
        inputs=None if inputs is None else _in_order(inputs, where),
        constants={_parameter(k, where): a for k, a in frozen.items()},
        records=bytes(checked("records.jsonl") or b""),
        results=None if results is None else _in_order(results, where),
        failure=_text(manifest, "failure", where),
        versions=_texts(manifest, "versions", where),
        machine=_texts(manifest, "machine", where),
        excess_precision=_excess_precision(manifest, where),
    )


def _damaged(what: str, where: str) -> ArtifactError:
    return ArtifactError("the report is damaged", f"no usable {what}", where)


def _text(manifest: Mapping[str, Any], name: str, where: str) -> str:
    value = manifest.get(name)
    if not isinstance(value, str) or not is_unicode(value):
        raise _damaged(name, where)
    return value


def _texts(manifest: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    value = manifest.get(name)
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise _damaged(name, where)
    return value


def _seed(manifest: Mapping[str, Any], where: str) -> int | None:
    seed = manifest.get("seed")
    if seed is not None and (type(seed) is not int or seed < 0):
        raise _damaged("seed", where)
    return seed


def _excess_precision(manifest: Mapping[str, Any], where: str) -> bool:
    excess = manifest.get("excess_precision", False)  # reports without it are of strict builds
    if not isinstance(excess, bool):
        raise _damaged("excess_precision", where)
    return excess


def _decoded(data: bytearray | None, where: str) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise _damaged("model.hlo", where) from error


def _parameter(key: str, where: str) -> int | str:
    """Return a frozen parameter's number or name, as ``_key`` wrote it."""
    if not key.startswith("#"):
        return key
    if not (key[1:].isascii() and key[1:].isdecimal() and len(key) < 10):
        raise _damaged(f"parameter {key!r}", where)
    return int(key[1:])


def _in_order(arrays: Mapping[str, Array], where: str) -> list[Array]:
    names = [str(i) for i in range(len(arrays))]
    if set(names) != set(arrays):
        raise _damaged("numbers of arrays", where)
    return [arrays[name] for name in names]
