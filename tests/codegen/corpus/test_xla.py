"""Modules out of XLA's own repositories: a sample is run, all others are compiled or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import UnsupportedError, VerifyError
from nestwright.ir.hlo.passes.pipeline import optimize

FOLDER = Path(__file__).parents[3].parent / "shared" / "corpus" / "xla_hlo"
SMALL = 30_000  # bytes of a text
EVERY = 6  # which of the modules that run is run here

IMPORT = "hlo__translate__hlo_to_mhlo__tests__import_emit_stablehlo"
NOT_OURS = {
    f"{IMPORT}__42": "an unstable sort, whose order of equals is XLA's alone",
    f"{IMPORT}__82": "XLA overwrites its own arguments there, and the stored result is wrong",
    "backends__gpu__tests__reduce_fold_zero_add": (
        "XLA rounds every partial sum to f16, sums here are kept in f32"
    ),
}

SMALL_ONES = [p for p in sorted(FOLDER.glob("*.hlo")) if p.stat().st_size < SMALL]
RUN = [p for p in SMALL_ONES if p.with_suffix(".json").exists() and p.stem not in NOT_OURS]
REST = [p for p in SMALL_ONES if not p.with_suffix(".json").exists()]

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not SMALL_ONES, reason="the corpus is not beside this checkout"),
]


def leaves(value: Any) -> list[np.ndarray]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("path", RUN[::EVERY] or [Path("none")], ids=lambda p: p.stem)
def test_a_module_gives_its_stored_results(path: Path, tools: Any) -> None:
    reference, make_inputs = tools("reference"), tools("make_inputs")
    spec = json.loads(path.with_suffix(".json").read_text())
    results = leaves(nw.build(path)(*make_inputs.make_inputs(spec)))
    with np.load(path.with_suffix(".expected.npz")) as stored:
        expected = dict(stored)
    assert not reference.compare(expected, reference.summarize(results), spec["tolerance"])


def test_all_others_are_compiled_or_refused_as_a_whole() -> None:
    """What is refused names every instruction; what hangs together wrongly is not HLO."""
    refused: dict[str, UnsupportedError] = {}
    malformed: list[str] = []
    for path in REST:
        try:
            optimize(nw.parse(path.read_text(), path.name))
        except UnsupportedError as error:
            refused[path.stem] = error
        except VerifyError:
            malformed.append(path.stem)
    assert all(e.findings and all(f.reason for f in e.findings) for e in refused.values())
    assert len(malformed) < len(refused) < len(REST)
    opcodes = {f.opcode for e in refused.values() for f in e.findings}
    assert {"infeed", "outfeed", "send", "recv", "ragged-all-to-all", "custom-call"} <= opcodes
