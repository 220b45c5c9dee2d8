"""Built models read from a file, without trust; ``manifest`` says what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....ir.archive import Archive, opened, parse_object
from ....ir.arrays import Bytes, aligned_zeros
from ....ir.digests import hex_digest
from ....ir.errors import ArtifactError, TargetError
from ....ir.target import Target
from ..bundle import Bundle, best, variants
from ..code.form import Codec
from ..nodes import check_buffers, kernels
from . import manifest as facts
from .encoding import from_json
from .manifest import CONSTANTS, MANIFEST, SIGNATURE
from .seal import seal_of_digests

TrustedKey: TypeAlias = str | os.PathLike[str] | bytes


def read(
    path: str | os.PathLike[str],
    codec_of: Callable[[Target], Codec],
    trusted: TrustedKey | None = None,
) -> Bundle:
    """Return the bundle in a file; ``ArtifactError`` if the file is damaged or unusable here.

    Of several variants it is the one for this processor. ``codec_of`` returns the codec of a
    target's code (``targets.registry.codec``). The constants are mapped from the file, which must
    not be written to while the bundle is used. With ``trusted``, a public key as the file or the
    text of a PEM, the file must be signed with its private key, and everything that is used of the
    file is checked against the signed digests before it is looked at.
    """
    with opened(path, "built model") as archive:
        return from_archive(archive, codec_of, trusted)[0]


def from_archive(
    archive: Archive, codec_of: Callable[[Target], Codec], trusted: TrustedKey | None = None
) -> tuple[Bundle, str]:
    """Return the bundle in an archive and its cache key; raises as ``read``."""
    where = archive.where
    head = bytes(archive.read(MANIFEST))
    if trusted is not None:
        from .signature import check

        signature = bytes(archive.read(SIGNATURE)) if SIGNATURE in archive else None
        check(head, signature, trusted, where)
    manifest = parse_object(head, MANIFEST, where)
    facts.check_kind(manifest, where)
    if manifest.get("digest") != facts.digest(manifest):
        archive.damaged("the manifest does not match its digest")
    source = _Source(archive, manifest, trusted is not None)
    targets = [_target(variant, where) for variant in facts.variants(manifest, where)]
    number = best(targets)
    found = _bundle(source, number, targets[number], codec_of(targets[number]))
    return replace(found, variants=variants(targets)), facts.text(manifest, "key", where)


class _Source:
    """An archive whose members are checked against a manifest's digests."""

    def __init__(self, archive: Archive, manifest: Mapping[str, Any], strict: bool) -> None:
        self.archive = archive
        self.manifest = manifest
        self.strict = strict
        self.where = archive.where
        self.digests = facts.texts(manifest, "sha256", archive.where)
        unknown = set(archive.names) - self.digests.keys() - {MANIFEST, SIGNATURE, CONSTANTS}
        if unknown:
            self.damaged(f"the manifest does not know {min(unknown)}")

    def damaged(self, why: str) -> NoReturn:
        self.archive.damaged(why)

    def data(self, name: str) -> bytes:
        """Return a member's bytes."""
        found = bytes(self.archive.read(name))
        if hex_digest(found) != self.digests.get(name):
            self.damaged(f"{name} does not match its digest")
        return found

    def constants(self, size: int) -> Bytes:
        """Return the constants, mapped; where that is not possible, in aligned memory."""
        found = np.frombuffer(self.archive.mapped(CONSTANTS), np.uint8)
        if found.size != size:
            self.damaged("the constants have another size")
        if found.ctypes.data % facts.ALIGNED:
            found, raw = aligned_zeros(size), found
            found[:] = raw
        known = hex_digest(found) if self.strict else facts.sums(found)
        if known != (self.digests.get(CONSTANTS) if self.strict else self.manifest.get("sums")):
            self.damaged("constants do not match their digest")
        return found


def _target(variant: Mapping[str, Any], where: str) -> Target:
    """Return the target that a variant was built for."""
    spec, recorded = facts.text(variant, "target", where), facts.text(variant, "target_key", where)
    try:
        target = Target.restored(spec, facts.texts(variant, "record", where))
    except TargetError as error:
        raise ArtifactError("the manifest is damaged", str(error), where) from error
    if target.key != recorded:
        raise ArtifactError(
            "built for another machine",
            f"it needs target {recorded}, and {target.spec!r} is {target.key} here",
            where,
            "build it here, or name the machine at build time: target='cpu -mcpu=...'",
        )
    return target


def _bundle(source: _Source, number: int, target: Target, codec: Codec) -> Bundle:
    where, place = source.where, facts.folder(number)
    variant = facts.variants(source.manifest, where)[number]
    written = source.data(f"{place}plan.json")
    plan = from_json(parse_object(written, "plan.json", where))
    members = {
        symbol: {kind: f"{place}kernels/{symbol}.{kind}" for kind in codec.pieces}
        for symbol in sorted(kernels(plan))
    }
    codes = {
        symbol: codec.join({kind: source.data(name) for kind, name in pieces.items()}, target)
        for symbol, pieces in members.items()
    }
    buffers = facts.buffers(variant, codes, where)
    check_buffers(plan, buffers)
    digests = {
        symbol: {kind: source.digests[name] for kind, name in pieces.items()}
        for symbol, pieces in members.items()
    }
    mark = seal_of_digests(written, digests, buffers)
    program = source.data(f"{place}program.o")
    if variant.get("seal") != mark.hex() or (codec.linked and mark not in program):
        source.damaged("its program and kernels were made for another plan")
    runtime = sorted(n for n in source.digests if n.startswith(f"{place}runtime/"))
    return Bundle(
        name=facts.text(source.manifest, "name", where),
        target=target,
        plan=plan,
        kernels=codes,
        buffers=buffers,
        program=program,
        runtime=tuple(map(source.data, runtime)),
        constants=source.constants(plan.constant_bytes),
        costs=facts.costs(variant, where),
        notes=facts.texts(source.manifest, "notes", where) | facts.texts(variant, "notes", where),
    )
