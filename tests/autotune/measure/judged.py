"""Do wrong kernels get past the tuner's check? Plants faults, asks the check, and judges itself.

    python tests/autotune/measure/judged.py --count 500 --seed 1 [--kinds "lost tail,lost init"]
    python tests/autotune/measure/judged.py --kinds "lost barrier" --target "cuda-sim -arch=sm_90"

It ends with status 1 if a mutant was accepted that the judge calls wrong.

The judge knows nothing of the check. It runs the mutant and the kernel it was made from, both with
outputs and workspace filled beforehand, three times in a row, on inputs of its own, and asks for
the same result, unchanged inputs, and unchanged bytes on either side. Each mutant runs in a forked
process, which it may well end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from mutants import KINDS, Fault, faults, plant
from programs import TEXTS

from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure.candidates import Rejected, make_schedule
from nestwright.autotune.measure.check import Wrong, check, check_again, race_in
from nestwright.autotune.measure.processor import CpuMachine, NativeRun
from nestwright.autotune.measure.protocol import Candidate
from nestwright.autotune.measure.reference import Reference, make_reference
from nestwright.autotune.tasks.programs import Program
from nestwright.codegen.driver import kernel as kernels
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.targets.registry import lower
from nestwright.ir.accuracy import relative_error
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.errors import SimulationError
from nestwright.ir.loop.nodes import Func, Intrinsic, Seq, Stmt
from nestwright.ir.loop.visit import map_stmt, walk
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import generate

BARRIER = "lost barrier"  # planted in the lowered function, which alone has barriers
CANARY = 4096  # bytes on either side
APART = 1e-4  # of the root mean square: more is another result
STEP = {2: 2.0**-7, 1: 2.0**-2}  # relative distance of neighbors, by bytes: both may be right
SECONDS = 30  # that a mutant may take


@dataclass(slots=True)
class Subject:
    """A program with what the check holds candidates against."""

    program: Program
    target: Target
    reference: Reference
    machine: CpuMachine

    @staticmethod
    def of(text: str, target: Target) -> Subject:
        program = Program("hlo", text)
        reference = Reference(
            program.outputs, tuple(c for c, _ in make_reference(program, target, 0))
        )
        return Subject(
            program, target, reference, CpuMachine(program, reference.ordinary.arguments, target)
        )

    def scheduled(self, r: random.Random) -> Func:
        """The function under a schedule drawn from its sketches."""
        sketches = {s.name: s for s in generate(self.program.func, self.target)}
        chosen = Candidate(DEFAULT_SKETCH, {})
        if sketches and r.random() < 0.8:
            sketch = r.choice(list(sketches.values()))
            for _ in range(100):
                choices = {k: r.choice(v) for k, v in sketch.decisions.items()}
                if sketch.valid(choices):
                    chosen = Candidate(sketch.name, choices)
                    break
        try:
            return make_schedule(self.program.func, sketches, self.target, chosen).func
        except Rejected:
            chosen = Candidate(DEFAULT_SKETCH, {})
            return make_schedule(self.program.func, sketches, self.target, chosen).func


def asked(subject: Subject, func: Func, barrier: int | None) -> str:
    """What the tuner's check says of a function: ``accepted``, or why not."""
    if told := race_in(func):
        return f"rejected: {told}"
    run = compiled(subject, func, barrier)
    try:
        check(run, subject.reference, lambda doing: None)
        run.call(3)
        check_again(run, subject.reference, lambda doing: None)
    except Wrong as e:
        return f"rejected: {e}"
    return "accepted"


def compiled(subject: Subject, func: Func, barrier: int | None) -> NativeRun:
    """The function's kernel; of a GPU's, without the barrier of that number."""
    if barrier is None:
        return subject.machine.compile(func)

    def lowered(f: Func, target: Target) -> Func:
        flat = lower(f, target)
        found = [s for s in walk(flat.body) if _is_barrier(s)]
        lost = found[barrier % len(found)]

        def stmt(s: Stmt) -> Stmt:
            return Seq(()) if s is lost else map_stmt(s, stmt, lambda e: e)

        return replace(flat, body=stmt(flat.body))

    with patch.object(kernels, "lower", lowered):
        return subject.machine.compile(func)


