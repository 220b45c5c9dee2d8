"""The seal: one digest over a plan and its kernels, which proves that they belong together.

The program that runs a plan was compiled from it, and its kernels access memory as the plan lays it
out. So a saved model whose plan or kernels were changed must not run, even if each part of it is
well formed. The seal is compiled into the program, which therefore fits one plan only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ....ir.digests import hex_digest, sha256
from ..code.form import Code, code_pieces
from ..nodes import Plan
from .encoding import to_json


def plan_bytes(plan: Plan) -> bytes:
    """Return the plan as it is written to a file."""
    return json.dumps(to_json(plan), sort_keys=True).encode()


def seal(plan: Plan, kernels: Mapping[str, Code], buffers: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return the digest, 32 bytes. ``buffers`` are the bytes of each kernel's arguments."""
    pieces = {
        symbol: {kind: hex_digest(piece) for kind, piece in code_pieces(code).items()}
        for symbol, code in kernels.items()
    }
    return seal_of_digests(plan_bytes(plan), pieces, buffers)


def seal_of_digests(
    plan: bytes, pieces: Mapping[str, Mapping[str, str]], buffers: Mapping[str, tuple[int, ...]]
) -> bytes:
    """Return the seal of a plan as in a file, and kernels by the digests of their pieces."""
    digest = sha256(plan)
    for symbol, digests in sorted(pieces.items()):
        digest.update(f"\n{symbol} {list(buffers[symbol])} {dict(digests)}".encode())
    return digest.digest()
