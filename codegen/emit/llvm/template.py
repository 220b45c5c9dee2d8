"""LLVM IR written by hand: ``.ll`` files beside the modules that use them.

A template is LLVM IR except for names in ``${...}``. ``${entry.run}`` is a field's byte offset and
``${sizeof.entry}`` a structure's size, both from a ``struct_table``; the module that renders the
template gives the other names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from ....ir.errors import VerifyError

_NAME = re.compile(r"\$\{([^}]*)\}")


def render(
    package: str,
    file: str,
    tables: Iterable[Mapping[str, int]] = (),
    names: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the text of a template of a package, its names replaced.

    ``tables`` are groups of names, such as a structure's fields, of which the template uses some;
    of ``names`` it uses all. ``VerifyError`` for a name that is unknown, and for one not used.
    """
    text = source(package, file)
    used = set(_NAME.findall(text))
    known = dict(names)
    if unused := known.keys() - used:
        raise VerifyError(f"template {file}", f"it does not use {_listed(unused)}")
    for table in tables:
        if not table.keys() & used:
            raise VerifyError(f"template {file}", f"it uses none of {_listed(table)}")
        known |= table
    if unknown := used - known.keys():
        hint = f"it may use {_listed(known)}" if known else ""
        raise VerifyError(f"template {file}", f"it uses {_listed(unknown)}, not given", hint=hint)
    return _NAME.sub(lambda match: str(known[match[1]]), text)


@cache
def source(package: str, file: str) -> str:
    """Return the text of a template's file."""
    return files(package).joinpath(file).read_text(encoding="utf-8")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"${{{name}}}" for name in sorted(names))
