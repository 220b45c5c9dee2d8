"""Signatures of manifests: Ed25519 (RFC 8032), by the package ``cryptography``.

The signature is over the bytes of ``manifest.json``, which has the digest of every member. Keys are
PEM files as ``openssl genpkey -algorithm ed25519`` writes them.
"""

from __future__ import annotations

import os
from typing import Any

from ....ir.errors import ArtifactError

SIGNATURE_BYTES = 64
LONGEST = 1 << 16  # bytes of a key's file
_DOMAIN = b"nestwright manifest\n"
"""What is signed begins with this: a signature for something else does not fit."""


def signed(manifest: bytes, key: str | os.PathLike[str]) -> bytes:
    """Return the signature of a manifest by the private key in a file.

    ``ArtifactError`` if the file is no such key.
    """
    private = _key(key, "private")
    return bytes(private.sign(_DOMAIN + manifest))


def check(
    manifest: bytes, signature: bytes | None, key: str | os.PathLike[str] | bytes, where: str
) -> None:
    """Raise ``ArtifactError`` unless a manifest was signed with the private key of ``key``.

    ``key`` is a public key in PEM, or the path of its file.
    """
    public = _key(key, "public")
    if signature is None:
        raise ArtifactError(
            "the file is not signed",
            "a trusted key was given, and only what is signed with it is loaded",
            where,
            "`nestwright build --sign KEY.pem` signs",
        )
    from cryptography.exceptions import InvalidSignature

    try:
        if len(signature) != SIGNATURE_BYTES:
            raise InvalidSignature
        public.verify(signature, _DOMAIN + manifest)
    except InvalidSignature:
        raise ArtifactError(
            "the signature does not fit",
            "it was made with another key, or the manifest was changed afterwards",
            where,
        ) from None


def _key(source: str | os.PathLike[str] | bytes, kind: str) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import (
            load_pem_private_key,
            load_pem_public_key,
        )
    except ImportError:
        raise ArtifactError(
            "signatures need the package cryptography",
            "it is not installed",
            hint="pip install 'nestwright[sign]'",
        ) from None
    data, name = _pem(source)
    try:
        if kind == "private":
            found: Any = load_pem_private_key(data, password=None)
        else:
            found = load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ArtifactError(
            f"cannot use the key {name}",
            f"it is not a {kind} key in PEM without a password: {str(error).splitlines()[0]}",
            hint=_HINTS[kind],
        ) from None
    wanted = ed25519.Ed25519PrivateKey if kind == "private" else ed25519.Ed25519PublicKey
    if not isinstance(found, wanted):
        raise ArtifactError(
            f"cannot use the key {name}", "it is not an Ed25519 key", hint=_HINTS[kind]
        )
    return found


_HINTS = {
    "private": "`openssl genpkey -algorithm ed25519 -out KEY.pem` makes one",
    "public": "`openssl pkey -in KEY.pem -pubout -out KEY.pub.pem` gives that of a private one",
}


def _pem(source: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    """Return the bytes of a key, and its name in errors."""
    if isinstance(source, bytes):
        return source, "that was given"
    try:
        with open(source, "rb") as file:
            return file.read(LONGEST), str(source)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(f"cannot read the key {source}", why) from error
