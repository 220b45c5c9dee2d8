"""Mutated built models, reports and .npz files: read, or refused with an error of ours.

``NESTWRIGHT_MUTANTS`` says how many of each format (600), ``NESTWRIGHT_SEED`` which ones.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fuzz.mutate import ODD

import nestwright as nw
from nestwright.cli.inputs.arrays import read_constants
from nestwright.codegen.driver.artifact import is_artifact, load
from nestwright.codegen.plan.saved.manifest import sums
from nestwright.codegen.replay import archive as reports
from nestwright.ir.errors import ArgumentError, ArtifactError, NestwrightError

MUTANTS = int(os.environ.get("NESTWRIGHT_MUTANTS", "600"))
SEED = int(os.environ.get("NESTWRIGHT_SEED", "0"))
MODEL = """HloModule loop
body { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  y = f32[8] tanh(x)
  ROOT t = (s32[], f32[8]) tuple(j, y) }
cond { s = (s32[], f32[8]) parameter(0)  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[8] parameter(0)  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(t), condition=cond, body=body
  ROOT y = f32[8] get-tuple-element(w), index=1 }
"""
VALUES: tuple[Any, ...] = (*ODD, "\ud800")
WORDS = (
    0,
    1,
    1 << 20,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
    1 << 40,
    1 << 63,
    (1 << 64) - 1,
)
HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
    "{'descr': '<f4'",
    "(" * 5000,
    "{'shape': " + "[" * 5000,
    "{" + "1," * 5000,
    "{'a': b'\\x00'}",
    "{'descr': '<f4', 'fortran_order': __import__('os'), 'shape': ()}",
    "",
)


def bytes_changed(r: Random, data: bytes, pool: list[bytes]) -> bytes:
    """Bits, bytes, runs and words of some bytes changed, left out, doubled or taken from others."""
    d = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 3, 6))):
        at, run = r.randrange(len(d) or 1), r.choice((1, 2, 4, 8, 32, 128))
        match r.randrange(7):
            case 0 if d:
                d[at] ^= 1 << r.randrange(8)
            case 1:
                d[at : at + 1] = bytes([r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))])
            case 2:
                del d[at : at + run]
            case 3:
                d[at:at] = d[at : at + run] * r.choice((1, 2, 100))
            case 4:
                other = r.choice(pool)
                d[at : at + run] = other[r.randrange(len(other) or 1) :][: r.choice((run, 4 * run))]
            case 5:
                word = struct.pack("<Q", r.choice(WORDS))[: r.choice((2, 4, 8))]
                d[at : at + len(word)] = word
            case _:
                del d[at:]
    return bytes(d[: 1 << 17])


def json_changed(r: Random, value: Any) -> Any:
    """One place of a JSON value replaced, dropped, doubled, moved by one, or taken from another."""
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []

    def walk(x: Any) -> None:
        for key in x if isinstance(x, dict) else range(len(x)):
            places.append((x, key))
            if isinstance(x[key], dict | list):
                walk(x[key])

    walk(value)
    for _ in range(r.choice((1, 1, 2, 3))):
        holder, key = r.choice(places)
        if isinstance(holder, list) and key >= len(holder):
            continue
        now = holder.get(key) if isinstance(holder, dict) else holder[key]
        match r.randrange(6):
            case 0 | 1:
                holder[key] = r.choice(VALUES)
            case 2:
                holder.pop(key, None) if isinstance(holder, dict) else holder.pop(key)
            case 3 if type(now) is int:
                holder[key] = now + r.choice((-1, 1, 8, 64, -64, 1 << 20))
            case 4 if isinstance(holder, list):
                holder.insert(key, json.loads(json.dumps(now)))
            case _:
                other, k = r.choice(places)
                if k in other if isinstance(other, dict) else k < len(other):
                    holder[key] = json.loads(json.dumps(other[k]))
    return value


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(r: Random, members: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data, compress_type=r.choice((0, 0, 0, 8)))
    return whole.getvalue()


def sealed(members: dict[str, bytes], manifest: Any) -> dict[str, bytes]:
    """The members with a manifest whose digests fit: what an editor who knows them would write."""
    if isinstance(manifest, dict):
        rest = {n: d for n, d in members.items() if n != "manifest.json"}
        manifest["sha256"] = {n: sha256(d).hexdigest() for n, d in rest.items()}
        if "constants" in rest:
            manifest["sums"] = sums(np.frombuffer(rest["constants"], np.uint8))
        plain = {k: v for k, v in manifest.items() if k != "digest"}
        manifest["digest"] = sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return members | {"manifest.json": json.dumps(manifest).encode()}


def container_changed(r: Random, data: bytes) -> bytes:
    """A built model or report: bytes of the file, or what a member holds, digests made to fit."""
    if r.random() < 0.4:
        return bytes_changed(r, data, [data])
    members = members_of(data)
    manifest: Any = json.loads(members["manifest.json"])
    name = r.choice([*members, "manifest.json", "manifest.json"])
    if name == "manifest.json":
        manifest = json_changed(r, manifest)
    elif name.endswith(".json"):
        members[name] = json.dumps(json_changed(r, json.loads(members[name]))).encode()
    elif name.endswith(".npz"):
        members[name] = npz_changed(r, members[name])
    elif not name.endswith(".o"):  # code that was changed and sealed again is another program
        members[name] = bytes_changed(r, members[name], list(members.values()))
    found = packed(r, sealed(members, manifest))
    return bytes_changed(r, found, [data]) if r.random() < 0.1 else found


def npz_changed(r: Random, data: bytes) -> bytes:
    if r.random() < 0.4:
        return bytes_changed(r, data, [data])
    members = members_of(data)
    name = r.choice(list(members))
    if r.random() < 0.5:
        head = r.choice(HEADERS).encode() + b"\n"
        version = r.choice((1, 1, 1, 2, 3, 4))
        length = struct.pack("<H" if version == 1 else "<L", len(head))
        members[name] = b"\x93NUMPY" + bytes((version, 0)) + length + head + bytes(12)
    else:
        members[name] = bytes_changed(r, members[name], list(members.values()))
    names = (None, None, "../x.npy", "arg99999999999.npy", "arg\u00b2.npy", "a:b", "")
    return packed(r, {r.choice(names) or n: d for n, d in members.items()})


def run_model(path: Path) -> None:
    is_artifact(path)
    exe = load(path)
    if exe.as_text("plan"):
        exe(*exe.random_arguments(0))


def read_report(path: Path) -> None:
    reports.is_report(path)
    reports.read(path)


def originals(tmp_path: Path, kind: str) -> bytes:
    rng = np.random.default_rng(0)
    x = rng.random((4, 8), np.float32)
    match kind:
        case "model":
            nw.build(nw.parse(MODEL), cache=False).save(tmp_path / "a")
        case "report":
            found = reports.Report("m", MODEL, "cpu", None, [x], {0: x, "w": x}, b"{}\n", [x])
            reports.write(found, tmp_path / "a")
        case _:
            np.savez_compressed(tmp_path / "a.npz", arg0=x, arg1=np.ones(3, np.int8))
            (tmp_path / "a.npz").rename(tmp_path / "a")
    return (tmp_path / "a").read_bytes()


@pytest.mark.parametrize(
    ("kind", "change", "use"),
    [
        ("model", container_changed, run_model),
        ("report", container_changed, read_report),
        ("npz", npz_changed, read_constants),
    ],
)
def test_mutants_are_read_or_refused(
    kind: str,
    change: Callable[[Random, bytes], bytes],
    use: Callable[[Path], object],
    tmp_path: Path,
) -> None:
    data = originals(tmp_path, kind)
    place = tmp_path / "mutant"
    refused = 0
    for number in range(MUTANTS):
        mutant = change(Random(f"{kind} {SEED} {number}"), data)
        place.write_bytes(mutant)
        try:
            use(place)
        except NestwrightError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"mutant {number} of seed {SEED}: {error!r}") from error
    assert refused > MUTANTS // 4


# ---- directed edits -------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> bytes:
    return originals(tmp_path, "model")


def edited(
    data: bytes,
    tmp_path: Path,
    plan: Callable[[Any], None] | None = None,
    manifest: Callable[[Any], None] | None = None,
) -> Path:
    """A model with another plan or manifest, and digests that fit."""
    members = members_of(data)
    values = {n: json.loads(members[n]) for n in ("plan.json", "manifest.json")}
    if plan is not None:
        plan(values["plan.json"])
        members["plan.json"] = json.dumps(values["plan.json"], sort_keys=True).encode()
    if manifest is not None:
        manifest(values["manifest.json"])
    (tmp_path / "b").write_bytes(packed(Random(0), sealed(members, values["manifest.json"])))
    return tmp_path / "b"


def shrunk(plan: Any) -> None:
    """Every array has one element, every slice of 32 bytes has 4."""

    def one(thunk: Any) -> None:
        for name in ("condition", "body"):
            for inner in thunk.get(name, ()):
                one(inner)
        for s in (*thunk.get("args", ()), *(thunk[n] for n in ("source", "target") if n in thunk)):
            s[2] = min(s[2], 4)

    for spec in (*plan["params"], *plan["results"]):
        spec[2] = [1]
    for thunk in plan["thunks"]:
        one(thunk)


def test_a_plan_that_gives_kernels_less_than_they_take_is_refused(
    saved: bytes, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"takes \(.*32.*\) bytes, the plan gives"):
        load(edited(saved, tmp_path, shrunk))


def test_a_plan_and_sizes_changed_together_do_not_fit_the_program(
    saved: bytes, tmp_path: Path
) -> None:
    def smaller(manifest: Any) -> None:
        for sizes in manifest["variants"][0]["buffers"].values():
            sizes[:] = [min(n, 4) for n in sizes]

    with pytest.raises(ArtifactError, match="made for another plan"):
        load(edited(saved, tmp_path, shrunk, smaller))


def test_a_plan_whose_slices_moved_is_refused(saved: bytes, tmp_path: Path) -> None:
    def roomier(plan: Any) -> None:
        plan["arena_bytes"] += 64

    with pytest.raises(ArtifactError, match="made for another plan"):
        load(edited(saved, tmp_path, roomier))


def test_a_program_without_the_seal_is_refused(saved: bytes, tmp_path: Path) -> None:
    """The manifest fits the plan; it is the program that was made for another."""
    members = members_of(saved)
    manifest = json.loads(members["manifest.json"])
    mark = bytes.fromhex(manifest["variants"][0]["seal"])
    assert members["program.o"].count(mark) == 1
    members["program.o"] = members["program.o"].replace(mark, bytes(len(mark)))
    (tmp_path / "b").write_bytes(packed(Random(0), sealed(members, manifest)))
    with pytest.raises(ArtifactError, match="made for another plan"):
        load(tmp_path / "b")


def test_a_member_that_the_manifest_does_not_name_is_refused(saved: bytes, tmp_path: Path) -> None:
    more = members_of(saved) | {"kernels/more.o": b""}
    (tmp_path / "b").write_bytes(packed(Random(0), more))
    with pytest.raises(ArtifactError, match=r"does not know kernels/more\.o"):
        load(tmp_path / "b")


OF_A_VARIANT = {"buffers", "costs", "record", "target"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("costs", {"a": {}}),
        ("notes", "x"),
        ("notes", {"a": 1}),
        ("name", "\ud800"),
        ("key", None),
        ("buffers", {}),
        ("sha256", []),
        ("target", 3),
        ("costs", None),
        ("record", {}),
        ("record", {"triple": "x"}),
        ("record", dict.fromkeys(("triple", "cpu", "attributes", "features"), "\ud800")),
        ("variants", []),
        ("variants", [3]),
    ],
)
def test_a_manifest_of_other_types_is_refused(
    saved: bytes, tmp_path: Path, name: str, value: object
) -> None:
    def change(manifest: Any) -> None:
        (manifest["variants"][0] if name in OF_A_VARIANT else manifest)[name] = value

    place = edited(saved, tmp_path, manifest=change)
    if name == "sha256":  # `edited` makes it fit
        members = members_of(place.read_bytes())
        text = json.loads(members["manifest.json"]) | {"sha256": value}
        place.write_bytes(packed(Random(0), members | {"manifest.json": json.dumps(text).encode()}))
    with pytest.raises(NestwrightError):
        load(place)


def test_an_archive_that_unpacks_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("arg0.npy", bytes(1 << 20), compress_type=zipfile.ZIP_DEFLATED)
    data = whole.getvalue().replace(struct.pack("<L", 1 << 20), struct.pack("<L", 1 << 10))
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ArgumentError, match="does not match its size"):
        read_constants(tmp_path / "a.npz")


def test_an_archive_larger_than_the_memory_is_refused_unread(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("arg0.npy", bytes(1 << 20), compress_type=zipfile.ZIP_DEFLATED)
    data = whole.getvalue().replace(struct.pack("<L", 1 << 20), struct.pack("<L", 0xFFFFFFF0))
    (tmp_path / "a.npz").write_bytes(data * 1)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    why = "unpacks to" if pages < 0xFFFFFFF0 else "does not match its size"
    with pytest.raises(ArgumentError, match=why):
        read_constants(tmp_path / "a.npz")
