"""Data in a page: JSON that no parser of HTML leaves, its reading back, and texts without paths."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

PLAIN = 700_000  # characters of JSON up to which it stands in the page as it is
_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_UNSAFE |= {0x2028: "\\u2028", 0x2029: "\\u2029"}
_ABSOLUTE = re.compile(
    r"""(?<![\w.\-/:<)\]])(?:file://)?(?:/|[A-Za-z]:\\)(?:[^\s/\\'"<>|:,;()]+[/\\])+(?=[^\s/\\'"<>|:])"""
)
_SCRIPT = re.compile(
    r'<script type="application/(?P<form>json|gzip)" id="data">(?P<text>[^<]*)</script>'
)


def embedded(value: Mapping[str, Any]) -> Markup:
    """Return data as a script element that is not run.

    JSON whose ``<``, ``>`` and ``&`` are escapes; long JSON as gzip in base64, to keep the page
    small.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)
    if len(text) <= PLAIN:
        return Markup('<script type="application/json" id="data">{}</script>').format(Markup(text))
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return Markup('<script type="application/gzip" id="data">{}</script>').format(packed)


def embedded_in(page: str) -> Any:
    """Return the data of a page; ``ValueError`` if it has none."""
    found = _SCRIPT.search(page)
    if found is None:
        raise ValueError("the page has no data")
    if found["form"] == "json":
        return json.loads(found["text"])
    return json.loads(gzip.decompress(base64.b64decode(found["text"])))


def fingerprint(script: str) -> str:
    """Return a script's source expression for a content security policy."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def without_paths(value: Any) -> Any:
    """Return plain data whose texts name files without the folders of absolute paths."""
    match value:
        case str():
            return _ABSOLUTE.sub("", value)
        case Mapping():
            return {without_paths(k): without_paths(v) for k, v in value.items()}
        case list() | tuple():
            return [without_paths(v) for v in value]
        case _:
            return value
