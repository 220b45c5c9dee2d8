"""The formats that come from outside, each with seeds, edits and the reader that must hold.

A reader may succeed or raise a ``NestwrightError``; anything else is a finding.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import nestwright as nw
from nestwright.autotune.log import contents, journal
from nestwright.autotune.log.best import best_traces
from nestwright.autotune.tasks.programs import Program
from nestwright.codegen.driver.build import build
from nestwright.ir.errors import NestwrightError
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.frontends.load import read_model
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse, show
from nestwright.ir.loop.interp.evaluate import run as run_loops
from nestwright.ir.loop.nodes import Const, For, Func, Stmt
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.loop.printer import show as show_loops
from nestwright.ir.loop.verify import verify as verify_loops
from nestwright.ir.loop.visit import children
from nestwright.ir.target import Target
from nestwright.schedule.language.trace import Trace

from .archives import npz, nw_bundle, report
from .builder import Array
from .inputs import ROOT, Format, corpus, file_of_process
from .malformed import random_hlo
from .mutate import dump, edit_json, mutate

WORDS = (
    b"parameter(0)",
    b"ROOT",
    b"ENTRY",
    b"constant({...})",
    b"to_apply=sum",
    b"dimensions={0}",
    b"f32[",
    b"(f32[2], (s32[], token[]))",
    b"{1,0:T(8,128)S(1)}",
    b"window={size=",
    b"calls=",
    b"f32[<=9]",
    b"u4[3]",
    b"c128[]",
    b"->",
    b"/*",
    b"*/",
    b"//",
    b'"',
    b"\\",
    b"\x00",
    b"%",
    b"#",
    b"tensor<",
    b"tensor<?xf32>",
    b"dense<",
    b"loc(",
    b"({",
    b"^bb0",
    b"!stablehlo.token",
    b"%0:3",
    b"stablehlo.add",
    b"chlo.top_k",
    b"func.func",
    b"#stablehlo.gather<",
    b"array<i64: 1>",
    b"\xff",
)
ITERATIONS = 1 << 18  # of a scheduled function that the interpreter is asked for
CPU = Target.parse("cpu")


def _text(pattern: str, source: str) -> Format:
    seeds = corpus(pattern)

    def make(rng: Random) -> bytes:
        return mutate(rng, rng.choice(seeds), seeds, WORDS)

    def read(data: bytes) -> None:
        module = read_model(data, source)
        verify(module)
        text = show(module)
        assert show(parse(text)) == text

    return Format(source.partition(".")[2], make, read)


def hlo() -> Format:
    """HLO text: parsed, verified, printed and parsed again."""
    return _text("*.hlo", "m.hlo")


def malformed() -> Format:
    """HLO text that follows the grammar only."""

    def make(rng: Random) -> bytes:
        return random_hlo(rng).encode()

    return Format("malformed", make, hlo().read)


def any_bytes() -> Format:
    """Bytes that follow nothing."""

    def make(rng: Random) -> bytes:
        return rng.randbytes(rng.choice((0, 1, 7, 100, 3000)))

    def read(data: bytes) -> None:
        read_model(data, "m")

    return Format("bytes", make, read)


def stablehlo() -> Format:
    """StableHLO text."""
    made = _text("*.mlir", "m.mlir")

    def read(data: bytes) -> None:
        verify(read_model(data, "m.mlir"))

    return Format("stablehlo", made.make, read)


def proto() -> Format:
    """HLO protos."""
    seeds = [bytes(to_proto(m)) for m in _modules()]

    def make(rng: Random) -> bytes:
        return mutate(rng, rng.choice(seeds), seeds, [b"\x0a", b"\xff" * 9, b"\x80" * 20])

    def read(data: bytes) -> None:
        verify(read_model(data, "m.pb"))

    return Format("proto", make, read)


def _modules() -> list[HloModule]:
    found = []
    for text in corpus("*.hlo", 40):
        try:
            found.append(read_model(text, "m.hlo"))
        except NestwrightError:
            continue
    return found


def built() -> Format:
    """HLO text that is built, run and compared, if it is still a model of moderate size."""
    seeds = corpus("*.hlo", 120)

    def make(rng: Random) -> bytes:
        return mutate(rng, rng.choice(seeds), seeds, WORDS)

    def read(data: bytes) -> None:
        from nestwright.codegen.driver.options import BuildOptions
        from nestwright.codegen.replay.run import Setting, replay

        module = read_model(data, "m.hlo")
        verify(module)
        if not _moderate(module) or any(
            i.opcode in ("while", "rng") for c in module.computations for i in c.instructions
        ):
            return
        exe = build(module, CPU)
        outcome = replay(module, exe.random_arguments(1), Setting(BuildOptions.of(CPU)))
        assert outcome.ok, str(outcome)

    return Format("built", make, read)


def _moderate(module: HloModule, most: int = 1 << 18) -> bool:
    """True if no array is larger than ``most`` elements."""
    from nestwright.ir.hlo.nodes import Shape

    shapes = [i.shape for c in module.computations for i in c.instructions]
    arrays = [s for s in shapes if isinstance(s, Shape)]
    return all(int(np.prod(s.dims, dtype=object)) <= most for s in arrays)


@cache
def _log() -> tuple[tuple[dict[str, Any], ...], HloModule]:
    """Return the records of a log of two small models, tuned without measuring, and one of the
    models.
    """
    models = [
        parse((ROOT / "examples" / f"{n}.hlo").read_text()) for n in ("softmax", "dense_relu")
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        for model in models:
            nw.tune(model, trials=12, log=path, simulate_cost=True)
        lines = path.read_bytes().splitlines()
    return tuple(json.loads(x) for x in lines), models[0]


def log() -> Format:
    """Tuning logs: read, merged, summed up, and built with."""
    records, model = _log()
    lines = b"\n".join(dump(r) for r in records) + b"\n"
    scratch = file_of_process(".jsonl")

    def make(rng: Random) -> bytes:
        if rng.random() < 0.3:
            return mutate(rng, lines, [lines], [b'"k":"best"', b"null", b"\xef\xbb\xbf", b"\r\n"])
        found = list(records)
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(found))
            found[at] = edit_json(rng, found[at])
        return b"\n".join(dump(r) for r in found) + b"\n" * rng.choice((0, 1))

    def read(data: bytes) -> None:
        place = scratch()
        place.write_bytes(data)
        best_traces(place, CPU)
        if len(data) % 16 == 0:  # building takes longer than reading
            nw.build(model, log=place, cache=False)
        held = journal.read(place)
        contents.stats(held)
        contents.describe(held)
        journal.check(place)
        journal.merge([place], place.with_suffix(".merged"))

    return Format("log", make, read)


def loop() -> Format:
    """Loop IR: parsed, verified, printed and parsed again."""
    programs = [p.func for p in _programs().values()]
    seeds = [show_loops(f).encode() for f in programs]
    seeds += [show_loops(t.replay(f).func).encode() for f, t in _traces()]
    words = [b"with block(", b"range(", b"vectorize(", b"reduce(3, ", b"let(", b"%", b"f32(nan)"]

    def make(rng: Random) -> bytes:
        return mutate(rng, rng.choice(seeds), seeds, words)

    def read(data: bytes) -> None:
        from nestwright.ir.errors import ParseError

        try:
            func = parse_loops(data.decode())
        except UnicodeDecodeError as error:
            raise ParseError("not text", str(error)) from None
        verify_loops(func)
        text = show_loops(func)
        assert show_loops(parse_loops(text)) == text

    return Format("loop", make, read)


def _programs() -> dict[str, Program]:
    records, _ = _log()
    return {r["id"]: Program(r["form"], r["text"]) for r in records if r["k"] == "workload"}


def _traces() -> list[tuple[Func, Trace]]:
    programs = _programs()
    found = [r for r in _log()[0] if r["k"] in ("trial", "best") and r.get("trace")]
    return [(programs[r["w"]].func, Trace.from_json(r["trace"])) for r in found]


def trace() -> Format:
    """Traces, replayed on the program that they belong to: refused, or the program stays right."""
    known = [(f, t.to_json()) for f, t in _traces()]
    inputs: dict[int, tuple[list[Array], list[Array]]] = {}

    def make(rng: Random) -> bytes:
        at = rng.randrange(len(known))
        return dump([at, edit_json(rng, known[at][1])])

    def read(data: bytes) -> None:
        at, steps = json.loads(data)
        func = known[at][0]
        replayed = Trace.from_json(steps).replay(func).func
        verify_loops(replayed)
        if at not in inputs:
            drawn = np.random.default_rng(at)
            shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
            given: list[Array] = [drawn.integers(-2, 3, s).astype(np.float32) for s in shapes]
            inputs[at] = given, run_loops(func, given)
        given, want = inputs[at]
        if int(np.prod([b.shape for b in func.params][-1], dtype=np.int64)) > 1 << 12:
            return
        if iterations(replayed.body) > ITERATIONS:  # right, but no interpreter comes to its end
            return
        for x, y in zip(run_loops(replayed, given), want, strict=True):
            assert np.allclose(x, y, 1e-4, 1e-4, equal_nan=True), "the trace changes the result"

    return Format("trace", make, read)


def iterations(s: Stmt) -> int:
    """Return how often the innermost statements run; loops of symbolic extent count once."""
    within = sum(map(iterations, children(s))) or 1
    match s:
        case For(extent=Const(value=int(extent))):
            return extent * within
        case _:
            return within


FORMATS: dict[str, Callable[[], Format]] = {
    "hlo": hlo,
    "malformed": malformed,
    "bytes": any_bytes,
    "built": built,
    "stablehlo": stablehlo,
    "proto": proto,
    "loop": loop,
    "trace": trace,
    "log": log,
    "nw": nw_bundle,
    "report": report,
    "npz": npz,
}
