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
from typing import Any, TypeAlias

import numpy as np

from ...ir.dtypes import BY_NAME, from_numpy, is_numpys, to_numpy
from ...ir.errors import ArtifactError
from ...ir.files import whole_file
from ...ir.target import Target

Array: TypeAlias = np.ndarray[Any, Any]

FORMAT = 1
_KIND = "nestwright replay"
_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST = 1 << 37  # bytes of a member
_TEXT_LARGEST = 1 << 31
_PACKAGES = ("nestwright", "llvmlite", "numpy", "ml-dtypes")


@dataclass(frozen=True, eq=False)
class Report:
    """What is packed. ``inputs`` are the arguments' leaves, or None where ``seed`` draws them.

    ``target`` is a spec; ``results`` are the leaves of the answer, or None where the model failed,
    and ``failure`` says how.
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


def versions() -> dict[str, str]:
    """What shapes the code, with its version."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def machine(target: Target) -> dict[str, str]:
    """What a reader must know of this machine."""
    return {"system": platform.platform(), "target_key": target.key, "threads": str(target.threads)}


def write(report: Report, path: Path) -> None:
    """Write the archive; it appears whole or not at all. ``ArtifactError`` where it cannot be."""
    try:
        with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in _members(report).items():
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, data)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error


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
        "versions": dict(report.versions),
        "machine": dict(report.machine),
        "sha256": {name: sha256(data).hexdigest() for name, data in members.items()},
    }
    return {"manifest.json": json.dumps(manifest, sort_keys=True, indent=1).encode(), **members}


def _key(name: int | str) -> str:
    return f"#{name}" if isinstance(name, int) else name


def _pack(arrays: Mapping[str, Array]) -> bytes:
    """As .npz; each name ends in the element type, since NumPy's format lacks some of ours."""
    whole = io.BytesIO()
    stored: dict[str, Any] = {}
    for name, array in arrays.items():
        dtype = from_numpy(array.dtype)
        plain = np.ascontiguousarray(array).reshape(array.shape)
        known = is_numpys(plain.dtype)
        stored[f"{name}:{dtype}"] = plain if known else plain.view(f"u{plain.dtype.itemsize}")
    np.savez(whole, **stored)
    return whole.getvalue()


def _unpack(data: bytes) -> dict[str, Array]:
    found: dict[str, Array] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        for full in stored.files:
            name, _, dtype = full.rpartition(":")
            wanted = to_numpy(BY_NAME[dtype])
            array = np.asarray(stored[full])
            found[name] = array if array.dtype == wanted else array.view(wanted)
    return found


def is_report(path: Path) -> bool:
    """Is this file such an archive?"""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json")[:_TEXT_LARGEST])
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, RuntimeError):
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == _KIND


def read(path: Path) -> Report:
    """The report in an archive; ``ArtifactError`` says what is wrong with one that cannot serve."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, str(path))
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise ArtifactError(f"{path} is no report", str(error) or repr(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError("the report is damaged", f"{error}", str(path)) from error


def _read(archive: zipfile.ZipFile, where: str) -> Report:
    def member(name: str, limit: int = _LARGEST) -> bytes:
        if archive.getinfo(name).file_size > limit:
            raise ArtifactError("the report is damaged", f"{name} is too large", where)
        return archive.read(name)

    manifest = json.loads(member("manifest.json", _TEXT_LARGEST))
    if not isinstance(manifest, dict) or manifest.get("kind") != _KIND:
        raise ArtifactError("not a report", "the manifest is another program's", where)
    if manifest.get("format") != FORMAT:
        why = f"this version reads format {FORMAT}"
        raise ArtifactError(f"format {manifest.get('format')!r}", why, where)
    digests: dict[str, str] = dict(manifest["sha256"])

    def checked(name: str, limit: int = _LARGEST) -> bytes | None:
        if name not in digests:
            return None
        data = member(name, limit)
        if sha256(data).hexdigest() != digests[name]:
            raise ArtifactError("the report is damaged", f"{name} is not as it was packed", where)
        return data

    def arrays(name: str) -> dict[str, Array] | None:
        data = checked(name)
        return None if data is None else _unpack(data)

    inputs, results = arrays("inputs.npz"), arrays("results.npz")
    frozen = arrays("constants.npz") or {}
    seed = manifest["seed"]
    return Report(
        name=str(manifest["name"]),
        hlo=(checked("model.hlo", _TEXT_LARGEST) or b"").decode(),
        target=str(manifest["target"]),
        seed=None if seed is None else int(seed),
        inputs=None if inputs is None else _in_order(inputs),
        constants={int(k[1:]) if k.startswith("#") else k: a for k, a in frozen.items()},
        records=checked("records.jsonl", _TEXT_LARGEST) or b"",
        results=None if results is None else _in_order(results),
        failure=str(manifest["failure"]),
        versions={str(k): str(v) for k, v in dict(manifest["versions"]).items()},
        machine={str(k): str(v) for k, v in dict(manifest["machine"]).items()},
    )


def _in_order(arrays: Mapping[str, Array]) -> list[Array]:
    return [arrays[str(i)] for i in range(len(arrays))]
