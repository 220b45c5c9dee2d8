"""A part of `main.py` under way: its rows, written as they come, its options and its clock.

Rows have a ``kind``: ``fact`` (of the machine), ``right`` (a check), ``timed`` (both clocks),
``kernel`` (one launch group, predicted and measured), ``tuned``, ``skipped`` and ``failed``.
"""

from __future__ import annotations

import json
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS = "rows.jsonl"
STAND_IN = "cuda -arch=sm_90a"  # the GPU that predictions are for where none is here


@dataclass
class Part:
    """One part's rows, options and clock."""

    name: str
    options: Namespace
    begun: float = field(default_factory=time.perf_counter)

    def write(self, kind: str, name: str, **facts: Any) -> None:
        """A row, at once."""
        row = {"kind": kind, "part": self.name, "name": name, **facts}
        with (self.options.out / ROWS).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def left(self) -> float:
        """Seconds until this part should be done."""
        return float(self.options.seconds) - (time.perf_counter() - self.begun)

    def attempt(self, name: str, action: Callable[[], object], needs: float = 3) -> None:
        """Do one thing; a failure is a row. Skipped where less than ``needs`` seconds are left."""
        if self.left() < needs:
            self.write("skipped", name, why=f"{self.left():.0f} s were left")
            return
        try:
            action()
        except MemoryError as error:
            self.write("failed", name, why=f"out of memory: {error}")
        except Exception as error:
            traceback.print_exc()
            told = str(error).split("\n")[0]
            self.write("failed", name, why=f"{type(error).__name__}: {told}"[:300])
            if type(error).__name__ == "DeviceError":
                raise  # this process cannot use the GPU any more

    @property
    def on_gpu(self) -> bool:
        """True if the parts run on a GPU rather than over its stand-in."""
        return str(self.options.target).startswith("cuda")

    def target(self, options: str = "") -> Any:
        """Return the target that workloads are built for, without GPU options on a CPU."""
        from nestwright.ir.target import Target

        spec = self.options.target
        return Target.parse(f"{spec} {options}" if options and self.on_gpu else spec)

    def predicted_target(self, options: str = "") -> Any:
        """Return the GPU that predictions are for."""
        from nestwright.ir.target import Target

        return self.target(options) if self.on_gpu else Target.parse(f"{STAND_IN} {options}")

    def ready(self, name: str, text: str, options: str = "") -> tuple[Any, float]:
        """As ``build``, out of the kit where it has what the default schedule makes for the
        target."""
        place: Path = self.options.kit / "kernels" / f"{name}.nw"
        if not self.on_gpu or self.options.log or not place.exists():
            return self.build(text, options)
        from nestwright.codegen.driver.artifact import load

        start = time.perf_counter()
        made = load(place)
        if made.bundle.target.key != self.target(options).key:
            return self.build(text, options)
        return made, time.perf_counter() - start

    def build(self, text: str, options: str = "") -> tuple[Any, float]:
        """Return the executable of HLO text under the log's schedules, and the seconds it took."""
        from nestwright.autotune.log.best import best_traces
        from nestwright.codegen.driver.build import build
        from nestwright.ir.hlo.text import parse

        target = self.target(options)
        log: Path | None = self.options.log
        schedules: Mapping[str, Any] = best_traces(log, target) if log else {}
        start = time.perf_counter()
        made = build(parse(text), target, schedules=schedules)
        return made, time.perf_counter() - start


def rows_of(place: Path) -> list[dict[str, Any]]:
    """Return the lines that were written whole."""
    rows = []
    for line in place.read_text().split("\n") if place.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
