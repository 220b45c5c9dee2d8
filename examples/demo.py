"""Tunes and benchmarks convnet.hlo, checks its numbers, and says where the report lies.

Run by ``make demo``; ``demo.py --trials 16 --report FOLDER`` is a shorter one. It fails where the
numbers are wrong. Whether tuned is faster is said only as far as the control of the same run can
tell: this model takes some 60 us, and a busy machine moves that by more than tuning does.
Everything it uses is public: the command line does the same, step by step.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import nestwright as nw
from nestwright.autotune.report.verdicts import verdict
from nestwright.cli.display.live import Display
from nestwright.cli.display.sweep import print_report

HERE = Path(__file__).parent
REPORT = HERE.parent / "report"
TRIALS = 96


def main() -> int:
    """0 when the tuned model gives the numbers that JAX gave."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description="Tune and benchmark a small image classifier.")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--report", type=Path, default=REPORT, help="folder for what it writes")
    asked = parser.parse_args()
    report_to = asked.report
    report_to.mkdir(parents=True, exist_ok=True)
    model, log = HERE / "convnet.hlo", report_to / "convnet.jsonl"
    with np.load(HERE / "convnet.npz") as data:
        arguments = [data[f"arg{i}"] for i in range(len(data.files))]
    with np.load(HERE / "convnet.expected.npz") as data:
        expected = data["out0"]
    weights = dict(enumerate(arguments[:-1]))
    print(f"tuning {model.name}: {asked.trials} trials, weights frozen")
    with Display() as display:
        result = nw.tune(model, trials=asked.trials, log=log, constants=weights, progress=display)
    exe = nw.build(model, log=log, constants=weights)
    error = float(np.max(np.abs(exe(arguments[-1]) - expected)))
    report = nw.bench(model, log=log, constants=weights)
    report.write_json(report_to / "convnet.json")
    report.write_html(report_to / "convnet.html")
    print_report(report)
    right = error < 1e-4
    print(
        f"tuned {result.measured} trials in {result.seconds:.0f} s; all in all "
        f"{time.perf_counter() - start:.0f} s"
    )
    print(f"numbers: {'right' if right else 'WRONG'}, largest difference from JAX {error:.1e}")
    print(f"report:  {report_to / 'convnet.html'}")
    print(f"tuned:   {verdict(report.cells[0], None).word}")
    print("next:    nestwright tune YOUR_MODEL.hlo --trials 300")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
