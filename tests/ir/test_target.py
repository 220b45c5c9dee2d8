"""Target specs: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from nestwright.ir.dtypes import bf16, f32, f64
from nestwright.ir.errors import TargetError
from nestwright.ir.target import Target


def test_named_processor_needs_no_such_machine() -> None:
    t = Target.parse("cpu -mcpu=znver4 -threads=3")
    assert (t.kind, t.cpu, t.vector_bits, t.registers, t.threads) == ("cpu", "znver4", 512, 32, 3)
    assert (t.lanes(f32), t.lanes(f64), t.lanes(bf16)) == (16, 8, 32)


def test_other_architecture() -> None:
    t = Target.parse("llvm -mtriple=arm64-linux-gnu -mcpu=neoverse-v1")
    assert t.triple == "aarch64-linux-gnu"
    assert (t.machine, t.vector_bits, t.registers) == ("aarch64", 128, 32)


def test_gpu_by_name() -> None:
    t = Target.parse("cuda -arch=sm_90a")
    assert (t.kind, t.cpu, t.is_host) == ("cuda", "sm_90a", False)


def test_a_feature_taken_away_takes_those_that_build_on_it() -> None:
    t = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -mattr=-avx512f")
    assert t.vector_bits == 256
    assert not any(f.startswith("avx512") for f in t.features)


def test_host_is_this_machine() -> None:
    t = Target.parse("cpu")
    assert t.is_host
    assert t.features
    assert Target.parse(t.spec) == t
    assert Target.parse(t) is t


def test_key_does_not_depend_on_threads() -> None:
    a, b = (Target.parse(f"cpu -mcpu=x86-64 -mtriple=x86_64-linux-gnu -threads={n}") for n in "12")
    assert a.key == b.key
    assert a.key != Target.parse("cpu -mcpu=haswell -mtriple=x86_64-linux-gnu").key


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTWRIGHT_NUM_THREADS", "7")
    assert Target.parse("cpu").threads == 7
    monkeypatch.setenv("NESTWRIGHT_NUM_THREADS", "many")
    with pytest.raises(TargetError, match="NESTWRIGHT_NUM_THREADS='many'"):
        Target.parse("cpu")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "starts with cpu, llvm or cuda"),
        ("cpuu", "did you mean 'cpu'"),
        ("cpu -mcpu=znver9", "did you mean 'znver"),
        ("cpu -mcp=znver4", "did you mean 'mcpu'"),
        ("cpu -mcpu=", "has no value"),
        ("cpu -mcpu=x86-64 -mcpu=x86-64", "stands twice"),
        ("llvm -mtriple=sparc-sun-solaris", "unknown architecture 'sparc'"),
        ("llvm -mtriple=x86_64", "is no triple"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=avx2", "bad feature 'avx2'"),
        ("cuda", "without an architecture"),
        ("cuda -arch=sm_91", "did you mean 'sm_90"),
        ("cpu " + "x" * 600, "604 characters"),
        ("cpu -threads=0", "whole number"),
    ],
)
def test_refused(spec: str, message: str) -> None:
    with pytest.raises(TargetError, match=message.replace("(", r"\(")):
        Target.parse(spec)
