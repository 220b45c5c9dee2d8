"""Dump every stage of a model as numbered files, for `nestwright show --dump`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...ir.files import whole_file
from ...ir.hlo.analysis.verify import verify
from ...ir.hlo.layouts import entry_orders
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes import pipeline
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from ...ir.hlo.text.printer import show
from ...ir.passes import Dump, Verify
from ...schedule.language.trace import Trace
from ..plan.groups import fuse_module
from ..plan.streaming import streamed_outputs
from .group_stages import fused_text, group_stages, plan_text, titled
from .options import BuildOptions
from .pass_report import dump_lowering
from .schedules import for_groups
from .stages import optimized_module

SUFFIXES = {
    "fused": "hlo",
    "te": "txt",
    "loop": "txt",
    "scheduled": "txt",
    "flat": "txt",
    "llvm": "ll",
    "ptx": "ptx",
    "asm": "s",
    "plan": "txt",
}


def dump_stages(
    module: HloModule,
    options: BuildOptions,
    folder: Path,
    schedules: Mapping[str, Trace],
    constants: Mapping[int | str, Any] | None = None,
) -> list[Path]:
    """Write the input, each graph pass's result if it changed anything, and the later stages.

    Passes keep their number in the pipeline, stages are numbered from there. Every file is written
    as soon as it is known, so those before a failure can be inspected. What each pass of lowering
    makes of a group is in a folder ``lowering`` beside them. Raises ``OSError``,
    ``BrokenPassError`` for a pass that makes an ill-formed module, and the errors of compilation.
    """
    frozen = freeze(module, constants) if constants else module
    passes = Dump(show, folder, "hlo")
    checks = (passes, Verify(verify))
    optimized, _ = optimized_module(frozen, options, checks)
    target = options.target
    groups = fuse_module(optimized, options.excess_precision, target)
    traces = for_groups(schedules, groups.distinct)
    written = passes.written
    numbers = itertools.count(len(pipeline.PIPELINE.passes) + 1)

    def write(stage: str, text: str) -> None:
        number = next(numbers)
        path = folder / f"{number:02}_{stage}.{SUFFIXES[stage]}"
        with whole_file(path) as file:
            file.write(text.encode())
        written.append(path)

    write("fused", fused_text(groups))
    distinct = groups.distinct
    streamed = streamed_outputs(groups, target)
    steps = [
        group_stages(g, key, target, traces.get(key), streamed.get(key, ()))
        for key, g in distinct.items()
    ]
    for row in zip(*steps, strict=True):  # all groups at one stage
        parts = [
            titled(g, key, text())
            for (key, g), (_, text) in zip(distinct.items(), row, strict=True)
        ]
        write(row[0][0], "\n".join(parts))
    write("plan", plan_text(optimized, groups, target, traces, entry_orders(frozen)))
    return written + dump_lowering(groups, target, traces, folder / "lowering")
