"""Built models written to one file; ``manifest`` says what is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....ir.archive import aligned_member
from ....ir.digests import hex_digest
from ....ir.errors import ArtifactError
from ....ir.files import whole_file
from ..bundle import Bundle
from ..code.form import code_pieces
from .manifest import (
    ALIGNED,
    CONSTANTS,
    FORMAT,
    KIND,
    MANIFEST,
    SIGNATURE,
    digest,
    folder,
    sums,
)
from .seal import plan_bytes, seal

_DATE = (1980, 1, 1, 0, 0, 0)


def write(
    bundle: Bundle,
    path: Path,
    durable: bool = True,
    key: str = "",
    others: Sequence[Bundle] = (),
    sign: str | os.PathLike[str] | None = None,
) -> None:
    """Write the file atomically. ``ArtifactError`` if it cannot be written.

    ``others`` are variants for other processors, which share the bundle's constants. ``sign`` is
    the file of a private key. ``key`` is the cache entry that the file is for; with one, the file
    is readable by this user alone.
    """
    import zipfile  # only who writes needs it

    members = _members((bundle, *others), key)
    if sign is not None:
        from .signature import signed

        members.insert(1, (SIGNATURE, signed(members[0][1], sign)))
    try:
        with whole_file(path, durable, bool(key)) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in members:
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = 0o644 << 16
                if name == CONSTANTS:
                    aligned_member(info, file.tell(), ALIGNED)
                with archive.open(info, "w", force_zip64=True) as member:
                    member.write(data)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}", error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the path
        raise ArtifactError(f"cannot write {str(path)!r}", str(error)) from error


def _members(bundles: Sequence[Bundle], key: str) -> list[tuple[str, Any]]:
    constants = bundles[0].constants
    parts = [(n, each) for number, b in enumerate(bundles) for n, each in _parts(b, folder(number))]
    digests = {name: hex_digest(data) for name, data in parts}
    if not key:  # a digest for whoever asks for trust; others ask for damage
        digests[CONSTANTS] = hex_digest(constants)
    common = {
        k: v for k, v in bundles[0].notes.items() if all(b.notes.get(k) == v for b in bundles)
    }
    manifest = {
        "kind": KIND,
        "format": FORMAT,
        "name": bundles[0].name,
        "key": key,
        "variants": [_variant(b, common) for b in bundles],
        "notes": common,
        "sums": sums(constants),
        "sha256": digests,
    }
    manifest["digest"] = digest(manifest)
    head = json.dumps(manifest, sort_keys=True, indent=1).encode()
    return [(MANIFEST, head), parts[0], (CONSTANTS, constants.data), *parts[1:]]


def _parts(bundle: Bundle, place: str) -> list[tuple[str, bytes]]:
    return [
        (f"{place}plan.json", plan_bytes(bundle.plan)),
        (f"{place}program.o", bundle.program),
        *((f"{place}runtime/{i}.o", code) for i, code in enumerate(bundle.runtime)),
        *(
            (f"{place}kernels/{symbol}.{kind}", piece)
            for symbol, code in sorted(bundle.kernels.items())
            for kind, piece in code_pieces(code).items()
        ),
    ]


def _variant(bundle: Bundle, common: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "target": bundle.target.spec,
        "target_key": bundle.target.key,
        "record": bundle.target.record,
        "buffers": {symbol: list(sizes) for symbol, sizes in bundle.buffers.items()},
        "costs": dict(bundle.costs),
        "notes": {k: v for k, v in bundle.notes.items() if k not in common},
        "seal": seal(bundle.plan, bundle.kernels, bundle.buffers).hex(),
    }
