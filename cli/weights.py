"""The report of narrow weights as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..codegen.runtime.executable import Executable


def weight_lines(exe: Executable) -> list[str]:
    """Return a line for all narrow weights and one for each, the largest first; none without."""
    found = exe.weights_analysis()
    if not found:
        return []
    form, weights = found["form"], found["weights"]
    if not weights:
        return [f"weights {form}: none, since no product has large constant f32 weights"]
    before, after = (sum(w[size] for w in weights) for size in ("bytes", "narrow_bytes"))
    narrowed = sum(not w["kept"] for w in weights)
    head = (
        f"weights {form}: {narrowed} of {len(weights)} narrowed, "
        f"{before / 1e6:.1f} -> {after / 1e6:.1f} MB, {1 - after / before:.0%} saved"
    )
    return [head, *map(_line, sorted(weights, key=lambda w: -w["bytes"]))]


def _line(w: dict[str, Any]) -> str:
    start = f"  {w['name']} f32[{','.join(map(str, w['shape']))}]"
    if w["kept"]:
        return f"{start}: left f32, because {w['kept']}"
    errors = f"{w['max_abs_error']:.2e}, relative rms {w['relative_rms_error']:.2e}"
    return f"{start} {w['form']}: error at most {errors}"
