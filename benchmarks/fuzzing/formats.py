"""The formats that come from outside, each with seeds, edits and the reader that must hold.

A reader may succeed or raise a ``NestwrightError``; anything else is a finding.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

import nestwright as nw
from nestwright.autotune.log import contents, journal
from nestwright.autotune.log.best import best_traces
from nestwright.autotune.tasks.programs import Program
from nestwright.cli.arrays import in_order, read_constants, read_npz
from nestwright.codegen.driver.artifact import is_artifact
from nestwright.codegen.driver.build import build
from nestwright.codegen.plan.saved import manifest as facts
from nestwright.codegen.plan.saved import read as saved
from nestwright.codegen.replay import archive
from nestwright.codegen.targets.registry import codec
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

from .builder import Array
from .malformed import random_hlo
from .mutate import dump, edit_json, mutate, rezip, unzip

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
SEED_BYTES = 5000  # of a seed, at most
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
TURNS = 1 << 18  # of a scheduled function that the interpreter is asked for
CPU = Target.parse("cpu")

Make = Callable[[Random], bytes]
Read = Callable[[bytes], object]
Manifest: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """``make`` draws a broken input, ``read`` takes it as a user's."""

    name: str
    make: Make
    read: Read

    def data(self, seed: int, number: int) -> bytes:
        """Return the input of a number."""
        return self.make(Random(f"{self.name} {seed} {number}"))

    def case(self, seed: int, number: int) -> str:
        """One input: ``read``, ``refused``, or what escaped."""
        return self.outcome(self.data(seed, number))

    def outcome(self, data: bytes) -> str:
        """Read an input and return "read" or "refused"; an unexpected exception is raised."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.read(data)
            except NestwrightError as error:
                return "refused" if error.what and str(error) else "BAD error without a message"
        return "read"


def _corpus(pattern: str, many: int = 60) -> list[bytes]:
    """Small files of ours and of the corpus, if it is there, the same every time."""
    own = [*(ROOT / "examples").glob(pattern), *(Path(__file__).parent / "seeds").glob(pattern)]
    far = sorted(p for p in CORPUS.rglob(pattern) if p.stat().st_size <= SEED_BYTES)
    chosen = [*sorted(own), *far[:: max(1, len(far) // many)]]
    return [p.read_bytes() for p in chosen if p.stat().st_size <= SEED_BYTES]


def _text(pattern: str, source: str) -> Format:
    seeds = _corpus(pattern)

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
    for text in _corpus("*.hlo", 40):
        try:
            found.append(read_model(text, "m.hlo"))
        except NestwrightError:
            continue
    return found


def built() -> Format:
    """HLO text that is built, run and compared, if it is still a model of moderate size."""
    seeds = _corpus("*.hlo", 120)

    def make(rng: Random) -> bytes:
        return mutate(rng, rng.choice(seeds), seeds, WORDS)

    def read(data: bytes) -> None:
        from nestwright.codegen.replay.run import Setting, replay

        module = read_model(data, "m.hlo")
        verify(module)
        if not _moderate(module) or any(
            i.opcode in ("while", "rng") for c in module.computations for i in c.instructions
        ):
            return
        exe = build(module, CPU)
        outcome = replay(module, exe.random_arguments(1), Setting(CPU))
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
    scratch = _scratch(".jsonl")

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
        if turns(replayed.body) > TURNS:  # right, but no interpreter comes to its end
            return
        for x, y in zip(run_loops(replayed, given), want, strict=True):
            assert np.allclose(x, y, 1e-4, 1e-4, equal_nan=True), "the trace changes the result"

    return Format("trace", make, read)


def turns(s: Stmt) -> int:
    """Return how often the innermost statements run; loops of symbolic extent count once."""
    within = sum(map(turns, children(s))) or 1
    match s:
        case For(extent=Const(value=int(extent))):
            return extent * within
        case _:
            return within


def _as_it_is(manifest: Manifest, members: Mapping[str, bytes]) -> Manifest:
    return manifest


def _zipped(
    rng: Random,
    data: bytes,
    manifest: str,
    words: Sequence[bytes],
    digests: str,
    sealed: Callable[[Manifest, Mapping[str, bytes]], Manifest] = _as_it_is,
) -> bytes:
    """Return an archive with a member or its manifest edited, the digests mended so that it gets
    far.
    """
    if rng.random() < 0.4:
        return mutate(rng, data, [data], words)
    members = unzip(data)
    name = rng.choice([manifest, *members])
    known: Mapping[str, Any] = json.loads(members[manifest])
    if name != manifest:
        some = list(members.values())
        body = members[name]
        if name.endswith(".json") and rng.random() < 0.8:
            members[name] = dump(edit_json(rng, json.loads(body)))
        else:
            members[name] = mutate(rng, body, some, words)
    mended = {n: hashlib.sha256(d).hexdigest() for n, d in members.items() if n != manifest}
    edited: Any = {**known, digests: mended}
    if name == manifest:
        edited = edit_json(rng, edited)
    members[manifest] = dump(sealed(edited, members) if isinstance(edited, dict) else edited)
    return rezip(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def nw_bundle() -> Format:
    """Built models: read, and if they are accepted loaded and run."""
    scratch = _scratch(".nw")
    place = scratch()
    seeds = []
    for name in ("softmax", "dense_relu"):
        nw.build(ROOT / "examples" / f"{name}.hlo", cache=False).save(place)
        seeds.append(place.read_bytes())

    def make(rng: Random) -> bytes:
        words = [b"PK\x01\x02", b"PK\x05\x06"]
        return _zipped(rng, rng.choice(seeds), facts.MANIFEST, words, "sha256", sealed)

    def sealed(manifest: Manifest, members: Mapping[str, bytes]) -> Manifest:
        constants = np.frombuffer(members.get(facts.CONSTANTS, b""), np.uint8)
        known = {**manifest, "sums": facts.sums(constants)}
        return {**known, "digest": facts.digest(known)}

    def read(data: bytes) -> None:
        place = scratch()
        place.write_bytes(data)
        is_artifact(place)
        saved.read(place, codec)

    return Format("nw", make, read)


def report() -> Format:
    """Reports of ``nestwright replay pack``."""
    rng = np.random.default_rng(0)
    given, scratch = [rng.random((16, 64), np.float32)], _scratch(".zip")
    place = scratch()
    text = (ROOT / "examples" / "softmax.hlo").read_text()
    archive.write(
        archive.Report(
            "m",
            text,
            "cpu",
            None,
            given,
            {0: np.ones(3, np.float32)},
            b"",
            given,
            "",
            {"a": "b"},
            {"c": "d"},
        ),
        place,
    )
    seed = place.read_bytes()

    def make(rng: Random) -> bytes:
        return _zipped(rng, seed, "manifest.json", [b"PK\x01\x02", b"\x93NUMPY"], "sha256")

    def read(data: bytes) -> None:
        place = scratch()
        place.write_bytes(data)
        archive.is_report(place)
        is_artifact(place)
        archive.read(place)

    return Format("report", make, read)


def npz() -> Format:
    """Arguments and constants in NumPy's archives."""
    seeds = []
    for save, arrays in (
        (np.savez, {"arg0": np.arange(6.0).reshape(2, 3), "arg1": np.ones(3, np.int8)}),
        (np.savez_compressed, {"arg0": np.arange(600.0).reshape(20, 30)}),
    ):
        out = io.BytesIO()
        save(out, **arrays)  # type: ignore[operator]
        seeds.append(out.getvalue())
    scratch = _scratch(".npz")
    params = nw.build(ROOT / "examples" / "softmax.hlo", cache=False).plan.params

    def make(rng: Random) -> bytes:
        data = rng.choice(seeds)
        if rng.random() < 0.5:
            return mutate(rng, data, seeds, [b"\x93NUMPY\x01\x00", b"PK\x01\x02"])
        members = unzip(data)
        name = rng.choice(list(members))
        members[name] = mutate(rng, members[name], list(members.values()), [b"'descr': '|O'"])
        names = (name, name, "../x.npy", "arg9999999999.npy", "arg².npy", "a:b")
        members[rng.choice(names)] = members.pop(name)
        return rezip(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))

    def read(data: bytes) -> None:
        place = scratch()
        place.write_bytes(data)
        read_constants(place)
        in_order(read_npz(place), params)

    return Format("npz", make, read)


def _scratch(ending: str) -> Callable[[], Path]:
    """Return a file for each process: readers run in forked children, side by side."""
    folder = tempfile.TemporaryDirectory(prefix="nestwright-fuzz-")
    _held.append(folder)
    return lambda: Path(folder.name) / f"{os.getpid()}{ending}"


_held: list[tempfile.TemporaryDirectory[str]] = []


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
