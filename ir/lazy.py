"""Lazy imports: names of a package, and functions of a module, imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def resolve(home: str, package: str) -> Any:
    """Import ``module:name``, the module relative to a package, and return the named object."""
    module, _, name = home.partition(":")
    return getattr(import_module(module, package), name)


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package: it imports a name when it is first asked for.

    ``homes`` gives each name its home, ``module:name`` relative to the package. For type checkers
    the package imports the same names where ``TYPE_CHECKING`` is true.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value: object = resolve(homes[name], package)
        setattr(sys.modules[package], name, value)
        return value

    return load


class LazyModule:
    """A proxy for a module of functions that imports the module when one of them is called."""

    def __init__(self, name: str, package: str) -> None:
        self._name = name
        self._package = package

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function that calls the module's function of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        found: list[Callable[..., Any]] = []

        def call(*args: Any, **named: Any) -> Any:
            if not found:
                found.append(resolve(f"{self._name}:{name}", self._package))
            return found[0](*args, **named)

        return call
