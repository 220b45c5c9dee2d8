"""The command lines of the first half hour on a GPU, in order, for a machine without network."""

from __future__ import annotations

from dataclasses import dataclass

from ..places import NAME

LONGEST = 2000  # characters of one command
LIMIT = 600  # seconds of one command
WHOLE = 1800  # seconds of the session, for what is planned
HEAD = f"""set -o pipefail
O=${{OUT:-$PWD/benchmarks/results/new}}
mkdir -p $O /tmp/nw/path; ln -sfn $PWD /tmp/nw/path/nestwright
export PYTHONUNBUFFERED=1 NESTWRIGHT_CACHE=/tmp/nw/cache PYTHONPATH=/tmp/nw/site:/tmp/nw/path
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \\
  --target /tmp/nw/site {NAME}/wheels/*.whl || exit
"""
LADDER = f"benchmarks/gpu/ladder/main.py --prebuilt {NAME}/ladder"


@dataclass(frozen=True)
class Step:
    """One command: what it is for, the seconds it is given, and what it sets.

    ``planned`` steps are run in this order; the others when something went wrong.
    """

    name: str
    seconds: int
    body: str
    sets: str
    planned: bool = True

    @property
    def command(self) -> str:
        """The whole command line."""
        return HEAD + self.body


STEPS = (
    Step(
        "ladder",
        420,
        f"""{{ nvidia-smi; which nvcc ptxas ncu compute-sanitizer; python3 -m pip list; }} \\
  > $O/machine.txt 2>&1
timeout 170 python3 {LADDER} --out $O; ladder=$?
timeout 240 python3 -m pytest -q -n 6 -p no:cacheprovider --durations=5 \\
  tests/codegen/runtime/cuda/test_device.py 2>&1 | tee $O/test.txt; tests=$?
echo "ladder $ladder, tests $tests"; exit $((ladder | tests))
""",
        "which mechanism works: one line a rung; then whole models against the interpreter",
    ),
    Step(
        "sanitize",
        280,
        f"""for tool in memcheck racecheck; do
  timeout 130 compute-sanitizer --tool $tool python3 {LADDER} --in-process --only $RUNG \\
    --out /tmp/nw/$tool 2>&1 | tee $O/$tool.txt
done
""",
        "the access or the race behind a rung that failed: put RUNG=name before it",
        planned=False,
    ),
    Step(
        "measure",
        595,
        "python3 benchmarks/gpu/measure/main.py --out $O\n",
        "ratios to torch and jax, rates beside the copy's, REACHED, LAUNCH, OVERLAP by kind of "
        "sketch, and two logs of tuning",
    ),
    Step(
        "rest",
        595,
        "python3 benchmarks/gpu/measure/main.py --out $O --only $PARTS\n",
        "the parts that `measure` did not come to: put PARTS=passes,models before it",
        planned=False,
    ),
    Step(
        "counters",
        330,
        f"""for w in matmul_bf16_4096 softmax_256MiB layer_norm_256MiB gelu_chain_256MiB; do
  timeout 50 ncu --clock-control none --set basic --csv --target-processes all --launch-count 4 \\
    python3 benchmarks/gpu/measure/main.py --once $w > $O/ncu-$w.csv 2>&1
done
timeout 110 ncu --clock-control none --set basic --csv --launch-count 40 \\
  python3 -m nestwright run {NAME}/models/bert_base/model.nw --random 0 > $O/ncu-bert.csv 2>&1
""",
        "what bounds each kernel: throughputs of memory and compute, occupancy, registers",
    ),
)


def shown() -> str:
    """Return every command line under its heading."""
    parts = []
    for n, step in enumerate(STEPS, 1):
        when = "" if step.planned else ", only where it is needed"
        parts.append(f"# {n}. {step.name}: at most {step.seconds} s{when}. Sets: {step.sets}")
        parts.append(step.command)
    planned = sum(s.seconds for s in STEPS if s.planned)
    told = f"# planned: {planned} s of {WHOLE}; carry {NAME} along; what lands in $O comes back"
    return "\n".join((*parts, told))


def rows() -> str:
    """Return the steps as a table of a Markdown page."""
    lines = [
        f"| {s.name} | {s.seconds} | {'yes' if s.planned else 'if needed'} | {s.sets} |"
        for s in STEPS
    ]
    return "\n".join(
        ("| command | seconds at most | planned | what it sets |", "|---|---|---|---|", *lines)
    )