def _is_barrier(s: Stmt) -> bool:
    return isinstance(s, Intrinsic) and s.name == "barrier"


def judged(subject: Subject, good: Func, bad: Func, barrier: int | None) -> str:
    """``equal``, or in what a mutant differs from the function that it was made from."""
    one = subject.machine.compile(good).kernel
    other = compiled(subject, bad, barrier).kernel
    try:
        return _compared(subject, one, other)
    except SimulationError as e:
        return f"wrong: {e}"


def _compared(subject: Subject, one: NativeFunc, other: NativeFunc) -> str:
    for turn in range(4):
        inputs = _inputs(subject.program, turn)
        wanted = _executed(one, subject.program, inputs, 0x00, 1)[0]
        for fill, calls in ((0xFF, 1), (0x00, 3)):
            got, harm = _executed(other, subject.program, inputs, fill, calls)
            if harm:
                return f"wrong: {harm}"
            for a, b in zip(got, wanted, strict=True):
                if _differs(a, b, whole=turn == 3):
                    return f"wrong on inputs {turn}, fill {fill:#x}, {calls} calls"
    return "equal"


def _differs(a: np.ndarray, b: np.ndarray, whole: bool) -> bool:
    if b.dtype.kind in "biu" or b.dtype.name.startswith(("int", "uint", "bool")):
        return a.tobytes() != b.tobytes()
    wide = b.astype(np.float64)
    if whole and np.isfinite(wide).all() and (wide == np.rint(wide)).all():
        return bool((a.astype(np.float64) != wide).any())
    if b.dtype.itemsize >= 4:
        return relative_error(a, b) > APART
    rms = math.sqrt(float(np.mean(wide**2)))
    near = (
        np.abs(a.astype(np.float64) - wide) <= STEP[b.dtype.itemsize] * np.abs(wide) + APART * rms
    )
    return not (near | (np.isnan(wide) & np.isnan(a.astype(np.float64)))).all()


def _inputs(program: Program, turn: int) -> list[np.ndarray]:
    made = program.arguments(100 + turn)
    rng = np.random.default_rng(turn)
    if turn == 3:  # small whole numbers
        return [rng.integers(-3, 4, a.shape).astype(a.dtype) if _is_float(a) else a for a in made]
    return [a * a.dtype.type(3) if turn == 2 and _is_float(a) else a for a in made]


def _is_float(a: np.ndarray) -> bool:
    return a.dtype.kind == "f" or a.dtype.name == "bfloat16"


def _executed(
    kernel: NativeFunc, program: Program, inputs: Sequence[np.ndarray], fill: int, calls: int
) -> tuple[list[np.ndarray], str]:
    """The outputs of the last of some calls, and what else happened ("": nothing)."""
    held = []
    for b in program.func.params:
        size = math.prod(b.shape) * b.dtype.bytes
        raw = np.full(size + 2 * CANARY + 64, 0x5A, np.uint8)
        start = CANARY + -(raw.ctypes.data + CANARY) % 64
        raw[start : start + size] = fill
        held.append(
            (raw, start, size, raw[start : start + size].view(to_numpy(b.dtype)).reshape(b.shape))
        )
    for (_, _, _, view), value in zip(held, inputs, strict=False):
        view[...] = value
    work = np.full(kernel.compiled.workspace + 64, fill, np.uint8)
    bound, packed = kernel.bind([view.ctypes.data for *_, view in held])
    for _ in range(calls):
        kernel.execute(bound, work.ctypes.data + -work.ctypes.data % 64)
    for n, (raw, start, size, view) in enumerate(held):
        if (raw[:start] != 0x5A).any() or (raw[start + size :] != 0x5A).any():
            return [], f"it wrote beside parameter {n}"
        if n < len(inputs) and view.tobytes() != inputs[n].tobytes():
            return [], f"it changed input {n}"
    del packed
    return [view.copy() for *_, view in held[len(inputs) :]], ""


