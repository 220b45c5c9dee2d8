"""Tables on tuning: what it gains, how soon, and whether its readings can be believed.

    python benchmarks/tuning/main.py shares [--only dot_512 ...] [MODEL.hlo ...]
    python benchmarks/tuning/main.py quick [--few 8 --trials 256 --seeds 5]
    python benchmarks/tuning/main.py agree [--busy]
    python benchmarks/tuning/main.py sums [MODEL.hlo ...]
    python benchmarks/tuning/main.py never --runs 30 [MODEL.hlo ...]
    python benchmarks/tuning/main.py speed [MODEL.hlo ...] --limit 180

``shares`` is the share of the tuned speed that is reached untuned, ``quick`` the share of the best
of many trials that a strategy reaches after a few. ``agree`` compares what two tunings log for the
same schedules, ``sums`` the groups' times with the model's. ``never`` counts tuned models that are
slower than untuned ones, ``speed`` tells after how many seconds a model has .98 of its final speed.

Logs are kept in ``--folder``, and what they hold is not measured again, so a table can be made in
pieces: ``--seconds`` begins no further row after that time. ``--json`` writes rows, summary and
machine to a file. A ``.npz`` beside a model has the parameters to freeze, by number. Only ratios of
schedules that took turns are compared; what is timed holds the machine's lock.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # names begin at benchmarks/

from checkout import importable


def _parse() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    names = ("shares", "quick", "agree", "sums", "never", "speed")
    parser.add_argument("table", choices=names)
    parser.add_argument("models", nargs="*", help="HLO files instead of the table's own workloads")
    parser.add_argument("--only", nargs="+", default=[], help="names of workloads")
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--trials", type=int, help="of each tuning")
    parser.add_argument("--few", type=int, default=8, help="trials of the short tunings of quick")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--strategies", nargs="+", help="of quick; default: all")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--busy", action="store_true", help="keep a core busy meanwhile")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds of a tuning of speed")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--folder", type=Path, default=Path("tuning_tables"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Print a table row by row, then its summary."""
    chosen = _parse()
    until = time.monotonic() + chosen.seconds
    with importable():
        from nestwright.autotune.measure.pool import Pool
        from nestwright.ir.target import Target
        from tuning import tables
        from tuning.runs import Workbench

        spec = f"cpu -threads={chosen.threads}" if chosen.threads else "cpu"
        target = Target.parse(spec)
        folder = (chosen.folder / target.key).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with Pool(target.threads) as pool:
            bench = Workbench(target, pool, folder, until)
            report = {"options": _options(chosen), "machine": bench.machine()}
            print(json.dumps(report["machine"]))
            rows = []
            for row in _rows(tables, bench, chosen):
                print(" ".join(_shown(n, x) for n, x in row.items()), flush=True)
                rows.append(row)
                report |= {"summary": tables.SUMMARIES[chosen.table](rows), "rows": rows}
                if chosen.json:
                    chosen.json.write_text(json.dumps(report, indent=1) + "\n")
            print(json.dumps(report.get("summary")))


def _options(chosen: argparse.Namespace) -> dict[str, object]:
    """Return what was chosen, without the folders of files."""
    asked = {n: x for n, x in vars(chosen).items() if x and x != math.inf}
    asked |= {"models": [Path(model).name for model in chosen.models]}
    return {n: x for n, x in asked.items() if n not in {"folder", "json"}}


def _rows(tables: object, bench: object, chosen: argparse.Namespace) -> Iterator[dict[str, object]]:
    models, only, trials = chosen.models, chosen.only, chosen.trials
    match chosen.table:
        case "shares":
            return tables.shares(bench, only, models, trials or 64)
        case "quick":
            by = chosen.strategies or tables.STRATEGIES
            return tables.quick(bench, only, trials or 256, chosen.few, chosen.seeds, by)
        case "agree":
            return tables.agree(bench, only, trials or 24, chosen.busy)
        case "sums":
            return tables.sums(bench, models)
        case "never":
            return tables.never(bench, models, chosen.runs, trials or 48)
        case _:
            return tables.speed(bench, models, trials or 100_000, chosen.limit)


def _shown(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{name} {value:.4g}"
    if isinstance(value, list):
        few = [f"{x:.3f}" for x in value if isinstance(x, float)]
        return f"{name} [{' '.join(few[:8])}{' ...' if len(few) > 8 else ''}]"
    return f"{name} {value}"


if __name__ == "__main__":
    main()
