"""A built model and the one file that holds it.

The file is an uncompressed zip archive whose members' order and dates are fixed: the same bundle
gives the same bytes. ``manifest.json`` names the format's version, the target, everything else that
a reader must agree on, and the digests of every member and of itself; ``plan.json`` is the plan;
``constants`` and the object code are raw bytes; a GPU's kernels are PTX, machine code and JSON with
their launch configurations. Nothing in it is executed but that code, which only a matching target
loads, and only with the plan that it was made for (``codegen.plan.seal``).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.archive import Archive, aligned_member, is_unicode, opened, parse_object
from ...ir.errors import ArtifactError
from ...ir.files import whole_file
from ...ir.target import Target
from .code import Code, Codec, code_bytes, code_pieces
from .constants import Bytes, aligned_zeros
from .nodes import Plan, check_buffers, from_json, kernels
from .notes import EXCESS_PRECISION
from .seal import plan_bytes, seal

FORMAT = 4
_KIND = "nestwright executable"
_DATE = (1980, 1, 1, 0, 0, 0)
ALIGNED = 4096
"""The alignment of the constants in a file: a page, so that they can be mapped."""
SUMS, ROW = "sums:", 512
"""The prefix of a digest of sums, and how many words of 64 bits are in one sum."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """A built model as plain data.

    ``kernels`` is code by symbol, ``buffers`` the bytes of each argument of a kernel. ``costs`` are
    the numbers of ``cost_analysis``; ``notes`` record its origin.
    """

    name: str
    target: Target
    plan: Plan
    kernels: Mapping[str, Code]
    buffers: Mapping[str, tuple[int, ...]]
    program: bytes
    runtime: tuple[bytes, ...]
    constants: np.ndarray[Any, np.dtype[np.uint8]]
    costs: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def excess_precision(self) -> bool:
        """True if narrow floats stay f32 inside of groups."""
        return self.notes.get(EXCESS_PRECISION) == "1"

    @property
    def code_bytes(self) -> int:
        """Bytes of machine code of the kernels and the program; of PTX for kernels without machine
        code.
        """
        return len(self.program) + sum(map(code_bytes, self.kernels.values()))


def write(bundle: Bundle, path: Path, durable: bool = True, key: str = "") -> None:
    """Write the file atomically. ``ArtifactError`` if it cannot be written.

    ``key`` is the cache entry that the file is for; with one, the file is readable by this user
    alone.
    """
    try:
        with whole_file(path, durable, bool(key)) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in _members(bundle, key):
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = 0o644 << 16
                if name == "constants":
                    aligned_member(info, file.tell(), ALIGNED)
                with archive.open(info, "w", force_zip64=True) as member:
                    member.write(data)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"cannot write {str(path)!r}", str(error)) from error


def _members(bundle: Bundle, key: str) -> list[tuple[str, Any]]:
    members: list[tuple[str, Any]] = [
        ("plan.json", plan_bytes(bundle.plan)),
        ("constants", bundle.constants.data),
        ("program.o", bundle.program),
        *((f"runtime/{i}.o", code) for i, code in enumerate(bundle.runtime)),
        *(
            (f"kernels/{symbol}.{kind}", piece)
            for symbol, code in sorted(bundle.kernels.items())
            for kind, piece in code_pieces(code).items()
        ),
    ]
    digests = {name: sha256(data).hexdigest() for name, data in members if name != "constants"}
    check = _sums if key else _sha256
    digests["constants"] = check(bundle.constants)
    manifest = {
        "kind": _KIND,
        "format": FORMAT,
        "name": bundle.name,
        "key": key,
        "target": bundle.target.spec,
        "target_key": bundle.target.key,
        "buffers": {symbol: list(sizes) for symbol, sizes in bundle.buffers.items()},
        "costs": dict(bundle.costs),
        "notes": dict(bundle.notes),
        "seal": seal(bundle.plan, bundle.kernels, bundle.buffers).hex(),
        "sha256": digests,
    }
    manifest["digest"] = _digest(manifest)
    return [("manifest.json", json.dumps(manifest, sort_keys=True, indent=1).encode()), *members]


def _digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's other fields."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    try:
        return sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return ""


def _sha256(data: Bytes) -> str:
    return sha256(data.data).hexdigest()


def _sums(data: Bytes) -> str:
    """Return a digest that damage changes, though not one against forgery: of sums of words.

    It takes as long as reading the memory; the files of the cache belong to the user.
    """
    whole = data.size - data.size % (8 * ROW)
    sums = data[:whole].view(np.uint64).reshape(-1, ROW).sum(axis=1, dtype=np.uint64)
    rest = data[whole:].tobytes()
    return f"{SUMS}{sha256(sums.tobytes() + rest).hexdigest()}"


def read(path: Path, codec_of: Callable[[Target], Codec]) -> Bundle:
    """Return the bundle in a file; ``ArtifactError`` if the file is damaged or unusable here.

    ``codec_of`` returns the codec of a target's code (``targets.registry.codec``).
    """
    with opened(path, "built model") as archive:
        return from_archive(archive, codec_of)[0]


def from_archive(
    archive: Archive, codec_of: Callable[[Target], Codec], mapped: bool = False
) -> tuple[Bundle, str]:
    """Return the bundle in an archive and its cache key; raises as ``read``.

    If ``mapped``, the constants are mapped from the file, which then must never be written to.
    """
    where = archive.where
    manifest = archive.json("manifest.json")
    target = _matching_target(manifest, where)
    digests = _texts(manifest, "sha256", where)
    if manifest.get("digest") != _digest(manifest):
        archive.damaged("the manifest does not match its digest")

    def data(name: str) -> bytes:
        found = bytes(archive.read(name))
        if sha256(found).hexdigest() != digests.get(name):
            archive.damaged(f"{name} does not match its digest")
        return found

    plan = from_json(parse_object(data("plan.json"), "plan.json", where))
    codec = codec_of(target)
    codes = {
        symbol: codec.join(
            {kind: data(f"kernels/{symbol}.{kind}") for kind in codec.pieces}, target
        )
        for symbol in sorted(kernels(plan))
    }
    buffers = _buffers(manifest, codes, where)
    check_buffers(plan, buffers)
    mark, program = seal(plan, codes, buffers), data("program.o")
    if manifest.get("seal") != mark.hex() or (codec.linked and mark not in program):
        archive.damaged("its program and kernels were made for another plan")
    return Bundle(
        name=_text(manifest, "name", where),
        target=target,
        plan=plan,
        kernels=codes,
        buffers=buffers,
        program=program,
        runtime=tuple(map(data, sorted(n for n in digests if n.startswith("runtime/")))),
        constants=_constants(plan, archive, digests.get("constants", ""), mapped),
        costs=_costs(manifest, where),
        notes=_texts(manifest, "notes", where),
    ), _text(manifest, "key", where)


def _constants(plan: Plan, archive: Archive, digest: str, mapped: bool) -> Bytes:
    """Return the constants, checked against their digest; aligned, if not mapped."""
    source = archive.mapped("constants") if mapped else archive.read("constants")
    found = np.frombuffer(source, np.uint8)
    if found.size != plan.constant_bytes:
        archive.damaged("the constants have another size")
    if not mapped or found.ctypes.data % ALIGNED:
        found, raw = aligned_zeros(plan.constant_bytes), found
        found[:] = raw
    check = _sums if digest.startswith(SUMS) else _sha256
    if check(found) != digest:
        archive.damaged("constants do not match their digest")
    return found


def _matching_target(manifest: Mapping[str, Any], where: str) -> Target:
    """Return the target to run on: the recorded spec, if it means the same machine here."""
    if manifest.get("kind") != _KIND:
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
    target = Target.parse(_text(manifest, "target", where))
    recorded = _text(manifest, "target_key", where)
    if target.key != recorded:
        raise ArtifactError(
            "built for another machine",
            f"it needs target {recorded}, and {target.spec!r} is {target.key} here",
            where,
            "build it here, or name the machine at build time: target='cpu -mcpu=...'",
        )
    return target


def _text(manifest: Mapping[str, Any], name: str, where: str) -> str:
    value = manifest.get(name)
    if not isinstance(value, str) or not is_unicode(value):
        raise ArtifactError("the manifest is damaged", f"no usable {name}", where)
    return value


def _texts(manifest: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    value = manifest.get(name)
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ArtifactError("the manifest is damaged", f"no usable {name}", where)
    return value


def _costs(manifest: Mapping[str, Any], where: str) -> dict[str, float]:
    value = manifest.get("costs")
    if not isinstance(value, dict) or not all(type(v) in (int, float) for v in value.values()):
        raise ArtifactError("the manifest is damaged", "no usable costs", where)
    return value


def _buffers(
    manifest: Mapping[str, Any], symbols: Iterable[str], where: str
) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each argument of the kernels in the bundle."""
    value = manifest.get("buffers")
    found = value if isinstance(value, dict) else {}
    sizes = {symbol: found.get(symbol) for symbol in symbols}
    if any(not isinstance(s, list) or any(type(n) is not int for n in s) for s in sizes.values()):
        raise ArtifactError("the manifest is damaged", "no usable buffers", where)
    return {symbol: tuple(s) for symbol, s in sizes.items() if s is not None}
