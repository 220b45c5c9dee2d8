"""Built models line by line: their processors, narrow weights, C libraries, plan or HLO."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...codegen.plan.interface import CLibrary
    from ...codegen.runtime.executable import Executable


def show_built(model: str, stage: str | None, trusted: str | None, as_json: bool) -> bool:
    """Print a built model as `nestwright show` does; false, and nothing printed, for another file.

    ``ArtifactError`` for one that cannot be loaded, or does not hold the stage.
    """
    from ...codegen.driver.artifact import is_artifact, load

    if not is_artifact(model):
        return False
    exe = load(model, trusted)
    shown = stage or "plan"
    text = exe.as_text(shown)
    if as_json:
        facts = {"target": exe.bundle.target.spec, "variants": [v._asdict() for v in exe.variants]}
        click.echo(
            json.dumps({"version": 1, "model": model, **facts, "stage": shown, "text": text})
        )
        return True
    missing = exe.bundle.target.missing
    if not exe.variants:
        state = f"; this machine lacks {', '.join(missing)}" if missing else ""
        click.echo(f"built for {exe.bundle.target.spec}{state}")
    for line in variant_lines(exe):
        click.echo(line)
    click.echo(text)
    return True


def variant_lines(exe: Executable) -> Iterator[str]:
    """Yield a line for each variant: in force, could be, or what this machine lacks for it."""
    for row in exe.variants:
        fits = "in force" if row.in_force and not row.missing else "fits"
        state = f"this machine lacks {', '.join(row.missing)}" if row.missing else fits
        yield f"  variant {row.target}: {state}"


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
    return [head, *map(_weight_line, sorted(weights, key=lambda w: -w["bytes"]))]


def _weight_line(w: dict[str, Any]) -> str:
    start = f"  {w['name']} f32[{','.join(map(str, w['shape']))}]"
    if w["kept"]:
        return f"{start}: left f32, because {w['kept']}"
    errors = f"{w['max_abs_error']:.2e}, relative rms {w['relative_rms_error']:.2e}"
    return f"{start} {w['form']}: error at most {errors}"


def library_lines(made: CLibrary | None) -> list[str]:
    """Return the sizes of a library as a line of text; none without one."""
    if made is None:
        return []
    sizes = {
        "code": made.code_bytes,
        "weights": made.weights_bytes,
        "arena": made.arena_bytes,
        "an instance with its arena": made.memory_bytes,
    }
    listed = ", ".join(f"{what} {size:,} bytes" for what, size in sizes.items())
    return [f"library {made.name}: {listed}"]
