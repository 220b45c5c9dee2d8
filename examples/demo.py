"""Tunes and benchmarks convnet.hlo, checks its numbers, and says where the report lies.

Run by ``make demo``. Everything it uses is public: the command line does the same, step by step.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import nestwright as nw
from nestwright.cli.bench import print_report
from nestwright.cli.live import Display

HERE = Path(__file__).parent
REPORT = HERE.parent / "report"
TRIALS = 96


def main() -> int:
    """0 when the tuned model gives the numbers that JAX gave."""
    start = time.perf_counter()
    REPORT.mkdir(exist_ok=True)
    model, log = HERE / "convnet.hlo", REPORT / "convnet.jsonl"
    with np.load(HERE / "convnet.npz") as data:
        arguments = [data[f"arg{i}"] for i in range(len(data.files))]
    with np.load(HERE / "convnet.expected.npz") as data:
        expected = data["out0"]
    weights = dict(enumerate(arguments[:-1]))
    print(f"tuning {model.name}: {TRIALS} trials, weights frozen")
    with Display() as display:
        result = nw.tune(model, trials=TRIALS, log=log, constants=weights, progress=display)
    exe = nw.build(model, log=log, constants=weights)
    error = float(np.max(np.abs(exe(arguments[-1]) - expected)))
    report = nw.bench(model, log=log, constants=weights)
    report.write_json(REPORT / "convnet.json")
    report.write_html(REPORT / "convnet.html")
    print_report(report)
    right = error < 1e-4
    print(
        f"tuned {result.measured} trials in {result.seconds:.0f} s; all in all "
        f"{time.perf_counter() - start:.0f} s"
    )
    print(f"numbers: {'right' if right else 'WRONG'}, largest difference from JAX {error:.1e}")
    print(f"report:  {REPORT / 'convnet.html'}")
    print("next:    nestwright tune YOUR_MODEL.hlo --trials 300")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
