"""The command lines of the first runs on a GPU, in order, for a machine without network."""

from __future__ import annotations

from dataclasses import dataclass

from ..places import NAME

LONGEST = 2000  # characters of one command
LIMIT = 600  # seconds of one command
WHOLE = 900  # seconds of a session, the start of the machine included
START = 120  # seconds that a start may take
HEAD = f"""set -o pipefail
O=${{OUT:-$PWD/benchmarks/results/new}}
mkdir -p $O /tmp/nw/path; ln -sfn $PWD /tmp/nw/path/nestwright
export PYTHONUNBUFFERED=1 NESTWRIGHT_CACHE=/tmp/nw/cache PYTHONPATH=/tmp/nw/site:/tmp/nw/path
export XLA_PYTHON_CLIENT_PREALLOCATE=false
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \\
  --target /tmp/nw/site {NAME}/wheels/*.whl || echo "going on without the wheels of {NAME}"
B=; [ -d {NAME}/ladder ] && B="--prebuilt {NAME}/ladder"
"""
LADDER = "benchmarks/gpu/ladder/main.py $B"


@dataclass(frozen=True)
class Step:
    """One command: what it is for, the seconds it is given, and what it sets.

    Steps of a ``session`` are run in this order; those of none when something went wrong.
    """

    name: str
    seconds: int
    body: str
    sets: str
    session: int = 0

    @property
    def command(self) -> str:
        """The whole command line."""
        return HEAD + self.body


STEPS = (
    Step(
        "ladder",
        310,
        f"""{{ nvidia-smi; which nvcc ptxas ncu compute-sanitizer; python3 -m pip list; }} \\
  > $O/machine.txt 2>&1
timeout 150 python3 {LADDER} --out $O; ladder=$?
timeout 150 python3 -m pytest -q -n 6 -p no:cacheprovider --durations=5 \\
  tests/codegen/runtime/cuda/test_device.py 2>&1 | tee $O/test.txt; tests=$?
grep -h '^== .* FAILED' $O/ladder.log
echo "ladder $ladder, tests $tests"; exit $((ladder | tests))
""",
        "which mechanism works: one line a rung; then whole models against the interpreter",
        1,
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
    ),
    Step(
        "measure",
        340,
        "python3 benchmarks/gpu/measure/main.py --out $O --seconds 325 \\\n"
        "  --only machine,small,matmul,passes,models\n",
        "ratios to torch and jax, rates beside the copy's, REACHED, LAUNCH, OVERLAP by kind of "
        "sketch",
        1,
    ),
    Step(
        "rest",
        340,
        "python3 benchmarks/gpu/measure/main.py --out $O --seconds 325 --only $PARTS\n",
        "the parts that `measure` did not come to: put PARTS=passes,models before it",
    ),
    Step(
        "tuning",
        230,
        "python3 benchmarks/gpu/measure/main.py --out $O --seconds 215 \\\n"
        "  --only tuning,convolutions\n",
        "two logs of tuning, and convolutions beside cuDNN's",
        2,
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
        2,
    ),
)


SESSIONS = sorted({s.session for s in STEPS if s.session})


def planned(session: int) -> int:
    """Return the seconds that a session takes at most, if nothing goes wrong."""
    return START + sum(s.seconds for s in STEPS if s.session == session)


def shown() -> str:
    """Return every command line under its heading."""
    parts = []
    for n, step in enumerate(STEPS, 1):
        when = f", session {step.session}" if step.session else ", only where it is needed"
        parts.append(f"# {n}. {step.name}: at most {step.seconds} s{when}. Sets: {step.sets}")
        parts.append(step.command)
    told = [f"# session {n}: {planned(n)} s of {WHOLE}, the start included" for n in SESSIONS]
    return "\n".join((*parts, *told, f"# carry {NAME} along; what lands in $O comes back"))


def rows() -> str:
    """Return the steps as a table of a Markdown page."""
    lines = [f"| {s.name} | {s.seconds} | {s.session or 'if needed'} | {s.sets} |" for s in STEPS]
    return "\n".join(
        ("| command | seconds at most | session | what it sets |", "|---|---|---|---|", *lines)
    )
