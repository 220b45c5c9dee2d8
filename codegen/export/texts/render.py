"""Texts about a library, by jinja2 from the templates beside this file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from ....ir.dtypes import DType, to_numpy
from ...plan.bundle import Bundle
from ...plan.interface import ALIGNMENT, FUNCTIONS, STATUSES, CArray, Interface

_C_TYPES = {
    "pred": "uint8_t",
    **{f"s{bits}": f"int{max(8, bits)}_t" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{max(8, bits)}_t" for bits in (2, 4, 8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "c64": "float",
    "c128": "double",
}
"""By element type; floats that C does not have are unsigned integers of their size, a complex
number is two numbers."""

_FILES = {
    "include/{prefix}.h": "header.h.j2",
    "include/{prefix}.hpp": "wrapper.hpp.j2",
    "main.c": "main.c.j2",
    "CMakeLists.txt": "CMakeLists.txt.j2",
    "lib/cmake/{prefix}/{prefix}Config.cmake": "config.cmake.j2",
    "lib/pkgconfig/{prefix}.pc": "package.pc.j2",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a library's code, its weights, the arena, and an instance with its arena."""

    code: int
    weights: int
    arena: int
    memory: int


def texts(interface: Interface, bundle: Bundle, sizes: Sizes) -> dict[str, str]:
    """Return the texts of a library by path."""
    prefix = interface.prefix
    facts: dict[str, Any] = {
        "prefix": prefix,
        "upper": prefix.upper(),
        "model": _comment(bundle.name),
        "target": _comment(bundle.target.spec),
        "interface": interface,
        "inputs": [_facts(t) for t in interface.inputs],
        "outputs": [_facts(t) for t in interface.outputs],
        "sizes": sizes,
        "statuses": STATUSES,
        "functions": FUNCTIONS,
        "alignment": ALIGNMENT,
        "pooled": interface.threads > 1,
        "mapped": interface.weights == "file",
        "most_dims": max(
            (len(t.spec.dims) for t in interface.inputs + interface.outputs), default=0
        ),
    }
    found = _environment()
    return {
        path.format(prefix=prefix): found.get_template(file).render(facts)
        for path, file in _FILES.items()
    }


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__package__, "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _facts(tensor: CArray) -> dict[str, Any]:
    """Return what templates say about an input or output."""
    spec = tensor.spec
    return {
        "id": tensor.identifier,
        "upper": tensor.identifier.upper(),
        "name": _comment(spec.name),
        "type": c_type(spec.dtype),
        "text": _comment(str(spec)),
        "numbers": spec.bytes // spec.dtype.bytes * (2 if spec.dtype.kind == "complex" else 1),
        "bytes": spec.bytes,
        "dims": spec.dims,
        "order": spec.order,
        "is_complex": spec.dtype.kind == "complex",
        "npy": str(np.lib.format.dtype_to_descr(to_numpy(spec.dtype))),
    }


def c_type(dtype: DType) -> str:
    """Return the type of C that holds an element, or half of a complex one."""
    return _C_TYPES.get(dtype.name, f"uint{8 * dtype.bytes}_t")


def _comment(text: str) -> str:
    """Return a text as it may be in a comment: one line of ASCII that does not end it."""
    plain = re.sub(r"[^\x20-\x7e]|\\|\?", "_", text)
    return plain.replace("*/", "* /").replace("/*", "/ *")
