"""Looks for wrong results, crashes and foreign errors with random and mutated inputs.

::

    python benchmarks/fuzz.py programs --count 10000             # random programs, native
    python benchmarks/fuzz.py programs --only 4711               # one of them, printed
"""

from __future__ import annotations

import argparse
import os
import sys

from fuzzing import programs, sandbox, schedules


def main() -> int:
    """0 where nothing was found."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("what", choices=["programs", "schedules"])
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--start", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--target", default="cpu")
    p.add_argument("--only", type=int)
    args = p.parse_args()
    os.environ["NESTWRIGHT_CACHE"] = "off"
    if args.only is not None and args.what == "schedules":
        print(schedules.judge(args.seed, args.only))
        return 0
    if args.only is not None:
        program = programs.draw(args.seed, args.only)
        print(programs.describe(program))
        print(programs.judge(program, args.only, args.target))
        return 0

    def case(number: int) -> str:
        if args.what == "schedules":
            return schedules.judge(args.seed, number)
        return programs.judge(programs.draw(args.seed, number), number, args.target)

    told = sandbox.run(case, range(args.start, args.start + args.count), args.jobs)
    print(told)
    for number, outcome in told.findings:
        print(f"  {number}: {programs.summary(outcome)}")
    return 1 if told.findings else 0


if __name__ == "__main__":
    sys.exit(main())
