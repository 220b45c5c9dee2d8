"""Archives as formats from outside: built models, reports of a replay, arrays of NumPy."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

import numpy as np

import nestwright as nw
from nestwright.cli.inputs.arrays import in_order, read_constants, read_npz
from nestwright.codegen.driver.artifact import is_artifact
from nestwright.codegen.plan.saved import manifest as facts
from nestwright.codegen.plan.saved import read as saved
from nestwright.codegen.replay import archive
from nestwright.codegen.targets.registry import codec

from .inputs import ROOT, Format, file_of_process
from .mutate import dump, edit_json, mutate, rezip, unzip

Manifest: TypeAlias = Mapping[str, Any]


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
    scratch = file_of_process(".nw")
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
    given, scratch = [rng.random((16, 64), np.float32)], file_of_process(".zip")
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
    scratch = file_of_process(".npz")
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
