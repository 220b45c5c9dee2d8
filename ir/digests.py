"""SHA-256, without OpenSSL for little data: loading that takes as long as digesting a megabyte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from hashlib import sha256 as sha256
else:
    try:
        from _sha2 import sha256  # the interpreter's own, since 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

Data: TypeAlias = bytes | bytearray | np.ndarray[Any, np.dtype[np.uint8]]
LARGE = 1 << 20  # bytes from which OpenSSL, six times as fast, is worth its loading


def hex_digest(data: Data) -> str:
    """Return the SHA-256 of some bytes."""
    raw = memoryview(data.data if isinstance(data, np.ndarray) else data)
    if raw.nbytes < LARGE:
        return sha256(raw).hexdigest()
    import hashlib

    return hashlib.sha256(raw).hexdigest()
