"""The report on narrow weights: bytes, errors, and why one stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NarrowWeight:
    """The weight of the product ``name``, in ``form``, or left f32 for the reason ``kept``.

    ``before`` and ``after`` are bytes, scales included; ``largest`` is the greatest absolute error
    and ``relative`` the root mean square of the errors over that of the weights.
    """

    name: str
    dims: tuple[int, ...]
    before: int
    after: int
    largest: float = 0.0
    relative: float = 0.0
    form: str = "f32"
    kept: str = ""


def followed(
    first: Sequence[NarrowWeight], then: Sequence[NarrowWeight]
) -> tuple[NarrowWeight, ...]:
    """Return the reports of two passes: what the later one says of a weight that the first kept
    takes the place of what that said.
    """
    later = {(w.name, w.dims) for w in then}
    return (*(w for w in first if not (w.kept and (w.name, w.dims) in later)), *then)


def report_facts(form: str, weights: Sequence[NarrowWeight]) -> dict[str, object]:
    """Return the report as plain data for JSON."""
    rows = [
        {
            "name": w.name,
            "form": w.form,
            "shape": list(w.dims),
            "bytes": w.before,
            "narrow_bytes": w.after,
            "max_abs_error": w.largest,
            "relative_rms_error": w.relative,
            "kept": w.kept,
        }
        for w in weights
    ]
    return {"form": form, "weights": rows}
