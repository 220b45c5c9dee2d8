"""setuptools as a build backend that leaves nothing in the checkout.

It would write ``build`` and ``nestwright.egg-info`` beside the sources. A further configuration
file, which setuptools reads where DIST_EXTRA_CONFIG says, puts both into a temporary folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


@contextmanager
def _elsewhere() -> Iterator[None]:
    with TemporaryDirectory() as folder:
        config = Path(folder, "elsewhere.cfg")
        config.write_text(f"[build]\nbuild_base={folder}/build\n[egg_info]\negg_base={folder}\n")
        os.environ["DIST_EXTRA_CONFIG"] = str(config)
        try:
            yield
        finally:
            del os.environ["DIST_EXTRA_CONFIG"]


def _clean(hook: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(hook)
    def run(*args: Any, **named: Any) -> Any:
        with _elsewhere():
            return hook(*args, **named)

    return run


get_requires_for_build_editable = _clean(build_meta.get_requires_for_build_editable)
get_requires_for_build_sdist = _clean(build_meta.get_requires_for_build_sdist)
get_requires_for_build_wheel = _clean(build_meta.get_requires_for_build_wheel)
prepare_metadata_for_build_editable = _clean(build_meta.prepare_metadata_for_build_editable)
prepare_metadata_for_build_wheel = _clean(build_meta.prepare_metadata_for_build_wheel)
build_editable = _clean(build_meta.build_editable)
build_sdist = _clean(build_meta.build_sdist)
build_wheel = _clean(build_meta.build_wheel)