def forked(subject: Subject, good: Func, bad: Func, barrier: int | None = None) -> tuple[str, str]:
    """What the check says and what the judge says, each in a process of its own."""
    return (
        _told(lambda: asked(subject, bad, barrier)),
        _told(lambda: judged(subject, good, bad, barrier)),
    )


def _told(work) -> str:
    """What ``work`` returns in a forked process: or ``died`` with how it did."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                said = work()
            except Exception as e:
                said = f"no build: {type(e).__name__} {e}"
            os.write(writing, said.encode()[:2000])
        finally:
            os._exit(0)
    os.close(writing)
    said, end = b"", time.monotonic() + SECONDS
    while (left := end - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            part = os.read(reading, 1 << 16)
            said += part
            if not part:
                break
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return "died: hung" if name == "SIGKILL" else f"died: {name}"
    return said.decode()


@dataclass(frozen=True, slots=True)
class Finding:
    """One mutant: where the fault is, and both opinions."""

    program: str
    fault: Fault
    asked: str
    judged: str

    @property
    def built(self) -> bool:
        """Whether there was something to run."""
        return not self.asked.startswith("no build")

    @property
    def wrong(self) -> bool:
        """Whether it computes something else, or harms, by the judge."""
        return self.judged.startswith(("wrong", "died"))

    @property
    def accepted(self) -> bool:
        """Whether the check let it through."""
        return self.asked == "accepted"


def campaign(texts: dict[str, str], count: int, seed: int, kinds: Sequence[str], target: Target):
    """Mutants until so many were wrong, one by one."""
    r = random.Random(seed)
    subjects: dict[str, Subject] = {}
    wrong = 0
    while wrong < count:
        name = r.choice(sorted(texts))
        if name not in subjects:
            subjects[name] = Subject.of(texts[name], target)
        subject = subjects[name]
        good = subject.scheduled(r)
        if kinds == (BARRIER,):
            number = r.randrange(1 << 20)
            if not any(_is_barrier(s) for s in walk(lower(good, target).body)):
                continue
            found = Finding(name, Fault(BARRIER, number, 0), *forked(subject, good, good, number))
            wrong += found.built and found.wrong
            yield found
            continue
        places = defaultdict(list)
        for kind, site in faults(good):
            if kind in kinds:
                places[kind].append(site)
        if not places:
            continue
        kind = r.choice(sorted(places))
        fault = Fault(kind, r.choice(places[kind]), r.randrange(1 << 30))
        try:
            bad = plant(good, fault)
        except ValueError:
            continue
        found = Finding(name, fault, *forked(subject, good, bad))
        wrong += found.built and found.wrong
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="wrong mutants to plant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--target", default="cpu")
    parser.add_argument(
        "--tasks", help="JSON lines with a field text, instead of the programs here"
    )
    options = parser.parse_args()
    texts = TEXTS
    if options.tasks:
        rows = [json.loads(line) for line in Path(options.tasks).read_text().splitlines()]
        texts = {r["key"][:8]: r["text"] for r in rows if r["flops"] < 3e6 and r["bytes"] < 1e6}
    table: dict[str, Counter[str]] = defaultdict(Counter)
    os.environ["NESTWRIGHT_CACHE"] = "off"
    target = Target.parse(options.target)
    kinds = tuple(options.kinds.split(","))
    for f in campaign(texts, options.count, options.seed, kinds, target):
        said = "no build" if not f.built else "accepted" if f.accepted else "rejected"
        table[f.fault.kind][f"{said}, {'wrong' if f.wrong else 'equal'}"] += 1
        if not sum(sum(row.values()) for row in table.values()) % 50:
            print("so far", dict(sum(table.values(), Counter())), flush=True)
        if f.built and f.accepted == f.wrong:
            print(f.program, f.fault, "|", f.asked[:200], "|", f.judged, flush=True)
    for kind, row in sorted(table.items()):
        print(f"{kind:24s}", dict(row))
    total = sum(table.values(), Counter())
    print("in all", dict(total))
    sys.exit(1 if total["accepted, wrong"] else 0)


if __name__ == "__main__":
    main()
