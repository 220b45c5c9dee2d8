"""What a built model consists of, and the one file that holds it.

The file is a zip archive without compression of its members' order or dates that could vary: the
same bundle gives the same bytes. ``manifest.json`` names the format's version, the target and what
else a reader must agree on; ``plan.json`` is the plan; ``constants`` and the object code are raw
bytes; a GPU's kernels are PTX, machine code and JSON that says how to launch them. Nothing in it is
executed but that code, which only a matching target loads.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.errors import ArtifactError
from ...ir.files import whole_file
from ...ir.target import Target
from ..code import Code, code_bytes, from_parts, kinds, parts
from ..plan import Plan, from_json, kernels, to_json
from .outputs import aligned_zeros

FORMAT = 2
_KIND = "nestwright executable"
_LARGEST = 1 << 40  # bytes of a member that is read
_JSON_LARGEST = 1 << 28
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A built model: plain data. ``kernels`` is code by symbol.

    ``costs`` are the numbers of ``cost_analysis``; ``notes`` say where it came from.
    """

    name: str
    target: Target
    plan: Plan
    kernels: Mapping[str, Code]
    program: bytes
    runtime: tuple[bytes, ...]
    constants: np.ndarray[Any, np.dtype[np.uint8]]
    costs: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def code_bytes(self) -> int:
        """Machine code of the kernels and the program; PTX where there is nothing better."""
        return len(self.program) + sum(map(code_bytes, self.kernels.values()))


def write(bundle: Bundle, path: Path, durable: bool = True) -> None:
    """Write the file; it appears whole or not at all. ``ArtifactError`` where it cannot be."""
    try:
        with whole_file(path, durable) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in _members(bundle):
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = 0o644 << 16
                with archive.open(info, "w", force_zip64=True) as member:
                    member.write(data)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error


def _members(bundle: Bundle) -> list[tuple[str, Any]]:
    members: list[tuple[str, Any]] = [
        ("plan.json", json.dumps(to_json(bundle.plan), sort_keys=True).encode()),
        ("constants", bundle.constants.data),
        ("program.o", bundle.program),
        *((f"runtime/{i}.o", code) for i, code in enumerate(bundle.runtime)),
        *(
            (f"kernels/{symbol}.{kind}", piece)
            for symbol, code in sorted(bundle.kernels.items())
            for kind, piece in parts(code).items()
        ),
    ]
    manifest = {
        "kind": _KIND,
        "format": FORMAT,
        "name": bundle.name,
        "target": bundle.target.spec,
        "target_key": bundle.target.key,
        "costs": dict(bundle.costs),
        "notes": dict(bundle.notes),
        "sha256": {name: sha256(data).hexdigest() for name, data in members},
    }
    return [("manifest.json", json.dumps(manifest, sort_keys=True, indent=1).encode()), *members]


def read(path: Path) -> Bundle:
    """The bundle in a file; ``ArtifactError`` says what is wrong with one that cannot serve."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, str(path))
    except FileNotFoundError as error:
        raise ArtifactError(f"cannot read {path}", "no such file") from error
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise ArtifactError(f"{path} is no built model", str(error) or repr(error)) from error


def _read(archive: zipfile.ZipFile, where: str) -> Bundle:
    manifest = _json(archive, "manifest.json", where)
    if manifest.get("kind") != _KIND:
        raise ArtifactError("not a built model", "the manifest is another program's", where)
    if manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"format {manifest.get('format')!r}",
            f"this version reads format {FORMAT}",
            where,
            "build the model again",
        )
    target = _matching_target(manifest, where)
    digests = manifest.get("sha256")
    if not isinstance(digests, dict):
        raise ArtifactError("the manifest is damaged", "no digests", where)

    def data(name: str) -> bytes:
        found = _member(archive, name, _LARGEST, where)
        if sha256(found).hexdigest() != digests.get(name):
            raise ArtifactError("the file is damaged", f"{name} does not match its digest", where)
        return found

    def code(symbol: str) -> Code:
        pieces = {kind: data(f"kernels/{symbol}.{kind}") for kind in kinds(target)}
        return from_parts(pieces, target)

    plan = from_json(_parse(data("plan.json"), "plan.json", where))
    constants = aligned_zeros(plan.constant_bytes)
    raw = np.frombuffer(data("constants"), np.uint8)
    if raw.size != constants.size:
        raise ArtifactError("the file is damaged", "the constants have another size", where)
    constants[:] = raw
    runtimes = sorted(n for n in digests if n.startswith("runtime/"))
    return Bundle(
        name=str(manifest.get("name", "")),
        target=target,
        plan=plan,
        kernels={symbol: code(symbol) for symbol in sorted(kernels(plan))},
        program=data("program.o"),
        runtime=tuple(map(data, runtimes)),
        constants=constants,
        costs={str(k): float(v) for k, v in dict(manifest.get("costs") or {}).items()},
        notes={str(k): str(v) for k, v in dict(manifest.get("notes") or {}).items()},
    )


def _matching_target(manifest: Mapping[str, Any], where: str) -> Target:
    """The target to run on: the recorded spec, if it means the same machine here."""
    target = Target.parse(str(manifest.get("target", "")))
    recorded = manifest.get("target_key")
    if target.key != recorded:
        raise ArtifactError(
            "built for another machine",
            f"it needs target {recorded}, and {target.spec!r} is {target.key} here",
            where,
            "build it here, or name the machine at build time: target='cpu -mcpu=...'",
        )
    return target


def _member(archive: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise ArtifactError("the file is damaged", f"{name} is missing", where) from error
    if info.file_size > limit or info.compress_type != zipfile.ZIP_STORED:
        raise ArtifactError("the file is damaged", f"{name} is too large or compressed", where)
    return archive.read(info)


def _json(archive: zipfile.ZipFile, name: str, where: str) -> dict[str, Any]:
    return _parse(_member(archive, name, _JSON_LARGEST, where), name, where)


def _parse(data: bytes, name: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError("the file is damaged", f"{name}: {error}", where) from error
    if not isinstance(value, dict):
        raise ArtifactError("the file is damaged", f"{name} is no object", where)
    return value
