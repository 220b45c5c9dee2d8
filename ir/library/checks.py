"""Checks of values that a model makes while it runs: a custom call for those that fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NoReturn

from ..errors import DivisionError, LibraryError, NestwrightError, PlaceError
from .call import FAILED, LibraryCall


class ValueCheck(StrEnum):
    """Kinds of checks."""

    PLACE = "place"
    DIVISOR = "divisor"


_ERRORS: Mapping[str, type[NestwrightError]] = {
    ValueCheck.PLACE: PlaceError,
    ValueCheck.DIVISOR: DivisionError,
}


def description(check: ValueCheck, what: str, why: str, where: str) -> str:
    """Return the ``backend_config`` of a check: its kind, and the parts of its error."""
    return json.dumps([check, what, why, where])


def failed(call: LibraryCall) -> NoReturn:
    """Raise the error of a check that failed; ``LibraryError`` if its text is damaged."""
    try:
        kind, *parts = json.loads(call.backend_config)
        error = _ERRORS[kind](*map(str, parts))
    except (ValueError, TypeError, LookupError):
        raise LibraryError(FAILED, "its text says no error") from None
    raise error
