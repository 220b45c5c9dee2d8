"""A built model as a folder with a C library: what is in it, and how it comes to be whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ...ir.errors import ArgumentError, LimitError
from ..plan.bundle import Bundle
from ..plan.interface import (
    ALIGNMENT,
    FUNCTIONS,
    MOST_THREADS,
    CArray,
    CLibrary,
    Interface,
    Weights,
)
from ..plan.saved.seal import seal
from ..plan.signature import ArraySpec
from . import elf
from .archive import archive
from .checks import require_exportable, require_known, require_target
from .elf import Data
from .folder import MARK, write_folder
from .identifiers import identifier, identifiers, library_name
from .link import Linked, data_object, link
from .texts.render import Sizes, texts
from .weights import head as weights_head

KIND = "nestwright C library"
LARGEST_OBJECT = 1 << 30  # bytes of weights in an object: code reaches 2 GiB
FORMS = ("object", "file")


def export_c(
    bundle: Bundle, folder: Path, name: str, weights: str, threads: int | None
) -> CLibrary:
    """Write a bundle as a C library to a folder, which is replaced if it is such a library.

    ``name`` is the prefix of all symbols, by default the model's; ``weights`` "object" or "file";
    ``threads`` what an instance uses by default, and 1 leaves out the pool. Raises
    ``UnsupportedError`` for a model that needs more than its own code, ``ArgumentError`` for
    options that there are not, ``ArtifactError`` for a folder that cannot be written.
    """
    target = bundle.target
    make = require_target(target)
    require_exportable(bundle)
    interface = _interface(bundle, name, weights, threads)
    own = make(interface, target)
    linked = _linked(bundle, interface, own.code)
    require_known(linked.needed)
    plan = bundle.plan
    sizes = Sizes(linked.code_bytes, plan.constant_bytes, plan.arena_bytes, own.memory_bytes)
    files = _files(bundle, interface, linked, sizes)
    made = CLibrary(
        name=interface.prefix,
        folder=str(folder),
        files=tuple(sorted((*files, MARK))),
        code_bytes=sizes.code,
        weights_bytes=sizes.weights,
        arena_bytes=sizes.arena,
        memory_bytes=sizes.memory,
    )
    write_folder(folder, {**files, MARK: [_manifest(made, bundle).encode()]})
    return made


def _files(
    bundle: Bundle, interface: Interface, linked: Linked, sizes: Sizes
) -> dict[str, Sequence[Data]]:
    """Return the library's files by path."""
    prefix = interface.prefix
    files: dict[str, Sequence[Data]] = {
        f"lib/lib{prefix}.a": archive(f"{prefix}.o", linked.pieces, _public(interface))
    }
    files |= {path: [text.encode()] for path, text in texts(interface, bundle, sizes).items()}
    if interface.weights == "file":
        head = weights_head(bundle.constants, interface.seal)
        files[f"share/{prefix}/{prefix}.weights"] = [head, bundle.constants.data]
    return files


def _interface(bundle: Bundle, name: str, weights: str, threads: int | None) -> Interface:
    plan = bundle.plan
    if not isinstance(name, str):
        raise ArgumentError(f"name={name!r:.60}", "a library's name is text", bundle.name)
    if not isinstance(weights, str) or weights not in FORMS:
        raise ArgumentError(f"weights={weights!r}", f"one of {', '.join(FORMS)}", bundle.name)
    if threads is not None and not (type(threads) is int and 1 <= threads <= MOST_THREADS):
        raise ArgumentError(f"threads={threads!r}", f"from 1 to {MOST_THREADS}", bundle.name)
    prefix = library_name(name or bundle.name)
    if name and prefix != name:
        why = "it is not an identifier of C that can begin a library's names"
        if name == identifier(name, "model"):
            why = "the system has a library, a header or functions of that name"
        raise ArgumentError(f"name {name!r}", why, hint=f"for example {prefix!r}")
    if weights == "object" and plan.constant_bytes > LARGEST_OBJECT:
        raise LimitError(
            f"{plan.constant_bytes} bytes of weights in a library",
            f"at most {LARGEST_OBJECT}",
            hint="keep them in a file of their own: weights='file'",
            asked=plan.constant_bytes,
            limit=LARGEST_OBJECT,
        )
    form = cast(Weights, weights if plan.constant_bytes else "none")
    mark = seal(plan, bundle.kernels, bundle.buffers)
    return Interface(
        prefix=prefix,
        inputs=_tensors(plan.params, "input"),
        outputs=_tensors(plan.results, "output"),
        arena_bytes=plan.arena_bytes,
        weights_bytes=plan.constant_bytes,
        weights=form,
        threads=min(MOST_THREADS, bundle.target.threads) if threads is None else threads,
        seal=mark,
    )


def _tensors(specs: Sequence[ArraySpec], otherwise: str) -> tuple[CArray, ...]:
    found = identifiers([spec.name for spec in specs], otherwise)
    return tuple(CArray(one, spec) for one, spec in zip(found, specs, strict=True))


def _public(interface: Interface) -> tuple[str, ...]:
    """Return the symbols that programs see."""
    return tuple(f"{interface.prefix}_{function}" for function in FUNCTIONS)


def _linked(bundle: Bundle, interface: Interface, own: bytes) -> Linked:
    """Return the library's one object: its functions, the program, the kernels, the weights."""
    kernels = dict(sorted(bundle.kernels.items()))
    named = {"functions": own, "program": bundle.program, **kernels}
    objects = [elf.read(code, at) for at, code in named.items() if isinstance(code, bytes)]
    if interface.weights == "object":
        data = bundle.constants.data
        objects.append(data_object(objects[0], "nw_weights", data, ALIGNMENT))
    return link(objects, _public(interface))


def _manifest(made: CLibrary, bundle: Bundle) -> str:
    facts = {
        "kind": KIND,
        "name": made.name,
        "model": bundle.name,
        "target": bundle.target.spec,
        "files": list(made.files),
        "code_bytes": made.code_bytes,
        "weights_bytes": made.weights_bytes,
        "arena_bytes": made.arena_bytes,
        "memory_bytes": made.memory_bytes,
    }
    return json.dumps(facts, indent=1) + "\n"
