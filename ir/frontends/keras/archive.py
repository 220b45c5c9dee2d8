"""``.keras`` files: checked before Keras reads them, so that nothing in them is executed.

A file names the classes of its layers by module, and Keras imports these. Only Keras' own are
accepted here, none that hold Python code, and only releases of Keras whose reader stays within the
file.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import NestwrightError, ParseError, UnsupportedError
from ..imported import Imported
from ..registry import Shapes
from .model import BACKENDS, convert

LEAST = (3, 13)
"""The oldest release of Keras that files are given to."""
CONFIG = "config.json"
MOST_CONFIG = 1 << 26  # bytes
MEMBERS = frozenset({"config.json", "metadata.json", "model.weights.h5", "assets/"})
CODE = frozenset({"Lambda", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "TFSMLayer"})
"""Layers that hold code of other kinds than Keras' own."""


def read(path: Path, *, shapes: Shapes | None = None) -> Imported:
    """Return the model in a ``.keras`` file.

    ``ParseError`` for a damaged file, ``UnsupportedError`` where Keras is not installed or too old,
    and for a file with code or classes that are not Keras' own.
    """
    return convert(model_of(path), shapes=shapes)


def model_of(path: Path) -> Any:
    """Return the Keras model in a file; errors as for ``read``."""
    check(path)
    keras = _keras(str(path))
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as e:  # whatever Keras meets in the file
        told = str(e).strip().split("\n")[0]
        raise ParseError(
            "Keras cannot read the model", f"{type(e).__name__}: {told}", f"{path}"
        ) from e


def check(path: Path) -> None:
    """Raise an error unless a file's classes are all Keras' own, and none holds code."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if CONFIG not in names or archive.getinfo(CONFIG).file_size > MOST_CONFIG:
                raise ParseError("not a Keras model", f"no usable {CONFIG} is in it", str(path))
            config = json.loads(archive.read(CONFIG))
    except NestwrightError:
        raise
    except Exception as e:  # zlib, lzma and zipfile have their own, for damage and for passwords
        raise ParseError("not a Keras model", f"{type(e).__name__}: {e}", str(path)) from None
    if odd := sorted(n for n in names - MEMBERS if not n.startswith("assets/")):
        raise ParseError("not a Keras model", f"unknown member {odd[0]!r}", str(path))
    for home, name, registered in _classes(config):
        known = isinstance(name, str) and _is_own(home) and name not in CODE
        if not known or registered not in (None, name):
            asked = f"{home}.{name}" if home else str(registered or name)
            raise UnsupportedError(
                "cannot read this Keras model",
                f"it asks for {asked}, which may be any code",
                str(path),
                hint="build the model in Python: nw.lower(model, x)",
            )


def _is_own(home: object) -> bool:
    return home in (None, "builtins") or str(home).split(".")[0] == "keras"


def _classes(config: Any) -> Iterator[tuple[object, object, object]]:
    """Yield the module, name and registered name of each class that a configuration names."""
    left = [config]
    while left:
        match left.pop():
            case dict() as found:
                if "class_name" in found:
                    registered = found.get("registered_name")
                    yield found.get("module"), found["class_name"], registered
                left += found.values()
            case list() as found:
                left += found
            case _:
                pass


def settle_backend() -> None:
    """Let Keras run on a library that is installed, where the one that it would take is not.

    ``KERAS_BACKEND`` decides, then Keras' own configuration, which says TensorFlow from the start.
    """
    if "keras" in sys.modules or os.environ.get("KERAS_BACKEND"):
        return
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        wanted = json.loads((home / "keras.json").read_text())["backend"]
    except (OSError, ValueError, LookupError, TypeError):
        wanted = "tensorflow"
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    if installed and wanted not in installed:
        os.environ["KERAS_BACKEND"] = installed[0]


def _keras(source: str) -> Any:
    settle_backend()
    try:
        import keras
    except ImportError:
        raise UnsupportedError(
            "a Keras model",
            "Keras reads it, and is not installed",
            source,
            hint='pip install "nestwright[keras]"',
        ) from None
    if tuple(int(n) for n in keras.__version__.split(".")[:2]) < LEAST:
        raise UnsupportedError(
            "a Keras model",
            f"Keras {keras.__version__} may execute what a file holds, or read other files",
            source,
            hint="pip install --upgrade keras",
        )
    return keras
