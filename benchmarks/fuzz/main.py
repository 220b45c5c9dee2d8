"""Looks for wrong results, crashes and foreign errors with random and mutated inputs.

::

    python benchmarks/fuzz/main.py programs --count 10000         # random programs, native
    python benchmarks/fuzz/main.py schedules --count 20000        # random schedules, guard pages
    python benchmarks/fuzz/main.py sketches --target "cuda-sim -arch=sm_90a"   # random decisions
    python benchmarks/fuzz/main.py hlo nw npz --count 1000000     # edited inputs of these formats
    python benchmarks/fuzz/main.py formats --count 1000000        # of all ten
    python benchmarks/fuzz/main.py programs --only 4711 --shrink  # one case again, made smaller
    python benchmarks/fuzz/main.py hlo --coverage 600             # by coverage (needs atheris)

A case is drawn from ``--seed`` and its number, runs in a child with limits of memory and CPU time,
and is told by its number when it fails. Ctrl-C ends a campaign with what it has; ``--start`` goes
on from a number. The exit status is 1 where something was found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # names begin at benchmarks/

from fuzz import formats, kernels, programs, sandbox, schedules, sketches, xla
from nestwright.codegen.driver import parallel

GENERATED = ("programs", "schedules", "sketches")


def main() -> int:
    """0 where nothing was found."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("what", nargs="+", choices=[*GENERATED, *formats.FORMATS, "formats"])
    p.add_argument("--count", type=int, default=1000, help="cases of each")
    p.add_argument("--start", type=int, default=0, help="the first case's number")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1, help="children at a time")
    p.add_argument("--target", default="cpu", help="what programs are built for")
    p.add_argument("--xla", action="store_true", help="hold exact programs against XLA, too")
    p.add_argument("--shrink", action="store_true", help="with --only: the smallest that fails")
    p.add_argument("--only", type=int, help="the number of one case")
    p.add_argument("--coverage", type=int, metavar="SECONDS", help="search new paths, with atheris")
    p.add_argument("--keep", metavar="FOLDER", help="write what failed there")
    args = p.parse_args()
    os.environ["NESTWRIGHT_CACHE"] = "off"
    parallel.JOBS_PER_HELPER = sys.maxsize  # programs are small: --jobs says what runs at once
    if args.xla and not xla.here():
        p.error("--xla needs jax")
    found = 0
    for what in list(formats.FORMATS) if "formats" in args.what else args.what:
        if args.coverage is not None:
            from fuzz import coverage

            coverage.search(formats.FORMATS[what](), args.seed, args.coverage)  # never returns
        case = _case(what, args)
        if args.only is not None:
            print(_shown(what, args))
            print(case(args.only))
            if args.shrink and what == "programs":
                print(_shrunk(args))
            continue
        numbers = range(args.start, args.start + args.count)
        told = sandbox.run(case, numbers, args.jobs, _batch(what), partial(_tell, what, args.count))
        print(f"{what}, seed {args.seed}: {told}", flush=True)
        for number, outcome in told.findings:
            print(f"  {number}: {programs.summary(outcome)}")
            if args.keep:
                _keep(args.keep, f"{what}-{args.seed}-{number}", _shown(what, args, number))
        found += len(told.findings)
    return 1 if found else 0


def _case(what: str, args: argparse.Namespace) -> Callable[[int], str]:
    match what:
        case "programs":
            return partial(_program, args)
        case "schedules":
            return partial(schedules.judge, args.seed)
        case "sketches":
            return partial(sketches.judge, args.seed, spec=args.target)
        case _:
            return partial(formats.FORMATS[what]().case, args.seed)


def _program(args: argparse.Namespace, number: int) -> str:
    return programs.judge(programs.draw(args.seed, number), number, args.target, args.xla)


def _tell(what: str, count: int, told: sandbox.Tally) -> None:
    """Print a campaign's progress, if stderr is a terminal."""
    if sys.stderr.isatty():
        done = sum(told.counts.values())
        found = f", {len(told.findings)} found" if told.findings else ""
        print(f"\r{what}: {done:,} of {count:,}{found}", end="\r", file=sys.stderr, flush=True)


def _batch(what: str) -> int:
    """Cases of one child: a fork costs as much as a few dozen short ones."""
    return sandbox.BATCH if what in (*GENERATED, "built", "log") else 20 * sandbox.BATCH


def _shown(what: str, args: argparse.Namespace, number: int | None = None) -> str:
    """Return the input of a case, to be read."""
    at = args.only if number is None else number
    match what:
        case "programs":
            return programs.describe(programs.draw(args.seed, at))
        case "schedules":
            return f"schedule {at} of seed {args.seed}"
        case "sketches":
            return programs.describe(kernels.draw(args.seed, at))
        case _:
            return repr(formats.FORMATS[what]().data(args.seed, at))


def _shrunk(args: argparse.Namespace) -> str:
    """Return a smaller module that the interpreter and the built code disagree on."""
    from nestwright.codegen.driver.options import BuildOptions
    from nestwright.codegen.replay.run import Setting
    from nestwright.codegen.replay.shrink import Shrinker
    from nestwright.ir.hlo.text import parse, show

    program = programs.draw(args.seed, args.only)
    setting = Setting(BuildOptions.of(args.target))
    found = Shrinker(setting).shrink(parse(program.text), program.arguments)
    return "replay finds no fault" if found is None else f"{show(found.module)}\n{found.arguments}"


def _keep(folder: str, name: str, text: str) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
